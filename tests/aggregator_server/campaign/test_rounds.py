"""Rounds in which records vote: models, charges, and what a server may ask of a party in them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from aggregator_server.campaign import neighbour
from aggregator_server.exchange import exchange
from aggregator_server.ledger.ledger import Ledger
from aggregator_server.ledger.verify import verify
from aggregator_server.monitoring.status import Status
from aggregator_server.results import report
from aggregator_server.results.statement import privacy_statement, server_epsilon
from party.voting.neighbour import NeighbourVotes
from party.voting.voters import ReadyVoters
from pate.accounting.filters import Delta
from pate.campaign.options import MechanismOptions
from pate.campaign.order import query_of_round
from pate.campaign.settings import spec_of
from pate.data.embeddings import Embeddings
from pate.data.values import Dataset, batch_hash
from pate.errors import (
    BudgetError,
    LedgerError,
    ProtocolError,
    QuorumError,
    RefusedError,
    UsageError,
)
from pate.mechanisms import rounds_cost
from pate.rounds.model import MOST_CUT, RoundModel
from pate.rounds.solver import next_model
from pate.votes import NoisySum
from protos import wire
from protos.pate.v1 import vote_pb2
from protos.terms import packed
from tests.support.campaign_messages import SERVER_KEY, campaign_in, request_in
from tests.support.world.in_process import Killed, Parties, World, kills, reached
from tests.support.world.kinds import PUBLIC as PUBLIC_SETS
from tests.support.world.kinds import ROWS, EveryWorld, every_kind

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from aggregator_server.ledger.state import CampaignState
    from party.voting.voter import Voter
    from pate.campaign.offer import Offer

#: Failpoints that have their case here.
FAILPOINTS = frozenset({"model-made", "model-recorded"})
KINDS = {
    (each.aggregation, each.noise): each
    for each in every_kind()
    if each.rounds and (each.inputs, each.unit, each.several) == ("embeddings", "record", False)
}
MASKED = KINDS["masked", "distributed"]
PUBLIC_ROWS = PUBLIC_SETS["embeddings"]
CLASSES = 3
WIDTH = 4
PUBLIC = 120
#: Of each party.
RECORDS = 250
NAMES = ("a", "b", "c", "d")
_CENTRES = np.random.default_rng(3).normal(size=(CLASSES, WIDTH)) * 2


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "_FAREWELL_S", 0.0)
    monkeypatch.setattr(exchange, "_RETURN_S", 0.0)


def drawn(number: int, *seed: int) -> tuple[Embeddings, NDArray[np.int64]]:
    """Points about a centre for each class, half of them of the first."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(CLASSES, number, p=[0.5, 0.3, 0.2]).astype(np.int64)
    points = _CENTRES[labels] + rng.normal(size=(number, WIDTH))
    return Embeddings(
        (points * 3000).clip(-32000, 32000).astype(np.int16), "texts", "ab" * 32
    ), labels


class Clusters(World):
    """Four parties with records of three classes."""

    def __init__(self, root: Path) -> None:
        public, self.truth = drawn(PUBLIC, 1)
        super().__init__(root, NAMES, public)

    def voter(self, name: str, **changes: Any) -> Voter:
        inputs, labels = drawn(RECORDS, 2, NAMES.index(name))
        data = Dataset(inputs, labels, ("0", "1", "2"), None)
        return super().voter(
            name, voters=ReadyVoters(records=NeighbourVotes(data, b"key")), **changes
        )

    def create(self, number: int = 0, **terms: Any) -> Path:
        stated = {
            "aggregator": "neighbour", "aggregation": "masked", "noise": "distributed", "epsilon": 4.0,
            "classes": ("0", "1", "2"), "representatives": tuple(range(0, 80, 10)), "rounds": 4,
            "code": "dense-8 residual", "most_votes": 2**16, "votes_per_patient": 1, "encoder": "tiny",
        }  # fmt: skip
        made = super().create(number, **(stated | terms))
        for name in NAMES:
            self.parties.start(name)
        return made


def campaign(root: Path, kind: Any = MASKED, **terms: Any) -> EveryWorld:
    world = EveryWorld(root, kind)
    world.create(**terms)
    return world


def model(cut: int = 700, *, size: int = 0) -> RoundModel:
    """Any model of a campaign of these kinds."""
    return RoundModel(np.full((len(ROWS), CLASSES), size, dtype=np.int64), cut)


# --- the whole of it ---------------------------------------------------------------------------------


@pytest.mark.parametrize("sums", [("masked", "distributed"), ("plain", "central")])
def test_the_final_model_beats_the_class_shares(
    sums: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    world = Clusters(tmp_path)
    place = world.create(aggregation=sums[0], noise=sums[1])
    world.serve()
    assert verify(place).phase == "finished"
    state = world.state()
    assert (len(state.released), len(state.models), len(state.batches)) == (4, 4, 4)
    noisy = report.label_set(place.parent).noisy
    assert noisy is not None
    from student.chances.sums import rounds_chances

    chances = rounds_chances(world.public, noisy)
    assert chances is not None
    right = float((chances.argmax(axis=1) == world.truth).mean())
    assert right > np.bincount(world.truth).max() / PUBLIC + 0.2
    # The first round counted the records, within eight standard deviations for each class.
    counts, sigma = noisy.class_counts
    truth = sum(
        np.bincount(drawn(RECORDS, 2, at)[1], minlength=CLASSES) for at in range(len(NAMES))
    )
    assert np.abs(counts - truth).max() < 8 * sigma
    assert "round 2 of 4: noisy sums of disagreement released, the model of round 3 is stored" in (
        world.lines.said
    )
    # The rows of its sums are directions, and no queries of the public set.
    monkeypatch.setenv("COLUMNS", "200")
    capsys.readouterr()
    report.show(report.describe(place.parent))
    shown = capsys.readouterr().out
    directions = len(state.voted.rows)
    assert f"{directions} directions in class counts and 3 rounds; the public set has" in shown
    assert "│ queries" not in shown
    with Ledger.open(place) as ledger:
        queries = Status(ledger).overview().queries
    assert (queries.directions, queries.asked, queries.labelled) == (
        directions,
        4 * directions,
        False,
    )


def test_all_rounds_are_what_the_campaign_promises(tmp_path: Path) -> None:
    """And a party's own figure is all of it from its first vote on."""
    world = campaign(tmp_path, epsilon=2.0)
    figures: list[float] = []

    def look(name: str, step: str) -> None:
        if (name, step) == ("a", "ask_consent"):
            figures.append(world.ledger("a").cumulative_epsilon(Delta(1e-5)).epsilon)

    world.parties.before = look
    world.serve()
    state = world.state()
    assert state.spent == state.cap == rounds_cost(state.currency, state.mechanisms, 3)
    assert 1.999 < privacy_statement(state).epsilon <= 2.0
    worth = state.epsilon_of(state.cap)
    assert server_epsilon(state) == worth
    assert len(figures) == 3
    assert len(set(figures)) == 1
    assert figures[0] >= worth
    # Class counts have a part of mu^2 that is small, and the others equal ones.
    first, later = (each.worst for each in state.mechanisms)
    ratio = state.currency.cost(first[0]) / state.currency.cost(later[0])
    assert 0.06 < float(ratio) < 0.0625


# --- killed ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("point", "round_"),
    # The first has no model before it, and the last no round after it.
    [("charge-recorded", 1), ("noise-drawn", 1), ("noise-drawn", 2), ("charge-recorded", 3)],
)
def test_a_round_that_is_killed_behind_its_charge_is_the_last(
    point: str, round_: int, tmp_path: Path
) -> None:
    """It is charged, its noise is drawn once, and the model before it is published."""
    world = campaign(tmp_path, KINDS["plain", "central"])
    with kills(reached(point, round_)), pytest.raises(Killed):
        world.serve()
    before = world.state()
    world.serve()
    state = world.state()
    assert (state.phase, state.round) == ("finished", round_)
    assert len(state.released) == len(state.models) == round_ - 1
    assert state.models == before.models
    assert state.wasted == before.open_charge.cost  # type: ignore[union-attr]
    assert state.spent == rounds_cost(state.currency, state.mechanisms, round_)
    labels = report.label_set(world.place(0).parent)
    if round_ == 1:
        assert labels.noisy is None
    else:
        assert labels.noisy is not None
        assert labels.noisy.model == state.models[-1]
    assert verify(world.place(0)).wasted == state.wasted


@pytest.mark.parametrize("point", sorted(FAILPOINTS))
def test_a_round_shows_the_stored_model_after_a_restart(
    point: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = campaign(tmp_path)
    with kills(point.__eq__), pytest.raises(Killed):
        world.serve()
    stored = world.state().models
    assert len(stored) == (point == "model-recorded")
    if stored:
        # Whatever another version would make of the same sums.
        def other(*of: Any) -> RoundModel:
            found = next_model(*of)
            return replace(found, cut=min(found.cut + 1, MOST_CUT))

        monkeypatch.setattr(neighbour, "next_model", other)
    world.serve()
    shown = [
        asked.ask_keys.batch.shown
        for asked in (request_in(body) for body, _ in world.parties.sent)
        if asked.HasField("ask_keys") and asked.ask_keys.batch.round == 2
    ]
    assert {*shown} == {world.state().models[0].to_bytes()}
    assert not stored or world.state().models[0] == stored[0]


# --- parties that are lost ------------------------------------------------------------------------------


class Losing(Clusters):
    """Some of its parties are gone from a round on, and come back when the server is started again.

    Attributes:
        lost: their names.
        round: from which on.
        step: of that round, from which on.
    """

    lost: tuple[str, ...] = ()
    round = 2
    step = "ask_keys"

    def serve(self, number: int = 0, *, patience: float = 0.05, **how: Any) -> None:
        def look() -> None:
            sent = [request_in(body) for body, _ in self.parties.sent[-8:]]
            begun = any(each.ask_keys.batch.round >= self.round for each in sent)
            if begun and self.lost and (self.step == "ask_keys" or self.asked_for(self.step)):
                for name in self.lost:
                    self.parties.leave(name)

        self.parties.each_look = look
        super().serve(number, patience=patience, **how)

    def asked_for(self, step: str) -> bool:
        """Whether this step of the round was asked."""
        return [name for _, name in self.parties.asked].count(step) > 4 * (self.round - 1)

    def back(self) -> None:
        """All parties are there, from now on."""
        self.lost = ()
        for name in NAMES:
            self.parties.start(name)


def test_a_campaign_goes_on_without_a_party_that_is_lost_between_rounds(tmp_path: Path) -> None:
    world = Losing(tmp_path)
    world.lost = ("d",)
    place = world.create()
    world.serve()
    assert verify(place).phase == "finished"
    state = world.state()
    assert [each.responders for each in state.batches] == [NAMES, *[("a", "b", "c")] * 3]
    assert [each.survivors for each in state.openings] == [
        each.responders for each in state.batches
    ]
    assert state.spent == state.cap
    assert "continuing without d: no answer in 0.05 s" in world.lines.said
    (record,) = world.ledger("d").campaigns()
    assert len(record.opened) == 1
    # All rounds are counted at a party that was in one, and the model is as good as of three parties.
    assert world.ledger("d").cumulative_epsilon(Delta(1e-5)).epsilon >= state.epsilon
    from student.chances.sums import rounds_chances

    noisy = report.label_set(place.parent).noisy
    assert noisy is not None
    chances = rounds_chances(world.public, noisy)
    assert chances is not None
    right = float((chances.argmax(axis=1) == world.truth).mean())
    assert right > np.bincount(world.truth).max() / PUBLIC + 0.2


@pytest.mark.parametrize("returns", [False, True])
def test_with_too_few_parties_the_released_rounds_can_be_published(
    returns: bool, tmp_path: Path
) -> None:
    """The server ends, and says how; what was released is not asked, nor charged, again."""
    world = Losing(tmp_path)
    world.lost, world.round = ("c", "d"), 3
    place = world.create()
    with pytest.raises(QuorumError) as ended:
        world.serve()
    assert "c, d did not come back in 0.05 s, and this sum needs 3 of 4" in str(ended.value)
    assert (
        "`pate-server resume --close` ends the campaign with the model of the 2 rounds that were"
        in str(ended.value)
    )
    before = world.state()
    assert len(before.released) == len(before.models) == 2
    world.back()
    if not returns:
        Ledger.open(place, close=True).close()
    world.serve()
    state = world.state()
    assert state.phase == "finished"
    assert state.models[:2] == before.models
    noisy = report.label_set(place.parent).noisy
    assert noisy is not None
    assert noisy.model == state.models[-1]
    released = 4 if returns else 2
    assert len(state.released) == len(state.models) == len(state.batches) == released
    assert state.spent == rounds_cost(state.currency, state.mechanisms, released)
    assert state.wasted == 0
    assert privacy_statement(state).epsilon == state.epsilon
    world.ledger("c").verify()


@pytest.mark.parametrize("lost", [(), ("d",)], ids=["all", "three"])
def test_a_round_whose_unmasking_has_begun_has_its_parties_and_no_others(
    lost: tuple[str, ...], tmp_path: Path
) -> None:
    """Killed there, it needs all of them, and takes no party that came back."""
    world = Losing(tmp_path)
    world.lost = lost
    place = world.create()
    with kills(reached("opening-listed", 2)), pytest.raises(Killed):
        world.serve()
    listed = world.state().openings[-1].survivors
    assert listed == tuple(each for each in NAMES if each not in lost)
    world.back()
    if lost:
        world.serve()
        assert [each.responders for each in world.state().batches] == [NAMES, *[listed] * 3]
        return
    world.parties.leave("d")
    with pytest.raises(QuorumError, match="needs 4 of 4"):
        world.serve()
    Ledger.open(place, close=True).close()
    world.serve()
    state = world.state()
    assert (state.phase, len(state.released), len(state.models)) == ("finished", 1, 1)
    assert state.spent == rounds_cost(state.currency, state.mechanisms, 1)


def test_no_later_round_has_a_party_that_an_earlier_one_lacked(tmp_path: Path) -> None:
    """Neither ledger lists one: two sums with a party between them would show more of it than two without."""
    world = Losing(tmp_path)
    world.lost = ("d",)
    place = world.create()

    def before(name: str, step: str) -> None:
        if (name, step) == ("a", "ask_consent") and world.parties.asked.count((name, step)) == 3:
            raise Killed  # with the votes of the third round in its ledger

    world.parties.before = before
    with pytest.raises(Killed):
        world.serve()
    state = world.state()
    assert [each.responders for each in state.batches] == [NAMES, NAMES[:3]]
    rows = world.public.take(list(state.voted.rows)).row_hashes()
    hashes = [query_of_round(each, 3, state.models[1].to_bytes()) for each in rows]
    unmasking = (state.spec.id, batch_hash(hashes), hashes)
    with pytest.raises(RefusedError, match="a party that was not in an earlier round"):
        world.ledger("a").open_batch(*unmasking, NAMES)
    with Ledger.open(place) as ledger, pytest.raises(LedgerError, match="unmasked only with"):
        ledger.record_unmasking(2 * len(rows), len(rows), NAMES)
    world.ledger("a").open_batch(*unmasking, NAMES[:3])


def test_a_campaign_closed_before_its_last_model_has_the_one_before(tmp_path: Path) -> None:
    world = campaign(tmp_path)
    with kills(reached("release-recorded", 2)), pytest.raises(Killed):
        world.serve()
    Ledger.open(world.place(0), close=True).close()
    labels = report.label_set(world.place(0).parent)
    assert labels.noisy is not None
    assert labels.noisy.model == world.state().models[-1]
    assert len(world.state().models) == 1


# --- the ledger ---------------------------------------------------------------------------------------


def released(root: Path, kind: Any = MASKED) -> tuple[EveryWorld, CampaignState]:
    """A campaign that was killed when its first round was released."""
    world = campaign(root, kind)
    with kills("release-recorded".__eq__), pytest.raises(Killed):
        world.serve()
    return world, world.state()


def test_a_model_follows_from_its_release_and_is_one(tmp_path: Path) -> None:
    world = campaign(tmp_path)
    with kills("votes-recorded".__eq__), pytest.raises(Killed):
        world.serve()
    with Ledger.open(world.place(0)) as ledger, pytest.raises(LedgerError, match="is released"):
        ledger.record_model(2, model())
    world, _ = released(tmp_path / "released")
    with Ledger.open(world.place(0)) as ledger:
        for wrong in (1, 3):
            with pytest.raises(LedgerError, match="a model for round"):
                ledger.record_model(wrong, model())
        with pytest.raises(LedgerError, match="weights"):
            ledger.record_model(2, RoundModel(np.zeros((9, 3), dtype=np.int64), 1))
        ledger.record_model(2, model())
        with pytest.raises(LedgerError, match="a model for round"):
            ledger.record_model(2, model(701))


def test_a_round_is_charged_once_and_its_places_are_its_own(tmp_path: Path) -> None:
    world, state = released(tmp_path)
    with Ledger.open(world.place(0)) as ledger:
        with pytest.raises(LedgerError, match="answered in round 1"):
            ledger.charge(ROWS)
        ledger.record_model(2, model())
        state = ledger.end_round(wants_predictions=False)
        assert (state.phase, state.round) == ("voting", 2)
        sums = NoisySum(np.zeros((len(ROWS), CLASSES), dtype=np.int64), 200 * 4)
        for first in (1, 2 * len(ROWS)):
            with pytest.raises(LedgerError, match="too early"):
                ledger.record_unmasking(first, len(ROWS), NAMES)
        with pytest.raises(LedgerError, match="no votes"):
            ledger.charge(ROWS)
        ledger.record_unmasking(len(ROWS), len(ROWS), NAMES)
        ledger.record_votes(len(ROWS), sums, NAMES)
        charge = ledger.charge(ROWS)
        assert charge.cost == state.currency.cost(state.mechanisms[1].worst[0])
    with Ledger.open(world.place(0)) as ledger, pytest.raises(BudgetError):
        ledger.charge(ROWS)


# --- what a party answers ------------------------------------------------------------------------------


class Asked:
    """A campaign by plain sums at its second round, and the request that party ``a`` answered in it."""

    def __init__(self, root: Path) -> None:
        self.world = campaign(root, KINDS["plain", "central"])
        with kills("round-ended".__eq__), pytest.raises(Killed):
            self.world.serve()
        with kills("votes-arrived".__eq__), pytest.raises(Killed):
            self.world.serve()
        requests = [request_in(body) for body, _ in self.world.parties.sent]
        self.first, self.second = (
            next(
                each for each in requests if each.HasField("ask") and each.ask.batch.round == number
            )
            for number in (1, 2)
        )

    def answer(
        self, asked: vote_pb2.PartyRequest, change: Callable[[vote_pb2.PartyRequest], object]
    ) -> str:
        """The kind of a's refusal of a changed request, empty if it answers."""
        made = vote_pb2.PartyRequest()
        made.CopyFrom(asked)
        if made.digest:
            made.campaign = packed(self.campaign().text)
            made.digest = b""
        change(made)
        batch, rows = made.ask.batch, self.world.public.take(list(made.ask.batch.rows))
        hashes = rows.row_hashes()
        if batch.round:
            hashes = [query_of_round(each, batch.round, batch.shown) for each in hashes]
        batch.digest = batch_hash(hashes)
        reply = self.world.parties.voters["a"].handle(wire.sign_request(made, SERVER_KEY))
        found = vote_pb2.Reply.FromString(vote_pb2.SignedReply.FromString(reply).body)
        return found.refusal.kind if found.HasField("refusal") else ""

    def campaign(self) -> Offer:
        sent = (campaign_in(body) for body, _ in self.world.parties.sent)
        return next(each for each in sent if each is not None and each.settled is not None)


def test_a_party_answers_each_round_with_one_model(tmp_path: Path) -> None:
    asked = Asked(tmp_path)
    world = asked.world

    def shows(shown: bytes, number: int = 2) -> Callable[[vote_pb2.PartyRequest], None]:
        def change(request: vote_pb2.PartyRequest) -> None:
            request.ask.batch.shown, request.ask.batch.round = shown, number

        return change

    def elsewhere(request: vote_pb2.PartyRequest) -> None:
        request.ask.batch.rows[0] += 1

    assert asked.answer(asked.second, same) == asked.answer(asked.first, same) == ""
    for _ in range(2):  # also by a process that has only its ledger
        assert asked.answer(asked.second, shows(model().to_bytes())) == RefusedError.__name__
        assert asked.answer(asked.first, elsewhere) == RefusedError.__name__
        world.parties.start("a")
    assert asked.answer(asked.second, shows(model().to_bytes(), 3)) == ""
    assert asked.answer(asked.second, shows(model(701).to_bytes(), 3)) == RefusedError.__name__
    assert asked.answer(asked.second, same) == ""
    (record,) = world.ledger("a").campaigns()
    assert len(record.batches) == 3
    # Each was charged before the first vote left.
    assert world.ledger("a").cumulative_epsilon(Delta(1e-5)).epsilon >= world.state().epsilon


def same(_: vote_pb2.PartyRequest) -> None:
    """Change nothing."""


def test_a_party_refuses_what_is_no_round(tmp_path: Path) -> None:
    asked = Asked(tmp_path)
    world, good = asked.world, asked.second.ask.batch.shown
    huge = bytearray(good)
    huge[6:10] = (2**20 + 1).to_bytes(4, "little")
    other = RoundModel(np.zeros((len(ROWS), CLASSES + 1), dtype=np.int64), 5).to_bytes()
    for number, shown in (
        (0, b""), (4, good), (3, b""), (1, good), (3, good[:-1]), (3, bytes(huge)), (3, other),
        (3, good[:4] + b"\0\0" + good[6:]), (3, b"\0" * 40),
    ):  # fmt: skip

        def change(
            request: vote_pb2.PartyRequest, number: int = number, shown: bytes = shown
        ) -> None:
            request.ask.batch.round, request.ask.batch.shown = number, shown

        with pytest.raises(ProtocolError):
            asked.answer(asked.second, change)
    world.ledger("a").verify()


class TwoFaced(Parties):
    """A server that shows one party another model than the others in a masked sum."""

    def answer(self, name: str, body: bytes) -> bytes:
        request = request_in(body)
        batch = request.ask_keys.batch
        if name == "a" and batch.round == 2:
            batch.shown = model().to_bytes()
            rows = PUBLIC_ROWS.take(list(batch.rows)).row_hashes()
            batch.digest = batch_hash([query_of_round(each, 2, batch.shown) for each in rows])
            body = wire.sign_request(request, SERVER_KEY)
        return super().answer(name, body)


def test_no_sum_has_answers_to_two_models(tmp_path: Path) -> None:
    world = EveryWorld(tmp_path, MASKED)
    world.parties = TwoFaced(tmp_path, world.voter)
    world.create()
    world.serve()
    responders = [each.responders for each in world.state().batches]
    assert responders == [NAMES, NAMES[1:], NAMES[1:]]  # it is a party that is lost
    for name in NAMES:
        (record,) = world.ledger(name).campaigns()
        assert len(record.opened) == (1 if name == "a" else 3)


# --- options -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "number", "code"),
    [
        ({"code": "dense-16"}, 5, "dense-16 residual"),
        ({"code": "dense-16", "rounds": 1}, 2, "dense-16 residual"),
        ({"code": "dense-16", "epsilon": 0.05}, 5, "dense-16 residual"),
        ({"code": "dense", "answer": "residual"}, 5, "dense-64 residual"),
        ({"code": "dense-16", "answer": "class"}, 1, "dense-16"),
        ({"code": "dense-16", "sigma2": "40"}, 1, "dense-16"),
        ({"code": "dense-16", "series": "s", "unit": "patient"}, 1, "dense-16"),
        ({"code": "dense-16", "classes": None}, 1, "dense-16"),
        ({"code": "dense-16", "noise": "central"}, 1, "dense-16"),
        ({"code": "dense-16", "noise": "central", "aggregation": "plain"}, 5, "dense-16 residual"),
        ({"representatives": 20}, 1, "nearest"),
        ({"noise": "central"}, 1, "nearest"),
        ({}, 5, "dense-64 residual"),
    ],
)
def test_records_vote_in_rounds_by_rule(given: dict[str, Any], number: int, code: str) -> None:
    made = spec_of(options(**given), drawn(PUBLIC, 1)[0], chosen=lambda _, n, __: tuple(range(n)))
    assert (made.rounds, made.code) == (number, code)
    assert made.in_rounds == (number > 1)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"epsilon": -1.0}, "a positive number"),
        ({"rounds": 2, "code": "nearest"}, "in directions"),
        ({"code": "dense-16", "rounds": 2, "series": "s", "unit": "patient"}, "outside of a series"),
        ({"code": "dense-16", "answer": "residual", "series": "s", "unit": "patient"}, "one release"),
        ({"code": "dense-16", "answer": "residual", "sigma2": "40"}, "leave sigma2"),
        ({"code": "dense-16", "answer": "residual", "delta": 0.0}, "delta above 0"),
        ({"code": "nearest", "answer": "residual"}, "dense codes"),
        ({"code": "dense-16", "rounds": 17}, "at most 17"),
        ({"code": "dense-16", "rounds": 1, "noise": "central"}, "need noise by the parties"),
        ({"code": "dense-16", "answer": "residual", "noise": "central"}, "need noise by the parties"),
        ({"code": "dense-16", "answer": "residual", "unit": "patient", "votes_per_patient": 2}, "count"),
        ({"code": "dense-16", "answer": "residual", "classes": None}, "class list"),
    ],
)  # fmt: skip
def test_options_that_rounds_cannot_have(given: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        spec_of(options(**given), drawn(PUBLIC, 1)[0], chosen=lambda _, n, __: tuple(range(n)))


def options(**given: Any) -> MechanismOptions:
    stated: dict[str, Any] = {"parties": "4", "classes": "0,1,2", "epsilon": 1.0, "unit": "record"}
    return MechanismOptions(aggregator="neighbour", **(stated | given))
