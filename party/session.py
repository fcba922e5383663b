"""A party's session in one campaign: read, shard, train, connect, vote, leave."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from party.flower.client_app import make_client_app
from party.flower.connection import Connection
from party.flower.supernode import Server
from party.identity.enrolment import Enrolment
from party.monitoring import Status
from party.prepared import Prepared
from party.voting.screen_lines import ended_in_words
from pate.data.schema import Schema
from pate.errors import SchemaError, UnreachableError
from pate.features.progress import telling
from pate.runtime.child import LOCAL_SERVER, LOOPBACK

if TYPE_CHECKING:
    from pathlib import Path

    from party.ledger.ledger import PartyLedger
    from party.ledger.records import CampaignRecord
    from party.options import StartOptions
    from party.voting.ending import Ending
    from pate.data.values import Dataset
    from pate.runtime.screen import Screen


def take_part(
    options: StartOptions, name: str, home: Path, screen: Screen, status: Status | None = None
) -> Ending:
    """Take part until the campaign has ended, and return its ending.

    Args:
        options: of the command.
        name: of this party; its enrolled name if it is enrolled.
        home: of this party.
        screen: for lines and progress.
        status: receives the state of the run, for monitoring.

    Raises:
        PateError: if the data, the settings, the server or the campaign do not allow it.
    """
    status = status or Status()
    enrolment = Enrolment.load(home)
    server = options.server or (LOCAL_SERVER if enrolment is None else enrolment.server)
    # An enrolled party is not a trial, even if its server is reached through a local tunnel.
    trial = enrolment is None and Server(server).host in LOOPBACK
    party = Prepared.of(options, name, home, screen, status, enrolment, trial=trial)
    ledger, own, public = party.ledger, party.own, party.public
    last = max(ledger.campaigns(), key=lambda each: each.last, default=None)
    # The next campaign probably has the schema of the last one; if not, the data are read again.
    found = own.ahead(
        Schema.of(public) if public is not None else _schema_of(last),
        None if last is None or public is not None else last.offer.classes,
        is_guess=public is None,
    )
    if found is not None:
        # Without the number of records: log lines are often collected and stored.
        screen.say(f"our records are {_of_what(found)}")
    if options.only_records:
        screen.say(f"our records vote; connecting to {server}")
    elif options.trained_later:
        screen.say(
            f"our records vote, or {options.teachers} teachers, trained once a campaign asks for them; "
            f"connecting to {server}"
        )
    elif found is not None:
        screen.say(f"{options.teachers} teachers are ready; connecting to {server}")
    status.bound_by(
        ledger,
        delta=party.policy.divided_delta,
        largest_epsilon=party.policy.largest_epsilon,
        ends=None if enrolment is None else enrolment.ends,
    )
    voter = party.voter()

    def over() -> bool:
        """Whether the campaign is over; the SuperNode sends the last answer before it stops."""
        return voter.ending is not None or voter.refusal is not None

    def handle(body: bytes) -> bytes:
        """Answer, and do what the answer promised once it is on its way."""
        reply = voter.handle(body)
        if voter.behind:
            threading.Thread(target=voter.catch_up, name="records", daemon=True).start()
        return reply

    connection = Connection(
        server,
        make_client_app(handle),
        home=home / "flower",
        root_certificates=None if enrolment is None else enrolment.ca,
        node_key=None if enrolment is None else enrolment.node_key,
        on_absence=lambda: None if over() else screen.say(of_absence(ledger)),
        on_event=lambda line: None if over() else screen.say(line),
        on_state=status.is_now,
        max_wait=options.max_wait,
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


def _schema_of(last: CampaignRecord | None) -> Schema | None:
    """Return the schema of the last campaign's inputs, None if it is not known."""
    if last is None or last.offer.schema is None:
        return None
    try:
        return Schema.parse(last.offer.schema)
    except SchemaError:
        return None


def of_absence(ledger: PartyLedger) -> str:
    """Return a line for the operator about a server that has been absent for a while.

    A party that misses the end of a campaign is not notified later: the server has stopped, and may
    not return.
    """
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
