from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pate.data.files.parquet import read_parquet
from pate.data.files.texts import read_texts
from pate.data.odd import Odd
from pate.data.read import read_dataset, read_inputs
from pate.data.schema import Schema
from pate.data.values import Table
from pate.errors import DataError
from tests.support.readings import columns_of


def test_parquet_follows_the_same_rules(tmp_path: Path) -> None:
    pq.write_table(
        pa.table(
            {
                "age": pa.array([31, None, 55], pa.int64()), "dose": [1.5, float("nan"), 2.0],
                "code": pa.array(["7", "?", "8"]).dictionary_encode(), "sex": ["f", None, "m"],
                "smokes": [True, False, None], "ill": [0.0, 1.0, 0.0],
            }
        ),
        tmp_path / "d.parquet",
    )  # fmt: skip
    data = read_dataset(tmp_path, label="ill")
    assert data.classes == ("0", "1")
    assert data.inputs.schema() == (
        "table age:number, dose:number, code:number, sex:category, smokes:number"
    )
    np.testing.assert_array_equal(columns_of(data)[0], [31, np.nan, 55])
    np.testing.assert_array_equal(columns_of(data)[4], [1, 0, np.nan])


def test_csv_and_parquet_of_the_same_cells_have_the_same_hashes(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1.5, 2.0], "b": ["x", None]}), tmp_path / "d.parquet")
    (tmp_path / "d.csv").write_text("a,b\n1.5,x\n2,\n")
    as_csv = read_inputs(tmp_path / "d.csv")
    assert as_csv.row_hashes() == read_inputs(tmp_path / "d.parquet").row_hashes()


def test_only_a_column_that_is_wanted_must_be_of_a_kind_that_is_read(tmp_path: Path) -> None:
    lists = {"v": [[1, 2], [3]], "v.w": [timedelta(1), None], "age": [3, 4], "ill": ["a", "b"]}
    pq.write_table(pa.table(lists), tmp_path / "d.parquet")
    with pytest.raises(DataError, match=r"'v' holds list.*or leave it out \(--drop\)"):
        read_inputs(tmp_path)
    assert read_inputs(tmp_path, drop=("v", "v.w", "ill")).schema() == "table age:number"
    odd = Odd()
    schema = Schema.parse("table age:number")
    assert read_dataset(tmp_path, label="ill", schema=schema, odd=odd).classes == ("a", "b")
    assert odd.left_out == ["v", "v.w"]
    with pytest.raises(DataError, match="'v' holds list"):
        read_dataset(tmp_path, label="ill", schema=Schema.parse("table v:number"), odd=odd)
    with pytest.raises(DataError, match=r"no label column 'sick'; it has: v, v\.w, age, ill"):
        read_dataset(tmp_path, label="sick", schema=schema, odd=odd)


@pytest.mark.parametrize("encoding", ["DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY", "PLAIN"])
def test_texts_in_any_encoding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    """Those that Arrow unpacks to plain texts only, which could fill the memory, are read a few at a time."""
    texts = ["Bern", None, " Basel ", "x" * 60_000] * 500
    cells = {"text": texts, "bytes": [text and text.encode() for text in texts], "n": range(2000)}
    path = tmp_path / "d.parquet"
    pq.write_table(
        pa.table(cells), path, row_group_size=1600, compression="zstd", use_dictionary=False,
        column_encoding=dict.fromkeys(("text", "bytes"), encoding),
    )  # fmt: skip
    size = pq.ParquetFile(path).metadata.row_group(0).total_byte_size
    monkeypatch.setattr("pate.data.files.parquet.MAX_BYTES", 20 * size)
    pool, before = pa.proxy_memory_pool(pa.default_memory_pool()), pa.default_memory_pool()
    pa.set_memory_pool(pool)
    try:
        found = read_parquet(path, Odd(), text="text").columns
    finally:
        pa.set_memory_pool(before)
    assert found["text"] == [text or "" for text in texts]
    assert (
        found["bytes"] == ["Bern", "", "Basel", ""] * 500
    )  # a text of so many characters is missing
    assert found["n"] == [str(at) for at in range(2000)]
    if (
        encoding == "DELTA_BYTE_ARRAY"
    ):  # 60 million characters, packed as the differences of neighbours
        assert pool.max_memory() < 20_000_000


def test_a_page_must_have_its_checksum(tmp_path: Path) -> None:
    path = tmp_path / "d.parquet"
    for checked in (True, False):
        pq.write_table(
            pa.table({"x": range(1000, 1100)}), path, compression="none", use_dictionary=False,
            write_page_checksum=checked, write_statistics=False,
        )  # fmt: skip
        content = path.read_bytes()
        at = content.index((1050).to_bytes(8, "little"))
        assert len(read_inputs(path)) == 100
        path.write_bytes(content[:at] + b"\0" + content[at + 1 :])
        if checked:
            with pytest.raises(DataError, match=r"is damaged .*checksum"):
                read_inputs(path)
    assert read_inputs(path).schema() == "table x:number"  # nothing in it says that it is damaged


def test_the_row_numbers_of_a_frame_are_no_feature(tmp_path: Path) -> None:
    import pandas as pd

    frame = pd.DataFrame({"age": [31, 55, 40, 60], "ill": ["a", "b", "a", "b"]})
    path, odd = tmp_path / "d.parquet", Odd()
    frame[frame["age"] != 55].to_parquet(path)
    assert "__index_level_0__" in pq.read_schema(path).names
    data = read_dataset(path, label="ill", odd=odd)
    assert data.inputs.schema() == "table age:number"
    (line,) = odd.lines()
    assert line.endswith("name those that are features (__index_level_0__)")


def test_a_table_in_parts_is_refused_with_what_joins_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in (
        "spark/part-00000.parquet",
        "spark/part-00001.parquet",
        "hive/year=2020/a.parquet",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"age": [1, 2], "ill": ["a", "b"]}), tmp_path / name)
    for name, part in (("spark", "part-00000.parquet, part-00001.parquet"), ("hive", "year=2020")):
        with pytest.raises(DataError, match=rf"one table in parts \({part}\): join them") as found:
            read_dataset(tmp_path / name, label="ill")
        with pytest.raises(DataError, match="one table in parts"):
            read_texts(tmp_path / name, "ill")
        command = str(found.value).partition("python -c ")[2].replace("FOLDER", name)
        exec(command.strip('"'), {})  # noqa: S102 - the command that the error names
        joined = read_dataset(tmp_path / "table.parquet", label="ill")
        assert joined.classes == ("a", "b")
        assert joined.inputs.schema().startswith("table age:number")
        assert len(joined) == (4 if name == "spark" else 2)


def test_parquet_days_and_exact_numbers_are_what_a_csv_file_would_have(tmp_path: Path) -> None:
    day, time = datetime(2020, 1, 2, tzinfo=UTC), datetime(2020, 1, 2, 3, 4, 5, 60, tzinfo=UTC)
    exact = [Decimal("1.50"), Decimal("1.234")]
    written = {
        "day": pa.array([day.date(), None]),
        "time": pa.array([day.replace(tzinfo=None), time.replace(tzinfo=None)]),
        "exact": pa.array(exact),
        "bytes": pa.array([b"a", b"b"]),
    }
    pq.write_table(pa.table(written), tmp_path / "d.parquet")
    public = read_inputs(tmp_path)
    assert isinstance(public, Table)
    assert public.schema() == "table day:category, time:category, exact:number, bytes:category"
    columns = [column.tolist() for column in public.plain().columns]
    times = ["2020-01-02", "2020-01-02 03:04:05.00006"]
    assert columns == [["2020-01-02", ""], times, [1.5, 1.234], ["a", "b"]]


def test_whole_numbers_of_a_parquet_file_are_one_category_however_they_are_stored(
    tmp_path: Path,
) -> None:
    numbers, path, found = np.array([1, 22]), tmp_path / "d.parquet", set()
    for cells in (numbers, numbers / 1, numbers.astype("f4"), numbers.astype("f2"), ["1", "22"]):
        pq.write_table(pa.table({"a": pa.array(cells), "y": ["0", "1"]}), path)
        data = read_dataset(path, label="y", schema=Schema.parse("table a:category"))
        found.add(tuple(data.row_hashes()))
    assert len(found) == 1


def test_a_fraction_of_a_short_type_is_the_number_that_was_written(tmp_path: Path) -> None:
    """0.1, and not what the nearest number of 32 bits is in 64."""
    short = pa.array([0.1, None, 0.7], pa.float32())
    schema = Schema.parse("table x:number, c:category")
    for cells in (short, short.cast(pa.float64())):  # as one record of more digits makes of all
        pq.write_table(pa.table({"x": short, "c": cells, "y": cells}), tmp_path / "d.parquet")
        data = read_dataset(tmp_path, label="y", classes=["0.1", "0.7"], schema=schema, odd=Odd())
        assert [column.tolist() for column in columns_of(data)] == [[0.1, 0.7], ["0.1", "0.7"]]
        assert data.labels.tolist() == [0, 1]
    (tmp_path / "d.parquet").unlink()
    labels = np.array([0.1, 0.7], np.float32)
    np.savez(tmp_path / "d.npz", images=np.zeros((2, 2, 2), np.uint8), labels=labels)
    assert read_dataset(tmp_path).classes == ("0.1", "0.7")
