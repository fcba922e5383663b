"""Parties that disconnect and reconnect, over a wire that lists a dead node for a while.

Flower behaves like this: a killed party is listed for up to a minute, and a restarted one has another node at
once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
import pytest

from aggregator_server.exchange.aggregation import Batch, PlainAggregation
from aggregator_server.exchange.attendance import Keyring
from aggregator_server.exchange.carrier import GONE, LOST, Arrival, Distribution
from aggregator_server.exchange.exchange import Exchange, Quorum
from party.identity.keys import identity_key
from party.voting.voter import Voter
from party.voting.voters import ReadyVoters
from pate.campaign.roster import RosterParty
from pate.data.values import Images, batch_hash
from pate.errors import QuorumError
from pate.noise.exact import SystemNoise
from protos.pate.v1 import vote_pb2
from protos.public_set import pack_public_set
from tests.support.campaign_messages import (
    SERVER_KEY,
    WORTH,
    campaign_message,
    site,
    terms_message,
)
from tests.support.server.lines import Lines
from tests.support.world.in_process import Unanimous

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pate.runtime.screen import Screen


PUBLIC = Images(np.random.default_rng(2).integers(0, 255, (4, 4, 4, 1), dtype=np.uint8))
CLASSES = ("x", "y")
END = vote_pb2.Finish(queries_asked=4, labels_released=4, epsilon_cap=WORTH, delta=1e-5)


class Link:
    """Nodes that answer at once or never, and a clock that advances when waited on."""

    store = None

    def __init__(self) -> None:
        self.now = 0.0
        self.coming: list[str] = []
        self.alive: dict[int, Voter] = {}
        self.listed: set[int] = set()
        self.plans: list[tuple[float, Callable[[], None]]] = []
        self._arrivals: list[Arrival] = []
        self._sent = 0

    def nodes(self) -> frozenset[int]:
        return frozenset(self.listed)

    def returning(self) -> list[str]:
        return self.coming

    def send(self, node: int, digest: bytes, body: bytes) -> None:
        self._sent += 1
        if node in self.alive:
            self._arrivals.append(Arrival(node, digest, self.alive[node].handle(body), None))
        self.last = (node, digest)

    def receive(self) -> list[Arrival]:
        arrivals, self._arrivals = self._arrivals, []
        return arrivals

    def close(self) -> None: ...

    def report(self, failure: str) -> None:
        """Say of the last message that it failed, and take its node off the list."""
        node, digest = self.last
        self.listed.discard(node)
        self._arrivals.append(Arrival(node, digest, None, failure))

    def at(self, time: float, happens: Callable[[], None]) -> None:
        self.plans.append((time, happens))

    def pause(self, seconds: float) -> None:
        self.now += seconds
        assert self.now < 600, "it would wait for ever"
        due = [plan for plan in self.plans if plan[0] <= self.now]
        self.plans = [plan for plan in self.plans if plan[0] > self.now]
        for _, happens in due:
            happens()


class Play:
    """One party, ``p``, and a server."""

    def __init__(self, home: Path, public: Images = PUBLIC) -> None:
        self.wire = Link()
        self.lines = Lines()
        self.said = self.lines.said
        key = identity_key(home)
        self.voter = Voter(
            name="p", identity=key, voters=ReadyVoters(Unanimous(1)), home=home, site=site(home),
            noise=SystemNoise(), public=public,
        )  # fmt: skip
        self.exchange = Exchange(
            self.wire,
            campaign_message(PUBLIC).offer(),
            Keyring(SERVER_KEY),
            Distribution(lambda: [pack_public_set(PUBLIC)]),
            cast("Screen", self.lines),
            clock=lambda: self.wire.now,
        )  # fmt: skip
        identity = key.public_key().public_bytes_raw()
        self.roster = [RosterParty("p", identity.hex(), 1, "record")]
        self.exchange.fix_roster(
            self.roster, CLASSES, terms_message([("p", identity, 1)]).settled()
        )

    def connects(self, node: int) -> None:
        self.wire.alive[node] = self.voter
        self.wire.listed.add(node)

    def dies(self, node: int) -> None:
        """As ``kill -9`` does: it is listed still, and answers nothing."""
        del self.wire.alive[node]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    return Play(tmp_path)


def test_a_party_that_was_restarted_is_asked_before_its_last_node_is_off_the_list(
    play: Play,
) -> None:
    play.connects(1)
    play.exchange.look()  # described...
    play.exchange.look()
    assert play.exchange.here == ["p"]
    play.dies(1)  # ...and dead before it is asked
    play.wire.at(5, lambda: play.connects(2))
    batch = Batch(tuple(range(4)), batch_hash(PUBLIC.row_hashes()))
    found = play.exchange.collect(
        PlainAggregation(play.exchange.campaign, play.roster, batch, 1), Quorum(1, 0)
    )
    assert found.responders == ("p",)
    assert play.wire.now < 10
    assert 1 in play.wire.listed


@pytest.mark.parametrize("same", [True, False])
def test_a_refusal_is_read_though_its_party_has_left_already(
    same: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A party that refuses ends at once, and its reply may be fetched a moment after it is gone."""
    play = Play(tmp_path, PUBLIC if same else PUBLIC.take([0, 1]))
    play.connects(1)
    monkeypatch.setattr(play.wire, "receive", list)
    play.exchange.look()  # asked for its description, and its reply is still being fetched
    play.wire.listed.discard(1)
    play.exchange.look()
    monkeypatch.undo()
    play.exchange.look()
    refused = [line for line in play.said if line.startswith("p refused to join")]
    assert len(refused) == (not same)
    assert play.exchange.here == []  # whatever else it replied, it is not here


def test_a_party_whose_refusal_is_read_late_is_not_waited_for(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    play.connects(1)
    play.exchange.look()
    play.exchange.look()
    assert play.exchange.here == ["p"]
    batch = Batch(tuple(range(4)), bytes(32))  # not the hash of these queries
    monkeypatch.setattr(play.wire, "receive", list)
    play.wire.at(1, lambda: play.wire.listed.discard(1))
    play.wire.at(2, monkeypatch.undo)
    with pytest.raises(QuorumError, match="only 0 of 1 parties can still answer"):
        play.exchange.collect(
            PlainAggregation(play.exchange.campaign, play.roster, batch, 1), Quorum(1, 60)
        )
    assert play.wire.now < 10


def test_the_end_waits_for_a_party_that_voted_and_is_away(play: Play) -> None:
    play.wire.at(50, lambda: play.connects(1))
    play.exchange.finish(END, voted=["p"])
    assert play.voter.ending is not None
    assert any("for p, to notify them that the campaign has ended" in line for line in play.said)


def test_the_end_does_not_wait_for_ever(play: Play) -> None:
    play.exchange.finish(END, voted=["p"])
    assert 60 < play.wire.now < 120


def test_the_end_does_not_wait_for_a_party_that_never_voted(play: Play) -> None:
    play.exchange.finish(END, voted=[])
    assert play.wire.now < 1


@pytest.mark.parametrize(("failure", "heard"), [(GONE, True), (LOST, False)])
def test_a_party_that_leaves_when_told_has_heard_but_a_lost_link_says_nothing(
    play: Play, failure: str, heard: bool
) -> None:
    play.connects(1)
    play.exchange.look()
    play.exchange.look()
    play.dies(1)
    play.wire.at(3, lambda: play.wire.report(failure))
    play.exchange.finish(END, voted=["p"])
    assert (play.wire.now < 10) == heard


def test_one_that_comes_back_hears_the_end_though_its_node_is_the_same(play: Play) -> None:
    play.connects(1)
    play.exchange.look()
    play.exchange.look()
    play.dies(1)  # before it gets the end, and unnoticed

    def comes_back() -> None:
        play.wire.report(LOST)  # what it was sent is not answered
        play.wire.at(play.wire.now + 0.2, lambda: play.connects(1))

    play.wire.at(3, comes_back)
    play.exchange.finish(END, voted=["p"])
    assert play.voter.ending is not None


@pytest.mark.parametrize(("returns", "waited"), [(False, 5.0), (True, 10.0)])
def test_one_that_is_coming_back_is_waited_for_a_second_time_and_no_longer(
    tmp_path: Path, returns: bool, waited: float
) -> None:
    (tmp_path / "p").mkdir()
    play = Play(tmp_path / "p")
    absent = RosterParty("q", "00" * 32, 1, "record")
    roster = [*play.roster, absent]
    play.exchange.fix_roster(
        roster,
        CLASSES,
        terms_message([(p.name, bytes.fromhex(p.identity), 1) for p in roster]).settled(),
    )
    play.wire.coming = ["q", "not on the roster"] if returns else []
    play.connects(1)
    batch = Batch(tuple(range(4)), batch_hash(PUBLIC.row_hashes()))
    aggregation = PlainAggregation(play.exchange.campaign, roster, batch, 1)
    found = play.exchange.collect(aggregation, Quorum(1, 5))
    assert found.responders == ("p",)
    assert waited <= play.wire.now <= waited + 2


def test_a_node_that_comes_and_goes_is_not_asked_each_time(play: Play) -> None:
    play.wire.listed.add(1)  # it never answers
    for _ in range(100):
        play.exchange.look()
        play.wire.listed ^= {1}
        play.wire.now += 0.05
    assert 4 <= play.wire._sent <= 6


def test_two_that_leave_whenever_they_are_told_do_not_hold_up_the_end(
    play: Play, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Parties that return in turn: each is notified again on return, and does not answer."""
    key = identity_key(tmp_path / "q")
    voters = {
        1: play.voter,
        2: Voter(
            name="q", identity=key, voters=ReadyVoters(Unanimous(1)), home=tmp_path / "q",
            site=site(tmp_path / "q"), noise=SystemNoise(), public=PUBLIC,
        ),
    }  # fmt: skip
    identity = key.public_key().public_bytes_raw()
    roster = [*play.roster, RosterParty("q", identity.hex(), 1, "record")]
    members = [(party.name, bytes.fromhex(party.identity), 1) for party in roster]
    play.exchange.fix_roster(roster, CLASSES, terms_message(members).settled())
    wire, times = play.wire, 0
    send = wire.send

    def connects(node: int) -> None:
        wire.alive[node] = voters[node]
        wire.listed.add(node)

    def sending(node: int, digest: bytes, body: bytes) -> None:
        nonlocal times
        send(node, digest, body)
        if voters[node].ending is not None:
            voters[node].ending, times = None, times + 1
            wire._arrivals = [a for a in wire._arrivals if a.digest != digest]

            def leaves() -> None:
                wire.listed.discard(node)
                wire._arrivals.append(Arrival(node, digest, None, LOST))
                wire.at(wire.now + 1, lambda: connects(node))

            wire.at(wire.now + 10, leaves)

    monkeypatch.setattr(wire, "send", sending)
    connects(1)
    wire.at(5, lambda: connects(2))
    play.exchange.look()
    play.exchange.look()
    play.exchange.finish(END, voted=["p", "q"])
    assert times > 4
    assert 60 < wire.now < 120
