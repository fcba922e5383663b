"""Rows of several labels, or of a number: their measures, goals and rendering."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.papers.figures import shortfalls
from benchmarks.papers.record import Result
from benchmarks.papers.reference import pooled
from benchmarks.papers.row import Wanted
from benchmarks.papers.split import Split
from benchmarks.papers.table import render
from pate.data.values import Dataset, Table
from student.trainers.base import silent
from tests.support.benchmark_results import result, run


def days(error: float) -> Result:
    """Return a result of a number, whose model without privacy errs by 1.6."""
    told = replace(run(seed=0), right=None, student={"mae": error, "r2": 0.4})
    reference = {"model": "boosted trees", "mae": 1.6, "r2": 0.5}
    return result(row="diabetes130-days", runs=(told,), reference=reference, majority=0.0)


@pytest.mark.parametrize(
    ("error", "missing"), [(1.67, []), (1.7, ["mean absolute error 0.020 too high"])]
)
def test_an_error_may_be_a_share_larger_than_without_privacy(
    error: float, missing: list[str]
) -> None:
    wanted = Wanted(figure="student.mae", within=0.05, epsilon={"cap": 9.0})
    assert shortfalls(days(error), wanted) == missing


def test_a_row_of_a_number_is_told_without_accuracies() -> None:
    made = days(1.7)
    assert Result.from_json(made.to_json()).runs[0].right is None
    text = render({"diabetes130-days": made})
    line = next(line for line in text.splitlines() if line.startswith("| [Diabetes 130, days"))
    assert "**1.700 (0.000)** mean absolute error" in line
    assert "| 1.600 mean absolute error |" in line
    assert "mean absolute error within 5% of no privacy" in line
    assert "commonest class" not in text
    assert "of these right" not in text


def test_trees_without_privacy_learn_a_number_and_several_labels() -> None:
    drawn = np.random.default_rng(1)
    x, y = drawn.normal(size=(2, 1500))
    table, none = Table(("x", "y"), (x, y)), np.zeros(1500, dtype=np.int64)
    number = Dataset(table, none, (), None, x + 0.1 * drawn.normal(size=1500))
    flags = np.stack([x > 0, y > 0.5], axis=1)
    several = Dataset(table, none, ("a", "b"), None, flags)
    for data in (number, several):
        private, public, test = (data.take(range(start, start + 500)) for start in (0, 500, 1000))
        split = Split(private, public, test, "")
        figure = "mae" if data is number else "macro_auc"
        told = pooled(split, figure=figure, seed=0, progress=silent)
        if data is number:
            assert float(told["mae"]) < 0.2  # of the median: 0.8
            assert float(told["r2"]) > 0.9
        else:
            assert float(told["macro_auc"]) > 0.97
