"""How cells are written: words for no value, decimal commas, and what a public table says by itself."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pate.data.cells import PLAIN, Reading
from pate.data.odd import Odd
from pate.data.read import read_dataset, read_inputs
from pate.data.schema import Schema
from pate.data.values import Table

if TYPE_CHECKING:
    from pathlib import Path

COMMA = Reading(comma=True)


@pytest.mark.parametrize(
    "cell", ["", "NA", "na", "n/a", "N/A", "#N/A", "NaN", "NULL", "-", "–", "."]
)
def test_words_that_say_that_there_is_no_number(cell: str) -> None:
    number = PLAIN.number(cell)
    assert number is not None
    assert math.isnan(number)


@pytest.mark.parametrize(
    ("cell", "number"),
    [("12,5", 12.5), ("-,5", -0.5), ("+7,", 7.0), ("1,5e3", 1500.0), ("12.5", 12.5), ("12", 12.0)],
)
def test_a_decimal_comma_is_read_where_it_was_said(cell: str, number: float) -> None:
    assert COMMA.number(cell) == number
    assert PLAIN.number(cell) == (None if "," in cell else number)


@pytest.mark.parametrize(
    "cell", ["1.234,5", "1,234,567", "<5", "5 mg", ",", "12,5 ", "a,5", "1_0,5"]
)
def test_thousands_and_text_are_no_numbers(cell: str) -> None:
    assert COMMA.number(cell) is None


def test_a_files_own_words_are_missing_in_any_column(tmp_path: Path) -> None:
    (tmp_path / "h.csv").write_text("a,b,y\n999,x,0\n2,Unknown,1\n999.0,999,1\n")
    odd = Odd()
    data = read_dataset(
        tmp_path / "h.csv", label="y", odd=odd, schema=Schema.parse("table a:number, b:category"),
        reading=Reading.of("point", ["999", "unknown "]),
    )  # fmt: skip
    assert isinstance(data.inputs, Table)
    np.testing.assert_array_equal(data.inputs.columns[0], [math.nan, 2, math.nan])
    assert data.inputs.columns[1].tolist() == ["x", "", ""]
    assert odd.missing == {"a": {"999": 1, "999.0": 1}, "b": {"unknown": 1, "999": 1}}


def test_words_are_read_by_the_column_and_counted_apart_from_what_cannot_be_read(
    tmp_path: Path,
) -> None:
    (tmp_path / "h.csv").write_text('a,b,y\nNA,NA,0\n-,-,1\n,x,1\n<5,x,0\n"1,5",x,0\n')
    odd = Odd()
    data = read_dataset(
        tmp_path / "h.csv", label="y", odd=odd, schema=Schema.parse("table a:number, b:category")
    )
    assert isinstance(data.inputs, Table)
    assert np.isnan(data.inputs.columns[0]).all()
    assert data.inputs.columns[1].tolist() == ["NA", "-", "x", "x", "x"]
    assert odd.missing == {"a": {"na": 1, "-": 1, "": 1}, "b": {}}
    assert odd.columns() == [
        "column 'a' has cells that count as missing: each is no number",
        "column 'a' has cells that count as missing: each has a decimal comma: see --decimal",
    ]


def test_a_public_table_says_by_its_cells_what_its_columns_are(tmp_path: Path) -> None:
    path = tmp_path / "public.csv"
    path.write_text("a;b;c;d\n1,5;NA;<5;-\n2;3;4;+\n-0,25;n/a;5;-\n")
    public = read_inputs(path)
    assert public.schema() == "table a:number, b:number, c:category, d:category"
    assert isinstance(public, Table)
    assert public.columns[0].tolist() == [1.5, 2.0, -0.25]
    path.write_text("a,b\nNA,nan\n-,nan\n")  # a column of only such words is not numeric
    assert read_inputs(path).schema() == "table a:category, b:number"


def test_private_cells_never_say_that_a_file_has_decimal_commas(tmp_path: Path) -> None:
    """Else one record's cells would decide how the others are read."""
    path = tmp_path / "h.csv"
    path.write_text("a;y\n1,5;0\n2,5;1\n")
    for schema in (None, Schema.parse("table a:category")):
        data = read_dataset(path, label="y", odd=Odd(), schema=schema)
        assert data.inputs.schema() == "table a:category"
    data = read_dataset(path, label="y", odd=Odd(), schema=Schema.parse("table a:number"))
    assert isinstance(data.inputs, Table)
    assert np.isnan(data.inputs.columns[0]).all()


@pytest.mark.parametrize("name", ["d.tsv", "d.TSV.gz"])
def test_tsv(tmp_path: Path, name: str) -> None:
    import gzip

    text = b"a\tb\n1,5\tx\n2\ty\n"
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    assert read_inputs(tmp_path).schema() == "table a:number, b:category"


def test_a_word_for_no_value_is_one_whatever_type_its_column_was_written_as() -> None:
    """One missing cell makes 999.0 of each 999, and a text column holds truth values as text."""
    words = Reading.of("point", ["999", "False", "Unknown"])
    for cell in ("999", "999.0", "+999", "false", "0", "UNKNOWN"):
        assert words.is_missing(cell)
    assert not any(map(words.is_missing, ["999.5", "9990", "True", "999,0"]))
    assert Reading.of("comma", ["999"]).is_missing("999,0")
