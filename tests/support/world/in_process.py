"""Server and parties as objects of this process: only bytes go between them, and all that lasts is on disk.

A step may be interrupted at a failpoint, by an exception (:func:`kills`) or for real (:func:`killed_first`).
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from aggregator_server.campaign.runner import Campaign, exchange_of
from aggregator_server.campaign.sums import Sums
from aggregator_server.exchange.attendance import Keyring
from aggregator_server.exchange.carrier import GONE, Arrival
from aggregator_server.ledger.ledger import Ledger
from aggregator_server.ledger.verify import read_campaign
from party.identity.keys import identity_key
from party.ledger.ledger import LEDGER_FILE, PartyLedger
from party.policy.policy import Policy
from party.voting.site import Site
from party.voting.voter import Voter
from party.voting.voters import ReadyVoters
from pate.data.values import content_hash
from pate.noise.exact import SystemNoise
from pate.runtime import failpoints
from protos import wire
from protos.pate.v1 import vote_pb2
from tests.support.campaign_messages import SERVER_KEY, campaign_in, request_in
from tests.support.server.campaigns import make_spec
from tests.support.server.lines import Lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from aggregator_server.exchange.carrier import Carrier
    from aggregator_server.ledger.encoding import Probabilities
    from aggregator_server.ledger.state import CampaignState
    from pate.codes import Code
    from pate.data.values import Inputs
    from pate.errors import PateError
    from pate.runtime.screen import Screen
    from pate.votes import Counts

#: Of each party.
TEACHERS = 25


@dataclass
class Unanimous:
    """k teachers that all answer one class, wherever a campaign has it; the first unless it is named."""

    teachers: int = TEACHERS
    always: str = ""
    classes: tuple[str, ...] = ("x", "y")
    unit: str = "record"
    schema: str = "images 4x4x1"
    answer: str = "class"
    fingerprint: bytes = b"f" * 32

    def conform(self, inputs: Inputs) -> Inputs:
        return inputs

    def vote(
        self, public: Inputs, rows: Sequence[int], classes: Sequence[str], code: Code
    ) -> Counts:
        votes = np.zeros((len(rows), len(classes)), dtype=np.int64)
        votes[:, list(classes).index(self.always or classes[0])] = self.teachers
        return votes


# --- kills --------------------------------------------------------------------------------------------


class Killed(BaseException):
    """A process ends here: nothing catches it."""


@contextmanager
def kills(at: Callable[[str], bool]) -> Iterator[None]:
    """Have every module of the product raise :class:`Killed` at failpoints for which ``at`` is true."""

    def reach(name: str) -> None:
        assert name in failpoints.NAMES
        if at(name):
            raise Killed(name)

    true = failpoints.reach
    places = [each for each in [*sys.modules.values()] if vars(each).get("reach") is true]
    for each in places:
        vars(each)["reach"] = reach
    try:
        yield
    finally:
        for each in places:
            vars(each)["reach"] = true


def killed_first(at: Callable[[str], bool], work: Callable[[], object]) -> str | None:
    """Work in a process of its own, which is killed at the first failpoint for which ``at`` is true.

    ``at``: asked in that process, with the name of each failpoint that it passes; ``work``: of that
    process; what it changes in memory is lost.

    Returns the failpoint; None if the work was done.
    """
    ours, theirs = multiprocessing.Pipe(duplex=False)

    def dies(name: str) -> bool:
        if at(name):
            theirs.send(name)
            os.kill(os.getpid(), signal.SIGKILL)
        return False

    def dying() -> None:
        with kills(dies):
            work()

    child = multiprocessing.get_context("fork").Process(target=dying)
    child.start()
    child.join()
    with ours, theirs:
        point = ours.recv() if ours.poll() else None
    assert child.exitcode == (0 if point is None else -signal.SIGKILL), child.exitcode
    return point


def reached(point: str, times: int = 1) -> Callable[[str], bool]:
    """Return what says of each failpoint whether it is this one, reached so many times."""
    seen: list[str] = []

    def at(name: str) -> bool:
        seen.append(name)
        return name == point and seen.count(point) == times

    return at


def killed_at(point: str | None, work: Callable[[], object]) -> bool:
    """Return whether work in a process of its own is killed at a failpoint.

    ``point``: name of the failpoint, or ``name:times``; None: none; ``work``: of that process; what
    it changes in memory is lost.
    """
    name, _, times = (point or "").partition(":")
    return killed_first(reached(name, int(times or 1)), work) is not None


# --- a world ------------------------------------------------------------------------------------------


class Parties:
    """Parties, and the carrier to them; each start of a party gives it another node.

    ``voters``: each party's process; ``node``: of each party that is connected; ``asked``: (party,
    step) of all requests that reached one; ``sent``: all bytes that went to a party, and its
    replies; ``before``: called just before a party receives a request; ``each_look``: called
    whenever the server looks who is there; ``refusing``: errors of the requests that are refused,
    by (party, step, number of the attempt); ``pause``: how the server waits.
    """

    store: Final = None

    def __init__(self, root: Path, voter: Callable[[str], Voter]) -> None:
        self.root = root
        self.voters: dict[str, Voter] = {}
        self.node: dict[str, int] = {}
        self.asked: list[tuple[str, str]] = []
        self.sent: list[tuple[bytes, bytes]] = []
        self.before: Callable[[str, str], None] = lambda _name, _step: None
        self.each_look: Callable[[], None] = lambda: None
        self.refusing: dict[tuple[str, str, int], type[PateError]] = {}
        self.pause: Callable[[float], None] = time.sleep
        self._voter = voter
        self._arrivals: list[Arrival] = []
        self._starts = 0

    def start(self, name: str) -> None:
        """Start or restart a party; its memory is lost."""
        self.leave(name)
        self.voters[name] = self._voter(name)
        self._starts += 1
        self.node[name] = self._starts

    def leave(self, name: str) -> None:
        self.node.pop(name, None)

    def nodes(self) -> frozenset[int]:
        self.each_look()
        return frozenset(self.node.values())

    def returning(self) -> tuple[str, ...]:
        return ()

    def send(self, node: int, digest: bytes, body: bytes) -> None:
        reply = b""
        for name in [name for name, at in self.node.items() if at == node]:
            step = request_in(body).WhichOneof("body") or ""
            self.asked.append((name, step))
            self.before(name, step)
            if self.node.get(name) != node:
                continue
            error = self.refusing.get((name, step, self.asked.count((name, step))))
            try:
                reply = self._refusal(name, body, error) if error else self.answer(name, body)
            except Killed:
                self.start(name)
        self.sent.append((body, reply))
        self._arrivals.append(Arrival(node, digest, reply or None, None if reply else GONE))

    def answer(self, name: str, body: bytes) -> bytes:
        """Return what a party replies; a liar's replies come from here."""
        return self.voters[name].handle(body)

    def _refusal(self, name: str, body: bytes, error: type[PateError]) -> bytes:
        request = request_in(body)
        sent = (campaign_in(each) for each in (body, *(each for each, _ in self.sent)))
        offer = next(filter(None, sent))
        reply = vote_pb2.Reply(
            version=wire.VERSION,
            nonce=request.nonce,
            campaign=bytes.fromhex(offer.campaign),
            party=name,
        )
        reply.refusal.kind = error.__name__
        return wire.sign_reply(reply, identity_key(self.root / name))

    def receive(self) -> list[Arrival]:
        arrivals, self._arrivals = self._arrivals, []
        return arrivals

    def close(self) -> None:
        self._arrivals.clear()


class World:
    """One server and its parties, over any number of campaigns.

    ``root``: of all homes; ``names``: of the parties; ``public``: the public set; ``lines``: what
    the server and its parties said; ``parties``: who is online; ``policy``: of each party.
    """

    def __init__(self, root: Path, names: Sequence[str], public: Inputs) -> None:
        self.root = root
        self.names = tuple(names)
        self.public = public
        self.lines = Lines()
        self.policy = Policy.default(loopback=True)
        self.parties = Parties(root, self.voter)

    # --- the parties -------------------------------------------------------------------------

    def home(self, name: str) -> Path:
        return self.root / name

    def ledger(self, name: str) -> PartyLedger:
        self.home(name).mkdir(parents=True, exist_ok=True)
        return PartyLedger(self.home(name) / LEDGER_FILE)

    def voter(self, name: str, **changes: Any) -> Voter:
        """A party's process, new each time."""
        home = self.home(name)
        made: dict[str, Any] = {
            "name": name, "home": home, "voters": ReadyVoters(Unanimous()), "noise": SystemNoise(),
            "site": Site(self.policy, self.ledger(name)), "identity": identity_key(home),
            "say": lambda line: self.lines.say(f"{name}: {line}"),
        }  # fmt: skip
        return Voter(**(made | changes))

    # --- the server --------------------------------------------------------------------------

    def place(self, number: int = 0) -> Path:
        """The ledger of a campaign."""
        return self.root / "server" / f"{number}" / "ledger.db"

    def create(self, number: int = 0, **terms: Any) -> Path:
        """Make the ledger of a campaign over the public set."""
        stated = {
            "parties": self.names, "min_parties": 3, "aggregator": "gnmax", "epsilon": 3.0,
            "public_set": content_hash(self.public).hex(), "queries": len(self.public),
            "schema": self.public.schema(),
        }  # fmt: skip
        Ledger.create(self.place(number), make_spec(**(stated | terms))).close()
        return self.place(number)

    def link(self) -> Carrier:
        """To all parties, for one process of the server."""
        self.parties.close()
        self.parties.pause = self.pause()
        return self.parties

    def keys(self) -> Keyring:
        return Keyring(SERVER_KEY)

    def serve(self, number: int = 0, *, patience: float = 0.0, **how: Any) -> None:
        """Run one server process from the state of its ledger to the end."""
        screen, carrier = cast("Screen", self.lines), self.link()
        with Ledger.open(self.place(number)) as ledger:
            spec = ledger.state().spec
            exchange = exchange_of(spec, self.public, carrier, self.keys(), screen)
            sums = Sums(ledger, self.public, exchange, screen, patience=patience, **how)
            campaign = Campaign(
                ledger, self.public, sums, noise=SystemNoise(), screen=screen,
                await_predictions=lambda at: ledger.record_predictions(
                    at, self.predict(at, ledger.state())
                ),
            )  # fmt: skip
            campaign.run()
            campaign.farewell()
            exchange.carrier.close()

    def pause(self) -> Callable[[float], None]:
        """Return how one process of the server waits: shortly, since parties answer at once."""
        return lambda seconds: time.sleep(min(seconds, 0.01))

    def predict(self, round_: int, state: CampaignState) -> Probabilities:
        """Predictions of a student that is sure of the first class, (queries, classes) float32."""
        classes = len(state.classes)
        made = np.full((len(self.public), classes), 0.01, dtype=np.float32)
        made[:, 0] = 1 - 0.01 * (classes - 1)
        return made

    def state(self, number: int = 0) -> CampaignState:
        return read_campaign(self.place(number))[0]

    def responders(self, number: int = 0) -> tuple[str, ...]:
        """The parties in the one sum of a finished campaign, which is that of their votes."""
        with Ledger.open(self.place(number)) as ledger:
            state, counts = ledger.state(), ledger.counts()
        (batch,) = state.batches
        np.testing.assert_array_equal(
            counts, [[TEACHERS * len(batch.responders), 0]] * len(self.public)
        )
        assert state.phase == "finished"
        return batch.responders
