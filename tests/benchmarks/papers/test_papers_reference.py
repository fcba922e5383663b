"""Models without privacy: their training, and the choice among them."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks import measure
from benchmarks.papers.reference import choice, judge, pooled
from benchmarks.papers.split import Split
from pate.data.values import Dataset, Table
from pate.errors import UsageError
from simulation.datasets import digits
from student.trainers.base import silent
from tests.support.encoders.embedded import embedded_records
from tests.support.student_samples import tumours

Rows = NDArray[np.float64]


def records(labels: list[int]) -> Dataset:
    return Dataset(Table(("x",), (np.zeros(len(labels)),)), np.array(labels), ("no", "yes"))


def scores(*chances: float) -> Rows:
    """Return the two columns of these probabilities of the second class."""
    return np.stack([1 - np.array(chances), np.array(chances)], axis=1)


def test_figures_of_a_classifier_that_is_right_three_times_of_four() -> None:
    test = records([0, 0, 0, 1])
    said = scores(0.1, 0.6, 0.2, 0.7)
    told = {name: of(said, test.labels) for name, of in measure.figures_of(test).items()}
    assert told == {
        "accuracy": 0.75,
        "balanced_accuracy": pytest.approx((2 / 3 + 1) / 2),
        "auc": 1.0,
    }


def test_of_one_class_alone_there_is_no_auc() -> None:
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


def test_validation_chooses_the_model_and_test_labels_do_not() -> None:
    validation, test = records([0, 1, 1, 0]), records([0, 1, 0, 1])
    right_there = scores(0.1, 0.9, 0.8, 0.2), scores(0.1, 0.2, 0.7, 0.9)
    right_on_test = scores(0.1, 0.9, 0.3, 0.2), scores(0.1, 0.9, 0.2, 0.8)
    told = choice({"a": [right_on_test], "b": [right_there]}, validation, test, figure="accuracy")
    assert (told["model"], told["accuracy"], told["other.accuracy"]) == ("b", 0.5, 1.0)
    assert float(told["low.accuracy"]) < 0.5 < float(told["high.accuracy"])
    assert told["chosen"] == (
        "by accuracy on 4 validation records: a 75.00 % there and 100.00 % on test; "
        "b 100.00 % there and 50.00 % on test"
    )


def test_of_an_error_the_least_is_chosen_and_of_a_tie_the_first() -> None:
    none = np.zeros(2, dtype=np.int64)
    data = Dataset(Table(("x",), (np.zeros(2),)), none, (), None, np.array([1.0, 3.0]))
    near, far = np.array([[1.5], [3.0]]), np.array([[2.5], [1.0]])
    told = choice({"far": [(far, near)], "near": [(near, far)]}, data, data, figure="mae")
    assert (told["model"], told["mae"], told["other.mae"]) == ("near", 1.75, 0.25)
    tied = choice({"one": [(near, far)], "two": [(near, near)]}, data, data, figure="mae")
    assert tied["model"] == "one"


@pytest.mark.slow
def test_a_network_learns_from_every_label() -> None:
    from benchmarks.papers import network_reference

    data = digits()
    held = network_reference.train(data.take(range(1200)), seed=0, progress=silent, steps=100)
    assert judge(held, data.take(range(1200, 1797)))["accuracy"] > 0.5  # chance is 0.1


@pytest.mark.slow
def test_of_images_four_models_are_judged() -> None:
    data = digits()
    split = Split(
        data.take(range(600)), data.take(range(600, 1200)), data.take(range(1200, 1797)), ""
    )
    steps: list[tuple[int, int]] = []
    told = pooled(
        split,
        figure="accuracy",
        seed=0,
        progress=lambda step, total, _loss: steps.append((step, total)),
        steps=40,
    )
    assert steps[-1] == (120, 120)  # three networks: there are few images
    assert isinstance(told["accuracy"], float)
    assert told["accuracy"] > 0.8  # chance is 0.1
    assert "on 600 validation records" in str(told["chosen"])
    assert str(told["chosen"]).count(" on test") == 4


def test_of_a_table_three_models_are_judged() -> None:
    public, test = tumours()
    split = Split(public.take(range(200)), public.take(range(200, 400)), test, "")
    told = pooled(split, figure="auc", seed=0, progress=silent)
    assert isinstance(told["accuracy"], float)
    assert told["accuracy"] > 0.85  # always the commonest class: about 0.63
    words = str(told["chosen"])
    for name in ("boosted trees", "a forest", "a linear model"):
        assert name in words
    assert words.startswith("by auc on 200 validation records: ")


def test_of_embeddings_three_models_are_judged() -> None:
    private, public, test = (embedded_records(80, seed=seed) for seed in range(3))
    split = Split(private, public, test, "")
    told = pooled(split, figure="accuracy", seed=0, progress=silent)
    assert float(told["accuracy"]) > 0.8  # chance is a third
    assert str(told["chosen"]).count("embeddings") == 3


def test_a_network_takes_no_table() -> None:
    from benchmarks.papers import network_reference

    with pytest.raises(UsageError, match="images"):
        network_reference.train(tumours()[0], seed=0, progress=silent)
