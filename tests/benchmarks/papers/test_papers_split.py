"""The split of a row: no record twice, and no patient at two parties."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.papers.data.encoded.brain_mri import copies
from benchmarks.papers.split import Split, deal
from pate.data.embeddings import Embeddings
from pate.data.values import Dataset, Table
from pate.errors import UsageError
from tests.support.encoders.embedded import embedded


def records(count: int, *, patients: int | None = None) -> Dataset:
    table = Table(("number",), (np.arange(float(count)),))
    labels = np.arange(count) % 2
    groups = None if patients is None else np.array([f"p{at % patients}" for at in range(count)])
    return Dataset(table, labels.astype(np.int64), ("no", "yes"), groups)


def numbers(part: Dataset) -> set[float]:
    assert isinstance(part.inputs, Table)
    return {float(cell) for cell in part.inputs.columns[0].tolist()}


def test_every_record_goes_to_one_party_and_sizes_differ_by_one() -> None:
    parts = deal(records(23), 5, seed=3)
    assert sorted(len(part) for part in parts) == [4, 4, 5, 5, 5]
    assert set.union(*map(numbers, parts)) == numbers(records(23))


def test_a_patient_has_one_party() -> None:
    parts = deal(records(60, patients=13), 5, seed=0)
    held = [set(part.groups.tolist()) for part in parts if part.groups is not None]
    assert sum(map(len, held)) == len(set.union(*held)) == 13


def test_another_seed_deals_otherwise() -> None:
    assert numbers(deal(records(50), 5, seed=0)[0]) != numbers(deal(records(50), 5, seed=1)[0])


def test_more_parties_than_patients_are_refused() -> None:
    with pytest.raises(UsageError, match="3 records or groups"):
        deal(records(9, patients=3), 4, seed=0)


def test_parts_of_other_classes_are_refused() -> None:
    odd = Dataset(records(4).inputs, np.zeros(4, dtype=np.int64), ("yes", "no"))
    with pytest.raises(UsageError, match="other classes"):
        Split(records(9), odd, records(4), "")
    with pytest.raises(UsageError, match="validation part has other classes"):
        Split(records(9), records(4), records(4), "", validation=odd)


def test_slices_that_are_in_the_test_part_are_found() -> None:
    whole = embedded(40, width=64)
    turned = whole.values[[3, 17]] + np.array([[2], [-2]], dtype=np.int16)
    others = embedded(10, width=64, seed=1)
    test = Embeddings(np.vstack([others.values, turned]), whole.source, whole.encoder)
    assert np.flatnonzero(copies(whole, test)).tolist() == [3, 17]
