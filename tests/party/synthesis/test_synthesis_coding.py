"""Cells to codes and back."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

import numpy as np
import pytest

from party.synthesis.table import schema
from party.synthesis.table.coding import decode, encode
from party.synthesis.table.domain import Attribute, Domain
from pate.data.read import read_inputs
from pate.data.values import Table
from pate.errors import DataError
from tests.support.party.domains import SCHEMAS, adult, everything

if TYPE_CHECKING:
    from pathlib import Path

DOMAIN = Domain(
    (
        Attribute("age", ("low", "middle", "high"), (0, 1, 1), (0.0, 18.0, 65.0, 79.0), True),
        Attribute("ratio", ("under", "over", ""), (0, 1, 2), (0.0, 0.5, 1.0)),
        Attribute("sex", ("f", "m", ""), (0, 1, 2)),
        Attribute("stage", ("1", "2", "10"), (0, 1, 2)),
    ),
    1,
    None,
)


def table(tmp_path: Path, *rows: str, names: str = "age,ratio,sex,stage") -> Table:
    path = tmp_path / "data.csv"
    path.write_text("\n".join((names, *rows)) + "\n")
    found = read_inputs(path)
    assert isinstance(found, Table)
    return found


def test_cells_become_codes_and_codes_become_cells(tmp_path: Path) -> None:
    held = table(tmp_path, "0,0,f,1", "17,0.49,m,2", "18,0.5,?,10", "79,1,f,2.0", "65,,m,1")
    codes = encode(held, DOMAIN, "it")
    assert codes.tolist() == [[0, 0, 0, 0], [0, 0, 1, 1], [1, 1, 2, 2], [2, 1, 0, 1], [2, 2, 1, 0]]
    assert codes.dtype == np.intp
    back = decode(codes, DOMAIN)
    assert back.names == DOMAIN.names
    # Whole numbers: the middle of 0..17, of 18..64, of 65..79, whose last is in the bin.
    assert back.columns[0].tolist() == [8, 8, 41, 72, 72]
    assert back.columns[1].tolist()[:4] == [0.25, 0.25, 0.75, 0.75]
    assert np.isnan(back.columns[1][4])
    assert back.columns[2].tolist() == ["f", "m", "", "f", "m"]
    assert back.columns[3].tolist() == [1, 2, 10, 2, 1]
    assert decode(codes, DOMAIN, without=("sex", "age")).names == ("ratio", "stage")


def test_the_order_of_columns_is_free(tmp_path: Path) -> None:
    held = table(tmp_path, "2,m,0.7,20", names="stage,sex,ratio,age")
    assert encode(held, DOMAIN, "it").tolist() == [[1, 1, 1, 1]]


def test_each_cell_is_coded_by_itself(tmp_path: Path) -> None:
    # Any text in a column makes it one of categories: the other rows' codes must not notice.
    alone = encode(table(tmp_path, "7.0,1e-1,f,02"), DOMAIN, "it")
    with pytest.raises(DataError, match=r"row 2, column age: 'old' is not a number"):
        encode(table(tmp_path, "7.0,1e-1,f,02", "old,x,f,x"), DOMAIN, "it")
    mixed = Table(
        DOMAIN.names, (np.array(["7.0"]), np.array(["1e-1"]), np.array(["f"]), np.array(["02"]))
    )
    assert (encode(mixed, DOMAIN, "it") == alone).all()


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("99,0,f,1", "row 2, column age: 99 outside 0..79"),
        ("-1,0,f,1", "row 2, column age: -1 outside 0..79"),
        ("1.5,0,f,1", "row 2, column age: 1.5 is not a whole number"),
        (
            ",0,f,1",
            "row 2, column age: no value, but the schema does not allow missing values there",
        ),
        ("1,1.01,f,1", "row 2, column ratio: 1.01 outside 0..1"),
        ("1,0,x,1", "row 2, column sex: 'x' is not one of the schema's 3 codes"),
        ("1,0,f,3", "row 2, column stage: '3' is not one of the schema's 3 codes"),
        ("1,0,f,", "row 2, column stage: no value"),
        ("1,0,f,one", "row 2, column stage: 'one' is not one of the schema's"),
    ],
)
def test_a_cell_without_a_code_names_row_and_column(tmp_path: Path, row: str, says: str) -> None:
    with pytest.raises(DataError, match=says):
        encode(table(tmp_path, "1,0,f,1", row, "1,0,f,1"), DOMAIN, "it")


def test_columns_are_those_of_the_schema(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="lacks column 'stage'"):
        encode(table(tmp_path, "1,0,f", names="age,ratio,sex"), DOMAIN, "it")
    with pytest.raises(DataError, match="has column 'town' that the schema does not have; leave"):
        encode(table(tmp_path, "1,0,f,1,x", names="age,ratio,sex,stage,town"), DOMAIN, "it")
    with pytest.raises(DataError, match="no records"):
        encode(table(tmp_path, "1,0,f,1").take([]), DOMAIN, "it")


@pytest.mark.parametrize("name", ["adult_schema.json", "heart_schema.json"])
def test_every_code_of_a_public_schema_comes_back_as_itself(name: str) -> None:
    domain = schema.read(SCHEMAS / name)
    rows = np.stack(
        [np.arange(200, dtype=np.intp) % size for size in domain.sizes], axis=1, dtype=np.intp
    )
    assert (encode(decode(rows, domain), domain, "it") == rows).all()


def test_what_is_decoded_is_a_table_whatever_the_codes() -> None:
    rows = everything(DOMAIN)
    assert (encode(decode(rows, DOMAIN), DOMAIN, "it") == rows).all()
    assert len(decode(rows[:0], DOMAIN)) == 0


def test_the_schemas_describe_the_real_tables(test_data: Path, tmp_path: Path) -> None:
    domain = schema.read(SCHEMAS / "adult_schema.json")
    assert encode(adult(test_data, tmp_path), domain, "adult").shape == (32_561, 13)
    domain = schema.read(SCHEMAS / "heart_schema.json")
    for site, rows in (("cleveland", 303), ("hungarian", 294), ("switzerland", 123), ("va", 200)):
        text = (test_data / "heart_disease" / f"processed.{site}.data").read_text()
        path = tmp_path / f"{site}.csv"
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(domain.names)
            for *cells, number in csv.reader(text.splitlines()):
                # A pressure or cholesterol of 0 says that it was not measured.
                features = [
                    "?" if at in (3, 4) and cell in ("0", "0.0") else cell
                    for at, cell in enumerate(cells)
                ]
                writer.writerow([*features, "healthy" if float(number) == 0 else "disease"])
        found = read_inputs(path)
        assert isinstance(found, Table)
        assert encode(found, domain, site).shape == (rows, 14)
