"""The server's conversation with real voters over an in-process Flower grid."""

from __future__ import annotations

import re
import threading
from collections import Counter
from typing import TYPE_CHECKING, cast

import numpy as np
import pytest

from aggregator_server.exchange.aggregation import Batch, MaskedAggregation, PlainAggregation, Sum
from aggregator_server.exchange.attendance import DescribedParty, Keyring, agreed_classes
from aggregator_server.exchange.carrier import Distribution
from aggregator_server.exchange.exchange import Exchange, Quorum
from aggregator_server.flower.carrier import GridCarrier
from benchmarks.methods.local_grid import FIRST_NODE, LocalGrid
from party.flower.connection import make_client_app
from party.identity.keys import identity_key
from party.voting.voter import Voter
from party.voting.voters import ReadyVoters
from pate.campaign.roster import RosterParty
from pate.data.values import Images, Inputs, batch_hash
from pate.errors import QuorumError, SchemaError
from pate.noise.exact import SystemNoise
from pate.printable import listed
from protos import wire
from protos.pate.v1 import vote_pb2
from protos.public_set import pack_public_set
from protos.terms import Campaigns
from tests.support.campaign_messages import (
    SERVER_KEY,
    WORTH,
    campaign_message,
    request_in,
    site,
    terms_message,
)
from tests.support.server.lines import Lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pate.codes import Code
    from pate.runtime.screen import Screen
    from pate.votes import Counts

PUBLIC = Images(np.random.default_rng(2).integers(0, 255, (20, 4, 4, 1), dtype=np.uint8))
BATCH = Batch(tuple(range(len(PUBLIC))), batch_hash(PUBLIC.row_hashes()))


class Constant:
    """k teachers that all answer one class."""

    unit = "record"
    answer = "class"
    schema = "images 4x4x1"
    fingerprint = b"f" * 32

    def __init__(self, teachers: int, always: int, classes: tuple[str, ...] = ("x", "y")) -> None:
        self.teachers = teachers
        self.classes = classes
        self.always = always

    def conform(self, inputs: Inputs) -> Inputs:
        return inputs

    def vote(
        self, public: Inputs, rows: Sequence[int], classes: Sequence[str], code: Code
    ) -> Counts:
        votes = np.zeros((len(rows), len(classes)), dtype=np.int64)
        votes[:, self.always] = self.teachers
        return votes


class Quick(GridCarrier):
    """A carrier whose parties answer at once."""

    def pause(self, seconds: float) -> None:
        threading.Event().wait(0.005)


class House:
    """Parties in threads, an exchange with them, and its lines."""

    def __init__(
        self, root: Path, ensembles: Sequence[Constant], public: Images | None = None
    ) -> None:
        self.lines = Lines()
        self.said = self.lines.said
        self.voters = []
        for at, ensemble in enumerate(ensembles):
            home = root / f"p{at}"
            home.mkdir(exist_ok=True)
            self.voters.append(
                Voter(
                    name=f"p{at}",
                    identity=identity_key(home),
                    voters=ReadyVoters(ensemble),
                    home=home,
                    site=site(home),
                    noise=SystemNoise(),
                    public=public,
                )
            )
        self.grid = LocalGrid([make_client_app(voter.handle) for voter in self.voters])
        self.link = Quick(self.grid)

    def exchange(
        self,
        classes: Sequence[str] = (),
        enrolled: Callable[[], Mapping[str, bytes]] | None = None,
        **changes: object,
    ) -> Exchange:
        body = pack_public_set(PUBLIC)
        return Exchange(
            self.link,
            campaign_message(PUBLIC, None, classes=classes, **changes).offer(),
            Keyring(SERVER_KEY, enrolled),
            Distribution(lambda: [body[:100], body[100:]]),
            cast("Screen", self.lines),
        )

    def collect(self, exchange: Exchange, least: int, patience: float = 60.0) -> Sum:
        roster = list((exchange._who.roster or {}).values())
        return exchange.collect(
            PlainAggregation(exchange.campaign, roster, BATCH, least),
            Quorum(least, patience),
        )


def fix(exchange: Exchange, roster: Sequence[RosterParty], classes: Sequence[str]) -> None:
    members = [(party.name, bytes.fromhex(party.identity), party.teachers) for party in roster]
    exchange.fix_roster(roster, classes, terms_message(members).settled())


def all_come(exchange: Exchange, parties: int) -> None:
    """Wait until so many parties have described themselves."""
    while len(exchange.here) < parties:
        exchange.look()
        exchange.carrier.pause(0)


@pytest.fixture
def houses() -> Iterator[list[House]]:
    made: list[House] = []
    yield made
    for house in made:
        house.grid.close()


def test_who_is_waited_for_and_not_enrolled_is_marked(tmp_path: Path, houses: list[House]) -> None:
    house = House(tmp_path, [Constant(3, 0), Constant(2, 1)])
    houses.append(house)
    enrolled = {
        "p0": identity_key(tmp_path / "p0").public_key().public_bytes_raw(),
        "p2": bytes(32),
    }

    class WaitedError(Exception):
        """Ends the wait, once its line was said."""

    def pause(_: float) -> None:
        if any("missing" in line for line in house.said):
            raise WaitedError

    exchange = house.exchange(enrolled=lambda: enrolled)
    vars(house.link)["pause"] = pause
    with pytest.raises(WaitedError):
        exchange.gather(["p0", "p1", "p2"])
    line = next(line for line in house.said if "missing" in line)
    assert line.endswith(("missing: p0, p1 (not enrolled), p2", "missing: p1 (not enrolled), p2"))


def test_a_roster_is_gathered_and_votes_come_from_all(tmp_path: Path, houses: list[House]) -> None:
    house = House(tmp_path, [Constant(3, 0), Constant(2, 1), Constant(1, 1)])
    houses.append(house)
    exchange = house.exchange()
    roster = exchange.gather(3)
    assert [(p.name, p.teachers) for p in roster] == [("p0", 3), ("p1", 2), ("p2", 1)]
    fix(exchange, roster, roster[0].classes)
    found = house.collect(exchange, least=3)
    np.testing.assert_array_equal(found.total.counts[0], [3, 3])
    assert found.responders == ("p0", "p1", "p2")


def test_the_one_party_with_other_classes_is_refused_and_the_campaign_lives(
    tmp_path: Path, houses: list[House]
) -> None:
    lists = [("x", "z"), ("x", "y"), ("x", "y"), ("x", "y")]
    house = House(tmp_path, [Constant(1, 0, each) for each in lists])
    houses.append(house)
    exchange = house.exchange()
    all_come(exchange, 4)
    assert [party.name for party in exchange.gather(3)] == ["p1", "p2", "p3"]
    while "p0" not in exchange._who.unwilling:
        exchange.look()
        exchange.carrier.pause(0)
    refusals = [voter.refusal for voter in house.voters]
    assert isinstance(refusals[0], SchemaError)
    assert "only ours have z; ours lack y" in str(refusals[0])
    assert "--classes x,y" in str(refusals[0])
    assert refusals[1:] == [None] * 3
    (line,) = [line for line in house.said if "names other classes" in line]
    assert line.startswith("p0 names other classes than ")
    assert "only p0 has z" in line
    assert any(line.startswith("p0 refused to join: its own") for line in house.said)
    assert exchange._waiting_line([], 3, {"p0", "p1"}).endswith("; missing: p1; refused: p0")


def test_no_single_party_decides_the_class_list(tmp_path: Path, houses: list[House]) -> None:
    """Of two that differ neither is refused: the coordinator reads what differs, and what helps."""
    house = House(tmp_path, [Constant(1, 0), Constant(1, 0, ("x", "z"))])
    houses.append(house)
    exchange = house.exchange()
    all_come(exchange, 2)
    present = [exchange._who.known[name] for name in exchange.here]
    assert agreed_classes(present, 2) is None
    line = exchange._waiting_line(present, 2, None)
    assert "p0 and p1 name different classes: only p0 has y, only p1 has z" in line
    assert "--classes" in line
    assert [voter.refusal for voter in house.voters] == [None, None]


@pytest.mark.parametrize(
    ("lists", "wanted", "agreed"),
    [
        ("", 1, None), ("x", 1, "x"), ("x", 2, None), ("xx", 2, "x"), ("xz", 2, None), ("xx", 3, "x"),
        ("xxz", 3, "x"), ("xzv", 3, None), ("xxzz", 4, None), ("xxzzz", 4, "z"), ("xxzz", 3, None),
    ],
)  # fmt: skip
def test_a_list_needs_more_than_half_of_the_wanted_parties(
    lists: str, wanted: int, agreed: str | None
) -> None:
    parties = [
        DescribedParty(f"p{at}", f"{at:064x}", 1, "record", ("a", each))
        for at, each in enumerate(lists)
    ]
    assert agreed_classes(parties, wanted) == (None if agreed is None else ("a", agreed))


def test_a_party_that_insists_on_other_classes_is_asked_once(
    tmp_path: Path, houses: list[House]
) -> None:
    house = House(tmp_path, [Constant(1, 0, ("x", "z")), Constant(1, 0), Constant(1, 0)])
    asked: list[vote_pb2.PartyRequest] = []

    def insists(body: bytes) -> bytes:
        request = request_in(body)
        if request.describe.agreed:
            asked.append(request)
            del request.describe.agreed[:]
            body = wire.sign_request(request, SERVER_KEY)
        return house.voters[0].handle(body)

    handlers = [insists, house.voters[1].handle, house.voters[2].handle]
    house.grid.close()
    house.grid = LocalGrid([make_client_app(each) for each in handlers])
    house.link = Quick(house.grid)
    houses.append(house)
    exchange = house.exchange()
    all_come(exchange, 3)
    assert [party.name for party in exchange.gather(2)] == ["p1", "p2"]
    while not any("does not refuse" in line for line in house.said):
        exchange.look()
        exchange.carrier.pause(0)
    exchange.look()
    assert len(asked) == 1
    assert "p0" not in exchange.here


def test_a_party_whose_description_is_not_accepted_is_named(
    tmp_path: Path, houses: list[House]
) -> None:
    house = House(tmp_path, [Constant(1, 0), Constant(1, 0, ("x", "\u202ey"))])
    houses.append(house)
    exchange = house.exchange()
    assert [party.name for party in exchange.gather(1)] == ["p0"]
    while not any("sent an invalid reply" in line for line in house.said):
        exchange.look()
        exchange.carrier.pause(0)
    (line,) = [line for line in house.said if "sent an invalid reply" in line]
    assert re.match(r"p1 \(node \d+\): .*: a class name that is empty, too long", line)


def test_with_a_declared_class_list_a_party_may_lack_a_class(
    tmp_path: Path, houses: list[House]
) -> None:
    house = House(tmp_path, [Constant(1, 0), Constant(1, 2, ("x", "z"))])
    houses.append(house)
    exchange = house.exchange(("x", "y", "z"))
    roster = exchange.gather(2)
    fix(exchange, roster, ("x", "y", "z"))
    found = house.collect(exchange, least=2)
    np.testing.assert_array_equal(found.total.counts[0], [1, 0, 1])


def test_after_a_restart_a_party_may_still_lack_a_class(
    tmp_path: Path, houses: list[House]
) -> None:
    house = House(tmp_path, [Constant(1, 2, ("x", "z"))])
    houses.append(house)
    exchange = house.exchange(("x", "y", "z"))
    key = house.voters[0]._identity.public_key().public_bytes_raw()
    # As in the ledger, which does not contain the classes of a party's own data.
    fix(exchange, [RosterParty("p0", key.hex(), 1, "record")], ("x", "y", "z"))
    assert house.collect(exchange, least=1).responders == ("p0",)


def test_a_party_that_leaves_is_done_without_when_enough_are_left(
    tmp_path: Path, houses: list[House]
) -> None:
    house = House(tmp_path, [Constant(1, 0), Constant(1, 1), Constant(1, 1)])
    houses.append(house)
    exchange = house.exchange()
    roster = exchange.gather(3)
    fix(exchange, roster, roster[0].classes)
    house.grid.leave(FIRST_NODE)
    assert house.collect(exchange, least=2, patience=0.2).responders == ("p1", "p2")
    assert any("continuing without p0" in line for line in house.said)
    assert [line.split(";")[0] for line in house.said if "left" in line] == ["p0 has left"]


def test_a_party_that_comes_back_is_asked_again(tmp_path: Path, houses: list[House]) -> None:
    house = House(tmp_path, [Constant(1, 0), Constant(1, 1)])
    houses.append(house)
    exchange = house.exchange()
    roster = exchange.gather(2)
    fix(exchange, roster, roster[0].classes)
    house.grid.leave(FIRST_NODE)
    threading.Timer(0.3, house.grid.come_back, [FIRST_NODE]).start()
    assert house.collect(exchange, least=2).responders == ("p0", "p1")
    of_p0 = [line for line in house.said if line.startswith("p0 has left") or "p0 is back" in line]
    assert ["back" in line.split(";")[0] for line in of_p0] == [False, True]


def test_a_vote_that_does_not_sum_is_refused_by_name(
    tmp_path: Path, houses: list[House], monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = wire.pack_votes

    def greedy(
        votes: Counts, *, teachers: int, batch: bytes, code: Code | None
    ) -> vote_pb2.VoteMatrix:
        made = honest(votes, teachers=teachers, batch=batch, code=code)
        if teachers == 2:
            made.counts = bytes(2 * count for count in made.counts)
        return made

    monkeypatch.setattr(wire, "pack_votes", greedy)
    house = House(tmp_path, [Constant(3, 0), Constant(2, 1)])
    houses.append(house)
    exchange = house.exchange()
    roster = exchange.gather(2)
    fix(exchange, roster, roster[0].classes)
    assert house.collect(exchange, least=1).responders == ("p0",)
    assert any(line.startswith("p1: sent an invalid reply") for line in house.said)


def test_a_party_that_the_roster_has_otherwise_does_not_vote(
    tmp_path: Path, houses: list[House]
) -> None:
    house = House(tmp_path, [Constant(3, 0), Constant(6, 1)])
    houses.append(house)
    exchange = house.exchange()
    roster = exchange.gather(2)
    other = RosterParty("p1", roster[1].identity, 3, "record")
    fix(exchange, [roster[0], other], ("x", "y"))
    assert house.collect(exchange, least=1).responders == ("p0",)
    assert any(line.startswith("p1: refused (ProtocolError)") for line in house.said)


def test_too_few_parties_end_the_batch(tmp_path: Path, houses: list[House]) -> None:
    class Broken(Constant):
        def vote(
            self, public: Inputs, rows: Sequence[int], classes: Sequence[str], code: Code
        ) -> Counts:
            raise ValueError("secret 42")

    house = House(tmp_path, [Constant(1, 0), Broken(1, 0)])
    houses.append(house)
    exchange = house.exchange()
    roster = exchange.gather(2)
    fix(exchange, roster, roster[0].classes)
    with pytest.raises(QuorumError, match="the campaign needs 2"):
        house.collect(exchange, least=2)
    assert any("p1: failed (raised Exception)" in line for line in house.said)
    assert not any("42" in line for line in house.said)


def test_nobody_takes_a_name_over(tmp_path: Path, houses: list[House]) -> None:
    house = House(tmp_path, [Constant(1, 0), Constant(1, 1)])
    houses.append(house)
    exchange = house.exchange()
    pinned = [
        RosterParty("p0", "00" * 32, 1, "record"),
        RosterParty(
            "p1", house.voters[1]._identity.public_key().public_bytes_raw().hex(), 1, "record"
        ),
    ]
    fix(exchange, pinned, ("x", "y"))
    assert house.collect(exchange, least=1, patience=0.5).responders == ("p1",)
    assert any("another party uses the name p0" in line for line in house.said)


def test_a_roster_does_not_change_within_a_campaign(tmp_path: Path, houses: list[House]) -> None:
    house = House(tmp_path, [Constant(1, 0), Constant(2, 1)])
    houses.append(house)
    exchange = house.exchange()
    keys = [voter._identity.public_key().public_bytes_raw() for voter in house.voters]
    fix(
        exchange,
        [RosterParty(f"p{at}", key.hex(), 1, "record") for at, key in enumerate(keys)],
        ("x", "y"),
    )
    assert house.collect(exchange, least=1, patience=0.5).responders == ("p0",)
    assert any("a roster does not change" in line for line in house.said)


def listening(house: House) -> list[tuple[str, str, bool]]:
    """Note for each request who is asked what, and whether the campaign is in it."""
    sent: list[tuple[str, str, bool]] = []

    def noting(voter: Voter) -> Callable[[bytes], bytes]:
        def handle(body: bytes) -> bytes:
            request = request_in(body)
            whole = bool(request.campaign)
            assert whole != bool(request.digest)
            sent.append((voter._name, request.WhichOneof("body") or "", whole))
            return voter.handle(body)

        return handle

    house.grid.close()
    house.grid = LocalGrid([make_client_app(noting(voter)) for voter in house.voters])
    house.link = Quick(house.grid)
    return sent


def test_the_campaign_is_sent_once_and_again_to_who_lost_it(
    tmp_path: Path, houses: list[House]
) -> None:
    house = House(tmp_path, [Constant(3, 0), Constant(2, 1), Constant(1, 1)], public=PUBLIC)
    sent = listening(house)
    houses.append(house)
    exchange = house.exchange(aggregation="masked", min_parties=3, colluders=1)
    roster = exchange.gather(3)
    fix(exchange, roster, roster[0].classes)

    def sum_over(*rows: int) -> list[int]:
        hashes = PUBLIC.row_hashes()
        batch = Batch(rows, batch_hash([hashes[row] for row in rows]))
        asked = MaskedAggregation(exchange.campaign, roster, batch)
        found = exchange.collect(asked, Quorum(3, 60.0))
        return [int(count) for count in found.total.counts[0]]

    def whole() -> list[tuple[str, str]]:
        asked = [(name, what) for name, what, whole in sent if whole]
        del sent[:]
        return sorted(asked)

    del sent[:]
    assert sum_over(0, 1) == [3, 3]
    steps = Counter(name for name, _, _ in sent)
    assert steps == {"p0": 5, "p1": 5, "p2": 5}
    assert whole() == [("p0", "ask_keys"), ("p1", "ask_keys"), ("p2", "ask_keys")]
    assert sum_over(2, 3) == [3, 3]
    assert whole() == []
    # A process that restarts before the server notices asks for it.
    house.voters[0]._campaigns = Campaigns()
    assert sum_over(4, 5) == [3, 3]
    assert whole() == [("p0", "ask_keys")]


def test_a_party_may_answer_each_request_in_another_process(
    tmp_path: Path, houses: list[House]
) -> None:
    house = House(tmp_path, [Constant(3, 0), Constant(2, 1)], public=PUBLIC)
    sent = listening(house)
    houses.append(house)
    exchange = house.exchange()
    roster = exchange.gather(2)
    fix(exchange, roster, roster[0].classes)
    del sent[:]
    for _ in range(5):
        for voter in house.voters:
            voter._campaigns = Campaigns()
        np.testing.assert_array_equal(house.collect(exchange, least=2).total.counts[0], [3, 2])
    asked = Counter(sent)
    assert asked == Counter(
        {
            (name, "ask", whole): 5 if whole else 4
            for name in ("p0", "p1")
            for whole in (True, False)
        }
    )
    assert not any("failed" in line or "invalid" in line for line in house.said)


def test_all_parties_hear_of_the_end(tmp_path: Path, houses: list[House]) -> None:
    house = House(tmp_path, [Constant(1, 0), Constant(1, 1)])
    houses.append(house)
    exchange = house.exchange()
    roster = exchange.gather(2)
    fix(exchange, roster, roster[0].classes)
    exchange.finish(
        vote_pb2.Finish(queries_asked=3, labels_released=2, epsilon_cap=WORTH, delta=1e-5),
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
    fix(exchange, roster, roster[0].classes)
    assert house.collect(exchange, least=1).responders == ("p0",)
    assert not (tmp_path / "p0" / "public").exists()


def test_many_parties_are_counted_and_a_few_of_them_named(
    tmp_path: Path, houses: list[House]
) -> None:
    house = House(tmp_path, [Constant(1, 0)] * 17)
    houses.append(house)
    exchange = house.exchange()
    roster = exchange.gather(17)
    fix(exchange, roster, roster[0].classes)
    for at in range(10):
        house.grid.leave(FIRST_NODE + at)
    house.collect(exchange, least=7, patience=0.2)
    named = ", ".join(sorted(f"p{at}" for at in range(10))[:8])
    assert f"continuing without {named}, … (10 in all): no answer in 0.2 s" in house.said
    assert not any("joined" in line for line in house.said)


def test_as_many_names_as_a_line_holds_are_all_there() -> None:
    names = [f"p{at}" for at in range(9)]
    assert listed(names[:8]) == "p0, p1, p2, p3, p4, p5, p6, p7"
    assert listed(names) == "p0, p1, p2, p3, p4, p5, p6, p7, … (9 in all)"
    assert listed([]) == ""
