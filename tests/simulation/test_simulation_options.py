"""Which options of ``pate simulate`` fit together, and what it reports of answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pate.data.values import Dataset, Table
from pate.errors import UsageError
from pate.formats.labels import LabelRow, LabelSet
from simulation.options import SimulationOptions
from simulation.report import label_accuracy
from tests.support.student_samples import PRIVACY

DATA = Path("records.csv")
INPUTS = Table(("x",), (np.arange(4.0),))
NOTHING = np.zeros(4, np.int64)


@pytest.mark.parametrize(
    "options",
    [
        {"labels": "a,b"},
        {"answer": "labels-2"},
        {"answer": "number", "labels": "a,b"},
        {"answer": "labels-2", "number": "days"},
        {"number": "days"},
        {"answer": "ordered", "labels": "a"},
        {"answer": "labels-2", "labels": "a,b", "data": None},
        {"answer": "far"},
    ],
)
def test_an_answer_and_its_columns_go_together(options: dict[str, str | None]) -> None:
    given = {"data": DATA, "aggregator": "neighbour", **options}
    with pytest.raises(UsageError):
        SimulationOptions(**given)  # type: ignore[arg-type]


def test_labels_are_named_and_one_answer_needs_none() -> None:
    assert SimulationOptions(data=DATA, answer="labels-1", labels="a, b").label_list == ("a", "b")
    assert SimulationOptions(answer="ordered").label_list == ()


def accuracy(public: Dataset, classes: tuple[str, ...], labels: list[int]) -> float:
    rows = tuple(LabelRow(at, label, 1, "records") for at, label in enumerate(labels))
    return label_accuracy(LabelSet(b"c" * 16, classes, b"d" * 32, 4, rows, PRIVACY), public)


def test_a_label_is_right_if_the_input_has_it() -> None:
    flags = np.array([[1, 0], [1, 1], [0, 0], [0, 0]], np.bool_)
    public = Dataset(INPUTS, NOTHING, ("a", "b"), None, flags)
    columns = ("b", "none", "a")
    assert accuracy(public, columns, [2, 0, 1, 1]) == 1.0
    assert accuracy(public, columns, [0, 1, 0, 2]) == 0.0
    assert accuracy(public, columns, []) == 0.0


def test_an_end_of_a_range_is_right_if_it_is_the_nearer_one() -> None:
    public = Dataset(INPUTS, NOTHING, (), None, np.array([-3.0, 6.9, 7.1, 99.0]))
    assert accuracy(public, ("0", "14"), [0, 0, 1, 1]) == 1.0
    assert accuracy(public, ("0", "14"), [1, 0, 0, 1]) == 0.5
