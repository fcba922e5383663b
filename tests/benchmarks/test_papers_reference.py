"""Non-private reference models: their training and their measures."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.papers import network_reference
from benchmarks.papers.reference import judge, measures, pooled
from benchmarks.papers.rows import ROWS
from benchmarks.papers.split import Split
from pate.data.values import Dataset, Table
from pate.errors import UsageError
from simulation.datasets import digits
from student.trainers.base import silent
from tests.support.student_samples import tumours


def test_measures_of_a_classifier_that_is_right_three_times_of_four() -> None:
    test = Dataset(Table(("x",), (np.zeros(4),)), np.array([0, 0, 0, 1]), ("no", "yes"))
    scores = np.array([[0.9, 0.1], [0.4, 0.6], [0.8, 0.2], [0.3, 0.7]])
    assert measures(scores, test) == {
        "accuracy": 0.75,
        "balanced_accuracy": pytest.approx((2 / 3 + 1) / 2),
        "auc": 1.0,
    }


def test_of_one_class_alone_there_is_no_auc() -> None:
    test = Dataset(Table(("x",), (np.zeros(2),)), np.array([0, 0]), ("no", "yes"))
    assert "auc" not in measures(np.array([[0.9, 0.1], [0.4, 0.6]]), test)


@pytest.mark.slow
def test_a_network_learns_from_every_label() -> None:
    data = digits()
    held = network_reference.train(data.take(range(1200)), seed=0, progress=silent, steps=100)
    assert judge(held, data.take(range(1200, 1797)))["accuracy"] > 0.5  # chance is 0.1


def test_boosted_trees_learn_from_a_table() -> None:
    public, test = tumours()
    half = public.take(range(200))
    split = Split(half, public.take(range(200, 400)), test, "")
    told = pooled(ROWS["adult"], split, seed=0, progress=silent)
    assert told["model"] == "boosted trees"
    assert isinstance(told["accuracy"], float)
    assert told["accuracy"] > 0.85  # always the commonest class: about 0.63


def test_a_network_takes_no_table() -> None:
    with pytest.raises(UsageError, match="images"):
        network_reference.train(tumours()[0], seed=0, progress=silent)
