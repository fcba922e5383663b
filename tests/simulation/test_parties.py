"""Simulated parties of another process have the same records and teachers as here."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from pate.data.values import Dataset, Images, Table, content_hash
from simulation.parties import Opener, open_party, party_home

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
def test_records_and_a_public_set_come_there_as_they_were(kind: str, tmp_path: Path) -> None:
    """A process gets them as multiprocessing sends what it starts with."""
    records = RECORDS[kind]
    found = pickle.loads(pickle.dumps(Opener(tmp_path, {3: records}, 2, records.inputs)))  # noqa: S301
    assert content_hash(found.public) == content_hash(records.inputs)
    there = found.records[3]
    assert there.row_hashes() == records.row_hashes()
    assert (there.inputs.schema(), there.classes) == (records.inputs.schema(), records.classes)
    np.testing.assert_array_equal(there.labels, records.labels)
    for name in ("groups", "answers"):
        given, held = getattr(records, name), getattr(there, name)
        assert (given is None) == (held is None)
        if given is not None:
            np.testing.assert_array_equal(held, given)


def test_a_party_that_is_opened_again_has_its_teachers(tmp_path: Path) -> None:
    home, records = party_home(tmp_path, 7), RECORDS["images"]
    open_party(home, records, teachers=2)
    stored = {path: path.stat() for path in (home / "teachers").rglob("*") if path.is_file()}
    assert stored
    Opener(tmp_path, {7: records}, 2, None)(7)
    for path, before in stored.items():
        after = path.stat()
        assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
