"""Non-private reference models: their training and their measures."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.papers import network_reference
from benchmarks.papers.reference import Judged, choice, chosen_network, judge, measures, pooled
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


def judged(*pairs: tuple[float, float]) -> list[Judged]:
    return [({"accuracy": there}, {"accuracy": on_test}) for there, on_test in pairs]


def test_validation_chooses_the_form_and_test_labels_do_not() -> None:
    told = choice(
        {
            "as trained": judged((0.95, 0.93), (0.94, 0.95)),
            "calibrated": judged((0.97, 0.88), (0.94, 0.86)),
        },
        500,
    )
    assert told["accuracy"] == pytest.approx(0.87)
    assert told["spread.accuracy"] == pytest.approx(0.02)
    assert told["other.accuracy"] == pytest.approx(0.94)
    assert str(told["model"]).endswith(", calibrated")
    assert told["chosen"] == (
        "calibrated, by accuracy on 500 validation records, means of 2 seeds: as trained 94.50 % (1.00) "
        "there and 94.00 % (2.00) on test; calibrated 95.50 % (3.00) there and 87.00 % (2.00) on test"
    )


def test_on_a_tie_the_network_stays_as_it_was_trained() -> None:
    told = choice({"as trained": judged((0.9, 0.7)), "calibrated": judged((0.9, 0.8))}, 5)
    assert told["accuracy"] == 0.7
    assert str(told["model"]).endswith(", as trained")


@pytest.mark.slow
def test_three_networks_are_judged_in_both_forms() -> None:
    data = digits()
    split = Split(
        data.take(range(600)),
        data.take(range(600, 1200)),
        data.take(range(1200, 1797)),
        "",
        validation=data.take(range(900, 1200)),
    )
    steps: list[tuple[int, int]] = []
    told = chosen_network(
        split,
        data.take(range(900, 1200)),
        seed=0,
        progress=lambda step, total, _loss: steps.append((step, total)),
        steps=40,
    )
    assert steps[-1] == (120, 120)
    assert isinstance(told["accuracy"], float)
    assert told["accuracy"] > 0.3  # chance is 0.1
    assert told["accuracy"] != told["other.accuracy"]
    assert "on 300 validation records, means of 3 seeds" in str(told["chosen"])


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
