"""Which options of ``pate simulate`` fit together."""

from __future__ import annotations

from pathlib import Path

import pytest

from pate.errors import UsageError
from simulation.options import SimulationOptions

DATA = Path("records.csv")


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
