"""Predictions by a threshold, and a threshold that is chosen on labelled data."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pate.errors import DataError, UsageError
from student.evaluation.rates import Rate
from student.evaluation.threshold import Question, Threshold, decide, threshold_for

CLASSES = ("no", "yes")
SHARES = st.integers(1, 100).map(lambda percent: percent / 100)


@pytest.mark.parametrize("positive", [0, 1])
@pytest.mark.parametrize("least", [0.0, 0.3, 0.5, 0.9, 1.0])
def test_rates_are_those_of_scikit_learn(positive: int, least: float) -> None:
    from sklearn.metrics import confusion_matrix, precision_score, recall_score

    generator = np.random.default_rng(0)
    first = np.round(generator.random(300), 1).astype(np.float32)
    known = np.column_stack([first, 1 - first])
    truth = generator.integers(0, 2, 300)
    threshold = Threshold(positive, least)
    predicted = threshold.predict(known)
    found = decide(threshold, known, truth, CLASSES)
    options = {"pos_label": positive, "zero_division": 0}
    assert np.array_equal(found.confusion, confusion_matrix(truth, predicted, labels=[0, 1]))
    assert found.sensitivity.share == pytest.approx(recall_score(truth, predicted, **options))
    other = recall_score(truth, predicted, pos_label=1 - positive)
    assert found.specificity.share == pytest.approx(other)
    share = found.precision.share or 0.0
    assert share == pytest.approx(precision_score(truth, predicted, **options))
    if least == 0:
        assert (predicted == positive).all()
    fields = json.loads(json.dumps(found.to_json()))
    assert (fields["threshold_source"], fields["positive_class"]) == ("given", CLASSES[positive])
    assert fields["sensitivity"] == json.loads(json.dumps(found.sensitivity.to_json()))


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
        share = decide(Threshold(positive, least), known, truth, CLASSES).sensitivity.share
        assert share is not None
        return share

    assert sensitivity(chosen.least) >= wanted
    higher = [value for value in known[:, positive].tolist() if value > np.float32(chosen.least)]
    assert all(sensitivity(value) < wanted for value in higher)


def test_what_was_chosen_on_the_data_says_so_and_has_no_interval() -> None:
    known = np.array([[0.2, 0.8], [0.6, 0.4], [0.9, 0.1]], dtype=np.float32)
    truth = np.array([1, 1, 0])
    found = decide(threshold_for(0.9, known, truth, 1), known, truth, CLASSES, wanted=0.9)
    fields = found.to_json()
    assert fields["threshold_source"] == "chosen on this data"
    assert fields["wanted_sensitivity"] == 0.9
    assert fields["threshold"] == 0.4
    assert fields["sensitivity"] == {"share": 1.0, "of": 2}
    assert fields["confusion"] == [[1, 0], [0, 2]]


def test_absent_classes_have_no_share() -> None:
    known = np.array([[0.9, 0.1]] * 3)
    found = decide(Threshold(1, 0.5), known, np.zeros(3, dtype=np.int64), CLASSES)
    assert found.sensitivity == found.precision == Rate(0, 0)
    assert found.specificity == Rate(3, 3)


@pytest.mark.parametrize(
    ("question", "classes", "why"),
    [
        (Question(threshold=0.5), ("a", "b", "c"), "--threshold is for two classes"),
        (Question(positive="a"), ("a", "b", "c"), "--positive is for two classes"),
        (Question(at_sensitivity=0.5), ("a", "b", "c"), "this student has 3"),
        (Question(positive="z"), CLASSES, "the classes are no and yes"),
        (Question(threshold=1.5), CLASSES, "from 0 to 1"),
        (Question(threshold=float("nan")), CLASSES, "from 0 to 1"),
        (Question(at_sensitivity=0.0), CLASSES, "above 0"),
        (Question(at_sensitivity=float("nan")), CLASSES, "above 0"),
        (Question(threshold=0.5, at_sensitivity=0.5), CLASSES, "either"),
    ],
)
def test_questions_that_do_not_fit(question: Question, classes: tuple[str, ...], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        question.rule(classes)


def test_a_question_of_nothing() -> None:
    assert Question().rule(CLASSES) is None
    assert Question().positive_of(("a", "b", "c")) == 1
    assert Question("no", 0.25).rule(CLASSES) == Threshold(0, 0.25)
