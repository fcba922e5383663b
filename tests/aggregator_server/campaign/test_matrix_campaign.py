"""Neighbour votes at the server: one charge for the whole matrix, one draw of noise, one release."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, cast

import grpc
import numpy as np
import pytest

from aggregator_server.campaign.labelling import GatedRelease, RoundSummary, outcomes_of
from aggregator_server.campaign.neighbour import NeighbourRelease
from aggregator_server.exchange.aggregation import Batch, MaskedAggregation, PlainAggregation
from aggregator_server.ledger.ledger import Ledger
from aggregator_server.ledger.release_entries import CHAIN, replay
from aggregator_server.ledger.state import Charge
from aggregator_server.ledger.verify import read_campaign, verify
from aggregator_server.monitoring.status import Status
from aggregator_server.options import CampaignOptions
from aggregator_server.results import report
from aggregator_server.results.report import describe_state
from aggregator_server.results.statement import privacy_statement, server_epsilon
from aggregator_server.student_service import StudentService
from pate.accounting.composition import Gdp
from pate.accounting.events import GeometricHistogram, NoisyArray
from pate.campaign.choices import CompositionName
from pate.campaign.offer import Offer, Settled
from pate.campaign.representatives import choose, default_number, number_for, settled_code
from pate.campaign.roster import Member, RosterParty
from pate.campaign.settings import spec_of
from pate.campaign.spec import CampaignSpec
from pate.campaign.terms import budget, composition_of, resolve, voted_rows
from pate.codes import GRID, Code, code_of
from pate.data.values import Images, Inputs, Table, batch_hash
from pate.errors import (
    BudgetError,
    DiskError,
    LedgerError,
    PateError,
    ProtocolError,
    RefusedError,
    StateError,
    UsageError,
)
from pate.exact import write
from pate.formats.labels import LabelSet
from pate.formats.mechanism_words import mechanism_in_words
from pate.formats.privacy_statement import PrivacyStatement, adjacency_of
from pate.masking.context import Context
from pate.mechanisms import (
    DistributedNeighbour,
    DistributedTeacherLabels,
    MatrixMechanism,
    Neighbour,
)
from pate.noise.exact import SystemNoise
from pate.runtime import failpoints
from pate.votes import Counts, Histogram, LooseSum, NoisySum, check_entries
from protos import wire
from protos.pate.v1 import student_pb2, student_pb2_grpc, vote_pb2
from protos.terms import bits_of
from tests.support.server.campaigns import CLASSES, NAMES, label, make_parties, make_spec
from tests.support.simulated_noise import SimulatedNoise
from tests.support.tampering import Body, forged, repeated, tamper
from tests.support.world.in_process import killed_at

QUERIES = 100
ROWS = (1, 4, 5, 9, 30, 31, 60, 98)
MOST = 500
UNANIMOUS = np.tile(np.array([100, 0, 0], dtype=np.int64), (8, 1))
SHARES: dict[str, Any] = {"aggregation": "masked", "noise": "distributed", "colluders": 1}


def matrix_spec(**changes: Any) -> CampaignSpec:
    fields: dict[str, Any] = {
        "aggregator": "neighbour", "queries": QUERIES, "representatives": ROWS,
        "most_votes": MOST, "votes_per_patient": 1, "epsilon": 1.0,
    }  # fmt: skip
    return make_spec(**(fields | changes))


def exact_counts(rows: int = len(ROWS)) -> Counts:
    """Clear votes: of 300 records at a query, some 250 are of class ``row % 3``."""
    counts = np.random.default_rng(6).integers(5, 40, (rows, 3))
    counts[np.arange(rows), np.arange(rows) % 3] += 250
    return counts.astype(np.int64)


def noisy_counts() -> Counts:
    return exact_counts() + np.random.default_rng(7).integers(-30, 30, (len(ROWS), 3))


def start(path: Path, *, voted: bool = True, **changes: Any) -> Ledger:
    spec = matrix_spec(**changes)
    ledger = Ledger.create(path, spec)
    ledger.record_roster(make_parties(MOST, "patient"), CLASSES)
    if voted:
        if spec.sums.masked:
            ledger.record_unmasking(0, len(ROWS), NAMES)
        total = (
            NoisySum(noisy_counts(), 4 * MOST)
            if spec.sums.distributed
            else LooseSum(exact_counts(), 4 * MOST)
        )
        ledger.record_votes(0, total, NAMES)
    return ledger


def release(ledger: Ledger, noise: Any = None) -> RoundSummary:
    return NeighbourRelease().label(ledger, noise or SystemNoise())


def publish(ledger: Ledger, charge: Charge, noisy: Counts) -> None:
    """Release noisy counts, and the labels that follow from them."""
    labels = Neighbour(5, Fraction(40), 1).labels(noisy)
    mechanism = ledger.state().mechanism(1)
    if isinstance(mechanism, MatrixMechanism):
        labels = mechanism.labels(noisy)
    ledger.release(charge, outcomes_of(labels, "records", charge.events), noisy=noisy)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


# --- one charge, one release ----------------------------------------------------------------------


@pytest.mark.parametrize("changes", [{}, {"aggregation": "masked", "colluders": 1}, SHARES])
def test_one_charge_pays_for_all_rows(path: Path, changes: dict[str, Any]) -> None:
    with start(path, **changes) as ledger:
        summary = release(ledger)
        state = ledger.state()
        assert (summary.asked, summary.exhausted) == (len(ROWS), False)
        (event,) = state.mechanism(1).worst
        assert state.spent == state.cap == Gdp().cost(event)
        assert [entry.kind for entry in ledger.entries(kinds=["charge", "release"])] == [
            "charge", "release",
        ]  # fmt: skip
        assert state.noisy is not None
        assert state.noisy.queries.tolist() == list(ROWS)
        # With sigma below 10, 200 votes are lost with a chance below 1e-40.
        assert {q: x.label for q, x in state.labels.items()} == {
            row: at % 3 for at, row in enumerate(ROWS)
        }
        assert {each.source for each in state.labels.values()} == {"records"}
        ledger.end_round(wants_predictions=False)
        ledger.finish()
    assert len(verify(path).labels) == len(ROWS)


def test_the_noise_is_what_epsilon_leaves(path: Path) -> None:
    with start(path, epsilon=0.5) as ledger:
        mechanism = ledger.state().mechanism(1)
        assert isinstance(mechanism, Neighbour)
        assert mechanism.sigma is not None
        assert 9.8 < mechanism.sigma < 10
        assert 0.49 < ledger.state().epsilon <= 0.5
        release(ledger)
        noisy = ledger.state().noisy
        assert noisy is not None
        assert noisy.sigma == float(mechanism.sigma)
        apart = noisy.counts - exact_counts()
        assert 0 < np.abs(apart).max() < 10 * 9  # beyond 9 sigma: below 1e-16 in 24 counts
    shared = start(path.with_name("shared.db"), **SHARES)
    with shared as ledger:
        release(ledger)
        mechanism, noisy = ledger.state().mechanism(1), ledger.state().noisy
        assert isinstance(mechanism, DistributedNeighbour)
        assert mechanism.honest == 2
        assert mechanism.share is not None
        # All four that answered add their share: the labels carry it.
        assert noisy is not None
        assert noisy.sigma == pytest.approx(2 * float(mechanism.share), rel=1e-2)


def test_more_votes_of_a_patient_need_more_noise(path: Path) -> None:
    with start(path, unit="patient", votes_per_patient=5) as ledger:
        mechanism = ledger.state().mechanism(1)
        assert isinstance(mechanism, Neighbour)
        assert mechanism.votes_per_unit == 5
        assert mechanism.sigma is not None
        assert 26 < mechanism.sigma < 27.5  # five times 5.3


def test_exact_counts_are_in_no_entry_of_the_chain(path: Path) -> None:
    counts = np.random.default_rng(1).permutation(np.arange(100_000, 100_024)).reshape(8, 3)
    spec = matrix_spec(most_votes=60_000, epsilon=0.1)
    with Ledger.create(path, spec) as ledger:
        ledger.record_roster(make_parties(60_000), CLASSES)
        ledger.record_votes(0, LooseSum(counts, 240_000), NAMES)
        release(ledger)
        ledger.end_round(wants_predictions=False)
        ledger.finish()
    held = set(counts.ravel().tolist())
    for entry in read_campaign(path)[1]:
        if entry.kind != "release":
            assert not held & set(_numbers(json.loads(entry.body))), entry.kind
        else:
            noisy = np.array(json.loads(entry.body)["noisy"])
            # Noise of sigma 43 is 0 in 1 of 109 draws: in 9 of 24 with a chance below 1e-11.
            assert (noisy == counts).sum() < 9
    assert len(verify(path).labels) < len(ROWS)


def _numbers(value: Any) -> list[int]:
    if isinstance(value, list):
        return [each for item in value for each in _numbers(item)]
    if isinstance(value, dict):
        return _numbers(list(value.values()))
    return [value] if isinstance(value, int) else []


def test_what_was_released_is_not_released_again(path: Path) -> None:
    with start(path) as ledger:
        first = release(ledger)
        noisy, head = ledger.state().noisy, ledger.state().head
        assert noisy is not None
        assert release(ledger) == first
        assert ledger.state().head == head
    with Ledger.open(path) as ledger:
        assert release(ledger) == first
        again = ledger.state().noisy
        assert again is not None
        np.testing.assert_array_equal(again.counts, noisy.counts)
        with pytest.raises(LedgerError):
            ledger.charge(list(ROWS))


@pytest.mark.parametrize("changes", [{}, SHARES, {"delta": 0.0}])
@pytest.mark.parametrize("point", ["charge-recorded", "noise-drawn"])
def test_a_crash_behind_the_charge_wastes_the_only_release(
    path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], point: str
) -> None:
    def fall(name: str) -> None:
        if name == point:
            raise KeyboardInterrupt

    with start(path, **changes) as ledger, monkeypatch.context() as patch:
        patch.setattr(failpoints, "reach", fall)
        with pytest.raises(KeyboardInterrupt):
            release(ledger)
    with Ledger.open(path) as ledger:
        assert ledger.state().left == 0
        drawn: list[int] = []

        class Watched(SystemNoise):
            def gaussian(self, sigma: Fraction, count: int) -> Any:
                drawn.append(count)
                return super().gaussian(sigma, count)

            def laplace(self, scale: Fraction, count: int) -> Any:
                drawn.append(count)
                return super().laplace(scale, count)

        summary = release(ledger, Watched())
        assert (summary.asked, summary.labels, summary.exhausted, drawn) == (0, 0, True, [])
        assert ledger.state().noisy is None
        with pytest.raises(BudgetError):
            ledger.charge(list(ROWS))
        ledger.end_round(wants_predictions=False)
        ledger.finish()
    told = verify(path)
    assert (len(told.labels), told.wasted) == (0, told.spent)


def test_a_disk_that_is_full_at_the_release_leaves_nothing_out(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pate.storage.ledger as module

    with start(path) as ledger:
        charge = ledger.charge(list(ROWS))

        def full(*_: object) -> None:
            raise DiskError("the disk is full")

        with monkeypatch.context() as patch:
            patch.setattr(module, "append", full)
            with pytest.raises(DiskError):
                publish(ledger, charge, noisy_counts())
        assert ledger.state().noisy is None
        with pytest.raises((StateError, LedgerError)):
            publish(ledger, charge, noisy_counts())
    with Ledger.open(path) as ledger:
        assert release(ledger).exhausted


def test_a_killed_process_has_no_second_draw(tmp_path: Path) -> None:
    """It dies by SIGKILL with the noise in its memory."""
    path = tmp_path / "ledger.db"
    start(path).close()
    assert killed_at("noise-drawn", lambda: release(Ledger.open(path)))
    with Ledger.open(path) as ledger:
        assert release(ledger).exhausted
        assert ledger.state().noisy is None
    assert len(verify(path).labels) == 0


@pytest.mark.parametrize(
    "queries",
    [ROWS[:-1], ROWS[1:], (*ROWS, 99), ROWS[::-1], (0, *ROWS[1:]), (), tuple(range(QUERIES))],
)
def test_any_other_charge_is_refused(path: Path, queries: tuple[int, ...]) -> None:
    with start(path) as ledger:
        with pytest.raises(LedgerError):
            ledger.charge(list(queries))
        assert ledger.state().spent == 0


def test_a_release_is_of_its_charge_and_whole(path: Path) -> None:
    with start(path) as ledger:
        charge = ledger.charge(list(ROWS))
        with pytest.raises(LedgerError, match="7 answers to 8"):
            publish(ledger, charge, noisy_counts()[:7])
        with pytest.raises(LedgerError, match="not open"):
            publish(ledger, charge, noisy_counts())
        with pytest.raises(BudgetError):
            ledger.charge(list(ROWS))


def test_other_ways_to_release_are_refused(path: Path) -> None:
    with start(path) as ledger:
        with pytest.raises(StateError, match="one matrix"):
            label(ledger)
        state = ledger.state()
        with pytest.raises(StateError, match="not gated"):
            GatedRelease().label(ledger, SystemNoise())
        with pytest.raises(UsageError):
            release(ledger, SimulatedNoise(3))
        charge = ledger.charge(list(ROWS))
        outcomes = state.mechanism(1).answer_all(exact_counts(), SystemNoise())
        with pytest.raises(LedgerError):
            ledger.release(charge, outcomes)
    capped = make_spec(queries=8, aggregator="gnmax")
    with Ledger.create(path.with_name("capped.db"), capped) as ledger:
        ledger.record_roster(make_parties(), CLASSES)
        ledger.record_votes(0, Histogram(UNANIMOUS, 100), NAMES)
        with pytest.raises(StateError, match="answers query by query"):
            release(ledger)
        charge = ledger.charge([0, 1])
        with pytest.raises(LedgerError, match="noisy counts in a campaign without"):
            publish(ledger, charge, np.zeros((2, 3), dtype=np.int64))


# --- votes as they come in --------------------------------------------------------------------------


def test_votes_are_recorded_in_one_batch_and_of_one_kind(path: Path) -> None:
    with start(path, voted=False) as ledger:
        for wrong in (Histogram(20 * UNANIMOUS, 2000), NoisySum(exact_counts(), 2000)):
            with pytest.raises(LedgerError, match="of teachers and of records, differ"):
                ledger.record_votes(0, wrong, NAMES)
        with pytest.raises(LedgerError, match="one batch"):
            ledger.record_votes(0, LooseSum(exact_counts(4), 2000), NAMES)
        with pytest.raises(LedgerError):
            ledger.record_votes(0, LooseSum(exact_counts(9), 2000), NAMES)
        with pytest.raises(LedgerError, match="another number"):
            ledger.record_votes(0, LooseSum(exact_counts(), 1999), NAMES)
        ledger.record_votes(0, LooseSum(exact_counts(), 1500), NAMES[:3])
        with pytest.raises(PateError):
            ledger.record_votes(0, LooseSum(exact_counts(), 1500), NAMES[:3])


@pytest.mark.parametrize("value", [-1, 2001])
def test_a_sum_with_a_count_that_cannot_be_is_none(value: int) -> None:
    counts = exact_counts()
    counts[3, 1] = value
    with pytest.raises(ProtocolError, match=f"row 3, class 1: {value}"):
        LooseSum(counts, 2000)


def test_a_party_that_may_send_more_than_the_campaign_says_is_not_taken(path: Path) -> None:
    ledger = Ledger.create(path, matrix_spec())
    with ledger, pytest.raises(LedgerError, match="another bound on votes per count"):
        ledger.record_roster(make_parties(MOST + 1), CLASSES)
    ledger = Ledger.create(path.with_name("patients.db"), matrix_spec(unit="patient"))
    with ledger, pytest.raises(RefusedError, match="group column"):
        ledger.record_roster(make_parties(MOST, "record"), CLASSES)


def test_the_classes_of_the_parties_do_not_make_a_matrix_that_is_too_large(path: Path) -> None:
    spec = matrix_spec(queries=2000, representatives=tuple(range(2000)))
    with Ledger.create(path, spec) as ledger, pytest.raises(UsageError, match="too many"):
        ledger.record_roster(make_parties(MOST), tuple(f"c{at}" for at in range(600)))


def campaign_of(**changes: Any) -> Offer:
    """A campaign as its server offers it, with four parties."""
    spec = matrix_spec(classes=CLASSES, **changes)
    mechanisms = resolve(spec, 4 * MOST, 1)
    composition = composition_of(spec, mechanisms)
    settled = Settled(
        roster=tuple(Member(each.name, each.identity, each.teachers) for each in roster()),
        mechanisms=mechanisms,
        composition=cast("CompositionName", composition.name),
        cap=budget(spec, mechanisms, composition),
    )
    return Offer(key=bytes(32), announced=spec.announced, settled=settled)


def roster() -> list[RosterParty]:
    return [
        RosterParty(name, bytes([at]).hex() * 32, MOST, "record") for at, name in enumerate(NAMES)
    ]


BATCH = Batch(ROWS, batch_hash([bytes([row]) * 32 for row in ROWS]))


def reply_of(counts: Counts, *, width: int = 2, teachers: int = MOST) -> vote_pb2.Reply:
    reply = vote_pb2.Reply()
    reply.votes.CopyFrom(
        vote_pb2.VoteMatrix(
            batch=BATCH.digest,
            rows=counts.shape[0],
            classes=counts.shape[1],
            teachers=teachers,
            width=width,
            counts=counts.astype(f"<u{width}").tobytes(),
        )
    )
    return reply


def test_loose_votes_of_honest_parties_are_summed() -> None:
    aggregation = PlainAggregation(campaign_of(), roster(), BATCH, 3)
    for party in roster()[1:]:
        aggregation.take(party, reply_of(exact_counts()))
    aggregation.advance()
    found = aggregation.result()
    assert isinstance(found.total, LooseSum)
    assert (found.total.teachers, found.responders) == (3 * MOST, NAMES[1:])
    np.testing.assert_array_equal(found.total.counts, 3 * exact_counts())


def _with(value: int) -> Counts:
    counts = exact_counts()
    counts[2, 2] = value
    return counts


def _widened(width: int) -> vote_pb2.Reply:
    reply = reply_of(exact_counts())
    reply.votes.width = width
    return reply


def _cut() -> vote_pb2.Reply:
    reply = reply_of(exact_counts())
    reply.votes.counts = reply.votes.counts[:-1]
    return reply


LIES: dict[str, Callable[[], vote_pb2.Reply]] = {
    "more than may be": lambda: reply_of(_with(MOST + 1)),
    "negative counts": lambda: reply_of(_with(-1)),
    "wider, and huge": lambda: reply_of(_with(2**32 - 1), width=4),
    "another most": lambda: reply_of(exact_counts(), teachers=MOST + 1),
    "a row more": lambda: reply_of(exact_counts(9)),
    "a class less": lambda: reply_of(exact_counts()[:, :2]),
    "an odd width": lambda: _widened(3),
    "no width": lambda: _widened(0),
    "cut short": _cut,
}


@pytest.mark.parametrize("name", LIES)
def test_a_party_that_lies_on_the_wire_is_refused(name: str) -> None:
    aggregation = PlainAggregation(campaign_of(), roster(), BATCH, 3)
    with pytest.raises(ProtocolError):
        aggregation.take(roster()[0], LIES[name]())
    assert not aggregation.answered


@pytest.mark.parametrize(("most", "width"), [(1, 1), (255, 1), (256, 2), (65_535, 2), (65_536, 4)])
def test_loose_votes_come_back_from_the_wire(most: int, width: int) -> None:
    counts = np.array([[0, most], [most, 1], [0, 0]], dtype=np.int64)
    packed = wire.pack_votes(counts, teachers=most, batch=BATCH.digest, code=Code("nearest"))
    assert packed.width == width
    read = wire.read_votes(
        packed, teachers=most, classes=2, queries=3, batch=BATCH.digest, code=Code("nearest")
    )
    np.testing.assert_array_equal(read, counts)
    with pytest.raises(ProtocolError):
        wire.read_votes(packed, teachers=most, classes=2, queries=3, batch=BATCH.digest)
    with pytest.raises(ProtocolError):
        wire.pack_votes(counts, teachers=most - 1, batch=BATCH.digest, code=Code("nearest"))


@pytest.mark.parametrize("value", [-1, -(2**15), 4 * MOST + 1, 2**15 - 1])
def test_a_masked_sum_that_no_parties_can_have_is_found(value: int) -> None:
    """Masks hide the sender; the sum exceeds the bound of all parties together, so no label is released."""
    with pytest.raises(ProtocolError, match="at most 2000 votes a count"):
        opened({}, _with(value))
    np.testing.assert_array_equal(opened({}, exact_counts()), exact_counts())


@pytest.mark.parametrize("law", [{}, {"delta": 0.0}], ids=["gaussian", "geometric"])
def test_a_noisy_masked_sum_may_be_negative_but_not_anything(law: dict[str, Any]) -> None:
    counts, changes = exact_counts(), SHARES | law
    counts[0, 1] = -40
    np.testing.assert_array_equal(opened(changes, counts), counts)
    for value in (-2000, -300, 4 * MOST + 300, 5000, 2**15 - 1, -(2**15)):
        with pytest.raises(ProtocolError, match="at most 2000 votes a count"):
            opened(changes, _with(value))


DENSE: dict[str, Any] = {"code": "dense-8"}


def dense_counts() -> Counts:
    """Sums of some 300 records in eight directions, in units of 1/1024, with signs."""
    return np.random.default_rng(8).integers(-100, 300, (8, 3)) * GRID // 3


@pytest.mark.parametrize("changes", [{}, {"aggregation": "masked", "colluders": 1}, SHARES])
def test_a_dense_campaign_goes_through_to_its_end(path: Path, changes: dict[str, Any]) -> None:
    spec = matrix_spec(**DENSE, **changes)
    with Ledger.create(path, spec) as ledger:
        ledger.record_roster(make_parties(MOST), CLASSES)
        if spec.sums.masked:
            ledger.record_unmasking(0, len(ROWS), NAMES)
        counts = dense_counts()
        ledger.record_votes(
            0,
            NoisySum(counts, 4 * MOST)
            if spec.sums.distributed
            else LooseSum(counts, 4 * MOST, Code("dense", 8)),
            NAMES,
        )
        release(ledger)
        (event,) = ledger.state().mechanism(1).worst
        assert isinstance(event, NoisyArray)
        assert (event.squared, event.moved) == (4 * GRID**2, 16)
        assert ledger.state().epsilon <= 1.0
        noisy = ledger.state().noisy
        assert noisy is not None
        assert noisy.dense
        # Twice the L2 of a removed vote: sigma is a bit above 5.3 / sqrt(2) * 2 votes, or more in sum.
        assert 7 * GRID < noisy.sigma < 14 * GRID
        assert np.abs(noisy.counts - counts).max() < 10 * noisy.sigma
        ledger.end_round(wants_predictions=False)
        ledger.finish()
    verify(path)


GNMAX: dict[str, Any] = {"aggregator": "gnmax", "representatives": None}
LABELS: dict[str, Any] = {"code": "nearest labels-2", "classes": ("a", "b", "c", "none")}


@pytest.mark.parametrize("delta", [0.0, 1e-5])
@pytest.mark.parametrize("changes", [{}, {"aggregation": "masked", "colluders": 1}, SHARES])
def test_a_campaign_of_several_labels_goes_through_to_its_end(
    path: Path, changes: dict[str, Any], delta: float
) -> None:
    spec = matrix_spec(**LABELS, **changes, delta=delta)
    assert CampaignSpec.from_dict(spec.to_dict()) == spec
    counts = np.random.default_rng(9).integers(0, 300, (8, 4)) * 2
    with Ledger.create(path, spec) as ledger:
        ledger.record_roster(make_parties(MOST), LABELS["classes"])
        if spec.sums.masked:
            ledger.record_unmasking(0, len(ROWS), NAMES)
        code = code_of(LABELS["code"])
        total = (
            NoisySum(counts, 4 * MOST)
            if spec.sums.distributed
            else LooseSum(counts, 4 * MOST, code)
        )
        ledger.record_votes(0, total, NAMES)
        release(ledger)
        (event,) = ledger.state().mechanism(1).worst
        if delta:
            assert isinstance(event, NoisyArray)
            # Two labels at each of two places, in units of half a vote.
            assert (event.squared, event.moved) == (2 * 2 * 2**2, 4)
        else:
            assert isinstance(event, GeometricHistogram)
            assert event.distance == 2 * 2 * 2
        assert ledger.state().epsilon <= 1.0
        noisy = ledger.state().noisy
        assert noisy is not None
        assert noisy.code == LABELS["code"]
        # Exact counts lead clearly, and no one column is what a query is.
        assert (len(ledger.state().labels), ledger.state().queries_asked) == (0, len(ROWS))
        ledger.end_round(wants_predictions=False)
        ledger.finish()
        words = mechanism_in_words(privacy_statement(ledger.state()).mechanism)
        assert words.endswith(
            "at most 1, for up to 2 labels; counts and noise are in units of 1/2 of a vote"
        )
        assert "gets a label" not in words
        found = describe_state(ledger.state())
        assert (found["answer"], found["labels_released"]) == ("labels-2", 0)
        overview = Status(ledger).overview()
        assert (overview.queries.labelled, overview.queries.asked) == (False, len(ROWS))
    assert len(verify(path).labels) == 0


def test_a_label_of_an_answer_that_has_none_breaks_a_rule(path: Path) -> None:
    with Ledger.create(path, matrix_spec(**LABELS)) as ledger:
        ledger.record_roster(make_parties(MOST), LABELS["classes"])
        counts = np.random.default_rng(9).integers(0, 300, (8, 4)) * 2
        ledger.record_votes(0, LooseSum(counts, 4 * MOST, code_of(LABELS["code"])), NAMES)
        charge = ledger.charge(list(ROWS))
        labels = counts.argmax(axis=1).tolist()
        with pytest.raises(LedgerError, match="another label than its noisy counts give"):
            ledger.release(charge, outcomes_of(labels, "records", charge.events), noisy=counts)


def test_a_roster_without_the_columns_of_an_answer_is_refused(path: Path) -> None:
    with Ledger.create(path, matrix_spec(code="nearest labels-2", classes=None)) as ledger:
        with pytest.raises(UsageError, match="needs 2 labels or more and the column 'none'"):
            ledger.record_roster(make_parties(MOST), CLASSES)
        ledger.record_roster(make_parties(MOST), LABELS["classes"])


def test_options_of_an_answer_make_its_columns() -> None:
    made = options_of_table(answer="labels-2", classes="b,a,c")
    assert (made.classes, made.code) == (("b", "a", "c", "none"), "nearest labels-2")
    assert made.delta == 0
    assert options_of_table(answer="labels-2", code="nearest").classes is None
    number = options_of_table(answer="number", range="0,14.5", code="dense-4")
    assert (number.classes, number.delta) == (("0", "14.5"), 0)
    assert number.code == "dense-4 number"
    options(answer="class").require_same(options())
    for wrong, why in (
        ({"answer": "number"}, "needs its --range"),
        ({"range": "0,1"}, "needs its --range"),
        ({"answer": "number", "range": "1,0"}, "the lower one first"),
        ({"answer": "number", "range": "0,1", "classes": "a,b"}, "has no --classes"),
        ({"answer": "ordered"}, "needs a class list"),
        ({"answer": "labels"}, "an answer is class"),
        ({"answer": "labels-3", "classes": "a,b"}, "needs 3 labels or more"),
        (
            {"answer": "number", "range": "0,1", "most_votes": 2**16, "parties": "500"},
            "lower most_votes",
        ),
        ({"answer": "number", "range": "0,1", **GNMAX}, "--range is for"),
        ({"answer": "ordered", "classes": "a,b", **GNMAX}, "teachers vote for a class, or with"),
        ({"answer": "labels-2", **GNMAX}, "needs its labels: --classes"),
        ({"answer": "labels-3", "classes": "a,b", **GNMAX}, "needs 2 labels, 3 or more"),
        ({"answer": "labels-1", "classes": "a,none", **GNMAX}, "none of them 'none'"),
        (
            {"answer": "labels-1", "classes": "a,b", **GNMAX, "rounds": 2},
            "one release have one round",
        ),
        ({"answer": "labels-1", "classes": "a,b", **GNMAX, "publish": "gated"}, "a gate needs"),
        (
            {
                "answer": "labels-1",
                "classes": "a,b",
                **GNMAX,
                "publish": "gated",
                "noise": "central",
            },
            "have no gate",
        ),
        ({"answer": "labels-1", "classes": "a,b", **GNMAX, "vote_proofs": True}, "proofs"),
        (
            {
                "answer": "labels-1",
                "classes": "a,b",
                **GNMAX,
                "aggregator": "lnmax",
                "noise": "central",
            },
            "teachers vote for a class, or with",
        ),
        ({"answer": "labels-2", "threshold": "9"}, "threshold is for classes"),
    ):
        with pytest.raises(UsageError, match=why):
            options_of_table(**wrong)


@pytest.mark.parametrize("answer", [{"answer": "labels-2"}, {"answer": "number", "range": "0,1"}])
def test_an_answer_that_no_student_learns_from_images_is_refused_at_the_start(
    answer: dict[str, Any],
) -> None:
    """Not after its release, when it is paid for."""
    with pytest.raises(UsageError, match="needs a public set that is a table"):
        options(**answer)
    assert options(answer="ordered", classes="a,b").voted_for.name == "ordered"


def test_teachers_of_several_labels_are_asked_as_many_queries_as_are_stated() -> None:
    made = options(answer="labels-2", classes="b,a,c", max_queries=7, **GNMAX)
    assert (made.classes, made.code) == (("b", "a", "c"), "each-7 labels-2-of-3")
    assert made.sums.noise == "distributed"
    assert (made.one_release, made.records_vote, made.representatives) == (True, False, None)
    assert CampaignSpec.from_dict(made.to_dict()) == made
    (mechanism,) = resolve(made, 41, 1)
    assert isinstance(mechanism, DistributedTeacherLabels)
    assert mechanism.threshold == 0
    (event,) = mechanism.worst
    assert isinstance(event, NoisyArray)
    assert event.change == (7 * 3, 7 * 3)
    assert 0.95 < Gdp().epsilon(Gdp().cost(event), made.delta) <= 1
    rows = voted_rows(made, (mechanism,), Gdp(), Fraction(1)).rows
    assert (len(rows), list(rows)) == (7, sorted(rows))
    # Of a whole party all its teachers change, and a class is what it was, without a word of it.
    party = resolve(options(answer="labels-1", classes="b,a,c", unit="party", **GNMAX), 41, 5)[0]
    assert party.worst[0].change[0] == 5**2 * len(PICTURES) * 2  # type: ignore[union-attr]
    plain = options(answer="class", **GNMAX)
    assert "code" not in plain.to_dict()
    assert plain.sums.noise == "central"
    other = options(answer="labels-1", classes="b,a,c", max_queries=7, **GNMAX)
    with pytest.raises(
        StateError, match="has code = each-7 labels-2-of-3, but each-7 labels-1-of-3 was"
    ):
        made.require_same(other)


def test_a_matrix_of_teachers_labels_holds_what_they_can_cast(path: Path) -> None:
    spec = make_spec(aggregator="gnmax", answer="labels-1", classes=CLASSES, max_queries=8)
    counts = np.tile(np.array([9, 5, 6], dtype=np.int64), (8, 1))
    with Ledger.create(path, spec) as ledger:
        ledger.record_roster(make_parties(5), CLASSES)
        code = code_of(spec.code)
        with pytest.raises(LedgerError, match="a NoisySum of votes in a campaign of LooseSum"):
            ledger.record_votes(0, NoisySum(counts, 20), NAMES)
        with pytest.raises(LedgerError, match="together, in one batch"):
            ledger.record_votes(0, LooseSum(counts[:5], 20, code), NAMES)
        with pytest.raises(ProtocolError, match="20 in all, but row 0 has 21"):
            LooseSum(counts + np.array([1, 0, 0]), 20, code)
        ledger.record_votes(0, LooseSum(counts, 20, code), NAMES)
        summary = release(ledger)
        state = ledger.state()
        assert state.noisy is not None
        assert state.noisy.code == "each-8 labels-1-of-3"
        assert summary.asked == 8
        assert state.noisy.counts.shape == (8, 3)
        assert summary.labels == len(state.labels) == 0
        ledger.end_round(wants_predictions=False)
        ledger.finish()
        statement = privacy_statement(state)
        assert (statement.teachers, statement.adjacency) == (
            20,
            adjacency_of("record", records_vote=False),
        )
    verify(path)


def test_noise_and_threshold_of_dense_votes_are_stated_in_votes(path: Path) -> None:
    spec = matrix_spec(**DENSE, sigma2=Fraction(15, 2), threshold=Fraction(9))
    mechanism = resolve(spec, 4 * MOST, 1)[0]
    assert mechanism == Neighbour(9 * GRID, Fraction(15, 2) * GRID, 1, code="dense-8")
    with Ledger.create(path, spec) as ledger:
        ledger.record_roster(make_parties(MOST), CLASSES)
        assert ledger.state().mechanism(1) == mechanism
    shared = resolve(matrix_spec(**DENSE, **SHARES, sigma2=Fraction(20)), 4 * MOST, 1)[0]
    assert isinstance(shared, DistributedNeighbour)
    assert shared.share is not None
    assert 20 * GRID <= 2**0.5 * float(shared.share) < 20.1 * GRID


def test_a_dense_sum_has_signs_and_bounds() -> None:
    counts = dense_counts()
    masked = {**DENSE, "aggregation": "masked", "colluders": 1}
    np.testing.assert_array_equal(opened(masked, counts), counts)
    np.testing.assert_array_equal(opened({**SHARES, **DENSE}, counts), counts)
    most = 4 * MOST * GRID
    for changes, beyond in ((masked, 1), ({**SHARES, **DENSE}, 10**7)):
        for end in (-most - beyond, most + beyond):
            far = counts.copy()
            far[1, 1] = end
            with pytest.raises(ProtocolError, match="at most 2000 votes a count"):
                opened(changes, far)
    campaign = campaign_of(**masked)
    assert bits_of(campaign, len(ROWS)) == 32


def test_dense_votes_come_back_from_the_wire_with_their_signs() -> None:
    code = Code("dense", 3)
    counts = np.array([[0, GRID], [-2 * GRID, 1], [2 * GRID, -1]], dtype=np.int64)
    packed = wire.pack_votes(counts, teachers=2, batch=BATCH.digest, code=code)
    assert packed.width == 4
    about: dict[str, Any] = {"teachers": 2, "classes": 2, "queries": 3, "batch": BATCH.digest}
    np.testing.assert_array_equal(wire.read_votes(packed, **about, code=code), counts)
    with pytest.raises(ProtocolError, match="counts are outside"):
        wire.read_votes(packed, **about, code=Code("nearest"))
    with pytest.raises(ProtocolError, match="counts are outside"):
        wire.pack_votes(counts, teachers=1, batch=BATCH.digest, code=code)
    for count in (2 * GRID + 1, -2 * GRID - 1, -(2**31), 2**31 - 1):
        packed.counts = np.array([count] * 6, "<i4").tobytes()
        with pytest.raises(ProtocolError, match="counts are outside"):
            wire.read_votes(packed, **about, code=code)


@dataclass
class Unmasked:
    """An unmasked sum."""

    residues: Counts
    context: Context
    survivors: tuple[str, ...] = NAMES

    def result(self) -> Counts:
        return self.residues


def opened(changes: dict[str, Any], counts: Counts) -> Counts:
    """Return the server's result of a sum over the ring from four parties."""
    campaign = campaign_of(**({"aggregation": "masked", "colluders": 1} | changes))
    aggregation = MaskedAggregation(campaign, roster(), BATCH)
    residues = counts % 2 ** bits_of(campaign, len(ROWS))
    aggregation._masking = Unmasked(residues, aggregation._masking.context)  # type: ignore[assignment]
    return aggregation.result().total.counts


# --- what is said of it -------------------------------------------------------------------------


@pytest.mark.parametrize("unit", ["record", "patient"])
def test_the_statement_is_word_for_word_what_a_party_expects(path: Path, unit: str) -> None:
    with start(path, unit=unit) as ledger:
        release(ledger)
        statement = privacy_statement(ledger.state())
    assert statement.adjacency == adjacency_of(unit, records_vote=True)
    assert statement.teachers == 0
    assert statement.queries_asked == len(ROWS)
    (mechanism,) = statement.mechanism
    assert mechanism["mechanism"] == "neighbour"
    assert statement.realised == statement.cap
    assert PrivacyStatement.from_json(statement.to_json()) == statement
    for words in {"record": ("one record", "once"), "patient": ("one patient",)}[unit]:
        assert words in statement.adjacency
    assert "teacher" not in statement.adjacency


def test_the_servers_own_figure_is_one_matrix(path: Path) -> None:
    with start(path, **SHARES) as ledger:
        state = ledger.state()
        seen = server_epsilon(state)
        assert seen is not None
        assert seen == pytest.approx(state.epsilon)
        assert seen <= 1.0


def test_the_label_file_has_the_noisy_votes(tmp_path: Path) -> None:
    with start(tmp_path / report.LEDGER_FILE) as ledger:
        release(ledger)
        ledger.end_round(wants_predictions=False)
        ledger.finish()
        noisy = ledger.state().noisy
    assert noisy is not None
    made = report.label_set(tmp_path)
    again = LabelSet.from_json(made.to_json())
    assert again.noisy is not None
    np.testing.assert_array_equal(again.noisy.counts, noisy.counts)
    assert again.noisy.sigma == noisy.sigma
    assert again.noisy.queries.tolist() == list(ROWS)
    assert {row.source for row in again.rows} == {"records"}


def test_a_student_gets_them_once_they_are_released(path: Path) -> None:
    with start(path) as ledger:
        service = StudentService(ledger)
        with grpc.insecure_channel(f"127.0.0.1:{service.start()}") as channel:
            stub = student_pb2_grpc.StudentStub(channel)  # type: ignore[no-untyped-call]
            request = student_pb2.GetNoisyVotesRequest()
            before = stub.GetNoisyVotes(request, timeout=60)
            assert (list(before.queries), before.counts) == ([], b"")
            release(ledger)
            told = stub.GetNoisyVotes(request, timeout=60)
        service.stop(0.0)
        noisy = ledger.state().noisy
    assert noisy is not None
    assert list(told.queries) == list(ROWS)
    assert told.counts == noisy.counts.astype("<i8").tobytes()
    assert (told.classes, told.sigma) == (3, noisy.sigma)


# --- forgeries ------------------------------------------------------------------------------------

# 1 open, 2 roster, (3 opening,) 3 votes, 4 charge, 5 release, 6 round-end, 7 close


def _other_label(body: Body) -> None:
    body["answers"][0][1] = (body["answers"][0][1] + 1) % 3


def _no_label(body: Body) -> None:
    body["answers"][0][1:3] = [None, None]


def _swapped(body: Body) -> None:
    row = body["noisy"][0]
    row[0], row[1] = row[1], row[0]


FORGERIES: dict[str, tuple[int, Callable[[Body], object]]] = {
    "another label": (5, _other_label),
    "a label kept back": (5, _no_label),
    "a label of teachers": (5, lambda b: b["answers"][0].__setitem__(2, "teachers")),
    "a label of the student": (5, lambda b: b["answers"][0].__setitem__(2, "reinforced")),
    "another noisy row": (5, _swapped),
    "more votes than there can be": (
        5,
        lambda b: b["noisy"][0].__setitem__(b["answers"][0][1], 2**40 + 1),
    ),
    "no margin": (5, lambda b: b["noisy"].__setitem__(0, [9, 9, 9])),
    "a row too few": (5, lambda b: b["noisy"].pop()),
    "a row too many": (5, lambda b: b["noisy"].append([0, 0, 0])),
    "a count too few": (5, lambda b: b["noisy"][0].pop()),
    "no noisy counts": (5, lambda b: b.pop("noisy")),
    "noisy counts that are none": (5, lambda b: b.update(noisy=None)),
    "a fraction of a vote": (5, lambda b: b["noisy"][0].__setitem__(0, 260.5)),
    "a count that is true": (5, lambda b: b["noisy"][0].__setitem__(1, True)),
    "a count beyond all": (5, lambda b: b["noisy"][0].__setitem__(0, 2**50)),
    "an answer too few": (5, lambda b: b["answers"].pop()),
    "less spent": (5, lambda b: b.update(cost="0")),
    "two events for one": (5, lambda b: b["answers"][0].__setitem__(3, 2)),
    "a gate": (5, lambda b: b.update(gate="open")),
    "a cheaper charge": (4, lambda b: b.update(cost="1/1000")),
    "an event for each query": (4, lambda b: b.update(events=b["events"] * 8)),
    "a query left out": (4, lambda b: b["queries"].pop()),
    "noise of nobody": (4, lambda b: b.update(noise="parties")),
    "wider votes": (3, lambda b: b.update(teachers=10**6)),
    "half of the queries": (3, lambda b: b.update(count=4)),
    "less noise": (2, lambda b: b["mechanisms"][0].update(sigma="1")),
    "more votes of a unit than the spec": (
        2,
        lambda b: b["mechanisms"][0].update(votes_per_unit=2),
    ),
    "no margin asked for": (2, lambda b: b["mechanisms"][0].update(threshold=0)),
    "a mechanism of teachers": (
        2,
        lambda b: b.update(mechanisms=[{"mechanism": "gnmax", "sigma": "43", "votes_per_unit": 1}]),
    ),
    "a party with more votes": (2, lambda b: b["parties"][0].update(teachers=MOST + 1)),
    "a larger cap": (2, lambda b: b.update(cap="1")),
    "a code that is not charged": (1, lambda b: b["spec"].update(code="dense-8")),
    "a code that the campaign has not": (2, lambda b: b["mechanisms"][0].update(code="dense-8")),
    "one patient's votes more": (1, lambda b: b["spec"].update(votes_per_patient=2)),
    "other representatives": (1, lambda b: b["spec"].update(representatives=[0, 1])),
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("matrix") / "ledger.db"
    with start(path) as ledger:
        release(ledger)
        ledger.end_round(wants_predictions=False)
        ledger.finish()
    verify(path)
    return path


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_chain_breaks_a_rule(finished: Path, name: str) -> None:
    with pytest.raises(LedgerError, match=r"^entry \d \("):
        replay(forged(CHAIN, read_campaign(finished)[1], *FORGERIES[name]))
    replay(forged(CHAIN, read_campaign(finished)[1], 0, dict))  # and unchanged it breaks none


@pytest.mark.parametrize("left_out", range(1, 6))
def test_a_step_left_out_or_done_twice_breaks_a_rule(finished: Path, left_out: int) -> None:
    for times in (0, 2):
        with pytest.raises(LedgerError):
            replay(repeated(CHAIN, read_campaign(finished)[1], left_out, times))


def test_a_noisy_count_changed_in_the_file_is_found(finished: Path, tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    path.write_bytes(finished.read_bytes())
    with closing(sqlite3.connect(path)) as link:
        (body,) = link.execute("SELECT body FROM entries WHERE kind = 'release'").fetchone()
    changed = json.loads(body)
    changed["noisy"][3][1] += 1
    tamper(
        path,
        "UPDATE entries SET body = ? WHERE kind = 'release'",
        json.dumps(changed, sort_keys=True, separators=(",", ":")),
    )
    with pytest.raises(LedgerError):
        verify(path)


def test_noisy_counts_of_parties_are_those_of_the_votes(path: Path) -> None:
    """A server releases another matrix than the parties' sum: the chain by itself would verify."""
    with start(path, **SHARES) as ledger:
        other = ledger.counts()
        other[ROWS[0], 2] += 1
        publish(ledger, ledger.charge(list(ROWS)), other[list(ROWS)])
        ledger.end_round(wants_predictions=False)
        ledger.finish()
    replay(read_campaign(path)[1])
    with pytest.raises(LedgerError, match="not those of the votes"):
        verify(path)


# --- what may be asked for ------------------------------------------------------------------------


def test_a_spec_comes_back_from_its_text() -> None:
    for spec in (
        matrix_spec(),
        matrix_spec(
            unit="patient", votes_per_patient=7, sigma2=Fraction(40), threshold=Fraction(9)
        ),
        matrix_spec(**SHARES),
        matrix_spec(code="dense-8"),
        matrix_spec(delta=0.0),
    ):
        assert CampaignSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("unit", {"unit": "party"}),
        ("representatives", {"representatives": None}),
        ("representatives", {"representatives": ()}),
        ("representatives", {"representatives": (4, 1)}),
        ("representatives", {"representatives": (1, 1)}),
        ("representatives", {"representatives": (1, QUERIES)}),
        ("representatives", {"representatives": (-1, 3)}),
        ("representatives", {"representatives": (0, True)}),
        ("too many", {"representatives": tuple(range(2**16 + 1)), "queries": 2**17}),
        (
            "too many",
            {
                "representatives": tuple(range(1100)),
                "queries": 2000,
                "classes": tuple(f"c{at}" for at in range(1000)),
            },
        ),
        ("most_votes", {"most_votes": None}),
        ("most_votes", {"most_votes": 0}),
        ("most_votes", {"most_votes": True}),
        ("most_votes", {"most_votes": 2**16 + 1}),
        ("votes_per_patient", {"votes_per_patient": None}),
        ("votes_per_patient", {"votes_per_patient": 0, "unit": "patient"}),
        ("votes_per_patient", {"votes_per_patient": 2}),
        ("rounds", {"rounds": 2}),
        ("max_queries", {"max_queries": 5}),
        ("proofs", {"vote_proofs": True, "aggregation": "masked", "colluders": 1}),
        ("a code is", {"code": "dense"}),
        ("a code is", {"code": "dense-1"}),
        ("code = dense-7", {"code": "dense-7"}),
        ("lower most_votes", {"code": "dense-8", "most_votes": 2**16, "parties": 17}),
        ("code = dense-9", {"code": "dense-9"}),
        ("code", {"code": None}),
        ("sigma1", {"sigma1": Fraction(40)}),
        ("scale", {"scale": Fraction(40)}),
        ("gate", {"publish": "gated"}),
    ],
)
def test_a_senseless_matrix_is_refused_by_name(field: str, changes: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=field):
        matrix_spec(**changes)


@pytest.mark.parametrize("field", ["representatives", "most_votes", "votes_per_patient"])
def test_what_is_of_neighbour_votes_means_nothing_elsewhere(field: str) -> None:
    value = {"representatives": (1, 2)}.get(field, 3)
    with pytest.raises(UsageError, match=field):
        make_spec(**{field: value})


def test_stated_noise_that_the_budget_does_not_pay_for_is_refused(path: Path) -> None:
    ledger = Ledger.create(path, matrix_spec(sigma2=Fraction(2)))
    with ledger, pytest.raises(BudgetError, match="one matrix may cost"):
        ledger.record_roster(make_parties(MOST), CLASSES)


PICTURES = Images(np.random.default_rng(0).integers(0, 256, (30, 4, 4, 1), dtype=np.uint8))
ROWS_OF_A_TABLE = Table(("age",), (np.arange(12.0),))


def options(**changes: Any) -> CampaignSpec:
    return _specified(PICTURES, changes)


def options_of_table(**changes: Any) -> CampaignSpec:
    return _specified(ROWS_OF_A_TABLE, changes)


def _specified(inputs: Inputs, changes: dict[str, Any]) -> CampaignSpec:
    fields: dict[str, Any] = {"aggregator": "neighbour", "epsilon": 1.0, "representatives": 4}
    return spec_of(CampaignOptions(**fields | changes), inputs)


def test_the_noise_is_the_parties_where_their_votes_are_masked() -> None:
    assert options().sums.noise == "distributed"
    assert options(aggregation="plain").sums.noise == "central"
    assert options(noise="central").sums.noise == "central"
    assert options(parties="2").sums.noise == "central"
    teachers = options(aggregator="gnmax", representatives=None)
    assert (teachers.sums.noise, teachers.representatives) == ("central", None)


def test_options_of_neighbour_votes_are_refused_for_teachers() -> None:
    for name in ("representatives", "expected_records", "most_votes", "votes_per_patient"):
        with pytest.raises(UsageError, match="--aggregator neighbour"):
            options(aggregator="gnmax", **{"representatives": None, name: 5})
    with pytest.raises(UsageError, match="--code is for --aggregator neighbour"):
        options(aggregator="gnmax", representatives=None, code="dense-5")


def test_a_campaign_without_a_code_has_the_text_that_it_always_had() -> None:
    for spec in (matrix_spec(), make_spec()):
        assert "code" not in spec.to_dict()
    mechanism = resolve(matrix_spec(), MOST, 1)[0]
    assert set(mechanism.to_dict()) == {"mechanism", "threshold", "sigma", "votes_per_unit"}
    assert "code" not in write(matrix_spec().announced)
    with pytest.raises(UsageError, match="code must be omitted at its default"):
        CampaignSpec.from_dict(matrix_spec().to_dict() | {"code": "nearest"})
    with pytest.raises(UsageError, match="teachers do not vote by the code dense-8"):
        CampaignSpec.from_dict(make_spec().to_dict() | {"code": "dense-8"})


def test_a_resume_with_another_code_is_refused_by_name() -> None:
    one, other = matrix_spec(), matrix_spec(code="dense-8")
    with pytest.raises(StateError, match="code = nearest, but dense-8 was given"):
        one.require_same(other)
    with pytest.raises(StateError, match="code = dense-8, but nearest was given"):
        other.require_same(one)
    other.require_same(other)


def test_the_code_follows_from_public_numbers_alone() -> None:
    usual = default_number(10_000, 10**6, 0.3, 1e-5)
    assert number_for("nearest", usual, 10**6) == usual
    assert number_for("nearest", usual, 5) == 5
    assert number_for("dense", usual, 10**6) == 64
    assert number_for("dense", usual, 50) == 50
    assert number_for("dense-200", usual, 50) == 200
    assert str(settled_code("dense", 30)) == "dense-30"
    assert str(settled_code("nearest", 30)) == "nearest"
    dense = options(code="dense", representatives=None)
    assert (len(dense.representatives or ()), dense.code) == (30, "dense-30")
    # Of a class list that is stated, records vote in rounds, unless an answer is stated, too.
    for more, wanted in (
        ({"classes": "no,yes"}, "dense-30 residual"),
        ({"classes": "no,yes", "answer": "class"}, "dense-30"),
        ({"classes": ",".join("abcdefghi")}, "dense-30 residual"),
        ({"classes": "no,yes", "code": "dense-15"}, "dense-15 residual"),
        ({"classes": None}, "dense-30"),
        ({"classes": "no,yes", "code": "nearest"}, "nearest"),
    ):
        assert options(**{"code": "dense", "representatives": None, **more}).code == wanted
    with pytest.raises(UsageError, match="has signs and is for dense"):
        options(code="nearest", answer="residual", classes="no,yes")
    with pytest.raises(UsageError, match="needs a class list that the campaign states: --classes"):
        options(code="dense-16", answer="residual", classes=None, representatives=None)
    seven = options(code="dense-7", representatives=None)
    assert len(seven.representatives or ()) == 7
    with pytest.raises(UsageError, match="code = dense-7 needs that many representatives, not 8"):
        options(code="dense-7", representatives=8)
    with pytest.raises(UsageError, match="a code is nearest, or dense-K"):
        options(code="far")


def test_the_law_of_the_noise_follows_from_the_code() -> None:
    assert options().delta == 0
    asked = options(code="dense-25", representatives=None)
    assert asked.delta == 1e-5
    mechanism = resolve(asked, 4 * MOST, 1)[0]
    assert isinstance(mechanism, DistributedNeighbour)
    assert mechanism.share is not None
    made = options(code="dense-4", noise_law="geometric")
    assert made.delta == 0
    (event,) = resolve(made, 4 * MOST, 1)[0].worst
    assert isinstance(event, GeometricHistogram)
    assert event.distance == 4 * GRID


def test_representatives_are_different_inputs_and_follow_from_the_public_set_alone() -> None:
    twice = Images(np.concatenate([PICTURES.pixels[:6], PICTURES.pixels[:6]]))
    said: list[str] = []
    found = choose(twice, 50, said.append)
    assert found == tuple(range(6))
    assert "6 representatives of 12" in said[0]
    assert choose(PICTURES, 7, said.append) == choose(PICTURES, 7, said.append)
    rows = choose(PICTURES, 7, said.append)
    assert len(set(rows)) == 7
    assert list(rows) == sorted(rows)


@pytest.mark.parametrize(
    "column",
    [
        np.array([np.nan] * 4), np.array([1e308, -1e308, 5e-324, 0.0]), np.array([3.0] * 4),
        np.array(["", "a", "b", "a" * 5000]), np.array([1.0]),
    ],
)  # fmt: skip
def test_odd_public_tables_have_representatives(column: Any) -> None:
    table = Table(("x", "nr"), (column, np.arange(len(column), dtype=np.float64)))
    rows = choose(table, 3, lambda _: None)
    assert len(set(rows)) == len(rows) <= 3


def test_more_budget_or_records_pay_for_more_representatives() -> None:
    numbers = [default_number(60_000, 9_000, epsilon, 1e-5) for epsilon in (0.05, 0.1, 0.3, 1.0)]
    assert numbers == sorted(numbers)
    assert default_number(100, 9_000, 0.1, 1e-5) == 20
    assert default_number(100, 5, 0.1, 1e-5) == 5
    assert default_number(10**9, 9_000, 1.0, 1e-5) == 2000
    assert default_number(60_000, 9_000, 0.1, 1e-5, votes=4) < 229 / 3


def test_parties_are_told_the_most_votes_and_nobody_the_number_of_records() -> None:
    told = write(matrix_spec().announced)
    assert (told["most_votes"], told["rounds"]) == (MOST, 1)
    assert told.keys().isdisjoint({"representatives", "votes_per_patient", "parties", "name"})
    assert make_spec().most_votes is None


def test_entries_are_checked_at_both_ends() -> None:
    counts = np.array([[0, 5], [3, 5]], dtype=np.int64)
    check_entries(counts, least=0, most=5)
    for bounds in ({"least": 1, "most": 5}, {"least": 0, "most": 4}):
        with pytest.raises(ProtocolError, match="counts are outside"):
            check_entries(counts, **bounds)
    check_entries(np.zeros((0, 2), dtype=np.int64), least=0, most=0)
