"""Cells: how they are written in texts and in Parquet, and what a public table says by itself."""

from __future__ import annotations

import csv
import gzip
import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pate.data.cells import PLAIN, SEPARATED, Reading, Thousands
from pate.data.cells import Decimal as CellDecimal
from pate.data.files.parquet import read_parquet
from pate.data.files.texts import read_texts
from pate.data.odd import Odd
from pate.data.read import read_dataset, read_inputs
from pate.data.schema import Schema
from pate.data.values import Table
from pate.errors import DataError, UsageError
from tests.support.readings import columns_of, groups_of


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
    with pytest.raises(DataError, match=r"'v' holds list.*or leave it out"):
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


@pytest.mark.parametrize("name", ["d.csv", "d.parquet"])
def test_a_file_without_records_is_one_with_one_record_less(tmp_path: Path, name: str) -> None:
    """As that of a month without a new patient: a party that ends for it says that there is none."""
    path = tmp_path / name
    if name.endswith(".csv"):
        path.write_text("a,y\n")
    else:
        pq.write_table(
            pa.table({"a": pa.array([], pa.float64()), "y": pa.array([], pa.string())}), path
        )
    schema = Schema.parse("table a:number")
    how: dict[str, Any] = {"label": "y", "classes": ["0", "1"], "schema": schema}
    assert not len(read_dataset(path, odd=Odd(), none_fits=True, **how))
    for odd in (None, Odd()):  # its owner is told, before there is a campaign
        with pytest.raises(DataError, match="holds no records"):
            read_dataset(path, odd=odd, **how)


def test_one_cells_decimals_take_no_other_patient_away(tmp_path: Path) -> None:
    """A column of exact numbers has as many decimals as its longest cell, which loses no digit."""
    path, long = tmp_path / "d.parquet", "12345678901234567890"
    for more, named in (([], []), (["0.25"], ["0.25"]), ([f"{long}.50"], [])):
        who = [Decimal(each) for each in (long, "3", *more)]
        pq.write_table(pa.table({"x": who, "who": who, "y": ["a"] * len(who)}), path)
        schema, odd = Schema.parse("table x:category"), Odd()
        data = read_dataset(
            path, label="y", group="who", classes=["a", "b"], schema=schema, odd=odd
        )
        assert groups_of(data) == [long, "3", *named]
        assert columns_of(data)[0].tolist() == [long, "3", *named]


COMMA = Reading(comma=True)


def test_a_decimal_comma_is_read_where_it_was_said_and_thousands_and_text_are_no_numbers() -> None:
    for cell, number in (
        ("12,5", 12.5), ("-,5", -0.5), ("+7,", 7.0), ("1,5e3", 1500.0), ("12.5", 12.5), ("12", 12.0),
    ):  # fmt: skip
        assert COMMA.number(cell) == number
        assert PLAIN.number(cell) == (None if "," in cell else number)
    for cell in ("1.234,5", "1,234,567", "<5", "5 mg", ",", "12,5 ", "a,5", "1_0,5"):
        assert COMMA.number(cell) is None
    for cell in ("", "NA", "na", "n/a", "N/A", "#N/A", "NaN", "NULL", "-", "–", "."):
        assert math.isnan(PLAIN.number(cell) or 0)


def test_a_files_own_words_are_missing_in_any_column(tmp_path: Path) -> None:
    (tmp_path / "h.csv").write_text("a,b,y\n999,x,0\n2,Unknown,1\n999.0,999,1\n")
    odd = Odd()
    data = read_dataset(
        tmp_path / "h.csv", label="y", odd=odd, schema=Schema.parse("table a:number, b:category"),
        reading=Reading.of("point", ["999", "unknown "]),
    )  # fmt: skip
    np.testing.assert_array_equal(columns_of(data)[0], [math.nan, 2, math.nan])
    assert columns_of(data)[1].tolist() == ["x", "", ""]
    assert odd.missing == {"a": {"999": 1, "999.0": 1}, "b": {"unknown": 1, "999": 1}}


def test_words_are_read_by_the_column_and_counted_apart_from_what_cannot_be_read(
    tmp_path: Path,
) -> None:
    (tmp_path / "h.csv").write_text('a,b,y\nNA,NA,0\n-,-,1\n,x,1\n<5,x,0\n"1,5",x,0\n1e400,x,1\n')
    odd = Odd()
    data = read_dataset(
        tmp_path / "h.csv", label="y", odd=odd, schema=Schema.parse("table a:number, b:category")
    )
    assert np.isnan(columns_of(data)[0]).all()
    assert columns_of(data)[1].tolist() == ["", "", "x", "x", "x", "x"]
    assert odd.missing == {"a": {"na": 1, "-": 1, "": 1}, "b": {"na": 1, "-": 1}}
    assert odd.columns() == [
        f"column 'a' has cells that count as missing: each {why}"
        for why in ("is no number", SEPARATED, "is no finite number")
    ]


def test_a_public_table_says_by_its_cells_what_its_columns_are(tmp_path: Path) -> None:
    path = tmp_path / "public.csv"
    path.write_text("a;b;c;d\n1.5;NA;<5;-\n2;3;4;+\n-0.25;n/a;5;-\n")
    public = read_inputs(path)
    assert public.schema() == "table a:number, b:number, c:category, d:category"
    assert isinstance(public, Table)
    assert public.columns[0].tolist() == [1.5, 2.0, -0.25]
    path.write_text("a,b\nNA,\n-,nan\n")  # a column without a value
    assert read_inputs(path).schema() == "table a:number, b:number"


def test_private_cells_never_say_that_a_file_has_decimal_commas(tmp_path: Path) -> None:
    """Else one record's cells would decide how the others are read."""
    path = tmp_path / "h.csv"
    path.write_text("a;y\n1,5;0\n2,5;1\n")
    for schema in (None, Schema.parse("table a:category")):
        data = read_dataset(path, label="y", odd=Odd(), schema=schema)
        assert data.inputs.schema() == "table a:category"
    data = read_dataset(path, label="y", odd=Odd(), schema=Schema.parse("table a:number"))
    assert np.isnan(columns_of(data)[0]).all()


def test_tsv(tmp_path: Path) -> None:
    text = b"a\tb\n1.5\tx\n2\ty\n"
    for name, content in (("d.tsv", text), ("d.TSV.gz", gzip.compress(text))):
        (tmp_path / name.partition(".")[2]).mkdir()
        (tmp_path / name.partition(".")[2] / name).write_bytes(content)
        found = read_inputs(tmp_path / name.partition(".")[2])
        assert found.schema() == "table a:number, b:category"


def test_a_word_for_no_value_is_one_whatever_type_its_column_was_written_as() -> None:
    """One missing cell makes 999.0 of each 999, and a text column holds truth values as text."""
    words = Reading.of("point", ["999", "False", "Unknown"])
    for cell in ("999", "999.0", "+999", "false", "0", "UNKNOWN"):
        assert words.is_missing(cell)
    assert not any(map(words.is_missing, ["999.5", "9990", "True", "999,0"]))
    assert Reading.of("comma", ["999"]).is_missing("999,0")


#: How tables write numbers: the sign before decimals, and between thousands; "none" has nothing there.
FORMATS: tuple[tuple[CellDecimal, Thousands], ...] = (
    ("point", "none"), ("comma", "none"), ("comma", "point"), ("point", "comma"), ("point", "space"),
    ("comma", "space"), ("point", "apostrophe"), ("comma", "apostrophe"),
)  # fmt: skip
SIGNS = {"none": "", "point": ".", "comma": ",", "space": "\N{NO-BREAK SPACE}", "apostrophe": "'"}


def written(number: int, decimals: int, decimal: CellDecimal, thousands: Thousands) -> str:
    """Return number / 10^decimals as text."""
    digits = f"{abs(number):0{decimals + 1}d}"
    whole, part = (digits[:-decimals], digits[-decimals:]) if decimals else (digits, "")
    grouped = f"{int(whole):,}".replace(",", SIGNS[thousands])
    return "-" * (number < 0) + grouped + (SIGNS[decimal] + part if part else "")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("formats") / "h.csv"


numbers = st.lists(
    st.tuples(st.integers(-(10**9), 10**9) | st.integers(-5000, 5000), st.integers(0, 5)),
    min_size=1, max_size=6,
)  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(numbers=numbers, form=st.sampled_from(FORMATS))
def test_a_number_is_read_as_it_was_meant_or_named(
    place: Path, numbers: list[tuple[int, int]], form: tuple[CellDecimal, Thousands]
) -> None:
    """With the owner's words the numbers; without them, or with half of them, these or none, never others."""
    meant = np.array([float(f"{number}e-{decimals}") for number, decimals in numbers])
    with place.open("w", newline="") as file:
        rows = ([written(*number, *form), "a"] for number in numbers)
        csv.writer(file, delimiter=";").writerows([["x", "y"], *rows])

    def read(reading: Reading) -> tuple[np.ndarray, Odd]:
        odd = Odd()
        data = read_dataset(
            place, label="y", schema=Schema.parse("table x:number"), odd=odd, reading=reading
        )
        return np.asarray(columns_of(data)[0], np.float64), odd

    found, odd = read(Reading.of(form[0], None, form[1]))
    np.testing.assert_array_equal(found, meant)
    assert not odd.lines()
    for reading in (PLAIN, COMMA):
        found, odd = read(reading)
        absent = np.isnan(found)
        assert odd.columns() == [
            f"column 'x' has cells that count as missing: each {SEPARATED}"
        ] * bool(absent.any())
        noted = "in column 'x' three digits follow each point" in str(odd.notes)
        assert noted or (found == meant)[~absent].all()
        assert not (noted and reading is COMMA)
    said: list[str] = []
    try:
        public = read_inputs(place, drop=["y"], say=said.append)
    except DataError as error:
        assert "the cell in column 'x' has a separator" in str(error)  # noqa: PT017 - or it is read
    else:
        assert said or (columns_of(public)[0] == meant).all()


def test_points_of_decimals_are_not_doubted_where_one_cannot_be_of_thousands(
    tmp_path: Path,
) -> None:
    path = tmp_path / "h.csv"
    for cells, lines in ((["1.250", "850"], 1), (["1.250", "0.500"], 0), (["1.250", "2.5"], 0)):
        path.write_text("x,y\n" + "".join(f"{cell},a\n" for cell in cells))
        odd, notes = Odd(), Odd()
        read_dataset(path, label="y", odd=odd)
        read_dataset(path, label="y", notes=notes)
        assert len(odd.notes) == len(notes.notes) == lines


def test_one_sign_is_not_both() -> None:
    with pytest.raises(UsageError, match="--thousands point goes with --decimal comma"):
        Reading.of("point", None, "point")


def test_a_file_that_has_numbers_as_such_has_no_points_of_thousands(tmp_path: Path) -> None:
    """By the kind of file: a column of numbers becomes text by one cell of text."""
    for kind in (pa.float64(), pa.string()):
        cells = [1.25, 1.234] if kind == pa.float64() else ["1.25", "1.234"]
        pq.write_table(
            pa.table({"x": pa.array(cells, kind), "y": ["a", "a"]}), tmp_path / "h.parquet"
        )
        with pytest.raises(UsageError, match=r"1\.250 is one and a quarter"):
            read_dataset(tmp_path, label="y", reading=Reading.of("comma", None, "point"))
        either = Reading.of("comma", None, "none")
        for reading, last in ((PLAIN, 1.234), (COMMA, math.nan), (either, 1.234)):
            data = read_dataset(
                tmp_path,
                label="y",
                odd=Odd(),
                reading=reading,
                schema=Schema.parse("table x:number"),
            )
            np.testing.assert_array_equal(columns_of(data)[0], [1.25, last])


def test_no_value_is_none_in_every_role(tmp_path: Path) -> None:
    path, own = tmp_path / "h.csv", Reading.of("point", ["Unknown"])
    schema = Schema.parse("table x:number, c:category")
    for word in ("NA", "-", "None", "#N/A", "unknown"):
        rows = ["1,u,p,a", f"{word},u,p,a", f"2,{word},p,a", f"3,u,{word},a", f"4,u,p,{word}"]
        path.write_text("x,c,who,y\n" + "\n".join(rows) + "\n")
        odd = Odd()
        data = read_dataset(path, label="y", group="who", odd=odd, reading=own, schema=schema)
        numbers, categories = columns_of(data)
        np.testing.assert_array_equal(numbers, [1, math.nan, 2])
        assert categories.tolist() == ["u", "u", ""]
        assert data.classes == ("a",)
        assert len(odd.reasons) == 2
        assert "its patient (--group) is missing" in odd.reasons
        assert odd.missing == {"x": {word.casefold(): 1}, "c": {word.casefold(): 1}}
