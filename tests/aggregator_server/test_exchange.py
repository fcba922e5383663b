"""The server's conversation with real voters over an in-process Flower grid."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest

from aggregator_server.exchange import Exchange
from aggregator_server.local_grid import FIRST_NODE, LocalGrid
from aggregator_server.parties import Party, listed
from aggregator_server.wire import GridWire
from party.client_app import make_client_app
from party.keys import identity_key
from party.voter import Voter
from pate.data.values import Images, Inputs, batch_hash, content_hash
from pate.errors import QuorumError, SchemaError
from protos import wire
from protos.pate.v1 import vote_pb2

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pate.votes import Counts

PUBLIC = Images(np.random.default_rng(2).integers(0, 255, (20, 4, 4, 1), dtype=np.uint8))
BATCH = batch_hash(PUBLIC.row_hashes())


class Constant:
    """k teachers that all answer one class."""

    unit = "record"
    schema = "images 4x4x1"
    fingerprint = b"f" * 32

    def __init__(self, teachers: int, answer: int, classes: tuple[str, ...] = ("x", "y")) -> None:
        self.teachers = teachers
        self.classes = classes
        self.answer = answer

    def vote(self, inputs: Inputs, classes: Sequence[str]) -> Counts:
        votes = np.zeros((len(inputs), len(classes)), dtype=np.int64)
        votes[:, self.answer] = self.teachers
        return votes


def _pause(_: float) -> None:
    threading.Event().wait(0.005)


class House:
    """Parties in threads, an exchange with them, and what it said."""

    def __init__(
        self, root: Path, ensembles: Sequence[Constant], public: Images | None = None
    ) -> None:
        self.said: list[str] = []
        self.voters = []
        for at, ensemble in enumerate(ensembles):
            home = root / f"p{at}"
            home.mkdir(exist_ok=True)
            self.voters.append(
                Voter(
                    name=f"p{at}",
                    identity=identity_key(home),
                    ensemble=ensemble,
                    home=home,
                    public=public,
                )
            )
        self.grid = LocalGrid([make_client_app(voter.handle) for voter in self.voters])
        self.link = GridWire(self.grid)

    def exchange(self, classes: Sequence[str] = ()) -> Exchange:
        campaign = vote_pb2.Campaign(
            id=b"c" * 16,
            classes=classes,
            public_set=content_hash(PUBLIC),
            queries=len(PUBLIC),
            schema=PUBLIC.schema(),
            mechanism="gnmax",
            unit="record",
            aggregation="plain",
            epsilon=1.0,
            delta=1e-5,
        )
        body = wire.pack_public_set(PUBLIC)
        return Exchange(
            self.link,
            campaign,
            pieces=lambda: iter([body[:100], body[100:]]),
            say=self.said.append,
            pause=_pause,
        )

    def collect(self, exchange: Exchange, least: int, patience: float = 60.0) -> dict[str, Counts]:
        found = exchange.collect(
            first=0,
            count=len(PUBLIC),
            batch=BATCH,
            least=least,
            patience=patience,
            progress=lambda *_: None,
        )
        return {name: histogram.counts for name, histogram in found.items()}


@pytest.fixture
def houses() -> Iterator[list[House]]:
    made: list[House] = []
    yield made
    for house in made:
        house.grid.close()


def test_a_roster_is_gathered_and_votes_come_from_all(tmp_path: Path, houses: list[House]) -> None:
    house = House(tmp_path, [Constant(3, 0), Constant(2, 1), Constant(1, 1)])
    houses.append(house)
    exchange = house.exchange()
    roster = exchange.gather(3)
    assert [(p.name, p.teachers) for p in roster] == [("p0", 3), ("p1", 2), ("p2", 1)]
    exchange.fix_roster(roster, roster[0].classes)
    votes = house.collect(exchange, least=3)
    np.testing.assert_array_equal(np.stack(list(votes.values())).sum(axis=0)[0], [3, 3])
    assert sorted(votes) == ["p0", "p1", "p2"]


def test_different_class_lists_end_the_gathering_with_both_names(
    tmp_path: Path, houses: list[House]
) -> None:
    house = House(tmp_path, [Constant(1, 0), Constant(1, 0, ("x", "z"))])
    houses.append(house)
    with pytest.raises(SchemaError, match=r"p0 and p1 have different class lists"):
        house.exchange().gather(2)


def test_with_a_declared_class_list_a_party_may_lack_a_class(
    tmp_path: Path, houses: list[House]
) -> None:
    house = House(tmp_path, [Constant(1, 0), Constant(1, 2, ("x", "z"))])
    houses.append(house)
    exchange = house.exchange(("x", "y", "z"))
    roster = exchange.gather(2)
    exchange.fix_roster(roster, ("x", "y", "z"))
    votes = house.collect(exchange, least=2)
    np.testing.assert_array_equal(votes["p1"][0], [0, 0, 1])


def test_after_a_restart_a_party_may_still_lack_a_class(
    tmp_path: Path, houses: list[House]
) -> None:
    house = House(tmp_path, [Constant(1, 2, ("x", "z"))])
    houses.append(house)
    exchange = house.exchange(("x", "y", "z"))
    key = house.voters[0]._identity.public_key().public_bytes_raw()
    # As the ledger has it: what classes a party's own data has is not written there.
    exchange.fix_roster([Party("p0", key, 1, "record", ("x", "y", "z"))], ("x", "y", "z"))
    assert sorted(house.collect(exchange, least=1)) == ["p0"]


def test_a_party_that_leaves_is_done_without_when_enough_are_left(
    tmp_path: Path, houses: list[House]
) -> None:
    house = House(tmp_path, [Constant(1, 0), Constant(1, 1), Constant(1, 1)])
    houses.append(house)
    exchange = house.exchange()
    roster = exchange.gather(3)
    exchange.fix_roster(roster, roster[0].classes)
    house.grid.leave(FIRST_NODE)
    assert sorted(house.collect(exchange, least=2, patience=0.2)) == ["p1", "p2"]
    assert any("going on without p0" in line for line in house.said)


def test_a_party_that_comes_back_is_asked_again(tmp_path: Path, houses: list[House]) -> None:
    house = House(tmp_path, [Constant(1, 0), Constant(1, 1)])
    houses.append(house)
    exchange = house.exchange()
    roster = exchange.gather(2)
    exchange.fix_roster(roster, roster[0].classes)
    house.grid.leave(FIRST_NODE)
    threading.Timer(0.3, house.grid.come_back, [FIRST_NODE]).start()
    assert sorted(house.collect(exchange, least=2)) == ["p0", "p1"]
    assert any("p0 is back" in line for line in house.said)


def test_a_vote_that_does_not_sum_is_refused_by_name(tmp_path: Path, houses: list[House]) -> None:
    # It votes with six teachers; the roster below has it with three.
    house = House(tmp_path, [Constant(3, 0), Constant(6, 1)])
    houses.append(house)
    exchange = house.exchange()
    roster = exchange.gather(2)
    roster = [roster[0], Party("p1", roster[1].identity, 3, "record", ("x", "y"))]
    exchange.fix_roster(roster, ("x", "y"))
    exchange._known["p1"] = roster[1]
    assert sorted(house.collect(exchange, least=1)) == ["p0"]
    assert any(line.startswith("p1: sent something that was not accepted") for line in house.said)


def test_too_few_parties_end_the_batch(tmp_path: Path, houses: list[House]) -> None:
    class Broken(Constant):
        def vote(self, inputs: Inputs, classes: Sequence[str]) -> Counts:
            raise ValueError("secret 42")

    house = House(tmp_path, [Constant(1, 0), Broken(1, 0)])
    houses.append(house)
    exchange = house.exchange()
    roster = exchange.gather(2)
    exchange.fix_roster(roster, roster[0].classes)
    with pytest.raises(QuorumError, match="the campaign needs 2"):
        house.collect(exchange, least=2)
    assert any("p1: failed (raised ValueError)" in line for line in house.said)
    assert not any("42" in line for line in house.said)


def test_nobody_takes_a_name_over(tmp_path: Path, houses: list[House]) -> None:
    house = House(tmp_path, [Constant(1, 0), Constant(1, 1)])
    houses.append(house)
    exchange = house.exchange()
    pinned = [
        Party("p0", b"\0" * 32, 1, "record", ("x", "y")),
        Party(
            "p1", house.voters[1]._identity.public_key().public_bytes_raw(), 1, "record", ("x", "y")
        ),
    ]
    exchange.fix_roster(pinned, ("x", "y"))
    assert sorted(house.collect(exchange, least=1, patience=0.5)) == ["p1"]
    assert any("a stranger calls itself p0" in line for line in house.said)


def test_a_roster_does_not_change_within_a_campaign(tmp_path: Path, houses: list[House]) -> None:
    house = House(tmp_path, [Constant(1, 0), Constant(2, 1)])
    houses.append(house)
    exchange = house.exchange()
    keys = [voter._identity.public_key().public_bytes_raw() for voter in house.voters]
    exchange.fix_roster(
        [Party(f"p{at}", key, 1, "record", ("x", "y")) for at, key in enumerate(keys)], ("x", "y")
    )
    assert sorted(house.collect(exchange, least=1, patience=0.5)) == ["p0"]
    assert any("a roster does not change" in line for line in house.said)


def test_all_parties_hear_of_the_end(tmp_path: Path, houses: list[House]) -> None:
    house = House(tmp_path, [Constant(1, 0), Constant(1, 1)])
    houses.append(house)
    exchange = house.exchange()
    roster = exchange.gather(2)
    exchange.fix_roster(roster, roster[0].classes)
    exchange.finish(
        vote_pb2.Finish(queries_asked=3, labels_released=2, epsilon_cap=1, delta=1e-5),
        voted=("p0", "p1"),
    )
    assert [v.ending.labels_released for v in house.voters if v.ending] == [2, 2]


def test_a_party_with_its_own_copy_is_not_sent_the_public_set(
    tmp_path: Path, houses: list[House]
) -> None:
    house = House(tmp_path, [Constant(1, 0)], public=PUBLIC)
    houses.append(house)
    exchange = house.exchange()
    roster = exchange.gather(["p0"])
    exchange.fix_roster(roster, roster[0].classes)
    assert sorted(house.collect(exchange, least=1)) == ["p0"]
    assert not (tmp_path / "p0" / "public").exists()


def test_many_parties_are_counted_and_a_few_of_them_named(
    tmp_path: Path, houses: list[House]
) -> None:
    house = House(tmp_path, [Constant(1, 0)] * 17)
    houses.append(house)
    exchange = house.exchange()
    roster = exchange.gather(17)
    exchange.fix_roster(roster, roster[0].classes)
    for at in range(10):
        house.grid.leave(FIRST_NODE + at)
    house.collect(exchange, least=7, patience=0.2)
    named = ", ".join(sorted(f"p{at}" for at in range(10))[:8])
    assert f"going on without {named}, … (10 in all): no answer in 0.2 s" in house.said
    assert not any("joined" in line for line in house.said)


def test_as_many_names_as_a_line_holds_are_all_there() -> None:
    names = [f"p{at}" for at in range(9)]
    assert listed(names[:8]) == "p0, p1, p2, p3, p4, p5, p6, p7"
    assert listed(names) == "p0, p1, p2, p3, p4, p5, p6, p7, … (9 in all)"
    assert listed([]) == ""
