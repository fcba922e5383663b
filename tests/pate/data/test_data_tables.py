from __future__ import annotations

import csv
import gzip
import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pate.data.files.tables import LONGEST_TEXT
from pate.data.odd import Odd
from pate.data.read import read_dataset, read_inputs
from pate.data.schema import Schema
from pate.data.values import Table
from pate.errors import DataError, SchemaError, UsageError
from tests.support.readings import columns_of, groups_of

CSV = """age, sex ,patient,ill
31,f,1,0.0
?,m,1,1.0
55.5,,2,0
"""


def write(folder: Path, text: str, name: str = "d.csv") -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


@pytest.mark.parametrize("name", ["d.csv", "d.csv.gz", "D.CSV", "D.CSV.GZ".replace("GZ", "gz")])
def test_csv(tmp_path: Path, name: str) -> None:
    data = read_dataset(write(tmp_path, CSV, name), label="ill", group="patient")
    assert data.classes == ("0", "1")
    assert data.labels.tolist() == [0, 1, 0]
    assert groups_of(data) == ["1", "1", "2"]
    assert data.inputs.schema() == "table age:number, sex:category"
    age, sex = columns_of(data)
    np.testing.assert_array_equal(age, [31, np.nan, 55.5])
    assert sex.tolist() == ["f", "m", ""]


def test_other_separators_and_a_byte_order_mark(tmp_path: Path) -> None:
    for separator in ";\t":
        text = "\ufeff" + CSV.replace(",", separator).replace("\n", "\r\n")
        data = read_dataset(write(tmp_path, text), label="ill", group="patient")
        assert data.inputs.schema() == "table age:number, sex:category"


def test_public_table_drops_columns(tmp_path: Path) -> None:
    public = read_inputs(write(tmp_path, CSV), drop=["ill", "patient", "absent"])
    assert public.schema() == "table age:number, sex:category"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("age,ill\n1,\n", "line 2 has no value in the label column"),
        ("age,ill\n1,0\n2,nan\n", "line 3: its label is 'nan', a word for no value"),
        ('age,ill\n1,0\n"1,250",1\n', "line 3: the cell in column 'age' has a separator"),
        # Some commands have no option for it: first comes what helps everywhere.
        ('age,ill\n1,0\n"1,250",1\n', "thousands: write a decimal point and nothing between"),
        ("age,ill\n1,0\ninf,1\n", "column 'age' holds inf"),
        ("age, age,ill\n1,2,0\n", "has two columns called 'age'"),
        ("report,,\nage,sex,ill\n1,2,0\n", "3 cells of which 2 are empty; delete the lines above"),
        ("age,ill\n", "no records below its header, age, ill"),
        ("", "header"),
        ("age,ill\n1,0\n2\n", r"line 3 has 1 cell, the header 2 \(age, ill\): name each cell"),
        ('age,ill\n1,0\n"2', "may be truncated"),
        ("ill\n1\n0\n", "no columns besides ill"),
    ],
)
def test_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_dataset(write(tmp_path, text), label="ill")


@pytest.mark.parametrize(
    ("name", "text", "feature", "nameless"),
    [
        ("r.csv", '"","age","ill"\n"1",31,"a"\n"2",55,"b"\n', "age", "Unnamed: 0"),
        ("frame.csv", ",,age,x,ill\n0,0,31,f,a\n0,1,55,m,b\n", "age", "Unnamed: 0, Unnamed: 1"),
        ("again.csv", "Unnamed: 0,age,ill\n0,31,a\n1,55,b\n", "age", "Unnamed: 0"),
        ("end.csv", "age,ill,\n31,a,\n55,b,\n", "age", "Unnamed: 2"),
        ("excel.csv", "sep=;\r\nage;ill\r\n31;a\r\n55;b\r\n", "age", ""),
        ("bar.csv", '\ufeff"sep=|"\nage|ill\n31|a\n55|b\n', "age", ""),
        ("quoted.csv", '"sys, dia, mmHg";ill\n31;a\n55;b\n', "sys, dia, mmHg", ""),
        ("lines.csv", '"age,\nyears, here";ill\n31;a\n55;b\n', "age,\nyears, here", ""),
        ("tabs.tsv", "age, in, years\till\n31\ta\n55\tb\n", "age, in, years", ""),
        ("commas.tsv", "age,ill\n31,a\n55,b\n", "age", ""),
    ],
)  # fmt: skip
def test_tables_as_programs_write_them(
    tmp_path: Path, name: str, text: str, feature: str, nameless: str
) -> None:
    """Row names are no feature, whether they have a name or not, and the screen says so."""
    path, odd, said = write(tmp_path, text, name), Odd(), list[str]()
    data = read_dataset(path, label="ill", odd=odd, drop=("x",))
    assert isinstance(data.inputs, Table)
    assert (data.inputs.names, data.classes) == ((feature,), ("a", "b"))
    assert data.inputs.columns[0].tolist() == [31, 55]
    public = read_inputs(path, drop=("ill", "x"), say=said.append)
    assert public.schema() == data.inputs.schema()
    assert [line.removeprefix(f"{path}: ") for line in said] == odd.lines()
    assert len(odd.lines()) == bool(nameless)
    assert f"features ({nameless})" in "".join(odd.lines()) or not nameless


def test_a_column_without_a_name_can_be_named_as_pandas_names_it(tmp_path: Path) -> None:
    path, odd = write(tmp_path, ",age,ill\np,31,a\np,55,b\n"), Odd()
    data = read_dataset(path, label="ill", group="Unnamed: 0", odd=odd)
    assert groups_of(data) == ["p", "p"]
    read_dataset(path, label="ill", drop=("Unnamed: 0",), odd=odd)
    assert not odd.lines()
    read_dataset(path, label="ill", odd=odd, schema=Schema.parse("table age:number"))
    told = "columns without a name in the file are left out, as row numbers: name those that are features"
    assert odd.lines() == [f"{told} (Unnamed: 0)"]
    assert not odd.left_out


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("age,ill\n1,31,a\n2,55,b\n", r"line 2 has 3 cells, the header 2 \(age, ill\)"),
        ("age,ill\n31,a,\n55,b,\n", r"line 2 has 3 cells, the header 2 \(age, ill\)"),
        ("age,ill\n\n1\n", r"line 3 has 1 cell, the header 2 \(age, ill\)"),
        ('age,ill\n"1,a\n', "line 2 has a quote without an end: the file may be truncated"),
        ("exported\nage,ill\n31,a\n", r"'ill'; it has: exported; line 2 has 2 cells, the header 1"),
    ],
)
def test_a_file_of_which_no_line_can_be_read_says_why(tmp_path: Path, text: str, told: str) -> None:
    path, odd = write(tmp_path, text), Odd()
    with pytest.raises(DataError, match=told):
        read_dataset(path, label="ill", odd=odd)
    with pytest.raises(DataError, match=r"cell|quote"):
        read_dataset(path, label="ill")
    if "it has" not in told:  # nobody else learns that a party's last readable line is gone
        data = read_dataset(path, label="ill", odd=Odd(), classes=("a", "b"), none_fits=True)
        assert not len(data)


def test_cells_of_columns_that_are_not_wanted_cannot_refuse_a_file(tmp_path: Path) -> None:
    path = write(tmp_path, f"page,age,ill\n{'x' * 70_000},1,a\n<p>,2,b\n")
    with pytest.raises(DataError, match="column 'page' has a text of more than"):
        read_inputs(path)
    assert read_inputs(path, drop=("page", "ill")).schema() == "table age:number"
    schema = Schema.parse("table age:number")
    assert len(read_dataset(path, label="ill", schema=schema)) == 2


def test_unknown_columns_name_what_there_is(tmp_path: Path) -> None:
    path = write(tmp_path, CSV)
    with pytest.raises(DataError, match="no label column 'death'; it has: age, sex, patient, ill"):
        read_dataset(path, label="death")
    with pytest.raises(DataError, match=r"no group \(patient\) column 'who'"):
        read_dataset(path, label="ill", group="who")
    with pytest.raises(DataError, match=r"line 4 has no value in the group \(patient\) column"):
        read_dataset(path, label="ill", group="sex")
    with pytest.raises(UsageError, match="--label"):
        read_dataset(path)
    with pytest.raises(UsageError, match="both"):
        read_dataset(path, label="ill", group="ill")
    with pytest.raises(SchemaError, match="'0'"):
        read_dataset(path, label="ill", classes=["1", "2"])


def test_files_of_other_kinds_that_are_called_csv(tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    for content, what in (
        (b"PK\3\4\24", "a workbook or"), ("a,ill\n1,0\n".encode("utf-16"), "text in UTF-16"),
        (gzip.compress(b"a,ill\n1,0\n", mtime=0), "a gzip file whose name"),
    ):  # fmt: skip
        path.write_bytes(content)
        for odd in (None, Odd()):
            with pytest.raises(DataError, match=rf"d\.csv is {what}.*; save it as CSV, in UTF-8"):
                read_dataset(path, label="ill", odd=odd)


def test_truncated_gzip_and_parquet(tmp_path: Path) -> None:
    packed = write(tmp_path, CSV, "d.csv.gz")
    pq.write_table(pa.table({"a": [1.5, 2.0], "ill": ["x", "y"]}), tmp_path / "d.parquet")
    for path in (packed, tmp_path / "d.parquet"):
        whole = path.read_bytes()
        for keep in range(0, len(whole), 11):
            path.write_bytes(whole[:keep])
            with pytest.raises(DataError, match=path.name):
                read_dataset(path, label="ill")


@pytest.mark.slow
def test_diabetes(test_data: Path) -> None:
    data = read_dataset(
        test_data / "diabetes130" / "diabetic_data.csv.gz", label="readmitted", group="patient_nbr"
    )
    assert len(data) == 101766
    assert data.groups is not None
    assert len(np.unique(data.groups)) == 71518
    counts = dict(zip(data.classes, np.bincount(data.labels).tolist(), strict=True))
    assert counts == {"NO": 54864, ">30": 35545, "<30": 11357}
    assert isinstance(data.inputs, Table)
    kinds = dict(zip(data.inputs.names, data.inputs.columns, strict=True))
    assert set(kinds["A1Cresult"].tolist()) == {"", "Norm", ">7", ">8"}
    assert "" in kinds["payer_code"].tolist()


def test_a_lines_oddities_are_its_own(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        'a,b,y\n1,"two\nlines",0\n2,"open,0\n3,x,1\n4,x\n"q" x,x,1\n5" tube,x,1\n<5,x,0\n6,x,\n',
    )
    odd = Odd()
    data = read_dataset(path, label="y", odd=odd, schema=Schema.parse("table a:number, b:category"))
    np.testing.assert_array_equal(columns_of(data)[0], [1, 3, math.nan, math.nan])
    assert columns_of(data)[1].tolist() == ["two\nlines", "x", "x", "x"]
    assert odd.lines(len(data)) == [
        "2 records (line 4, line 7) take no part: the line has a quote without an end",
        "1 record (line 6 of 2 cells) takes no part: the line has more or fewer cells than the header",
        "1 record (line 10) takes no part: it has no label",
        "column 'a': 2 cells (line 8, line 9) count as missing: each is no number",
        "4 of 8 records take part",
    ]
    with pytest.raises(DataError, match=r"line 4 .*the file may be truncated"):
        read_dataset(path, label="y")


@pytest.mark.parametrize("width", [1, 1_000])
def test_lines_within_a_cell_are_no_records(tmp_path: Path, width: int) -> None:
    """A long text that a program has quoted as it should is one record, though its lines look like others."""
    cell = "\n".join(f"7,{'z' * width},1" for _ in range(250))
    others = [f"{at},x,{at % 2}" for at in range(20)]
    rows = ["a,b,y", *others[:10], f'5,"{cell}",0', *others[10:], '6,"open,0', "7,x,1"]
    schema, odd = Schema.parse("table a:number, b:category"), Odd()
    data = read_dataset(write(tmp_path, "\n".join(rows)), label="y", odd=odd, schema=schema)
    assert columns_of(data)[0].tolist() == [*range(10), 5, *range(10, 20), 7]
    assert odd.lines() == [
        "1 record (line 272) takes no part: the line has a quote without an end",
        "1 record (line 12): it has more than 200 lines: is a quote left open?",
        "column 'b': 1 cell (line 12) counts as missing: it is longer than 256 characters",
    ]


def test_a_long_cell_takes_no_room_in_other_records(tmp_path: Path) -> None:
    """In an array of text each cell is as large as the longest: one record could exhaust the memory."""
    rows = "".join(f"v{at % 7},{at % 2}\n" for at in range(500))
    path = write(tmp_path, f"a,y\n{rows}{'x' * LONGEST_TEXT},0\nz\0,1\n")
    public = Table(("a",), (np.array(["v1", "x", "z"]),))
    data = read_dataset(path, label="y", classes=["0", "1"], odd=Odd(), schema=Schema.of(public))
    assert isinstance(data.inputs, Table)
    for table in (data.inputs, data.inputs.plain(), data.inputs.take(range(501))):
        assert table.columns[0].nbytes <= 8 * 502
    strict = read_dataset(path, label="y", classes=["0", "1"], schema=Schema.of(public))
    assert strict.row_hashes() == data.row_hashes()


def test_lines_within_a_cell_of_too_long_a_record_are_none(tmp_path: Path) -> None:
    """As where the program that wrote it has left a line break of old systems outside of quotes."""
    for broken in ('5,"{}",0,9', '5,x\r,"{}"'):
        text = "a,b,y\n1,x,0\n" + broken.format("7,z,1\n8,z,1") + "\n2,x,1\n"
        data = read_dataset(
            write(tmp_path, text), label="y", odd=Odd(), schema=Schema.parse("table a:number")
        )
        assert columns_of(data)[0].tolist() == [1, 2]


def test_a_cell_that_cannot_be_read_to_its_end_refuses_the_file(
    tmp_path: Path,
) -> None:
    path = write(tmp_path, 'a,y\n1,0\n"' + "7,1\n" * 99 + '",1\n')
    before = csv.field_size_limit(300)
    try:
        with pytest.raises(DataError, match="line 3 has a cell that is too long"):
            read_dataset(path, label="y", odd=Odd())
    finally:
        csv.field_size_limit(before)


def test_records_that_are_left_out_are_told_before_any_number_of_columns(tmp_path: Path) -> None:
    """A class written otherwise is named, and the number of those that take part is never cut off."""
    names = [f"x{at}" for at in range(24)]
    rows = [["1"] * 24 + [("one", "Two.", "two ", "three")[at % 4]] for at in range(40)]
    for at in range(24):
        rows[at][at] = "<1"
    rows[39][7] = ">9"
    lines = [",".join(each) for each in [[*names, "y"], *rows, ["1", "one"]]]
    path = write(tmp_path, "\n".join(lines))
    schema = Schema.parse("table " + ", ".join(f"{name}:number" for name in names))
    odd = Odd()
    data = read_dataset(path, label="y", odd=odd, schema=schema, classes=("one", "two"))
    ragged = "the line has more or fewer cells than the header"
    where = "'x7' (line 9, line 41), 'x0' (line 2), 'x1' (line 3)"
    assert odd.lines(len(data)) == [
        "10 records (line 3, line 7, line 11, …) take no part: 'Two.' is not a class; 'two' is",
        "10 records (line 5, line 9, line 13, …) take no part: its label is not in the class list",
        f"1 record (line 42 of 2 cells) takes no part: {ragged}",
        f"24 columns have 25 cells that count as missing, such as {where}: each is no number",
        "20 of 41 records take part",
    ]
    path.write_text("\n".join(lines[:-1]))
    with pytest.raises(
        SchemaError, match=r"'Two\.' is not a class; 'two' is; the list is one, two"
    ):
        read_dataset(path, label="y", classes=("one", "two"))


def test_a_record_that_is_left_out_for_two_reasons_is_one_and_reasons_are_cut_after_it() -> None:
    odd = Odd()
    for at in range(20):
        odd.note(f"note {at}", "line 1")
        odd.cell("x", f"is odd in way {at}", "line 1")
    odd.record("its patient (--group) is missing", "line 2")
    odd.record("it has no label", "line 2")
    *some, last = odd.lines(5)
    assert some[0].startswith("1 record (line 2) takes no part")
    assert (len(some), some[-1], last) == (13, "and 30 more reasons", "5 of 6 records take part")
    assert Odd().lines(5) == []


def test_bytes_that_are_no_text_and_long_texts_count_as_missing(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"a,y\ncaf\xe9,0\n" + b"x" * 300 + b",1\nz,1\n")
    odd = Odd()
    data = read_dataset(path, label="y", odd=odd)
    assert columns_of(data)[0].tolist() == ["", "", "z"]
    assert len(odd.lines()) == 2
    for content, strictly in ((b"caf\xe9,y\n1,0\n", Odd()), (b"a,y\n1,\xe9\n", None)):
        path.write_bytes(content)
        with pytest.raises(DataError, match="not UTF-8"):
            read_dataset(path, label="y", odd=strictly)


def test_strictly_a_cell_that_the_schema_does_not_know_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path, "a,y\n1,0\n>150,1\n")
    with pytest.raises(SchemaError, match="the cell of line 3 is none"):
        read_dataset(path, label="y", schema=Schema.parse("table a:number"))


def test_columns_that_the_schema_has_not_are_left_out(tmp_path: Path) -> None:
    path = write(tmp_path, "b,a,y\n1,2,0\n3,4,1\n")
    odd = Odd()
    data = read_dataset(
        path, label="y", odd=odd, schema=Schema.parse("table a:category, c:number, y:number")
    )
    assert data.inputs.schema() == "table a:category"
    assert odd.left_out == ["b"]
    with pytest.raises(SchemaError, match="none of the campaign's columns: c"):
        read_dataset(path, label="y", odd=odd, schema=Schema.parse("table c:number"))


@pytest.mark.parametrize(
    "line", ["table ", "table a", "table a:text", "table a:number, ", "images 1x1x2", "",
             "images 28x28x1 window 5 5", "table a:number, a:number", "images 0x1x1"],
)  # fmt: skip
def test_lines_that_say_nothing(line: str) -> None:
    with pytest.raises(SchemaError):
        Schema.parse(line)


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=5).filter(lambda name: ":" not in name), st.booleans(),
        min_size=1, max_size=4,
    )
)  # fmt: skip
def test_a_schemas_line_is_taken_apart_as_it_was_made(numeric: dict[str, bool]) -> None:
    columns = (np.zeros(1) if number else np.array([""]) for number in numeric.values())
    table = Table(tuple(numeric), tuple(columns))
    assert Schema.parse(table.schema()) == Schema.of(table)
