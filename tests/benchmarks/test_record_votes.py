"""The cost of records' votes: sums are exact, whatever the code, and its ring is the campaign's."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.costs.record_votes import Matrix, embedded, step_of, sum_of, table
from pate.codes import GRID, code_of
from pate.data.values import Dataset


@pytest.mark.parametrize("code", ["nearest", "dense-4"])
def test_a_sum_of_signed_counts_is_exact_and_costs_its_width(code: str) -> None:
    found = sum_of(code, 4, 3, parties=5)  # masked_sum compares the sum
    assert found["bits"] == (32 if code.startswith("dense") else 16)
    assert found["vote_bytes"] == 4 * 3 * found["bits"] // 8
    low = Matrix(5, 4, classes=3, code=code).votes(0).min()
    assert (low < -GRID) == code.startswith("dense")


def test_a_step_is_measured_by_part() -> None:
    whole = Dataset(table(300, 2), np.arange(300) % 2, ("no", "yes"))
    for public, records in (
        (table(40, 1), whole),
        (embedded(40, 1, 16).inputs, embedded(300, 2, 16)),
    ):
        found = step_of(code_of("nearest"), (0, 5, 7), public, records)
        parts = [found[f"{name}_seconds"] for name in ("hash", "vote", "series")]
        assert found["seconds"] == pytest.approx(sum(parts))
        # Of embeddings there is no series.
        assert [part > 0 for part in parts] == [True, True, records is whole]
