"""Figures of models, and their intervals."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import measure
from pate.data.values import Dataset, Table
from tests.benchmarks.test_methods import table


def records(labels: list[int]) -> Dataset:
    return Dataset(Table(("x",), (np.zeros(len(labels)),)), np.array(labels), ("no", "yes"))


def test_figures_of_a_classifier_that_is_right_three_times_of_four() -> None:
    test = records([0, 0, 0, 1])
    chances = np.array([0.1, 0.6, 0.2, 0.7])
    assert measure.judged(np.stack([1 - chances, chances], axis=1), test) == {
        "accuracy": 0.75,
        "balanced_accuracy": pytest.approx((2 / 3 + 1) / 2),
        "auc": 1.0,
    }
    assert "auc" not in measure.figures_of(records([0, 0]))


def test_figures_of_numbers_and_of_several_labels() -> None:
    truth = np.array([1.0, 2.0, 3.0, 6.0])
    said = np.stack([truth + 0.5, np.full(4, 3.0)], axis=1)
    assert measure.mae(said, truth) == 0.5
    assert measure.r2(said, truth) == 0.0  # the means explain nothing
    assert measure.r2(truth[:, None], truth) == 1.0
    has = np.array([[1, 0, 1], [0, 0, 1], [1, 1, 1], [0, 1, 1]], dtype=bool)
    chances = np.stack([has[:, 0], ~has[:, 1], has[:, 2]], axis=1).astype(float)
    assert measure.macro_auc(chances, has) == 0.5  # 1 and 0; of a label that all have there is none


def test_auc_is_the_share_of_pairs_in_order() -> None:
    scores = np.array([[0.9, 0.1], [0.6, 0.4], [0.5, 0.5], [0.1, 0.9]])
    labels = np.array([0, 1, 0, 1])
    assert measure.auc(scores, labels) == 0.75
    three = np.array([[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.6, 0.3, 0.1], [0.1, 0.1, 0.8]])
    assert measure.auc(three, np.array([0, 1, 1, 2])) == pytest.approx(1.0)
    # Of several models the mean.
    assert measure.auc(np.stack([scores, 1 - scores]), labels) == 0.5
    assert measure.accuracy(scores, labels) == 0.75


def test_an_interval_has_the_sampling_of_the_test_records() -> None:
    data = table(400, 5)
    random = np.random.default_rng(0)
    right = random.random(400) < 0.8
    scores = np.eye(2)[np.where(right, data.labels, 1 - data.labels)]
    found = measure.estimate(measure.accuracy, [scores] * 3, data)
    share = right.mean()
    half = 1.96 * np.sqrt(share * (1 - share) / 400)
    # The same model three times: dealings add nothing, and take nothing away.
    assert found.low is not None
    assert found.high is not None
    assert (found.high - found.low) / 2 == pytest.approx(half, rel=0.2)
    other = np.eye(2)[np.where(random.random(400) < 0.7, data.labels, 1 - data.labels)]
    wider = measure.estimate(measure.accuracy, [scores, other], data)
    assert wider.low is not None
    assert wider.low < found.low - half
