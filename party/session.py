"""One party's part in one campaign: read, shard, train, connect, vote, leave."""

from __future__ import annotations

import contextlib
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from party.flower.client_app import make_client_app
from party.flower.connection import Connection
from party.flower.supernode import Server
from party.identity.enrolment import Enrolment
from party.identity.keys import identity_key, shard_key
from party.ledger.ledger import LEDGER_FILE, PartyLedger
from party.monitoring import Status
from party.policy.binding import bind
from party.policy.file import policy_of
from party.voting.own_data import OwnFile, OwnVoters
from party.voting.site import Site
from party.voting.voter import Ending, Voter
from pate.data.read import read_inputs, require_there
from pate.data.schema import Schema
from pate.errors import SchemaError, UnreachableError
from pate.features.progress import telling
from pate.formats.privacy_statement import in_words
from pate.noise.exact import SystemNoise
from pate.runtime.child import LOCAL_SERVER, LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from party.ledger.records import CampaignRecord
    from party.options import StartOptions
    from pate.runtime.screen import Screen


def take_part(
    options: StartOptions, name: str, home: Path, screen: Screen, status: Status | None = None
) -> Ending:
    """Take part until the campaign has ended, and return how.

    Args:
        options: what was asked for.
        name: of this party; the one that it is enrolled under, if it is.
        home: of this party.
        screen: for lines and progress.
        status: where to note how the run stands, for whoever watches it.

    Raises:
        PateError: if the data, the settings, the server or the campaign do not allow it.
    """
    require_there(options.data)  # before a word of what follows from it
    status = status or Status()
    enrolment = Enrolment.load(home)
    server = options.server or (LOCAL_SERVER if enrolment is None else enrolment.server)
    # Who is enrolled is no trial, even if a tunnel to the server begins on this machine.
    trial = enrolment is None and Server(server).host in LOOPBACK
    policy = policy_of(home, loopback=trial, file=options.policy)
    public = None if options.public is None else read_inputs(options.public, drop=options.dropped)
    for line in policy.in_words():
        screen.say(f"your policy: {line}")
    for line in _warnings(enrolment):
        screen.say(line, "warning")
    # Before hours of training: it may be damaged, or gone.
    ledger = PartyLedger(home / LEDGER_FILE)
    for line in bind(ledger, policy):
        screen.say(line)
    last = max(ledger.campaigns(), key=lambda each: each.last, default=None)
    own = _own_voters(options, home, screen, status)
    # What the last campaign said is likely what the next one says; if not, we read again by that.
    held = own.ahead(
        Schema.of(public) if public is not None else _schema_of(last),
        None if last is None or public is not None else last.offer.classes,
        is_guess=public is None,
    )
    if held is not None:
        # Not how many records: lines like this are collected and kept by many a machine.
        screen.say(f"{name}: records of the classes {', '.join(held.classes)}")
    if options.votes == "neighbour":
        screen.say(f"our records vote themselves; connecting to {server}")
    elif held is not None:
        screen.say(f"{options.teachers} teachers are ready; connecting to {server}")
    status.bound_by(
        ledger,
        delta=policy.divided_delta,
        largest_epsilon=policy.largest_epsilon,
        ends=None if enrolment is None else enrolment.ends,
    )
    voter = Voter(
        name=name,
        identity=identity_key(home),
        ensemble=None,
        own=own,
        home=home,
        site=Site(
            policy,
            ledger,
            pinned=None if enrolment is None else enrolment.campaign_key,
            ask=_ask if sys.stdin.isatty() else None,
        ),
        noise=SystemNoise(),
        public=public,
        say=screen.say,
    )

    def over() -> bool:
        """All is decided: the SuperNode sends the last answer before it ends."""
        return voter.ending is not None or voter.refusal is not None

    connection = Connection(
        server,
        make_client_app(voter.handle),
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
        # A server that has heard our last words may be gone at once, and that is as it should be.
        if not over():
            raise
    if voter.refusal is not None:
        raise voter.refusal
    if voter.ending is None:
        raise RuntimeError("the connection ended before the campaign did")
    ending = voter.ending
    status.is_now("ended")
    screen.say(
        f"the campaign has ended: {ending.queries_asked} queries asked, {ending.labels_released} "
        f"labels released, at most {_guarantee(ending)}"
    )
    return ending


def _own_voters(options: StartOptions, home: Path, screen: Screen, status: Status) -> OwnVoters:
    @contextlib.contextmanager
    def training() -> Iterator[Callable[[int, int], None]]:
        before = status.standing.state
        status.is_now("training")
        status.trained(0, options.teachers)
        with screen.bar("teachers ready") as move:

            def progress(done: int, total: int) -> None:
                status.trained(done, total)
                move(done, total)

            yield progress
        status.is_now(before)

    return OwnVoters(
        OwnFile.of(options),
        teachers=None if options.votes == "neighbour" else options.teachers,
        records=options.votes in ("any", "neighbour"),
        model=options.model,
        device=options.device,
        home=home,
        key=shard_key(home),
        say=screen.say,
        warn=lambda line: screen.say(line, "warning"),
        training=training,
    )


def _schema_of(last: CampaignRecord | None) -> Schema | None:
    """Return what the inputs of the last campaign were, None if that is not known."""
    if last is None or last.offer.schema is None:
        return None
    try:
        return Schema.parse(last.offer.schema)
    except SchemaError:
        return None


def of_absence(ledger: PartyLedger) -> str:
    """Return a line for whoever waits for a server that has been away for a while.

    A party that was killed as it heard of a campaign's end, or was away then, is told of it by
    nobody: the server has gone, and may never come back.
    """
    held = ledger.campaigns()
    if not held:
        return "no campaign was joined yet: this party waits for the server; Ctrl-C is safe"
    last = max(held, key=lambda each: each.last)
    name = last.offer.campaign[:8]
    if last.ending is not None:
        return (
            f"campaign {name} has ended, as our ledger has it: unless the server is to begin another "
            "one, there is nothing to wait for; Ctrl-C is safe"
        )
    return (
        f"campaign {name} may have ended while this party was away: ask its coordinator. Ctrl-C is "
        "safe: what has left is in our ledger (`pate-party ledger`), and the same command goes on "
        "if the campaign does"
    )


def _guarantee(ending: Ending) -> str:
    return in_words(ending.epsilon, ending.delta, ending.unit, neighbours=ending.adjacency)


def _warnings(enrolment: Enrolment | None) -> list[str]:
    """Return lines about what expires soon.

    Raises:
        StateError: if the server can be trusted no more.
    """
    if enrolment is None:
        return []
    now = datetime.now(UTC)
    enrolment.require_valid(now)
    return enrolment.warnings(now)


def _ask(question: str) -> bool:
    """Put a question to whoever sits at the screen; no answer is a no.

    Ctrl-C is not an answer: it stops the party, as anywhere else.
    """
    sys.stderr.write(f"{question} [y/N]: ")
    sys.stderr.flush()
    try:
        return input().strip().lower() in ("y", "yes")
    except EOFError:
        return False
