"""Scores of probabilities, against scikit-learn and against their definitions."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logit

from pate.errors import DataError
from student.evaluation.scores import Scores, score

if TYPE_CHECKING:
    from numpy.typing import NDArray

YES_NO = ("no", "yes")
THREE = ("a", "b", "c")


def of_two(positive: NDArray[np.floating]) -> NDArray[np.float64]:
    return np.column_stack([1.0 - positive, positive])


def problem(
    seed: int, size: int, count: int = 200, *, ties: bool = False
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Probabilities that know a little of the truth; with ties they are coarse."""
    generator = np.random.default_rng(seed)
    truth = generator.integers(0, size, count)
    weights = generator.random((count, size)) + 0.7 * np.eye(size)[truth]
    if ties:
        weights = np.ceil(3 * weights)
    return weights / weights.sum(axis=1, keepdims=True), truth


def area(scores: Scores) -> float:
    assert scores.area is not None
    return scores.area.value


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_two_classes_as_scikit_learn(seed: int, *, ties: bool) -> None:
    from sklearn.metrics import brier_score_loss, roc_auc_score, roc_curve

    known, truth = problem(seed, 2, ties=ties)
    found = score(known, truth, YES_NO)
    assert area(found) == pytest.approx(roc_auc_score(truth, known[:, 1]), abs=1e-12)
    # The convention: summed over both classes, which is twice that of one.
    assert found.brier == pytest.approx(2 * brier_score_loss(truth, known[:, 1]), abs=1e-12)
    share = truth.mean()
    assert found.brier_of_shares == pytest.approx(2 * share * (1 - share))
    false, true, _ = roc_curve(truth, known[:, 1])
    assert found.roc is not None
    assert np.array_equal(found.roc, np.column_stack([false, true]))
    other = score(known, truth, YES_NO, positive=0)
    assert area(other) == pytest.approx(roc_auc_score(truth == 0, known[:, 0]), abs=1e-12)


@pytest.mark.parametrize("ties", [False, True])
def test_three_classes_as_scikit_learn(*, ties: bool) -> None:
    from sklearn.metrics import brier_score_loss, roc_auc_score

    known, truth = problem(1, 3, ties=ties)
    found = score(known, truth, THREE)
    one_to_rest = roc_auc_score(truth, known, multi_class="ovr", average="macro")
    assert area(found) == pytest.approx(one_to_rest, abs=1e-12)
    each = [brier_score_loss(truth == at, known[:, at]) for at in range(3)]
    assert found.brier == pytest.approx(sum(each), abs=1e-12)
    assert found.roc is None


def test_an_absent_class_is_left_out_and_named() -> None:
    from sklearn.metrics import roc_auc_score

    known, truth = problem(2, 3)
    here = truth != 1
    found = score(known[here], truth[here], THREE)
    parts = [roc_auc_score(truth[here] == at, known[here, at]) for at in (0, 2)]
    assert area(found) == pytest.approx(np.mean(parts), abs=1e-12)
    assert found.area is not None
    assert found.area.left_out == ("b",)
    assert found.to_json()["auc_left_out"] == ["b"]


def test_labels_of_one_class_have_no_area() -> None:
    known, _ = problem(3, 2, 30)
    found = score(known, np.ones(30, dtype=np.int64), YES_NO)
    assert found.area is None
    assert found.roc is None
    assert found.brier_of_shares == 0
    assert found.to_json()["auc"] is found.to_json()["auc_interval"] is None


def test_perfect_probabilities() -> None:
    truth = np.arange(40) % 2
    found = score(np.eye(2)[truth], truth, YES_NO)
    assert (found.brier, found.calibration_error, area(found)) == (0, 0, 1)
    assert found.area is not None
    assert found.area.interval is not None
    # Twenty disjoint pairs, all ranked rightly, do not prove that all pairs are.
    assert found.area.interval[0] == pytest.approx(0.839, abs=1e-3)
    assert found.area.interval[1] == 1
    wrong = score(np.eye(2)[1 - truth], truth, YES_NO)
    assert (wrong.brier, wrong.calibration_error, area(wrong)) == (2, 1, 0)


def test_equal_probabilities_rank_nothing() -> None:
    truth = np.arange(100) % 4 // 3
    found = score(of_two(np.full(100, 0.25)), truth, YES_NO)
    assert area(found) == 0.5
    assert found.area is not None
    assert found.area.interval is not None
    assert found.area.interval[0] < 0.4  # twenty-five pairs
    (one,) = found.bins
    assert (one.observed.hits, one.observed.count, one.mean) == (25, 100, 0.25)
    assert found.calibration_error == 0


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 12), st.booleans()), min_size=2, max_size=30),
    st.integers(1, 3),
)
def test_the_area_is_the_share_of_pairs_and_a_monotone_change_does_not_move_it(
    rows: list[tuple[int, bool]], power: int
) -> None:
    judged = np.array([value for value, _ in rows]) / 16
    truth = np.array([said for _, said in rows]).astype(np.int64)
    found = score(of_two(judged), truth, YES_NO)
    high, low = judged[truth == 1], judged[truth == 0]
    if not len(high) or not len(low):
        assert found.area is None
        return
    pairs = [(a > b) + (a == b) / 2 for a, b in itertools.product(high, low)]
    assert area(found) == pytest.approx(np.mean(pairs), abs=1e-12)
    changed = score(of_two(judged**power / 2 + 0.25), truth, YES_NO)
    assert area(changed) == area(found)
    assert changed.area is not None
    assert found.area is not None
    assert (changed.area.interval is None) == (found.area.interval is None)
    if found.area.interval is not None:
        assert changed.area.interval == pytest.approx(found.area.interval, abs=1e-9)


def test_the_areas_variance_is_delongs() -> None:
    """The textbook sum over all pairs, for two classes without patients."""
    known, truth = problem(4, 2, 60, ties=True)
    judged = known[:, 1]
    high, low = judged[truth == 1], judged[truth == 0]
    wins = (high[:, None] > low).astype(float) + (high[:, None] == low) / 2
    variance = wins.mean(axis=1).var(ddof=1) / len(high) + wins.mean(axis=0).var(ddof=1) / len(low)
    value = wins.mean()
    half = 1.959964 * np.sqrt(variance) / (value * (1 - value))
    odds = np.log(value / (1 - value))
    expected = [1 / (1 + np.exp(-end)) for end in (odds - half, odds + half)]
    found = score(known, truth, YES_NO).area
    assert found is not None
    assert found.interval == pytest.approx(expected, abs=1e-6)


def test_inputs_that_repeat_add_nothing_to_the_area() -> None:
    known, truth = problem(6, 3, 90)
    once = score(known, truth, THREE, units=np.arange(90)).area
    units = np.arange(90).repeat(4)
    often = score(known.repeat(4, axis=0), truth.repeat(4), THREE, units=units).area
    by_input = score(known.repeat(4, axis=0), truth.repeat(4), THREE).area
    assert once is not None
    assert often is not None
    assert by_input is not None
    assert once.interval is not None
    assert by_input.interval is not None
    assert often.value == pytest.approx(once.value)
    assert often.interval == pytest.approx(once.interval, abs=1e-9)
    wide, narrow = (np.diff(logit(each))[0] for each in (once.interval, by_input.interval))
    assert wide == pytest.approx(2 * narrow, rel=0.05)


def test_a_class_of_one_patient_gives_no_interval() -> None:
    known, truth = problem(7, 2, 40)
    units = np.where(truth == 1, 0, np.arange(40) + 1)
    found = score(known, truth, YES_NO, units=units).area
    assert found is not None
    assert found.interval is None


@pytest.mark.parametrize("rows", [1, 5])
def test_the_areas_interval_covers_the_truth(rows: int) -> None:
    # Two normals 1.5 apart, also with patients whose rows share most of their error. Of 1,000 draws
    # at a coverage of 0.92 or more, fewer than 875 have a probability below 1e-6.
    from scipy.stats import norm

    generator = np.random.default_rng(8)
    true = norm.cdf(1.5 / np.sqrt(2))
    covered = 0
    truth = np.arange(100).repeat(rows) % 2 if rows == 1 else (np.arange(100) % 2).repeat(rows)
    units = np.arange(100).repeat(rows)
    for _ in range(1_000):
        person, row = generator.normal(size=100).repeat(rows), generator.normal(size=100 * rows)
        weight = np.sqrt(0.8) if rows > 1 else 1.0
        noise = weight * person + np.sqrt(1 - weight**2) * row
        judged = norm.cdf(noise + 1.5 * truth)
        found = score(of_two(judged), truth, YES_NO, units=units).area
        assert found is not None
        assert found.interval is not None
        covered += found.interval[0] <= true <= found.interval[1]
    assert covered >= 875


@pytest.mark.parametrize("ties", [False, True])
def test_bins_are_of_equal_mass_and_ties_share_one(*, ties: bool) -> None:
    from sklearn.calibration import calibration_curve

    generator = np.random.default_rng(9)
    judged = generator.random(500)
    if ties:
        judged = np.round(judged, 1)
    truth = (generator.random(500) < judged).astype(np.int64)
    found = score(of_two(judged), truth, YES_NO)
    assert sum(each.observed.count for each in found.bins) == 500
    assert all(a.high < b.low for a, b in itertools.pairwise(found.bins))
    apart = [abs(each.mean - (each.observed.share or 0)) for each in found.bins]
    counts = [each.observed.count for each in found.bins]
    assert found.calibration_error == pytest.approx(np.average(apart, weights=counts))
    if not ties:
        assert counts == [50] * 10
        happened, mean = calibration_curve(truth, judged, n_bins=10, strategy="quantile")
        assert [each.mean for each in found.bins] == pytest.approx(mean)
        assert [each.observed.share for each in found.bins] == pytest.approx(happened)
    # The order of inputs does not count.
    order = generator.permutation(500)
    again = score(of_two(judged[order]), truth[order], YES_NO)
    assert [each.observed for each in again.bins] == [each.observed for each in found.bins]
    few = score(of_two(judged[:35]), truth[:35], YES_NO)
    assert len(few.bins) <= 3
    json.dumps(found.to_json())
    assert found.to_json()["calibration"][0]["observed"]["of"] == counts[0]  # type: ignore[index]


def test_perfect_probabilities_have_the_error_of_chance() -> None:
    # The mean of 300 draws has a standard error of about 0.0007: 0.005 is seven of them.
    generator = np.random.default_rng(10)
    errors, by_chance = [], []
    for _ in range(300):
        judged = generator.random(400)
        truth = (generator.random(400) < judged).astype(np.int64)
        found = score(of_two(judged), truth, YES_NO)
        errors.append(found.calibration_error)
        assert found.error_by_chance is not None
        by_chance.append(found.error_by_chance)
    assert np.mean(errors) == pytest.approx(np.mean(by_chance), abs=0.005)
    assert score(of_two(judged), truth, YES_NO, units=np.arange(400) // 2).error_by_chance is None


@pytest.mark.parametrize(
    ("known", "why"),
    [
        (np.full((4, 3), 1 / 3), "shape"),
        (np.full((4, 2), np.nan), "sum to 1"),
        (np.array([[1.5, -0.5]] * 4), "negative"),
        (np.full((4, 2), 0.4), "sum to 1"),
    ],
)
def test_what_is_no_probability_is_refused(known: NDArray[np.float64], why: str) -> None:
    with pytest.raises(DataError, match=why):
        score(known, np.array([0, 1, 0, 1]), YES_NO)
