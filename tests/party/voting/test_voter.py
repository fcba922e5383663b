"""A party's side of the protocol, bytes to bytes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from party.identity.keys import identity_key
from party.ledger.ledger import PartyLedger
from party.policy.hours import Hours
from party.policy.policy import Policy
from party.voting.voter import Voter
from party.voting.voters import ReadyVoters
from pate.codes import Code
from pate.data.values import Images, Inputs, Table, batch_hash, content_hash
from pate.errors import DiskError, SchemaError, StateError, UsageError
from pate.votes import Counts
from protos import wire
from protos.pate.v1 import vote_pb2
from protos.public_set import pack_public_set
from tests.support.campaign_messages import (
    WORTH,
    CampaignMessage,
    campaign_message,
    site,
    terms_message,
)
from tests.support.party import asked
from tests.support.party.asked import tell
from tests.support.simulated_noise import SimulatedNoise

PUBLIC = Images(np.random.default_rng(1).integers(0, 255, (6, 4, 4, 1), dtype=np.uint8))


@dataclass
class Parity:
    """Three teachers that agree on whether the pixel sum is odd; counts what it was asked."""

    teachers: int = 3
    classes: tuple[str, ...] = ("even", "odd")
    unit: str = "record"
    schema: str = "images 4x4x1"
    answer: str = "class"
    fingerprint: bytes = b"f" * 32
    asked: list[int] = field(default_factory=list)

    def conform(self, inputs: Inputs) -> Inputs:
        return inputs

    def vote(
        self, public: Inputs, rows: Sequence[int], classes: Sequence[str], code: Code
    ) -> Counts:
        inputs = public.take(list(rows))
        assert isinstance(inputs, Images)
        self.asked.append(len(inputs))
        odd = inputs.pixels.astype(np.int64).sum(axis=(1, 2, 3)) % 2
        votes = np.zeros((len(inputs), len(classes)), dtype=np.int64)
        place = [classes.index(name) for name in self.classes]
        votes[np.arange(len(inputs)), np.array(place)[odd]] = self.teachers
        return votes


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def campaign(
    public: Inputs = PUBLIC, home: Path | None = None, **changes: object
) -> CampaignMessage:
    """The campaign; with the home of a party, on terms that have it on the roster."""
    changes.setdefault("classes", ["odd", "even"])
    terms = None
    if home is not None:
        key = identity_key(home).public_key().public_bytes_raw()
        terms = terms_message([("a", key, 3)])
    return campaign_message(public, terms, **changes)


def describe(voter: Voter, about: CampaignMessage | None = None) -> vote_pb2.Reply:
    return tell(voter, asked.describe(), about or campaign())


def send_public(voter: Voter, size: int = 50) -> list[vote_pb2.Reply]:
    describe(voter)
    body = pack_public_set(PUBLIC)
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    replies = []
    for index in reversed(range(len(pieces))):  # no order of arrival is promised
        request = vote_pb2.PartyRequest()
        request.public_piece.index, request.public_piece.pieces = index, len(pieces)
        request.public_piece.content = pieces[index]
        replies.append(tell(voter, request, campaign()))
    return replies


def vote(home: Path, voter: Voter, first: int = 0, count: int = 6) -> vote_pb2.Reply:
    return tell(voter, asked.ask(PUBLIC, range(first, first + count)), campaign(home=home))


def make(
    home: Path,
    ensemble: Parity | None = None,
    public: Inputs | None = None,
    policy: Policy | None = None,
) -> Voter:
    return asked.Asked(home, ReadyVoters(ensemble or Parity()), policy=policy, public=public).voter


def test_noise_shares_from_a_seed_are_refused(home: Path) -> None:
    with pytest.raises(UsageError, match="seeded source gives no protection"):
        Voter(
            name="a", identity=identity_key(home), voters=ReadyVoters(Parity()), home=home, site=site(home),
            noise=SimulatedNoise(1),
        )  # fmt: skip


def test_a_party_says_who_it_is_and_no_more(home: Path) -> None:
    said = describe(make(home)).description
    assert said.teachers == 3
    assert list(said.classes) == ["odd", "even"]  # the campaign's, in its order
    assert said.unit == "record"
    assert said.public_set == b""


def test_votes_come_in_the_campaigns_class_order_and_sum_to_k(home: Path) -> None:
    voter = make(home, public=PUBLIC)
    reply = vote(home, voter)
    votes = wire.read_votes(
        reply.votes, teachers=3, classes=2, queries=6, batch=batch_hash(PUBLIC.row_hashes())
    )
    odd = PUBLIC.pixels.astype(int).sum(axis=(1, 2, 3)) % 2
    np.testing.assert_array_equal(votes[:, 0], np.where(odd, 3, 0))


def test_the_public_set_may_arrive_in_any_order_and_survives_a_restart(home: Path) -> None:
    replies = send_public(make(home))
    assert [bool(r.receipt.public_set) for r in replies] == [False] * (len(replies) - 1) + [True]
    again = make(home)
    assert describe(again).description.public_set == content_hash(PUBLIC)
    assert vote(home, again).WhichOneof("body") == "votes"


def test_a_damaged_copy_on_disk_is_asked_for_again(home: Path) -> None:
    send_public(make(home))
    (stored,) = (home / "public").iterdir()
    stored.write_bytes(stored.read_bytes()[:-1])
    assert describe(make(home)).description.public_set == b""


def test_the_same_query_is_computed_once_also_after_a_restart(home: Path) -> None:
    first = Parity()
    one = vote(home, make(home, first, PUBLIC), 0, 4).votes.counts
    second = Parity()
    two = vote(home, make(home, second, PUBLIC), 0, 6).votes.counts
    assert first.asked == [4]
    assert second.asked == [2]
    assert two[:8] == one


def test_new_data_means_new_votes_but_not_in_the_same_campaign(home: Path) -> None:
    """There the difference of the two would show what is new."""
    vote(home, make(home, Parity(), PUBLIC))
    changed = Parity(fingerprint=b"g" * 32)
    voter = make(home, changed, PUBLIC)
    assert vote(home, voter).refusal.kind == "RefusedError"
    other = campaign(home=home, id=b"d" * 16)
    assert tell(voter, asked.ask(PUBLIC), other).WhichOneof("body") == "votes"
    assert changed.asked == [6]


@pytest.mark.parametrize(("epsilon", "delta"), [(0.001, 1e-5), (0.9, 1e-5), (WORTH, 1e-6)])
def test_an_end_at_another_guarantee_than_was_agreed_to(
    home: Path, epsilon: float, delta: float
) -> None:
    voter = make(home, public=PUBLIC)
    vote(home, voter)
    request = vote_pb2.PartyRequest()
    request.finish.epsilon_cap, request.finish.delta = epsilon, delta
    # Even if the message itself now says that this was announced.
    about = campaign(home=home, delta=delta)
    assert tell(voter, request, about).refusal.kind == "ProtocolError"
    assert voter.ending is None


class Narrow(Parity):
    """Uses only the first column of a table."""

    def conform(self, inputs: Inputs) -> Inputs:
        assert isinstance(inputs, Table)
        return Table(inputs.names[:1], inputs.columns[:1])

    def vote(
        self, public: Inputs, rows: Sequence[int], classes: Sequence[str], code: Code
    ) -> Counts:
        inputs = public.take(list(rows))
        self.asked.append(len(inputs))
        return np.tile(np.array([3, 0], dtype=np.int64), (len(inputs), 1))


def test_a_column_that_nobody_looks_at_makes_no_new_query(home: Path) -> None:
    x, dummy = np.array([1.0, 2.0]), np.array([7.0, 8.0])
    seen = []
    for table, name in ((Table(("x",), (x,)), b"d"), (Table(("x", "y"), (x, dummy)), b"e")):
        teachers = Narrow(schema="table x:number")
        voter = make(home, teachers, table)
        about = campaign(table, home=home, id=name * 16)
        assert tell(voter, asked.ask(table), about).WhichOneof("body") == "votes"
        seen.append(teachers.asked)
    assert seen == [[2], []]


def test_the_ledger_says_which_columns_the_teachers_saw(home: Path) -> None:
    """By them, and not by what is in them, two answers are known to be comparable."""
    views = []
    for schema, name in (("table x:number", b"d"), ("table x:number, y:number", b"e")):
        table = Table(("x", "y"), (np.array([1.0, 2.0]), np.array([7.0, 8.0])))
        voter = make(home, Narrow(schema=schema), table)
        about = campaign(table, home=home, id=name * 16)
        assert tell(voter, asked.ask(table), about).WhichOneof("body") == "votes"
        views.append(voter._site.ledger.campaigns()[-1].view)
    assert len(set(views)) == 2
    vote(home, voter := make(home, public=PUBLIC))
    assert [each.view for each in voter._site.ledger.campaigns()] == [*views, "images"]


def test_votes_before_the_public_set_are_refused(home: Path) -> None:
    assert vote(home, make(home)).refusal.kind == "ProtocolError"


def test_more_queries_than_the_public_set_has_are_refused(home: Path) -> None:
    request = vote_pb2.PartyRequest()
    request.ask.batch.rows.append(10**9 - 1)
    request.ask.batch.digest = b"x" * 32
    voter = make(home, public=PUBLIC)
    about = campaign(home=home, queries=10**9)
    assert tell(voter, request, about).refusal.kind == "ProtocolError"


def test_queries_with_another_hash_are_refused(home: Path) -> None:
    request = asked.ask(PUBLIC)
    request.ask.batch.digest = b"x" * 32
    voter = make(home, public=PUBLIC)
    assert tell(voter, request, campaign(home=home)).refusal.kind == "ProtocolError"


@pytest.mark.parametrize(
    "about",
    [
        campaign(unit="patient"),
        campaign(schema="images 28x28x1"),
        campaign(public_set=b"x" * 32),
    ],
    ids=["unit", "schema", "public set"],
)
def test_a_campaign_that_does_not_fit_is_refused_and_no_more_is_said(
    home: Path, about: CampaignMessage
) -> None:
    voter = make(home, public=PUBLIC)
    reply = describe(voter, about)
    assert reply.refusal.kind == "RefusedError"
    assert isinstance(voter.refusal, SchemaError)


def test_a_class_that_the_campaign_lacks_is_refused(home: Path) -> None:
    about = campaign()
    about.classes = ["even", "prime"]
    voter = make(home)
    assert describe(voter, about).refusal.kind == "RefusedError"
    assert "odd" in str(voter.refusal)


def test_a_full_disk_stops_the_vote_and_ends_the_party(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise DiskError("cannot write: No space left on device")

    voter = make(home)
    monkeypatch.setattr("party.voting.received.write_file", full)
    assert send_public(voter, size=10_000)[-1].refusal.kind == "DiskError"
    # The server asks it no more until it connects anew: to stay would be to wait for nothing.
    assert isinstance(voter.refusal, DiskError)


def test_a_policy_that_refuses_late_ends_the_party_all_the_same(home: Path) -> None:
    """Nothing is known of noise before the roster is: joining is allowed, voting is not."""
    strict = dataclasses.replace(Policy.default(loopback=True), least_sigma=Fraction(1000))
    voter = make(home, public=PUBLIC, policy=strict)
    assert describe(voter).WhichOneof("body") == "description"
    assert voter.refusal is None
    assert vote(home, voter).refusal.kind == "RefusedError"
    assert "least_sigma is 1000" in str(voter.refusal)


def test_outside_its_hours_a_party_stays(home: Path) -> None:
    never = Hours.parse("03:00-03:01", ["mon"])
    away = dataclasses.replace(Policy.default(loopback=True), hours=never)
    voter = make(home, public=PUBLIC, policy=away)
    voter._site._clock = lambda: datetime.fromisoformat("2030-01-08T12:00")  # a Tuesday
    assert vote(home, voter).refusal.kind == "RefusedError"
    assert voter.refusal is None


def test_the_end_is_heard(home: Path) -> None:
    voter = make(home, public=PUBLIC)
    vote(home, voter)
    request = vote_pb2.PartyRequest()
    request.finish.queries_asked, request.finish.labels_released = 6, 4
    request.finish.epsilon_cap, request.finish.delta = WORTH, 1e-5
    assert tell(voter, request, campaign(home=home)).WhichOneof("body") == "farewell"
    assert voter.ending is not None
    assert (voter.ending.labels_released, voter.ending.votes_given) == (4, 6)


def early() -> vote_pb2.PartyRequest:
    """An end before any votes, as the server reports it where no votes can reach its threshold."""
    request = vote_pb2.PartyRequest()
    request.finish.epsilon_cap, request.finish.delta = WORTH, 1e-5
    request.finish.cause = "threshold"
    return request


def test_an_end_before_any_votes_is_heard_and_recorded(home: Path) -> None:
    voter = make(home, public=PUBLIC)
    about = campaign(home=home)
    describe(voter, about)
    assert tell(voter, early(), about).WhichOneof("body") == "farewell"
    assert voter.ending is not None
    assert (voter.ending.cause, voter.ending.votes_given) == ("threshold", 0)
    (record,) = PartyLedger(home / "ledger.db", read_only=True).campaigns()
    assert record.ending is not None
    assert record.ending.cause == "threshold"


def test_one_that_had_votes_of_ours_does_not_end_as_if_it_had_none(home: Path) -> None:
    voter = make(home, public=PUBLIC)
    vote(home, voter)
    assert tell(voter, early(), campaign(home=home)).refusal.kind == "ProtocolError"
    assert voter.ending is None


def test_a_damaged_key_is_not_replaced_behind_ones_back(home: Path) -> None:
    make(home)
    (home / "identity.key").write_bytes(b"short")
    with pytest.raises(StateError, match="damaged"):
        identity_key(home)


def test_keys_are_private_to_their_owner(home: Path) -> None:
    make(home)
    assert (home / "identity.key").stat().st_mode & 0o077 == 0


def test_a_table_has_no_size_to_compare(home: Path) -> None:
    table = Table(("x",), (np.array([1.0, 2.0]),))
    about = campaign(table)
    voter = make(home, Parity(schema="table x:number, y:number"))
    assert describe(voter, about).WhichOneof("body") == "description"
