from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from party.teachers.ensemble import assign_shards, split
from pate.data.read import read_dataset
from pate.data.values import Dataset, Table
from pate.errors import UsageError

KEY = b"k" * 32
values = st.lists(st.integers(-50, 50), min_size=1, max_size=40)
teachers = st.integers(1, 9)
#: A busy machine is no slow hash.
UNTIMED = settings(deadline=None)


def dataset(cells: list[int], groups: list[str] | None = None) -> Dataset:
    return Dataset(
        Table(("v",), (np.array(cells, np.float64),)),
        np.array([abs(cell) % 2 for cell in cells], np.int64),
        ("even", "odd"),
        None if groups is None else np.array(groups, dtype=np.str_),
    )


@given(values, teachers)
@UNTIMED
def test_each_record_is_in_exactly_one_shard(cells: list[int], k: int) -> None:
    shards = assign_shards(dataset(cells), k, KEY)
    assert shards.shape == (len(cells),)
    assert shards.dtype == np.int64
    parts = [np.flatnonzero(shards == shard) for shard in range(k)]
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(cells)))


@given(st.lists(st.tuples(st.integers(-50, 50), st.text(max_size=2)), min_size=1), teachers)
@UNTIMED
def test_each_group_is_in_exactly_one_shard(rows: list[tuple[int, str]], k: int) -> None:
    # numpy drops trailing NULs of text; the group is what the array holds.
    data = dataset([v for v, _ in rows], [g for _, g in rows])
    assert data.groups is not None
    seen: dict[str, int] = {}
    for group, shard in zip(
        data.groups.tolist(), assign_shards(data, k, KEY).tolist(), strict=True
    ):
        assert seen.setdefault(group, shard) == shard


@given(values, st.integers(-50, 50), st.data(), teachers)
@UNTIMED
def test_adding_a_record_moves_no_other(
    cells: list[int], more: int, draw: st.DataObject, k: int
) -> None:
    at = draw.draw(st.integers(0, len(cells)))
    before = assign_shards(dataset(cells), k, KEY).tolist()
    after = assign_shards(dataset([*cells[:at], more, *cells[at:]]), k, KEY).tolist()
    assert after[:at] + after[at + 1 :] == before


@given(values, st.data(), teachers)
@UNTIMED
def test_adding_a_group_moves_no_other(cells: list[int], draw: st.DataObject, k: int) -> None:
    names = draw.draw(
        st.lists(st.sampled_from("abcdefg"), min_size=len(cells), max_size=len(cells))
    )
    before = assign_shards(dataset(cells, names), k, KEY).tolist()
    after = assign_shards(dataset([3, *cells], ["new", *names]), k, KEY).tolist()
    assert after[1:] == before


def test_the_key_and_the_content_decide() -> None:
    assert len(set(assign_shards(dataset([7] * 20), 5, KEY).tolist())) == 1
    data = dataset(list(range(64)))
    own, hashes = assign_shards(data, 8, KEY), data.row_hashes()
    assert (assign_shards(data, 8, KEY, row_hashes=hashes) == own).all()
    assert (assign_shards(data, 8, b"other" * 6) != own).any()
    with pytest.raises(UsageError, match="1 or more"):
        assign_shards(data, 0, KEY)
    for number, rows in enumerate(split(data, hashes, 8, KEY)):
        assert sorted(rows.tolist()) == np.flatnonzero(own == number).tolist()
        assert [hashes[row] for row in rows.tolist()] == sorted(
            hashes[row] for row in rows.tolist()
        )


def test_shards_are_even() -> None:
    # The hash is deterministic, so this holds or not once and for all; for a uniform hash each
    # of 10 counts of 20,000 lies within 6 standard deviations (42 each) but for odds of 2e-8.
    counts = np.bincount(assign_shards(dataset(list(range(20000))), 10, KEY), minlength=10)
    assert (abs(counts - 2000) < 6 * 42.5).all()


def test_one_patients_odd_identifier_moves_no_other_patient(tmp_path: Path) -> None:
    def shards(identifiers: list[str]) -> dict[str, int]:
        path = tmp_path / "records.csv"
        rows = [f"{name},{at},{'ab'[at % 2]}" for at, name in enumerate(identifiers)]
        path.write_text("patient,x,y\n" + "\n".join(rows) + "\n")
        records = read_dataset(path, label="y", group="patient")
        found = assign_shards(records, 20, KEY).tolist()
        return dict(zip(identifiers, found, strict=True))

    numbers = [f"{at:05d}" for at in range(200)]
    before, after = shards(numbers), shards([*numbers, "T0001"])
    assert {name: after[name] for name in numbers} == before
    mixed = shards(["12", "12.0", "T1"])
    assert mixed["12"] == mixed["12.0"]
