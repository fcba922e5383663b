"""What a party's page shows: the terms that are offered, the public set, and what the ledger has.

No vote, no record and no number of records is in it, and no line of the screen, which may name a cell.
"""

from __future__ import annotations

import base64
import hmac
import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from party.ledger.words import campaign_in_words
from party.policy.operator import rules_in_words
from party.voting.ending import leaving_in_words
from pate.codes import code_of
from pate.data.values import Images, Table
from pate.formats.enrolment import readable
from pate.page.serving import TokenPage, page_app
from pate.printable import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from party.ledger.ledger import PartyLedger
    from party.monitoring import Standing, Status
    from party.policy.operator import Operator, Question
    from party.policy.policy import Policy
    from pate.campaign.announced import Announced
    from pate.campaign.offer import Offer
    from pate.data.values import Inputs
    from pate.listening.http_server import App
    from pate.runtime.screen import Screen

#: Of the public set that are shown; columns of a table, and characters of a cell or a name.
_INPUTS: Final = 6
_COLUMNS: Final = 12
_CELL: Final = 40
#: Most pixels of a side of a thumbnail.
_SIDE: Final = 96
_CLASSES: Final = 40
_SCHEMA: Final = 300

_DOING: Final = {
    "reading": "This party waits for its server, or reads its data.",
    "training": "Teachers are being trained.",
    "connecting": "This party connects to its server.",
    "connected": "This party is connected, and answers what its policy allows.",
    "away": "The server does not answer at present. This party waits.",
    "ended": "The campaign has ended.",
}


class View:
    """What the page shows, as JSON; the same text until something changes."""

    def __init__(
        self,
        *,
        name: str,
        server: str,
        pinned: bytes | None,  # the campaign key of the enrolment
        policy: Policy,
        ledger: PartyLedger,
        status: Status,
        operator: Operator,
    ) -> None:
        self._name, self._server, self._pinned = name, server, pinned
        self._policy, self._ledger = policy, ledger
        self._status, self._operator = status, operator
        #: Returns the public set of a campaign if it is in memory.
        self.public: Callable[[Announced], Inputs | None] = lambda _: None
        self._over = False
        #: The campaign to show, and the text that was made last, each with what it depends on.
        self._current: tuple[object, Offer | None] = ((), None)
        self._made: tuple[object, str] = ((), "")

    def over(self) -> None:
        """Show that this party ends."""
        self._over = True

    def __call__(self) -> str:
        """Return the JSON text."""
        # Read once: the terms that are shown are those of the question that an answer names.
        standing, asked, head = self._status.standing, self._operator.asked, self._ledger.head
        current = self._current
        if current[0] != (asked, head):
            current = self._current = (asked, head), self._offer(asked)
        offer = current[1]
        inputs = None if offer is None else self.public(offer.announced)
        key = (standing, asked, head, inputs is None, self._over)
        made = self._made
        if made[0] != key:
            text = json.dumps(self._make(offer, inputs, standing, asked), allow_nan=False)
            made = self._made = key, text
        return made[1]

    def _offer(self, asked: Question | None) -> Offer | None:
        """Return the campaign that is asked about, else the last one of the ledger."""
        if asked is not None:
            return asked[0]
        last = max(self._ledger.campaigns(), key=lambda each: each.last, default=None)
        return None if last is None else last.offer

    def _make(
        self, offer: Offer | None, inputs: Inputs | None, standing: Standing, asked: Question | None
    ) -> dict[str, Any]:
        waits = asked is not None and asked[1] is None
        refused = asked is not None and asked[1] is False
        delta, limit = self._policy.divided_delta, self._policy.largest_epsilon
        doing = _DOING[standing.state]
        record = None if offer is None else self._ledger.find(offer.campaign)
        if record is not None and record.queries:
            asked_in_words = code_of(record.offer.announced.code).asked_in_words
            doing += f" Votes on {asked_in_words(record.queries)} have left for this campaign."
        if refused:
            doing = "You refused this campaign: no vote leaves for it, and this party ends."
        elif self._over and standing.state != "ended":
            doing = "This party has ended before its campaign. Its screen says why."
        return {
            "party": self._name,
            "server": self._server,
            "state": "asked" if waits else "refused" if refused else standing.state,
            "over": self._over,
            "doing": doing,
            "asked": asked[0].digest.hex() if asked is not None and waits else "",
            "teachers": [standing.trained, standing.teachers],
            "campaign": "" if offer is None else offer.campaign,
            "terms": [] if offer is None else self._terms(offer),
            "inputs": None if inputs is None else first_inputs(inputs),
            "rules": rules_in_words(self._policy),
            "left": [
                [line.strip() for line in campaign_in_words(each, delta, counts=False)]
                for each in reversed(self._ledger.campaigns())
            ],
            "rows": len(self._ledger.syntheses()),
            "life": self._ledger.cumulative_epsilon(delta).in_words,
            "limit": None if limit is None else self._policy.bound.in_words,
        }

    def _terms(self, offer: Offer) -> list[tuple[str, str]]:
        """Return what is asked, and of what is to leave, term by term."""
        announced = offer.announced
        classes = announced.classes
        names = "those of the parties' data" if classes is None else _listed(classes)
        code = code_of(announced.code)
        rounds = f", in {announced.rounds} rounds" if announced.rounds > 1 else ""
        if announced.in_rounds:
            rounds = f", in {code.rounds_in_words(announced.rounds)}"
        asked, leaves = f"on {announced.queries:,} queries", leaving_in_words(announced)
        if code.in_directions:
            asked = f"in {code.places:,} directions"
        who = "our records vote" if announced.records_vote else "our teachers vote"
        return [
            ("Who asks", f"{self._server}; {self._enrolled(offer)}"),
            ("Signed by the key", readable(offer.key)),
            ("What is asked", f"{announced.aggregator}: {who}{rounds}"),
            ("Public inputs", f"{announced.queries:,}: {printable(announced.schema, _SCHEMA)}"),
            ("Classes", names),
            ("What leaves, at most", f"votes {asked}{rounds}; {leaves}"),
            ("What it costs, at most", announced.cost_in_words),
            ("Towards the server", _towards_server(announced)),
        ]

    def _enrolled(self, offer: Offer) -> str:
        if self._pinned is None:
            return "this party is not enrolled, so nothing says who that is"
        if hmac.compare_digest(self._pinned, offer.key):
            return "this party is enrolled there, with this key"
        return "another key than that of this party's enrolment"


def _towards_server(announced: Announced) -> str:
    if announced.sums.distributed:
        return "it sees sums of all parties' votes with the noise of the parties in them"
    seen = "exact sums of all parties' votes" if announced.sums.masked else "our votes as they are"
    return f"it sees {seen}: the epsilon above does not hold against it"


def _listed(names: tuple[str, ...]) -> str:
    shown = ", ".join(printable(each, _CELL) for each in names[:_CLASSES])
    return shown if len(names) <= _CLASSES else f"{shown}, … ({len(names)} in all)"


def first_inputs(inputs: Inputs) -> dict[str, Any]:
    """Return the first inputs of a public set: rows of a table, pixels of images, else a line."""
    some = inputs.take(range(min(_INPUTS, len(inputs))))
    made: dict[str, Any] = {"all": len(inputs), "kind": "other"}
    if isinstance(some, Table):
        columns = [list(map(_cell, each)) for each in some.columns[:_COLUMNS]]
        return made | {
            "kind": "table",
            "names": [printable(each, _CELL) for each in some.names[:_COLUMNS]],
            "rows": list(zip(*columns, strict=True)),
            "unlisted": max(0, len(some.names) - _COLUMNS),
        }
    if isinstance(some, Images):
        step = -(-max(some.size[:2]) // _SIDE)
        small = some.pixels[:, ::step, ::step]
        pixels = [base64.b64encode(np.ascontiguousarray(each).tobytes()).decode() for each in small]
        return made | {"kind": "images", "shape": small.shape[1:], "pixels": pixels}
    return made | {"text": printable(some.schema(), _SCHEMA)}


def _cell(value: object) -> str:
    return printable(f"{value:g}" if isinstance(value, float) else str(value), _CELL)


#: Path of an answer to the question whether to join.
ANSWER: Final = "/api/answer"
_FILES: Final = dict.fromkeys(("page.html", "party.js"), "party")


class PartyPage(TokenPage):
    """A party's page on loopback; use it as a context manager."""

    default_port = 9096
    without = "leave out --page"
    what = "the party"

    def __init__(
        self,
        view: View,
        operator: Operator,
        home: Path,
        port: int | None = None,
        say: Callable[[str, str], None] = lambda _, __: None,
    ) -> None:
        """Take the port. Nothing is served before :meth:`start`."""
        super().__init__(home, port=port, say=say)
        self._view, self._operator = view, operator

    def make_app(self, **access: Any) -> App:
        """Return the application: what all pages have, and an answer by POST."""
        from fastapi import Response

        app = page_app(
            self._view,
            _FILES,
            following=set(),
            failed="the page failed; the party goes on",
            program="pate-party",
            posts=(ANSWER,),
            **access,
        )

        @app.post(ANSWER)
        def answer(to: str, says: Literal["allow", "refuse"]) -> Response:
            # Of the offer that was shown: another one is another question.
            taken = self._operator.answer(to, says == "allow")
            return Response(status_code=204 if taken else 409)

        return app


@contextmanager
def shown(
    view: View, operator: Operator, home: Path, port: int | None, screen: Screen
) -> Iterator[None]:
    """Show a party while the block runs; browsers that follow see that it ends."""
    with PartyPage(view, operator, home, port, screen.say) as page:
        page.tell(screen)
        try:
            yield
        finally:
            view.over()
