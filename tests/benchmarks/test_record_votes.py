"""The cost of records' votes: sums are exact, whatever the code, and its ring is the campaign's."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.costs.record_votes import Matrix, step_of, sum_of, table
from pate.codes import GRID, code_of
from pate.data.values import Dataset


@pytest.mark.parametrize("code", ["nearest", "dense-4"])
def test_a_sum_of_signed_counts_is_exact_and_costs_its_width(code: str) -> None:
    found = sum_of(code, 4, 3, parties=5)  # masked_sum compares the sum
    assert found["bits"] == (32 if code.startswith("dense") else 16)
    assert found["vote_bytes"] == 4 * 3 * found["bits"] // 8
    low = Matrix(5, 4, classes=3, code=code).votes(0).min()
    assert (low < -GRID) == code.startswith("dense")


def test_a_step_over_a_table_is_measured_by_part() -> None:
    inputs = table(300, 2)
    records = Dataset(inputs, np.arange(300) % 2, ("no", "yes"))
    found = step_of(code_of("nearest"), (0, 5, 7), table(40, 1), records)
    parts = ("hash_seconds", "vote_seconds", "series_seconds")
    assert found["seconds"] == pytest.approx(sum(found[name] for name in parts))
    assert min(found[name] for name in parts) > 0
