from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pate.data.odd import Odd
from pate.data.read import read_dataset, read_inputs
from pate.data.schema import Schema
from pate.data.values import Table
from pate.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path


def test_parquet_follows_the_same_rules(tmp_path: Path) -> None:
    pq.write_table(
        pa.table(
            {
                "age": pa.array([31, None, 55], pa.int64()),
                "dose": [1.5, float("nan"), 2.0],
                "code": pa.array(["7", "?", "8"]).dictionary_encode(),
                "sex": ["f", None, "m"],
                "smokes": [True, False, None],
                "ill": [0.0, 1.0, 0.0],
            }
        ),
        tmp_path / "d.parquet",
    )
    data = read_dataset(tmp_path, label="ill")
    assert data.classes == ("0", "1")
    assert isinstance(data.inputs, Table)
    assert data.inputs.schema() == (
        "table age:number, dose:number, code:number, sex:category, smokes:number"
    )
    np.testing.assert_array_equal(data.inputs.columns[0], [31, np.nan, 55])
    np.testing.assert_array_equal(data.inputs.columns[4], [1, 0, np.nan])


def test_csv_and_parquet_of_the_same_cells_have_the_same_hashes(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1.5, 2.0], "b": ["x", None]}), tmp_path / "d.parquet")
    (tmp_path / "d.csv").write_text("a,b\n1.5,x\n2,\n")
    as_csv = read_inputs(tmp_path / "d.csv")
    assert as_csv.row_hashes() == read_inputs(tmp_path / "d.parquet").row_hashes()


def test_parquet_columns_of_other_kinds(tmp_path: Path) -> None:
    pq.write_table(pa.table({"when": [[1, 2]]}), tmp_path / "d.parquet")
    with pytest.raises(DataError, match="'when' holds list"):
        read_inputs(tmp_path)


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
    for name, kind in (
        ("i", pa.int64()), ("f", pa.float64()), ("n", pa.float32()), ("h", pa.float16()), ("s", pa.string()),
    ):  # fmt: skip
        cells = (
            ["1", "22"]
            if name == "s"
            else np.array([1, 22], np.float16)
            if name == "h"
            else [1, 22]
        )
        pq.write_table(
            pa.table({"a": pa.array(cells, kind), "y": ["0", "1"]}), tmp_path / f"{name}.parquet"
        )
    found = {
        tuple(
            read_dataset(
                tmp_path / f"{name}.parquet", label="y", schema=Schema.parse("table a:category")
            ).row_hashes()
        )
        for name in "ifnhs"
    }
    assert len(found) == 1


def test_a_fraction_of_a_short_type_is_the_number_that_was_written(tmp_path: Path) -> None:
    """0.1, and not what the nearest number of 32 bits is in 64."""
    short = pa.array([0.1, None, 0.7], pa.float32())
    schema = Schema.parse("table x:number, c:category")
    for cells in (short, short.cast(pa.float64())):  # as one record of more digits makes of all
        pq.write_table(pa.table({"x": short, "c": cells, "y": cells}), tmp_path / "d.parquet")
        data = read_dataset(tmp_path, label="y", classes=["0.1", "0.7"], schema=schema, odd=Odd())
        assert isinstance(data.inputs, Table)
        assert [column.tolist() for column in data.inputs.columns] == [[0.1, 0.7], ["0.1", "0.7"]]
        assert data.labels.tolist() == [0, 1]
    (tmp_path / "d.parquet").unlink()
    labels = np.array([0.1, 0.7], np.float32)
    np.savez(tmp_path / "d.npz", images=np.zeros((2, 2, 2), np.uint8), labels=labels)
    assert read_dataset(tmp_path).classes == ("0.1", "0.7")
