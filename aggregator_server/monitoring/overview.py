"""The public view of a campaign: a frozen value from which page and metrics are rendered.

It contains only public facts and liveness. Nothing else that depends on votes than the released
labels has a field: no histogram, margin, data-dependent epsilon or number of records.
"""

from __future__ import annotations

import base64
import json
from collections import deque
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from pate.foreign import json_value
from pate.page import static

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pate.planning.forecast import Forecast
    from pate.storage.hash_chain import Entry

#: The phases of a campaign in their order; ``predicting`` comes between rounds of labels.
PHASES = ("gathering", "voting", "labelling", "predicting", "finished")


@dataclass(frozen=True)
class PartyRow:
    """One party of the roster; before the roster is fixed, a connected or expected party."""

    name: str  # chosen by the party. Untrusted text
    connected: bool
    doing: str
    trouble: bool  # whether it needs attention: it refused, failed, or is awaited and disconnected
    done: int  # number of queries whose sum includes its votes
    total: int  # number of queries that parties vote on; 0 while unknown
    # whether it has no connection: it is ``connected`` once it has described itself
    by_envelope: bool = False


@dataclass(frozen=True)
class EnvelopeRow:
    """The last envelope for a party. Times are UTC, ISO 8601."""

    party: str  # name of the recipient. Untrusted text
    number: int
    asks: str  # what its last request asks for, in words
    made: str
    until: str  # when the party stops answering it; empty: never
    answered: str  # when its answer was looked at; empty: there was none
    state: str  # see :attr:`aggregator_server.exchange.presence.Out.state`


@dataclass(frozen=True)
class Queries:
    """Progress of the queries."""

    public_set: int
    voted_on: int  # number of its queries that parties vote on; 0 before the roster
    votes_in: int  # number of queries with summed votes
    asked: int  # answered so far, by a label or by no answer; twice if asked in two rounds
    labels: int
    # whether queries get labels; else noisy counts of them are released, and no label
    labelled: bool = True
    # number of directions of a round, where votes are counted in directions and at no query; else 0
    directions: int = 0


@dataclass(frozen=True)
class Budget:
    """The guarantee and the charged part of it. All fields are independent of votes."""

    epsilon: float  # the guarantee, at the cap; fixed with the roster
    delta: float
    unit: str
    adjacency: str  # the neighbouring relation, in a few words
    observer: str
    spent: float
    left: float
    # the charges so far, converted at ``delta``. Not the guarantee, which is ``epsilon`` even if
    # the campaign stops early
    epsilon_charged: float
    epsilon_server: float | None  # the same guarantee towards the server; None without one
    composition: str


@dataclass(frozen=True)
class ClassLabels:
    """Number of labels of one class. The name is untrusted text."""

    name: str
    labels: int


@dataclass(frozen=True)
class CurvePoint:
    """The charged epsilon at a number of released labels."""

    labels: int
    epsilon: float  # the charges by then, converted at the campaign's delta


@dataclass(frozen=True)
class StudentRound:
    """Public figures of the student's predictions for a round."""

    round: int
    received: bool
    # share of the labels released in earlier rounds that it predicts identically; None without
    # predictions or labels
    agreement: float | None
    accuracy: float | None  # on labelled inputs of its own, as stated by the student, or None


@dataclass(frozen=True)
class LedgerLine:
    """One ledger entry, or consecutive ones of the same meaning."""

    number: int
    kind: str
    words: str
    time: str  # when the last was written, UTC
    first: int


@dataclass(frozen=True)
class LogLine:
    """One line of the server's log: time (UTC), level, text, part of which may be untrusted."""

    time: str
    level: str
    text: str


@dataclass(frozen=True)
class Check:
    """One health check."""

    # stable; one of doors, link (transport to the parties), ledger, student, certificates, noise,
    # interrupted
    name: str
    ok: bool
    text: str


@dataclass(frozen=True)
class Command:
    """A command to copy: ``who`` is to type it, or what it is for, in words."""

    who: str
    line: str


@dataclass(frozen=True)
class Overview:
    """A snapshot of a campaign."""

    campaign: str
    id: str
    mechanism: str
    mechanism_words: str  # mechanism with its parameters; empty before the roster
    aggregation: str  # ``plain`` or ``masked``
    noise: str  # ``central`` or ``distributed``
    publish: str  # ``capped`` or ``gated``
    # of a gated batch, ``open`` or ``closed``; None otherwise, and before it was tried
    gate: str | None
    phase: str
    # why this run of the server ended early, in words; empty while it runs, and at its end
    failed: str
    phases: tuple[str, ...]
    round: int
    rounds: int
    wanted: int  # number of parties that the campaign waits for
    min_parties: int
    teachers: int  # of the whole roster; 0 before it, and for neighbour votes
    parties: tuple[PartyRow, ...]  # the first of them; see ``parties_unlisted``
    parties_unlisted: int  # further parties that are not in ``parties``
    connected: int  # number of connected parties, listed or not
    by_envelope: int  # number of those parties, listed or not, that have no connection
    # the last one for each of the first of them; those without answer come first
    envelopes: tuple[EnvelopeRow, ...]
    step: str  # the current request to parties, in words; empty if none
    queries: Queries
    # by class, in the order of the classes; empty before the roster
    labels: tuple[ClassLabels, ...]
    promise: str  # the guarantee at most, in words, known from the start
    # what to expect; None once all labels are released, or if it cannot be known
    expected: Forecast | None
    commands: tuple[Command, ...]
    budget: Budget | None
    curve: tuple[CurvePoint, ...]  # from zero to now, subsampled; empty before the roster
    student: tuple[StudentRound, ...]  # one value per round with predictions requested
    ledger: tuple[LedgerLine, ...]
    ledger_entries: int
    log: tuple[LogLine, ...]
    checks: tuple[Check, ...]
    ready: bool  # whether parties and students can connect
    began: str  # start of this process's run, UTC, ISO 8601
    made: str  # time of this snapshot, UTC, ISO 8601

    def to_json(self) -> dict[str, object]:
        """Return it as a JSON object with the same fields."""
        made = asdict(self)
        if self.expected is not None:  # what else it has is for other screens
            made["expected"] = {name: made["expected"][name] for name in ("text", "few", "advice")}
        return made

    def to_html(self) -> bytes:
        """Return the page with this overview inside, as one HTML file that needs no server."""
        told = json.dumps(self.to_json(), allow_nan=False).replace("<", "\\u003c")
        icon = f"data:image/svg+xml;base64,{base64.b64encode(static('page.svg')).decode()}"
        text = _own("page.html")
        data = f'<script type="application/json" id="last">{told}</script>'
        for link, inside in (
            (
                '<link rel="stylesheet" href="/page.css">',
                f"<style>{static('page.css').decode()}</style>",
            ),
            (
                '<script src="/page.js"></script>',
                f"{data}<script>{static('page.js').decode()}</script>",
            ),
            ('<script src="/campaign.js"></script>', f"<script>{_own('campaign.js')}</script>"),
            ("/page.svg", icon),
        ):
            text = text.replace(link, inside)
        return text.encode()


#: The page's own files, with their package.
FILES: Final = dict.fromkeys(("page.html", "campaign.js"), "aggregator_server.monitoring")


def _own(name: str) -> str:
    return static(name, FILES[name]).decode()


#: Number of rows of entries on the page.
TAIL: Final = 12
#: Most points of the curve, more than a screen can resolve.
POINTS: Final = 96

#: A description of each kind of entry, without its content: votes are only committed to.
_WORDS: Final = {
    "open": "the campaign was opened",
    "roster": "parties, classes, mechanism and budget were fixed",
    "opening": "whose votes are in the next masked sum was recorded",
    "charge": "the worst cost of the next answers was charged",
    "round-end": "a round ended",
    "predictions": "the student's predictions were stored",
    "close": "the campaign was closed",
}
#: Kinds of entries that alternate: the page shows consecutive pairs of them as one row.
_PAIRS: Final = {
    "release": ("charge", "answers were charged, then released"),
    "votes": ("opening", "summed votes were stored"),
}


class History:
    """Costs over labels, and the last entries."""

    def __init__(self, *, to_the_minute: bool) -> None:
        """Start before the first entry.

        ``to_the_minute``: whether times are rounded down to the minute, which is required where the
        duration of a step may depend on votes.
        """
        self.entries = self._labels = 0
        self._to_the_minute = to_the_minute
        self._spent = Fraction(0)
        self._charged = Fraction(0)
        self._points: list[tuple[int, Fraction]] = [(0, Fraction(0))]
        self._every = 1
        self._releases = 0
        self._tail: deque[LedgerLine] = deque(maxlen=TAIL)

    def take(self, entries: Iterable[Entry]) -> None:
        """Process the entries after the last processed one."""
        for entry in entries:
            self.entries = entry.seq
            when = short_time(entry.written_at, to_the_minute=self._to_the_minute)
            self._tell(entry.seq, entry.kind, when)
            if entry.kind in ("charge", "release"):
                self._pay(entry.kind, json_value(entry.body))

    def _tell(self, number: int, kind: str, when: str) -> None:
        """Add a row; a pair of entries shares one row with the pairs before it."""
        first, words = number, _WORDS.get(kind, kind)
        if kind in _PAIRS:
            before, words = _PAIRS[kind]
            for joined in (before, kind):
                if self._tail and self._tail[0].kind == joined:
                    first = self._tail.popleft().first
        self._tail.appendleft(LedgerLine(number, kind, words, when, first))

    def _pay(self, kind: str, body: dict[str, object]) -> None:
        cost = Fraction(str(body["cost"]))
        if kind == "charge":
            self._spent, self._charged = self._spent + cost, cost
            return
        # Unused cost was returned with the release.
        self._spent += cost - self._charged
        answers = body["answers"]
        assert isinstance(answers, list)  # noqa: S101 - the ledger has checked its entries
        self._labels += sum(label is not None for _, label, _, _ in answers)
        self._releases += 1
        if self._releases % self._every == 0:
            self._points.append((self._labels, self._spent))
        if len(self._points) > POINTS:
            self._points, self._every = self._points[::2], 2 * self._every

    @property
    def tail(self) -> tuple[LedgerLine, ...]:
        """The last entries, the newest first."""
        return tuple(self._tail)

    @property
    def points(self) -> list[tuple[int, Fraction]]:
        """Pairs of labels released and cost charged by then, from zero to the last entry."""
        now = (self._labels, self._spent)
        return self._points if self._points[-1] == now else [*self._points, now]


def short_time(stamp: str, *, to_the_minute: bool) -> str:
    """Return an ISO 8601 time in UTC, truncated to the second or the minute.

    >>> short_time("2026-01-02T03:04:05.678+00:00", to_the_minute=True)
    '2026-01-02T03:04Z'
    """
    return stamp[: 16 if to_the_minute else 19] + "Z"
