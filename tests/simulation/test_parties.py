"""A simulated party stores exactly its part of the data in its home."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pate.data.values import Dataset, Images, Table, content_hash
from simulation.parties import (
    load_inputs,
    load_records,
    open_party,
    party_home,
    store_inputs,
    store_records,
)

PIXELS = np.random.default_rng(5).integers(0, 256, (12, 4, 4, 3), dtype=np.uint8)
LABELS = np.array([0, 1] * 6, dtype=np.int64)
#: Categories that look like numbers, among numbers of which some are missing.
TABLE = Table(
    ("age", "site", "note, free"),
    (
        np.array([np.nan, 0.1, -0.0, 1e300] * 3),
        np.array(["1", "02", "", "3"] * 3, dtype=np.str_),
        np.array(["", "naïve", "a,b", '"'] * 3, dtype=np.str_),
    ),
)
GROUPS = np.array([f"patient {at % 5}" for at in range(12)], dtype=np.str_)
RECORDS = {
    "images": Dataset(Images(PIXELS), LABELS, ("x", "y")),
    "images of patients": Dataset(Images(PIXELS), LABELS, ("x", "y"), GROUPS),
    "table": Dataset(TABLE, LABELS, ("x", "y", "absent")),
    "labels": Dataset(TABLE, 0 * LABELS, ("x", "y"), GROUPS, np.eye(2, dtype=np.bool_)[LABELS]),
    "number": Dataset(TABLE, 0 * LABELS, (), None, np.linspace(-1, 1, 12)),
}


@pytest.mark.parametrize("kind", RECORDS)
def test_records_come_back_as_they_were(kind: str, tmp_path: Path) -> None:
    records = RECORDS[kind]
    store_records(tmp_path, records)
    found = load_records(tmp_path)
    assert found.row_hashes() == records.row_hashes()
    assert found.inputs.schema() == records.inputs.schema()
    assert found.classes == records.classes
    np.testing.assert_array_equal(found.labels, records.labels)
    if records.groups is None:
        assert found.groups is None
    else:
        np.testing.assert_array_equal(found.groups, records.groups)


@pytest.mark.parametrize("inputs", [Images(PIXELS), TABLE], ids=["images", "table"])
def test_a_public_set_comes_back_with_its_hash(inputs: Images | Table, tmp_path: Path) -> None:
    store_inputs(tmp_path / "public.npz", inputs)
    assert content_hash(load_inputs(tmp_path / "public.npz")) == content_hash(inputs)


def test_a_party_that_is_opened_again_has_its_teachers(tmp_path: Path) -> None:
    home = party_home(tmp_path, 7)
    open_party(home, RECORDS["images"], teachers=2)
    store_records(home, RECORDS["images"])
    stored = {path: path.stat() for path in (home / "teachers").rglob("*") if path.is_file()}
    assert stored
    open_party(home, load_records(home), teachers=2)
    for path, before in stored.items():
        after = path.stat()
        assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
