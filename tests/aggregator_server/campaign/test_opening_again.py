"""A sum whose unmasking was interrupted is completed with the same survivors, or never.

Real voters with real ledgers, a real ledger of the server, and a wire on which a party may be restarted, or
not answer, at a chosen step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
import pytest

from aggregator_server.campaign import runner as campaign_module
from aggregator_server.campaign.runner import Campaign
from aggregator_server.exchange import exchange as exchange_module
from aggregator_server.exchange.wire import Arrival
from aggregator_server.ledger.ledger import Ledger
from aggregator_server.ledger.verify import verify
from party.identity.keys import identity_key
from party.voting.voter import Voter
from pate.data.values import Images, Inputs, content_hash
from pate.errors import DiskError, PateError, ProtocolError, QuorumError, RefusedError
from pate.masking.unmasking import Unmasking
from pate.noise.exact import SystemNoise
from protos import wire
from protos.pate.v1 import vote_pb2
from tests.support.campaign_messages import SERVER_KEY, request_in, site
from tests.support.server.campaigns import make_spec
from tests.support.server.lines import Lines

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pate.runtime.screen import Screen
    from pate.votes import Counts

PUBLIC = Images(np.random.default_rng(6).integers(0, 255, (6, 4, 4, 1), dtype=np.uint8))
CLASSES = ("x", "y")
NAMES = ("a", "b", "c", "d")
REST = ("a", "b", "c")
TEACHERS = 25


class Unanimous:
    """Teachers that all answer the first class."""

    teachers = TEACHERS
    classes = CLASSES
    unit = "record"
    schema = "images 4x4x1"
    fingerprint = b"f" * 32

    def conform(self, inputs: Inputs) -> Inputs:
        return inputs

    def vote(self, inputs: Inputs, classes: Sequence[str]) -> Counts:
        return np.tile(np.array([TEACHERS, 0], dtype=np.int64), (len(inputs), 1))


class Crash(BaseException):
    """The server is dead: nothing catches it."""


class Sites:
    """Four parties, and the wire to them; each start of a party gives it another node."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.voters: dict[int, Voter] = {}
        self.node: dict[str, int] = {}
        #: (party, step) of all requests, and actions just before a party receives one.
        self.asked: list[tuple[str, str]] = []
        self.before: Callable[[str, str], None] = lambda _name, _step: None
        #: (party, step, number of the attempt) of refused requests, and the error.
        self.refusing: set[tuple[str, str, int]] = set()
        self.kind: type[PateError] = RefusedError
        self.each_look: Callable[[], None] = lambda: None
        self._arrivals: list[Arrival] = []
        self._sent = 0
        for name in NAMES:
            self.start(name)

    def start(self, name: str) -> None:
        """Start or restart a party; its memory is lost."""
        home = self.root / name
        home.mkdir(exist_ok=True)
        self.leave(name)
        node = self.node[name] = 1000 + len(self.voters)
        self.voters[node] = Voter(
            name=name, identity=identity_key(home), ensemble=Unanimous(), home=home,
            site=site(home), noise=SystemNoise(), public=PUBLIC,
        )  # fmt: skip

    def leave(self, name: str) -> None:
        self.node.pop(name, None)

    def openings(self) -> dict[str, tuple[str, ...] | None]:
        """The survivors of the unmasking in each party's own ledger."""
        return {
            name: batch.survivors
            for name, node in self.node.items()
            for batch in self.voters[node]._site.ledger.campaigns()[-1].batches
        }

    def nodes(self) -> frozenset[int]:
        self.each_look()
        return frozenset(self.node.values())

    def send(self, node: int, body: bytes) -> str:
        self._sent += 1
        handle = str(self._sent)
        for name in [name for name, at in self.node.items() if at == node]:
            request = request_in(body)
            step = request.WhichOneof("body") or ""
            self.asked.append((name, step))
            self.before(name, step)
            if self.node.get(name) != node:
                continue
            refuses = (name, step, self.asked.count((name, step))) in self.refusing
            reply = self.refusal(name, request) if refuses else self.voters[node].handle(body)
            self._arrivals.append(Arrival(handle, node, reply, None))
        return handle

    def refusal(self, name: str, request: vote_pb2.PartyRequest) -> bytes:
        reply = vote_pb2.Reply(
            version=wire.VERSION, nonce=request.nonce, campaign=request.campaign.id, party=name
        )
        reply.refusal.kind = self.kind.__name__
        return wire.sign_reply(reply, identity_key(self.root / name))

    def receive(self) -> list[Arrival]:
        arrivals, self._arrivals = self._arrivals, []
        return arrivals

    def close(self) -> None: ...


class Play:
    """A campaign of four parties, of which three are needed, and its server's processes."""

    def __init__(
        self, root: Path, *, sites: Sites | None = None, name: str = "0f", proofs: bool = False
    ) -> None:
        self.sites = sites or Sites(root)
        self.lines = Lines()
        self.path = root / "server" / name / "ledger.db"
        spec = make_spec(
            parties=4, min_parties=3, colluders=1, aggregation="masked", aggregator="gnmax",
            public_set=content_hash(PUBLIC).hex(), queries=len(PUBLIC), schema=PUBLIC.schema(),
            epsilon=3.0, id=name * 16, vote_proofs=proofs,
        )  # fmt: skip
        Ledger.create(self.path, spec).close()

    def serve(self, patience: float = 0.2) -> None:
        """Run one server process from the state of the ledger."""
        with Ledger.open(self.path) as ledger:
            Campaign(
                ledger, PUBLIC, self.sites, noise=SystemNoise(), screen=cast("Screen", self.lines),
                signing_key=SERVER_KEY, patience=patience, await_predictions=lambda _: None,
            ).run()  # fmt: skip

    def written(self) -> list[tuple[str, ...]]:
        """The lists of survivors in the server's ledger."""
        with Ledger.open(self.path) as ledger:
            return [opening.survivors for opening in ledger.state().openings]

    def responders(self) -> tuple[str, ...]:
        with Ledger.open(self.path) as ledger:
            state = ledger.state()
            (batch,) = state.batches
            np.testing.assert_array_equal(
                ledger.counts(), [[TEACHERS * len(batch.responders), 0]] * len(PUBLIC)
            )
            assert state.phase == "finished"
            return batch.responders


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange_module, "_POLL_S", 0.002)
    monkeypatch.setattr(exchange_module, "_REMIND_S", 0.05)


@pytest.fixture
def play(tmp_path: Path) -> Play:
    return Play(tmp_path)


def at_first(sites: Sites, step: str, name: str, does: Callable[[], object]) -> None:
    """Have ``d`` leave when its votes are due, and something happen at ``step`` of ``name``."""
    plans = {("d", "ask_masked"): lambda: sites.leave("d"), (name, step): does}

    def before(asked: str, at: str) -> None:
        plans.pop((asked, at), lambda: None)()

    sites.before = before


def both_start(sites: Sites, name: str) -> None:
    """``d`` is back as well: a new list of survivors would have it."""
    sites.start(name)
    sites.start("d")


def die_at(monkeypatch: pytest.MonkeyPatch, point: str | None) -> None:
    """Have the server die at a failpoint."""

    def reach(name: str) -> None:
        if name == point:
            raise Crash

    monkeypatch.setattr(campaign_module, "reach", reach)


@pytest.mark.parametrize("proofs", [False, True])
def test_a_party_that_dies_before_it_opens_is_waited_for_and_no_other_list_is_asked_for(
    tmp_path: Path, proofs: bool
) -> None:
    play = Play(tmp_path, proofs=proofs)
    sites = play.sites
    at_first(sites, "ask_opening", "c", lambda: both_start(sites, "c"))
    play.serve()
    assert play.responders() == REST
    assert sites.openings() == {"a": REST, "b": REST, "c": REST}


def test_a_server_that_dies_before_it_asks_goes_on_with_the_list_that_it_wrote(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    sites = play.sites
    at_first(sites, "ask_consent", "c", lambda: None)

    die_at(monkeypatch, "opening-listed")
    with pytest.raises(Crash):
        play.serve()
    # On the disk before a single party was asked.
    assert all(step != "ask_opening" for _, step in sites.asked)
    assert play.written() == [REST]
    die_at(monkeypatch, None)
    sites.asked.clear()
    sites.start("d")
    play.serve()
    assert play.responders() == REST
    assert play.written() == [REST]
    assert {step for name, step in sites.asked if name == "d"} == {"describe"}
    verify(play.path)


def test_all_of_the_list_are_waited_for_even_if_fewer_would_be_enough(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their votes are in the sum, or there is none; to open it, enough of them will do."""
    sites, said = play.sites, play.lines.said
    die_at(monkeypatch, "opening-listed")
    with pytest.raises(Crash):
        play.serve()
    assert play.written() == [NAMES]
    sites.leave("d")
    line = (
        "every sum of this campaign needs a, b, c, d, with whom the first was unmasked; missing: d"
    )
    sites.each_look = lambda: sites.start("d") if line in said and "d" not in sites.node else None
    sites.refusing = {("c", "ask_opening", 1)}
    die_at(monkeypatch, None)
    play.serve(patience=0.0)
    assert line in said
    assert play.responders() == NAMES
    assert sites.asked.count(("a", "ask_keys")) == 2


def test_a_party_of_the_list_is_waited_for_by_name(play: Play) -> None:
    sites, said = play.sites, play.lines.said
    at_first(sites, "ask_opening", "c", lambda: sites.leave("c"))
    line = "every sum of this campaign needs a, b, c, with whom the first was unmasked; missing: c"

    def look() -> None:
        if line in said and "c" not in sites.node:
            both_start(sites, "c")

    sites.each_look = look
    play.serve()
    assert line in said
    assert play.responders() == REST


def test_a_party_of_the_list_that_refuses_ends_it_with_the_reason(play: Play) -> None:
    sites = play.sites
    at_first(sites, "ask_opening", "c", lambda: both_start(sites, "c"))
    sites.refusing = {("c", "ask_keys", 2)}
    with pytest.raises(QuorumError, match=r"^c refused a sum of a, b, c, so these queries cannot"):
        play.serve()
    assert play.written() == [REST]
    # Not asked in vain: neither again, nor for another list.
    assert sites.asked.count(("a", "ask_keys")) == 2
    assert sites.asked.count(("d", "ask_keys")) == 1
    # Once repaired, it continues.
    sites.refusing = set()
    play.serve()
    assert play.responders() == REST


def test_parties_that_opened_these_queries_with_others_end_it_at_once(tmp_path: Path) -> None:
    play = Play(tmp_path)
    play.serve()
    assert play.responders() == NAMES
    again = Play(tmp_path, sites=play.sites, name="f0")
    at_first(play.sites, "ask_consent", "a", lambda: None)
    with pytest.raises(QuorumError, match="a, b, c refused a sum of a, b, c, so these queries"):
        again.serve()
    assert again.written() == [REST]
    assert play.sites.asked.count(("a", "ask_opening")) == 2


def test_who_refuses_to_open_is_done_without_if_enough_open(play: Play) -> None:
    """Its votes are in the sum by then, and there are shares enough."""
    sites = play.sites
    sites.refusing = {("c", "ask_opening", 1)}
    play.serve()
    assert play.responders() == NAMES
    assert sites.openings() == {"a": NAMES, "b": NAMES, "c": None, "d": NAMES}


@pytest.mark.parametrize(
    "step", ["describe", "ask_keys", "ask_shares", "ask_masked", "ask_consent", "ask_opening"]
)
def test_parties_whose_disks_are_full_are_waited_for_at_every_step(play: Play, step: str) -> None:
    """Two of four parties, of which three are needed; each restarts once the server waits for it."""
    sites, said = play.sites, play.lines.said
    full = {name: sites.node[name] for name in ("c", "d")}
    sites.refusing, sites.kind = {(name, step, 1) for name in full}, DiskError
    looks = 0

    def look() -> None:
        nonlocal looks
        for name, node in full.items():
            of_this = [line for line in said if f"{name}" in line and "refused (DiskError)" in line]
            if of_this and sites.node.get(name) == node:
                sites.leave(name)
        if full.keys() & sites.node.keys():
            return
        looks += 1
        if looks == 5:  # all that the server does without them, it has done
            for name in full:
                sites.start(name)

    sites.each_look = look
    play.serve(patience=0.0 if step == "ask_opening" else 60.0)
    assert all(sites.asked.count((name, step)) >= 2 for name in full)
    assert looks == 5
    assert play.responders() == NAMES


def test_one_clear_line_if_the_shares_do_not_open_the_sum(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(self: Unmasking, *_: object) -> bytes:
        raise ProtocolError("the 3 shares of the seed of c do not give it back")

    monkeypatch.setattr(Unmasking, "_recover", wrong)
    with pytest.raises(ProtocolError) as caught:
        play.serve()
    assert str(caught.value) == (
        "the votes on 6 queries could not be summed; nothing was released: the 3 shares of the "
        "seed of c do not give it back"
    )
