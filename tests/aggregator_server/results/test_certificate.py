"""Certificates: sound and tight against all possible votes of one party."""

from __future__ import annotations

import itertools
import json
from contextlib import ExitStack
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aggregator_server.ledger.ledger import Ledger
from aggregator_server.results.certificate import (
    Certificate,
    can_be_stopped,
    certificate_of,
    safe_votes,
)
from pate.campaign.roster import RosterParty
from pate.errors import LedgerError
from pate.votes import Histogram, NoisySum
from tests.support.server.campaigns import (
    CLASSES,
    NAMES,
    answer,
    label,
    make_predictions,
    make_spec,
    make_votes,
    start,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    Row = NDArray[np.int64]


def ballots(teachers: int, classes: int) -> Iterator[Row]:
    """Every vote vector of a number of teachers."""
    for cuts in itertools.combinations(range(teachers + classes - 1), classes - 1):
        edges = np.array([-1, *cuts, teachers + classes - 1])
        yield np.diff(edges) - 1


def alternatives(row: Row, teachers: int, *, exact: bool) -> Iterator[Row]:
    """Every row that a party with this many teachers could have produced.

    Its actual votes are hidden: any that leave the others, if sums are exact, no negative votes.
    """
    every = list(ballots(teachers, len(row)))
    for cast in every:
        others = row - cast
        if exact and others.min() < 0:
            continue
        for other in every:
            yield others + other


def tiny_worlds() -> Iterator[tuple[Row, int]]:
    for classes, most in ((2, 6), (3, 5), (4, 4)):
        for counts in itertools.product(range(most + 1), repeat=classes):
            row = np.array(counts)
            for teachers in (1, 2):
                if row.sum() >= teachers:
                    yield row, teachers


@pytest.mark.parametrize("exact", [True, False])
def test_a_label_is_safe_just_if_no_votes_of_the_party_could_change_it(exact: bool) -> None:
    """Sound and tight, including ties; also with noise in the counts, for fixed noise."""
    seen = {True: 0, False: 0}
    for row, teachers in tiny_worlds():
        if row.sum() > 9:
            continue
        winner = int(row.argmax())
        changed = any(
            int(other.argmax()) != winner for other in alternatives(row, teachers, exact=exact)
        )
        safe = safe_votes(row, winner) >= teachers
        assert safe == (not changed), (row, teachers)
        seen[safe] += 1
    assert min(seen.values()) > 20


def test_counts_with_noise_may_be_negative() -> None:
    for row in (np.array([-3, 2, -1]), np.array([0, -5, -5]), np.array([-2, -2, -9])):
        winner = int(row.argmax())
        for teachers in (1, 2, 3):
            changed = any(
                int(other.argmax()) != winner for other in alternatives(row, teachers, exact=False)
            )
            assert (safe_votes(row, winner) >= teachers) == (not changed), (row, teachers)


def test_a_label_that_is_not_ahead_is_never_safe() -> None:
    for row, _ in tiny_worlds():
        winner = int(row.argmax())
        for other in set(range(len(row))) - {winner}:
            assert safe_votes(row, other) < 0


@pytest.mark.parametrize("exact", [True, False])
def test_an_answer_is_certain_just_if_no_votes_of_the_party_bring_all_below(exact: bool) -> None:
    seen = {True: 0, False: 0}
    for row, teachers in tiny_worlds():
        if row.sum() > 7 or len(row) > 3:
            continue
        lowest = min(int(other.max()) for other in alternatives(row, teachers, exact=exact))
        for threshold in range(-1, 8):
            if row.max() < threshold:
                continue
            stopped = can_be_stopped(row, threshold, teachers, votes=row if exact else None)
            assert stopped == (lowest < threshold), (row, teachers, threshold)
            seen[stopped] += 1
    assert min(seen.values()) > 20


@pytest.mark.parametrize("exact", [True, False])
def test_a_margin_over_a_prediction_is_held_against_the_threshold_as_well(exact: bool) -> None:
    rng = np.random.default_rng(5)
    for _ in range(150):
        row = rng.multinomial(6, rng.dirichlet(np.ones(3))).astype(np.int64)
        expected = rng.multinomial(6, rng.dirichlet(np.ones(3))).astype(np.int64)
        teachers = int(rng.integers(1, 4))
        lowest = min(
            int((other - expected).max()) for other in alternatives(row, teachers, exact=exact)
        )
        for threshold in range(-2, int((row - expected).max()) + 1):
            stopped = can_be_stopped(
                row - expected, threshold, teachers, votes=row if exact else None
            )
            assert stopped == (lowest < threshold), (row, expected, teachers, threshold)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(-50, 300), min_size=2, max_size=6),
    st.integers(1, 40),
    st.data(),
)
def test_safe_labels_survive_any_votes_drawn(counts: list[int], teachers: int, data: Any) -> None:
    row = np.array(counts, dtype=np.int64)
    winner = int(row.argmax())
    aggregation = st.lists(st.integers(0, len(row) - 1), min_size=teachers, max_size=teachers).map(
        lambda each: np.bincount(each, minlength=len(row))
    )
    other = row - data.draw(aggregation) + data.draw(aggregation)
    if safe_votes(row, winner) >= teachers:
        assert int(other.argmax()) == winner


def mixed_votes(queries: int, teachers: int) -> NDArray[np.int64]:
    """Votes that agree on class 1 more and more from the first query to the last."""
    first = np.linspace(0.4, 0.98, queries)
    shares = np.stack([(1 - first) / 2, first, (1 - first) / 2], axis=1)
    return np.random.default_rng(3).multinomial(teachers, shares).astype(np.int64)


def check_against_counts(ledger: Ledger, largest: int) -> Certificate:
    """Recompute every figure from the counts by brute force."""
    state, counts = ledger.state(), ledger.counts()
    found = certificate_of(state, counts)
    assert [each.query for each in found.labels] == list(state.labels)
    (mechanism,) = state.mechanisms
    threshold = mechanism.to_dict()["threshold"]
    assert isinstance(threshold, int)
    for each in found.labels:
        row = counts[each.query].tolist()
        mine, others = row[each.label], row[: each.label] + row[each.label + 1 :]
        assert each.label == state.labels[each.query].label
        assert each.margin == mine - max(others)
        assert each.largest_party == largest
        assert (each.safe_votes is not None) == (row.index(max(row)) == each.label)
        row[each.label] -= largest
        rivals = [
            [n + largest * (at == j) for at, n in enumerate(row)]
            for j in range(len(row))
            if j != each.label
        ]
        assert each.safe_against_any_party == all(r.index(max(r)) == each.label for r in rivals)
        assert each.answered_against_any_party == (mine - largest >= threshold)
    summary = found.summary
    assert summary.labels == summary.checked == len(found.labels)
    assert 0 < summary.safe < summary.labels
    assert 0 < summary.answered < summary.labels
    return found


@pytest.fixture
def held() -> Iterator[ExitStack]:
    """What a test opens; closed after it."""
    with ExitStack() as stack:
        yield stack


def test_a_campaign_with_central_noise(tmp_path: Path, held: ExitStack) -> None:
    spec = make_spec(sigma1=Fraction(10), sigma2=Fraction(8), threshold=Fraction(60), epsilon=300.0)
    ledger = held.enter_context(start(tmp_path / "ledger.db", spec, voted=False))
    ledger.record_votes(0, Histogram(mixed_votes(200, 100), 100), NAMES)
    label(ledger)
    found = check_against_counts(ledger, 25)
    assert (found.noise, found.masked) == ("central", False)


def test_a_campaign_with_noise_in_its_counts(tmp_path: Path, held: ExitStack) -> None:
    spec = make_spec(
        sigma2=Fraction(8),
        threshold=Fraction(60),
        epsilon=300.0,
        aggregation="masked",
        noise="distributed",
    )
    ledger = held.enter_context(start(tmp_path / "ledger.db", spec, voted=False))
    noise = np.random.default_rng(4).normal(0, 9, size=(200, 3)).round().astype(np.int64)
    ledger.record_unmasking(0, 200, NAMES)
    ledger.record_votes(0, NoisySum(mixed_votes(200, 100) + noise, 100), NAMES)
    label(ledger)
    found = check_against_counts(ledger, 25)
    assert (found.noise, found.masked) == ("distributed", True)
    assert found.summary.ahead == found.summary.labels  # the noise that chose is in the counts


def test_the_largest_party_of_those_that_voted_counts(tmp_path: Path, held: ExitStack) -> None:
    """Two batches of the same votes; the second without the largest party."""
    spec = make_spec(queries=40, aggregator="gnmax", sigma2=Fraction(2), epsilon=200.0)
    ledger = held.enter_context(Ledger.create(tmp_path / "ledger.db", spec))
    sizes = (10, 20, 30, 40)
    ledger.record_roster(
        [
            RosterParty(name, f"{at:064x}", k, "record")
            for at, (name, k) in enumerate(zip(NAMES, sizes, strict=True))
        ],
        CLASSES,
    )
    ledger.record_votes(0, Histogram(make_votes(20, 100), 100), NAMES)
    ledger.record_votes(20, Histogram(make_votes(20, 60), 60), NAMES[:3])
    label(ledger)
    state = ledger.state()
    found = certificate_of(state, ledger.counts())
    assert {each.largest_party for each in found.labels} == {30, 40}
    for each in found.labels:
        assert each.largest_party == (40 if state.batch_of(each.query).teachers == 100 else 30)
        assert each.answered_against_any_party is None  # no threshold


def test_labels_of_the_student_are_not_certified(tmp_path: Path, held: ExitStack) -> None:
    spec = make_spec(aggregator="interactive-gnmax", rounds=2, epsilon=20.0)
    ledger = held.enter_context(start(tmp_path / "ledger.db", spec))
    answer(ledger, 30)
    ledger.end_round(wants_predictions=True)
    # Right of even queries, and sure of the wrong class for odd ones: those the teachers answer.
    predictions = make_predictions(spec.queries)
    predictions[1::2] = np.roll(predictions[1::2], 1, axis=1)
    ledger.record_predictions(2, predictions)
    label(ledger)
    state = ledger.state()
    sources = [each.source for each in state.labels.values()]
    assert "reinforced" in sources
    blind = certificate_of(state, ledger.counts())
    told = certificate_of(state, ledger.counts(), {2: predictions})
    assert blind.reinforced == sources.count("reinforced")
    assert len(blind.labels) == sources.count("teachers")
    late = [each.query for each in told.labels if state.labels[each.query].round == 2]
    for left, right in zip(blind.labels, told.labels, strict=True):
        assert (left.answered_against_any_party is None) == (left.query in late)
        assert right.answered_against_any_party is not None
        assert replace(left, answered_against_any_party=None) == replace(
            right, answered_against_any_party=None
        )


def test_a_prediction_is_scaled_to_the_teachers_of_its_batch(
    tmp_path: Path, held: ExitStack
) -> None:
    spec = make_spec(
        aggregator="interactive-gnmax",
        rounds=2,
        epsilon=300.0,
        sigma1=Fraction(5),
        sigma2=Fraction(5),
        threshold=Fraction(1000),  # nothing in the first round
        interactive_threshold=Fraction(10),
        queries=60,
    )
    ledger = held.enter_context(start(tmp_path / "ledger.db", spec, voted=False))
    # 60 votes against 0.3 * 75 = 22 expected ones, or 0.3 * 100 = 30 with all parties.
    row = [60, 15, 0]
    ledger.record_votes(0, Histogram(np.array([row] * 60), 75), NAMES[:3])
    label(ledger)
    ledger.end_round(wants_predictions=True)
    predictions = np.tile(np.array([0.3, 0.5, 0.2], dtype=np.float32), (60, 1))
    ledger.record_predictions(2, predictions)
    label(ledger)
    found = certificate_of(ledger.state(), ledger.counts(), {2: predictions})
    assert len(found.labels) > 40
    # 25 votes less leave 60 - 22 - 25 = 13 or 12 above the prediction, where 10 are needed.
    assert all(each.answered_against_any_party for each in found.labels)


def test_json_says_that_it_is_private(tmp_path: Path, held: ExitStack) -> None:
    ledger = held.enter_context(start(tmp_path / "ledger.db"))
    answer(ledger, 20)
    found = certificate_of(ledger.state(), ledger.counts())
    read = json.loads(json.dumps(found.to_json()))
    assert "do not publish" in read["private"]
    assert len(read["labels"]) == read["summary"]["labels"] == len(found.labels)
    assert read["labels"][0]["query"] == found.labels[0].query


def test_votes_of_another_campaign_are_refused(tmp_path: Path, held: ExitStack) -> None:
    ledger = held.enter_context(start(tmp_path / "ledger.db"))
    answer(ledger, 20)
    counts = ledger.counts()
    with pytest.raises(LedgerError, match="votes of shape"):
        certificate_of(ledger.state(), counts[:-1])
    with pytest.raises(LedgerError, match="predictions of shape"):
        certificate_of(ledger.state(), counts, {2: make_predictions(7)})


def test_a_campaign_without_labels_has_an_empty_certificate(
    tmp_path: Path, held: ExitStack
) -> None:
    ledger = held.enter_context(start(tmp_path / "ledger.db"))
    assert certificate_of(ledger.state(), ledger.counts()).labels == ()
