"""A party's session in one campaign: connect, prepare by its terms, vote, leave.

Without a server it reads and trains beforehand.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Final

from party.flower.connection import Connection, Timeouts, make_client_app
from party.flower.supernode import Server, UntrustedServerError
from party.identity.enrolment import Enrolment
from party.monitoring import Status
from party.policy.operator import Operator
from party.prepared import Prepared
from party.voting.ending import ended_in_words
from party.voting.own_data import GaveUpError
from pate.data.schema import Schema
from pate.errors import SchemaError, UnreachableError
from pate.features.progress import telling
from pate.runtime.child import LOCAL_SERVER, LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from party.ledger.ledger import PartyLedger
    from party.ledger.state import Campaign
    from party.options import StartOptions
    from party.page import View
    from party.voting.ending import Ending
    from pate.data.values import Dataset
    from pate.runtime.screen import Screen

#: How long a server may take to answer before our data are read without its terms: it may have been
#: started with this party.
_SOON_S: Final = 5.0
_POLL_S: Final = 0.5
#: Seconds between looks for it while teachers are trained.
_LOOK_S: Final = 5.0


def take_part(
    options: StartOptions, name: str, home: Path, screen: Screen, status: Status | None = None
) -> Ending:
    """Take part until the campaign has ended, and return its ending."""
    status = status or Status()
    enrolment = Enrolment.load(home)
    server = options.server or (LOCAL_SERVER if enrolment is None else enrolment.server)
    place = Server(server, None if enrolment is None else enrolment.ca)
    # An enrolled party is not a trial, even if its server is reached through a local tunnel.
    trial = enrolment is None and place.host in LOOPBACK
    party = Prepared.of(options, name, home, screen, status, enrolment, trial=trial)
    ledger = party.ledger
    status.bound_by(
        ledger,
        delta=party.policy.divided_delta,
        largest_epsilon=party.policy.largest_epsilon,
        ends=None if enrolment is None else enrolment.ends,
    )
    operator = Operator.here(page=options.page, say=screen.say)
    view = None
    with contextlib.ExitStack() as held:
        if options.page:
            from party.page import View, shown

            view = View(
                name=name,
                server=place.address,
                pinned=party.pinned,
                policy=party.policy,
                ledger=ledger,
                status=status,
                operator=operator,
            )
            held.enter_context(shown(view, operator, home, options.page_port, screen))
        return _take_part(party, operator, view, place, options.max_wait, screen, status)


def _take_part(
    party: Prepared,
    operator: Operator,
    view: View | None,
    place: Server,
    most: float | None,  # seconds to wait for the server
    screen: Screen,
    status: Status,
) -> Ending:
    why = _wait_for(place, most)
    if why is not None:
        screen.say(f"{why}; until it does, this party prepares without its terms")
        with contextlib.suppress(GaveUpError):
            _read_ahead(party, place, screen)
    voter = party.voter(operator)  # its files are made only now: not for data that cannot be used
    if view is not None:
        view.public = voter.public

    def over() -> bool:
        """Whether the campaign is over; the SuperNode sends the last answer before it stops."""
        return voter.ending is not None or voter.refusal is not None

    connection = Connection(
        place,
        make_client_app(voter.handle),
        home=party.home / "flower",
        node_key=None if party.enrolment is None else party.enrolment.node_key,
        on_absence=lambda: None if over() else screen.say(of_absence(party.ledger)),
        on_event=lambda line: None if over() else screen.say(line),
        on_state=status.is_now,
        timeouts=Timeouts(server=most),
    )
    describing = screen.bar("describing inputs", percent=True, late=True)
    try:
        with describing as described, telling(described):
            connection.run(stop=over)
    except UnreachableError:
        # A server that has our last answer may stop at once.
        if not over():
            raise
    if voter.refusal is not None:
        raise voter.refusal
    if voter.ending is None:
        raise RuntimeError("the connection ended before the campaign did")
    ending = voter.ending
    status.is_now("ended")
    screen.say(ended_in_words(ending), "warning" if ending.cause else "info")
    return ending


def _wait_for(server: Server, most: float | None) -> str | None:
    """Wait a moment for a server; return why it does not answer, None if it does.

    UnreachableError if it is not trusted: before any record is read for it.
    """
    until = time.monotonic() + min(_SOON_S, _SOON_S if most is None else most)
    while (why := server.absence()) is not None and time.monotonic() < until:
        time.sleep(_POLL_S)
    return why


def _read_ahead(party: Prepared, server: Server, screen: Screen) -> None:
    """Read our data and train while there is no server; GaveUpError, after a teacher, if it answers."""
    last = max(party.ledger.campaigns(), key=lambda each: each.last, default=None)
    public = party.public
    # The next campaign probably has the schema of the last one; if not, the data are read again.
    found = party.own.ahead(
        Schema.of(public) if public is not None else _schema_of(last),
        None if last is None or public is not None else last.offer.announced.classes,
        is_guess=public is None,
        wanted=None if last is None else last.offer.announced.wanted_teachers,
        trains=last is None or not last.offer.announced.records_vote,
        stops=_answers(server),
    )
    if found is not None:
        # Without the number of records: log lines are often collected and stored.
        screen.say(f"our records are {_of_what(found)}")


def _answers(server: Server) -> Callable[[], bool]:
    """Return what says whether a server answers; it looks now and then."""
    looked = time.monotonic()

    def answers() -> bool:
        nonlocal looked
        if time.monotonic() - looked < _LOOK_S:
            return False
        looked = time.monotonic()
        try:
            return server.absence(within=1.0) is None
        except UntrustedServerError:
            return True  # the connection says why

    return answers


def _schema_of(last: Campaign | None) -> Schema | None:
    """Return the schema of the last campaign's inputs, None if it is not known."""
    if last is None:
        return None
    try:
        return Schema.parse(last.offer.announced.schema)
    except SchemaError:
        return None


def of_absence(ledger: PartyLedger) -> str:
    """Return a line about a server that has been absent for a while: it may have stopped, and not return."""
    found = ledger.campaigns()
    if not found:
        return "no campaign was joined yet: this party waits for the server; Ctrl-C is safe"
    last = max(found, key=lambda each: each.last)
    name = last.offer.campaign[:8]
    if last.ending is not None:
        return (
            f"campaign {name} has ended, according to our ledger: unless the server starts "
            "another one, there is nothing to wait for; Ctrl-C is safe"
        )
    return (
        f"campaign {name} may have ended while this party was away: ask its coordinator. Ctrl-C is "
        "safe: all answers are in our ledger (`pate-party ledger`), and the same command "
        "continues if the campaign does"
    )


def _of_what(records: Dataset) -> str:
    """Return what is known of each record, in words."""
    if records.kind == "number":
        return "with a number"
    what = "of the classes" if records.kind == "class" else "with the labels"
    return f"{what} {', '.join(records.classes)}"
