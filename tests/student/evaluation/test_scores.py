"""Scores of probabilities, against scikit-learn and their definitions; predictions by a threshold."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pate.errors import DataError, UsageError
from student.evaluation.figures import Rate
from student.evaluation.scores import Decision, Question, Scores, Threshold, score, threshold_for
from tests.support.there import there

YES_NO = ("no", "yes")
THREE = ("a", "b", "c")
SHARES = st.integers(1, 100).map(lambda percent: percent / 100)


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
@pytest.mark.parametrize("size", [2, 3])
def test_classes_as_scikit_learn(size: int, *, ties: bool) -> None:
    from sklearn.metrics import brier_score_loss, roc_auc_score, roc_curve

    known, truth = problem(size - 2, size, ties=ties)
    found = score(known, truth, THREE[:size])
    # The convention: summed over the classes; of two it is twice that of one.
    each = [brier_score_loss(truth == at, known[:, at]) for at in range(size)]
    assert found.brier == pytest.approx(sum(each), abs=1e-12)
    if size == 3:
        one_to_rest = roc_auc_score(truth, known, multi_class="ovr", average="macro")
        assert area(found) == pytest.approx(one_to_rest, abs=1e-12)
        assert found.roc is None
        return
    share = truth.mean()
    assert found.brier_of_shares == pytest.approx(2 * share * (1 - share))
    false, true, _ = roc_curve(truth, known[:, 1])
    assert found.roc is not None
    assert np.array_equal(found.roc, np.column_stack([false, true]))
    for positive in (0, 1):
        asked = score(known, truth, YES_NO, positive=positive)
        of = roc_auc_score(truth == positive, known[:, positive])
        assert area(asked) == pytest.approx(of, abs=1e-12)


def test_an_absent_class_is_left_out_and_named() -> None:
    from sklearn.metrics import roc_auc_score

    known, truth = problem(2, 3)
    here = truth != 1
    found = score(known[here], truth[here], THREE)
    parts = [roc_auc_score(truth[here] == at, known[here, at]) for at in (0, 2)]
    assert area(found) == pytest.approx(np.mean(parts), abs=1e-12)
    assert found.left_out == ("b",)
    assert found.to_json()["auc_left_out"] == ["b"]
    # Of one class there is no area.
    one = score(
        known[:30, :2] / known[:30, :2].sum(axis=1, keepdims=True), np.ones(30, int), YES_NO
    )
    assert one.area is None
    assert one.roc is None
    assert one.brier_of_shares == 0
    assert one.to_json()["auc"] is one.to_json()["auc_interval"] is None


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
    assert there(found.area.interval)[0] < 0.4  # twenty-five pairs
    (one,) = found.bins
    assert (one.observed.hits, one.observed.count, one.mean) == (25, 100, 0.25)
    assert found.calibration_error == 0


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
    # The mean of 150 draws has a standard error of about 0.001: 0.005 is five of them.
    generator = np.random.default_rng(10)
    errors, by_chance = [], []
    for _ in range(150):
        judged = generator.random(400)
        truth = (generator.random(400) < judged).astype(np.int64)
        found = score(of_two(judged), truth, YES_NO)
        errors.append(found.calibration_error)
        by_chance.append(there(found.error_by_chance))
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


def decide(
    least: float, known: NDArray[np.floating], truth: NDArray[np.int64], positive: int = 1
) -> Decision:
    return there(Question(YES_NO[positive], least).decision(known, truth, YES_NO))


@pytest.mark.parametrize("positive", [0, 1])
@pytest.mark.parametrize("least", [0.0, 0.5, 1.0])
def test_rates_are_those_of_scikit_learn(positive: int, least: float) -> None:
    from sklearn.metrics import confusion_matrix, precision_score, recall_score

    generator = np.random.default_rng(0)
    first = np.round(generator.random(300), 1).astype(np.float32)
    known = np.column_stack([first, 1 - first])
    truth = generator.integers(0, 2, 300)
    predicted = Threshold(positive, least).predict(known)
    found = decide(least, known, truth, positive)
    options = {"pos_label": positive, "zero_division": 0}
    assert np.array_equal(found.confusion, confusion_matrix(truth, predicted, labels=[0, 1]))
    assert found.rates["sensitivity"].share == pytest.approx(
        recall_score(truth, predicted, **options)
    )
    other = recall_score(truth, predicted, pos_label=1 - positive)
    assert found.rates["specificity"].share == pytest.approx(other)
    share = found.rates["precision"].share or 0.0
    assert share == pytest.approx(precision_score(truth, predicted, **options))
    if least == 0:
        assert (predicted == positive).all()
    fields = json.loads(json.dumps(found.to_json()))
    assert (fields["threshold_source"], fields["positive_class"]) == ("given", YES_NO[positive])
    assert fields["sensitivity"] == json.loads(json.dumps(found.rates["sensitivity"].to_json()))


def test_a_probability_that_is_the_threshold_is_enough() -> None:
    for least in (0.1, 0.3, 0.7, 0.9):
        known = np.array([[1 - least, least]], dtype=np.float32)
        assert Threshold(1, least).predict(known).tolist() == [1]


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 20), st.booleans()), min_size=1, max_size=40),
    SHARES,
    st.integers(0, 1),
)
def test_the_chosen_threshold_is_the_highest_with_that_sensitivity(
    rows: list[tuple[int, bool]], wanted: float, positive: int
) -> None:
    first = np.array([value for value, _ in rows], dtype=np.float32) / np.float32(20)
    known = np.column_stack([first, 1 - first])
    truth = np.array([said for _, said in rows]).astype(np.int64)
    if not (truth == positive).any():
        with pytest.raises(DataError, match="no input of the positive class"):
            threshold_for(wanted, known, truth, positive)
        return
    chosen = threshold_for(wanted, known, truth, positive)

    def sensitivity(least: float) -> float:
        return there(decide(least, known, truth, positive).rates["sensitivity"].share)

    assert sensitivity(chosen.least) >= wanted
    higher = [value for value in known[:, positive].tolist() if value > np.float32(chosen.least)]
    assert all(sensitivity(value) < wanted for value in higher)


def test_what_was_chosen_on_the_data_says_so_and_has_no_interval() -> None:
    known = np.array([[0.2, 0.8], [0.6, 0.4], [0.9, 0.1]], dtype=np.float32)
    truth = np.array([1, 1, 0])
    found = there(Question(at_sensitivity=0.9).decision(known, truth, YES_NO))
    fields = found.to_json()
    assert fields["threshold_source"] == "chosen on this data"
    assert fields["wanted_sensitivity"] == 0.9
    assert fields["threshold"] == 0.4
    assert fields["sensitivity"] == {"share": 1.0, "of": 2}
    assert fields["confusion"] == [[1, 0], [0, 2]]


def test_absent_classes_have_no_share() -> None:
    known = np.array([[0.9, 0.1]] * 3)
    found = decide(0.5, known, np.zeros(3, dtype=np.int64))
    assert found.rates["sensitivity"] == found.rates["precision"] == Rate(0, 0)
    assert found.rates["specificity"] == Rate(3, 3)


def test_questions_that_do_not_fit() -> None:
    for question, classes, why in (
        (Question(threshold=0.5), ("a", "b", "c"), "--threshold is for two classes"),
        (Question(positive="a"), ("a", "b", "c"), "--positive is for two classes"),
        (Question(at_sensitivity=0.5), ("a", "b", "c"), "this student has 3"),
        (Question(positive="z"), YES_NO, "the classes are no and yes"),
        (Question(threshold=1.5), YES_NO, "from 0 to 1"),
        (Question(threshold=float("nan")), YES_NO, "from 0 to 1"),
        (Question(at_sensitivity=0.0), YES_NO, "above 0"),
        (Question(at_sensitivity=float("nan")), YES_NO, "above 0"),
        (Question(threshold=0.5, at_sensitivity=0.5), YES_NO, "either"),
    ):
        with pytest.raises(UsageError, match=why):
            question.rule(classes)
    assert Question().rule(YES_NO) is None
    assert Question().positive_of(("a", "b", "c")) == 1
    assert Question("no", 0.25).rule(YES_NO) == Threshold(0, 0.25)
