"""Small files that would take far more than they have: refused before they are unpacked."""

from __future__ import annotations

import gzip
import io
import json
import tracemalloc
import zipfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from party.teachers.tables import Forest
from pate.data.files import lines
from pate.data.files.parquet import read_parquet
from pate.data.limits import CELL_BYTES, MAX_BYTES, MAX_CELL
from pate.data.read import read_dataset, read_inputs
from pate.data.skops_file import check_skops
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
    rows = 12_000
    notes = [f"{at} " + "word " * int(rng.integers(0, 100)) for at in range(rows)]
    ward = [("a", "b", None, " c ", "?")[at % 5] for at in range(rows)]
    age = [None if at % 7 == 0 else at / 2 for at in range(rows)]
    columns = {
        "note.text": notes, "ward": ward, "kind": pa.array(ward).dictionary_encode(), "age": age,
        "stage": pa.array([None, 3] * (rows // 2)).dictionary_encode(), "flag": [True, False] * 6_000,
    }  # fmt: skip
    table = read_inputs(written(tmp_path, columns, row_group_size=3_400))
    assert [is_numeric(column) for column in columns_of(table)] == [False] * 3 + [True] * 3
    assert columns_of(table)[0].tolist() == [note.strip() for note in notes]
    plain = ["" if w in (None, "?") else w.strip() for w in ward]
    assert columns_of(table)[1].tolist() == columns_of(table)[2].tolist() == plain
    assert columns_of(table)[3][1:8].tolist() == pytest.approx(
        [0.5, 1, 1.5, 2, 2.5, 3, float("nan")], nan_ok=True
    )
    assert np.nan_to_num(columns_of(table)[4][:4]).tolist() == [0, 3, 0, 3]
    assert columns_of(table)[5][:2].tolist() == [1, 0]


ROWS = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
CLASSES = np.random.default_rng(1).integers(0, 3, 60)
#: No check may need more than this to see that a file is a bomb.
MODEST = 2**22


@cache
def forest() -> bytes:
    import skops.io
    from sklearn.ensemble import RandomForestClassifier

    made: bytes = skops.io.dumps(RandomForestClassifier(3, random_state=0).fit(ROWS, CLASSES))
    return made


def test_what_students_are_made_of_passes() -> None:
    import skops.io
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
    from sklearn.linear_model import LogisticRegression

    for model in (
        RandomForestClassifier(20, random_state=0),
        LogisticRegression(max_iter=500),
        HistGradientBoostingClassifier(max_iter=20, early_stopping=False),
    ):
        made = model.fit(ROWS, CLASSES)
        check_skops(skops.io.dumps(made))
        deflated = skops.io.dumps(made, compression=zipfile.ZIP_DEFLATED)
        with pytest.raises(DataError, match="unpacks to more"):
            check_skops(deflated)
        check_skops(deflated, most=2**24)


def rebuilt(
    change: Callable[[dict[str, Any], dict[str, bytes]], object],
    compression: int = zipfile.ZIP_STORED,
) -> bytes:
    """Return the forest's file with its description and arrays changed."""
    with zipfile.ZipFile(io.BytesIO(forest())) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    described = json.loads(parts.pop("schema.json"))
    change(described, parts)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
        archive.writestr("schema.json", json.dumps(described))
    return out.getvalue()


def npy(shape: tuple[int, ...], dtype: str, data: bytes = b"") -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        out, {"descr": dtype, "fortran_order": False, "shape": shape}
    )
    return out.getvalue() + data


def first(parts: dict[str, bytes], content: bytes) -> None:
    parts[min(parts)] = content


def nodes(described: object) -> list[dict[str, Any]]:
    found, pending = [], [described]
    while pending:
        each = pending.pop()
        if isinstance(each, dict):
            found.append(each)
            pending.extend(each.values())
        elif isinstance(each, list):
            pending.extend(each)
    return found


def arrays(described: object) -> list[dict[str, Any]]:
    return [each for each in nodes(described) if "file" in each]


def read_again(described: dict[str, Any], parts: dict[str, bytes]) -> None:
    """One array, asked for a thousand times under other numbers."""
    (some, *_) = arrays(described)
    described["content"]["content"]["copies"] = [{**some, "__id__": at} for at in range(1000)]


def laughing(described: dict[str, Any], parts: dict[str, bytes]) -> None:
    """Sixty lists, each of which has the one before it twice: 2**60 ways to the first."""

    def a_list(at: int, parts_: list[object]) -> dict[str, object]:
        return {
            "__class__": "list", "__module__": "builtins", "__loader__": "ListNode",
            "content": parts_, "__id__": at,
        }  # fmt: skip

    inner = a_list(1, [])
    for at in range(2, 60):
        inner = a_list(at, [inner, a_list(at - 1, [])])
    described["content"]["content"]["laughing"] = inner


def its_own_part(described: dict[str, Any], parts: dict[str, bytes]) -> None:
    described["content"]["content"]["own"] = {"__id__": described["__id__"]}


def of_many_outputs(described: dict[str, Any], parts: dict[str, bytes]) -> None:
    tree = next(each for each in nodes(described) if each.get("__loader__") == "TreeNode")
    tree["__reduce__"]["args"]["content"][2]["content"] = str(10**9)


def brackets(depth: int) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("schema.json", "[" * depth)
    return out.getvalue()


def of_array(*described: Any) -> Callable[[], bytes]:
    """Return what makes a file whose first array has another header, and content."""
    return lambda: rebuilt(lambda _, parts: first(parts, npy(*described)))


BOMBS: dict[str, Callable[[], bytes]] = {
    "deflated zeros": lambda: rebuilt(
        lambda _, parts: first(parts, npy((2**25,), "|u1", bytes(2**25))), zipfile.ZIP_DEFLATED
    ),
    "a header beyond its member": of_array((2**40,), "<f8"),
    "a header short of its member": of_array((1,), "|u1", bytes(2**16)),
    "an array of nothing": of_array((2**50,), "|V0"),
    "many empty rows": of_array((2**40, 0), "<f8"),
    "an array of objects": of_array((1,), "|O", bytes(8)),
    "no array": lambda: rebuilt(lambda _, parts: first(parts, forest())),
    "an archive within": lambda: rebuilt(lambda _, parts: parts.update({"x.npz": forest()})),
    "an array that is read again": lambda: rebuilt(read_again),
    "many ways to one list": lambda: rebuilt(laughing),
    "an object in itself": lambda: rebuilt(its_own_part),
    "a tree of many outputs": lambda: rebuilt(of_many_outputs),
    "an array that is not there": lambda: rebuilt(
        lambda d, _: arrays(d)[0].update(file="gone.npy")
    ),
    "an array called by no name": lambda: rebuilt(lambda d, _: arrays(d)[0].update(file=["x"])),
    "a number that is a text": lambda: rebuilt(lambda d, _: arrays(d)[0].update(__id__="1")),
    "a number that is true": lambda: rebuilt(lambda d, _: arrays(d)[0].update(__id__=True)),
    "deep brackets": lambda: brackets(200_000),
    "nothing": lambda: b"",
    "no archive": lambda: b"not a zip",
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_and_takes_little(name: str) -> None:
    bomb = BOMBS[name]()
    with pytest.raises(DataError):
        check_skops(bomb)  # once before, for what is imported on the way
    tracemalloc.start()
    try:
        with pytest.raises(DataError):
            check_skops(bomb)
        assert tracemalloc.get_traced_memory()[1] < MODEST + 4 * len(bomb)
    finally:
        tracemalloc.stop()


def test_two_members_of_one_name_are_refused() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("schema.json", "{}")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("schema.json", "{}")
    with pytest.raises(DataError, match="two members"):
        check_skops(out.getvalue())


def test_a_stored_teacher_is_checked_as_well() -> None:
    from party.teachers.protocol import DamagedTeacherError, Stored
    from pate.data.values import Dataset, Table

    table = Table(("a", "b", "c"), tuple(ROWS.T.astype(np.float64)))
    stored = Forest().fit(Dataset(table, CLASSES, ("a", "b", "c")), 0).store()
    Forest().restore(stored)
    for name in ("a header beyond its member", "many ways to one list"):
        with pytest.raises(DamagedTeacherError):
            Forest().restore(Stored(stored.facts, BOMBS[name]()))
