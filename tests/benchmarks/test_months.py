"""Diabetes month by month: who votes when, and what it costs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.data import Split, joined
from benchmarks.methods import months
from benchmarks.rows import ROWS
from pate.data.values import Dataset, Table
from pate.runtime.screen import Screen

MONTHS = 2
ROW = ROWS["diabetes130-monthly"]


def stays(count: int, patients: NDArray[np.int64], seed: int) -> Dataset:
    """Return made-up stays of some patients; the first column is of the label."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, count)
    inputs = Table(("a", "b"), (labels + rng.normal(0, 0.4, count), rng.normal(size=count)))
    who = rng.choice(patients, count).astype(np.str_)
    return Dataset(inputs, labels.astype(np.int64), ("later", "soon"), who)


@pytest.fixture
def hospitals(monkeypatch: pytest.MonkeyPatch) -> Split:
    """A file of 900 stays, of which 200 are public and 200 to test."""
    patients = np.arange(300)
    private, public, test = (
        stays(count, patients + 1000 * at, at) for at, count in enumerate((500, 200, 200))
    )
    split = Split(private, public, test, "made up")
    whole = joined(private, public, test)
    numbers = np.random.default_rng(3).permutation(len(whole)).astype(np.float64)
    assert isinstance(whole.inputs, Table)
    table = Table((*whole.inputs.names, "encounter_id"), (*whole.inputs.columns, numbers))
    whole = replace(whole, inputs=table)
    monkeypatch.setattr(months, "diabetes", lambda: split)
    monkeypatch.setattr(months, "read_stays", lambda **_: whole)
    monkeypatch.setattr(months, "MONTHS", MONTHS)
    monkeypatch.setattr(months, "_COMPARED", MONTHS)
    return split


@pytest.mark.slow
def test_a_series_costs_one_epsilon_and_asking_again_costs_more(
    hospitals: Split, tmp_path: Path
) -> None:
    assert ROW.options is not None
    row = replace(ROW, options=replace(ROW.options, representatives=12))
    found = months.run(row, 1, tmp_path, Screen("test"), None)
    cells = {(cell.method, cell.setting["month"]): cell for cell in found.cells}
    assert cells.keys() == {
        ("series", 1), ("series", 2), ("again", 1), ("again", 2), ("forgetful", 2),
    }  # fmt: skip
    patients = len(np.unique(months._groups(hospitals.private)))
    runs = {key: cell.runs[0] for key, cell in cells.items()}
    assert sum(runs["series", month].counts["new"] for month in (1, 2)) == patients
    assert runs["series", 2].counts["there"] == patients == found.data["private_units"]
    for month in (1, 2):
        each = cells["series", month]
        assert (each.epsilon, each.delta) == (1.0, 0.0)
        assert runs["series", month].epsilons["epsilon"] == 1.0
        assert each.figures["auc_others"].mean > 0.8
    once, twice = (runs["again", month].epsilons["epsilon"] for month in (1, 2))
    assert once < 1.2 * 1.0 < twice
    assert {"auc_others"} == set(runs["forgetful", 2].figures)


def test_months_are_equal_parts_in_the_order_of_their_numbers() -> None:
    numbers = np.random.default_rng(0).permutation(24)
    found = months.months_of(numbers, 12)
    assert (np.bincount(found) == 2).all()
    assert np.array_equal(found, numbers // 2)
