"""The cost of records' votes: sums are exact, whatever the code, and its ring is the campaign's."""

from __future__ import annotations

import pytest

from benchmarks.record_votes import Matrix, embedded, step_of, sum_of
from pate.codes import GRID, code_of
from pate.data.values import Dataset


@pytest.mark.parametrize("code", ["nearest", "dense-4"])
def test_a_sum_of_signed_counts_is_exact_and_costs_its_width(code: str) -> None:
    found = sum_of(code, 4, 3, parties=5)  # masked_sum compares the sum
    assert found["bits"] == (32 if code.startswith("dense") else 16)
    assert found["vote_bytes"] == 4 * 3 * found["bits"] // 8
    low = Matrix(5, 4, classes=3, code=code).votes(0).min()
    assert (low < -GRID) == code.startswith("dense")


def test_a_step_over_embeddings_is_measured_by_part() -> None:
    (public, _), (inputs, labels) = embedded(40, 1, 16), embedded(300, 2, 16)
    records = Dataset(inputs, labels, ("no", "yes"))
    found = step_of(code_of("nearest"), (0, 5, 7), public, records)
    assert found["seconds"] == pytest.approx(found["hash_seconds"] + found["vote_seconds"])
    assert found["vote_seconds"] > 0
