"""Small files that expand to very large tables, and legitimate large tables."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pate.data.files import lines
from pate.data.files.parquet import read_parquet
from pate.data.limits import CELL_BYTES, MAX_BYTES, MAX_CELL
from pate.data.read import read_dataset, read_inputs
from pate.data.values import is_numeric
from pate.errors import DataError
from tests.support.readings import columns_of

TOO_MANY = "too many bytes unpacked, at most"


def written(folder: Path, columns: Mapping[str, object], **options: object) -> Path:
    path = folder / "d.parquet"
    pq.write_table(pa.table(columns), path, **options)
    return path


def test_rows_are_counted_before_one_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cells are what count: 140 million of them, of one value, in a file of some kilobytes."""
    rows = MAX_BYTES // CELL_BYTES // 50 + 1
    same = pa.array(np.zeros(rows, dtype=np.int8))
    path = written(tmp_path, {f"c{at}": same for at in range(50)}, compression="zstd")
    assert path.stat().st_size < 2**20
    monkeypatch.delattr(pq.ParquetFile, "read_row_group")
    with pytest.raises(DataError, match=TOO_MANY) as found:
        read_inputs(path)
    assert str(rows) not in str(found.value)  # a party's number of records is its own


def test_one_long_cell_does_not_lengthen_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pate.data.limits.MAX_BYTES", 2**28)
    rows = 2**28 // (4 * MAX_CELL) + 1
    cells = ["x" * MAX_CELL, *["y"] * (rows - 1)]
    path = written(tmp_path, {"note": cells, "ill": ["no"] * rows}, compression="zstd")
    assert path.stat().st_size < 2**20
    with pytest.raises(DataError, match=TOO_MANY):
        read_inputs(path)
    with pytest.raises(DataError, match=TOO_MANY):
        read_parquet(path).table((), as_text=("note",))
    with pytest.raises(DataError, match=TOO_MANY):  # an array of groups is as long
        read_dataset(path, label="ill", group="note")
    # Two columns of which each would fit.
    half = {f"note{at}": cells[: rows // 2 + 2] for at in range(2)}
    with pytest.raises(DataError, match=TOO_MANY):
        read_inputs(written(tmp_path, half))


def test_a_cell_has_a_length(tmp_path: Path) -> None:
    for length in (MAX_CELL, MAX_CELL + 1):
        cells = ["x" * length, "y"]
        text = "\n".join(["note", *cells]).encode()
        (tmp_path / "d.csv").write_bytes(text)
        (tmp_path / "d.csv.gz").write_bytes(gzip.compress(text))
        written(tmp_path, {"note": cells})
        for name in ("d.csv", "d.csv.gz", "d.parquet"):
            if length == MAX_CELL:
                assert len(read_inputs(tmp_path / name)) == 2
                continue
            with pytest.raises(DataError, match=r"column 'note' has a text of more than 65536"):
                read_inputs(tmp_path / name)


def test_csv_has_no_more_cells_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "d.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n" + b"1,2\n" * 100))
    monkeypatch.setattr(lines, "MAX_BYTES", CELL_BYTES * 2 * 100)
    monkeypatch.setattr("pate.data.limits.MAX_BYTES", CELL_BYTES * 2 * 100)
    assert len(read_inputs(path)) == 100
    path.write_bytes(gzip.compress(b"a,b\n" + b"1,2\n" * 101))
    with pytest.raises(DataError, match=TOO_MANY):
        read_inputs(path)


def test_a_text_that_repeats_is_unpacked_once(tmp_path: Path) -> None:
    """Where it is left out it takes no room, so its file may be read."""
    rows = 5_000
    cells = [("x" * 60_000, "y" * 60_000)[at % 2] for at in range(rows)]
    path = written(tmp_path, {"note": cells, "age": list(range(rows))})
    assert path.stat().st_size < 2**20
    before = pa.total_allocated_bytes()
    text = read_parquet(path)
    assert pa.total_allocated_bytes() - before < 2**20
    assert len({id(cell) for cell in text.columns["note"]}) == 2
    assert text.columns["note"] == cells
    assert read_inputs(path, drop=("note",)).schema() == "table age:number"


def test_numbers_of_rows_that_contradict_each_other(tmp_path: Path) -> None:
    path = written(tmp_path, {"a": list(range(300))})
    content = path.read_bytes()
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    changed = set()
    for at in range(start, len(content) - 8):
        if content[at : at + 2] != b"\xd8\x04":  # 300 as a footer has it
            continue
        path.write_bytes(content[:at] + b"\xda\x04" + content[at + 2 :])
        told = pq.read_metadata(path)
        group = told.row_group(0)
        figures = (told.num_rows, group.num_rows, group.column(0).num_values)
        if figures != (300, 300, 300):
            changed.add(figures)
            if figures[:2] == (300, 300):  # no more rows are read of a column than its group has
                assert len(read_inputs(path)) == 300
                continue
            with pytest.raises(DataError, match="contradict each other"):
                read_inputs(path)
    assert changed == {(301, 300, 300), (300, 301, 300), (300, 300, 301)}


def test_a_column_whose_description_contradicts_its_statistics(tmp_path: Path) -> None:
    """Optional by one and not by the other: asked for it, Arrow would end the process."""
    path = written(tmp_path, {"a": [1, None, 3]})
    content = path.read_bytes()
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    refused = 0
    for at in range(start, len(content) - 8):
        if content[at] == 2:  # an optional field, among others: 1 as a footer has it
            path.write_bytes(content[:at] + b"\0" + content[at + 1 :])
            try:
                read_inputs(path)
            except DataError:
                refused += 1
    assert refused


def test_text_of_another_encoding(tmp_path: Path) -> None:
    cell = pa.StringArray.from_buffers(
        1, pa.py_buffer(np.array([0, 4], dtype=np.int32)), pa.py_buffer(b"caf\xe9")
    )
    with pytest.raises(DataError, match="not a Parquet file"):
        read_inputs(written(tmp_path, {"a": cell}))


def test_many_rows_and_texts_of_some_hundred_characters(tmp_path: Path) -> None:
    """Text that differs in every row, categories, gaps, several groups of rows."""
    rng = np.random.default_rng(3)
    rows = 60_000
    notes = [f"{at} " + "word " * int(rng.integers(0, 100)) for at in range(rows)]
    ward = [("a", "b", None, " c ", "?")[at % 5] for at in range(rows)]
    age = [None if at % 7 == 0 else at / 2 for at in range(rows)]
    columns = {
        "note.text": notes, "ward": ward, "kind": pa.array(ward).dictionary_encode(), "age": age,
        "stage": pa.array([None, 3] * (rows // 2)).dictionary_encode(), "flag": [True, False] * 30_000,
    }  # fmt: skip
    table = read_inputs(written(tmp_path, columns, row_group_size=17_000))
    assert [is_numeric(column) for column in columns_of(table)] == [False] * 3 + [True] * 3
    assert columns_of(table)[0].tolist() == [note.strip() for note in notes]
    plain = ["" if w in (None, "?") else w.strip() for w in ward]
    assert columns_of(table)[1].tolist() == columns_of(table)[2].tolist() == plain
    assert columns_of(table)[3][1:8].tolist() == pytest.approx(
        [0.5, 1, 1.5, 2, 2.5, 3, float("nan")], nan_ok=True
    )
    assert np.nan_to_num(columns_of(table)[4][:4]).tolist() == [0, 3, 0, 3]
    assert columns_of(table)[5][:2].tolist() == [1, 0]
