"""One record moves one record's votes, whatever its cells make of the type of a column or an array.

A column of Parquet and an array of NumPy have one type, and the program that writes the file takes one
that holds all values: with a single text it makes texts of truth values, with a single missing number
floats of whole ones. CSV files get the same texts. 60 examples for each way to write a table, 40 for images.
"""

from __future__ import annotations

import datetime as dt
import math
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from party.synthesis.schema import Attribute, Domain
from party.synthesis.table import read_rows
from party.voting.own_file import OwnFile
from pate.data.cells import PLAIN, Reading
from pate.data.values import Images, Inputs, Table
from pate.errors import DataError
from tests.party.voting.one_record.test_one_record import PIXELS, SIZE, as_lines, check, held, place

__all__ = ["place"]

DAYS: Final = [dt.date(2020, 1, 1 + at) for at in range(3)]
#: Values of each column, of one type; each is a number in one campaign and a category in another.
COLUMNS: Final[dict[str, list[Any]]] = {
    "smokes": [at % 2 == 0 for at in range(SIZE)],
    "stage": [at % 4 for at in range(SIZE)],
    "lab": [0.5 * at for at in range(SIZE)],
    "day": [DAYS[at % 3] for at in range(SIZE)],
    "sex": ["fm"[at % 2] for at in range(SIZE)],
}
NUMBERS: Final = Table(
    ("smokes", "stage", "lab", "day", "sex"),
    (
        np.array([1.0, 0.0, 1.0, 0.0, 1.0, 1.0]),
        np.array([0.0, 1.0, 2.0, 3.0, 0.0, 1.0]),
        np.array([1.5, 2.0, 7.5, 4.0, -3.0, 9.0]),
        np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
        np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
    ),
)
CATEGORIES: Final = Table(
    NUMBERS.names,
    (
        np.array(["True", "False", "True", "False", "", "True"]),
        np.array(["0", "1.0", "2", "3", "x", "1"]),
        np.array(["0", "0.50", "1.0", "x", "7", "8"]),
        np.array(["2020-01-01", "2020-01-02 00:00:00", "2020-01-03", "x", "y", "z"]),
        np.array(["f", "m", "x", "f", "m", "y"]),
    ),
)
#: As old campaigns call the classes of truth values, and as others do.
TRUTHS: Final = (("False", "True"), ("0", "1"))

values = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.integers(-2, 4), st.floats(),
    st.sampled_from(["", "?", "x", "True", "FALSE", "7.0", "1e3", "nan", "2020-01-01 00:00:00", "é"]),
    st.sampled_from(["NA", "None", "-", "1,250", "1.250", "1.234,5", "e\N{COMBINING ACUTE ACCENT}"]),
    st.text(max_size=6).filter(lambda text: text.isprintable()),
    st.dates(), st.datetimes(), st.decimals(-99, 99, places=3), st.binary(max_size=4),
)  # fmt: skip
at_any = st.integers(0, SIZE)
many = settings(max_examples=60, deadline=None)
some = settings(max_examples=40, deadline=None)


def one_type(column: list[Any]) -> list[Any]:
    """Return values as one type holds them all, as programs that write tables make them."""
    kinds = {type(value) for value in column if value is not None}
    if kinds <= {bool} or kinds <= {str} or kinds <= {dt.date}:
        return column
    if kinds <= {bool, int} and None not in column:
        return [int(value) for value in column]
    if kinds <= {bool, int, float}:
        return [math.nan if value is None else float(value) for value in column]
    if kinds <= {dt.date, dt.datetime}:
        midnight = dt.time()
        return [
            dt.datetime.combine(value, midnight) if type(value) is dt.date else value
            for value in column
        ]
    if kinds <= {str, bytes}:
        return [value.encode() if isinstance(value, str) else value for value in column]
    return [
        None if value is None else value.decode("latin-1") if type(value) is bytes else str(value)
        for value in column
    ]


def written(path: Path, columns: dict[str, list[Any]]) -> None:
    typed = {name: one_type(column) for name, column in columns.items()}
    if path.suffix == ".parquet":
        pq.write_table(pa.table({name: pa.array(column) for name, column in typed.items()}), path)
        return
    texts = [
        ["" if value is None else value.decode("latin-1") if type(value) is bytes else str(value)
         for value in column]
        for column in typed.values()
    ]  # fmt: skip
    path.write_bytes(as_lines([list(typed), *map(list, zip(*texts, strict=True))]))


@many
@given(
    at=at_any,
    cells=st.lists(values, min_size=7, max_size=7),
    suffix=st.sampled_from([".parquet", ".csv"]),
    public=st.sampled_from([NUMBERS, CATEGORIES]),
    classes=st.sampled_from(TRUTHS),
    groups=st.booleans(),
    reading=st.sampled_from([PLAIN, Reading(comma=True), Reading.of("comma", ["1"], "none")]),
)
def test_tables_of_which_one_cell_changes_the_type(
    place: Path, at: int, cells: list[Any], suffix: str, public: Inputs,
    classes: tuple[str, ...], groups: bool, reading: Reading,
) -> None:  # fmt: skip
    columns = COLUMNS | {
        "y": [at % 3 == 0 for at in range(SIZE)],
        "who": [10**12 + at % 9 for at in range(SIZE)],
    }
    files = []
    for name in ("without", "with"):
        path = place / f"{name}{suffix}"
        written(path, columns)
        files.append(
            OwnFile(
                data=path, label="y", group="who" if groups else None,
                drop=() if groups else ("who",), reading=reading,
            )
        )  # fmt: skip
        columns = {
            name: [*column[:at], cell, *column[at:]]
            for (name, column), cell in zip(columns.items(), cells, strict=True)
        }
    check(files[0], files[1], public, classes)


pictures = st.one_of(
    st.integers(0, 65_535).map(lambda seed: _drawn(seed).integers(0, 4096, (6, 6)).astype(np.uint16)),
    st.integers(0, 65_535).map(lambda seed: _drawn(seed).integers(-900, 900, (6, 6))),
    st.integers(0, 65_535).map(lambda seed: _drawn(seed).random((6, 6))),
    st.floats().map(lambda pixel: np.where(np.eye(6) > 0, pixel, 7.0)),
)  # fmt: skip
names = st.one_of(
    st.booleans(), st.integers(-2, 3), st.floats(), st.sampled_from(["", "?", "a", "b", "1", "x", "True"])
)  # fmt: skip


def _drawn(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


@some
@given(
    at=at_any,
    picture=pictures,
    label=names,
    group=names,
    window=st.sampled_from([None, (0, 4095), (-100, 300)]),
    base=st.sampled_from([np.uint8, np.int16, np.float32]),
    kind=st.sampled_from([bool, int, float]),
    named=st.booleans(),
)
def test_npz_of_which_one_record_changes_the_types(
    place: Path, at: int, picture: Any, label: Any, group: Any, window: tuple[int, int] | None,
    base: type, kind: type, named: bool,
) -> None:  # fmt: skip
    images: Any = PIXELS[:SIZE, :, :, 0].astype(base)
    if base is np.float32:
        images = images / np.float32(255)
    labels = [kind(at % 2) for at in range(SIZE)]
    groups = [at % 9 for at in range(SIZE)]
    classes = ("a", "b") if named else ("0", "1")
    listed: Any = {"classes": np.array(classes)} if named else {}
    np.savez(place / "without.npz", images=images, labels=labels, groups=groups, **listed)
    more = np.stack([*images[:at], picture, *images[at:]])
    labels.insert(at, label)
    groups.insert(at, group)
    np.savez(
        place / "with.npz", images=more, labels=np.array(labels), groups=np.array(groups), **listed
    )
    files = [OwnFile(data=place / f"{name}.npz") for name in ("without", "with")]
    check(files[0], files[1], Images(PIXELS[SIZE:], window), classes)


@pytest.mark.parametrize("cell", ["?", None, 2, 0.5, True])
def test_a_release_of_truth_values_is_the_same_whatever_one_cell_is(
    cell: object, tmp_path: Path
) -> None:
    """Neither their codes nor whether there is a release hangs on the type of their column."""
    for codes in (("0", "1"), ("False", "True")):
        domain = Domain((Attribute("smokes", codes, (0, 1)),), SIZE - 1, None)
        told = []
        for name, value in (("plain", True), ("odd", cell)):
            path = tmp_path / f"{name}.parquet"
            written(path, {"smokes": [value, *COLUMNS["smokes"][1:]]})
            told.append(read_rows(path, domain).codes.tolist())
        assert told[1][-(SIZE - 1) :] == told[0][1:]


def test_classes_that_are_numbers_are_places_or_refused(tmp_path: Path) -> None:
    """The label 1 would be the class 1 in an array of texts, and the class at place 1 in one of numbers."""
    path, pixels = tmp_path / "d.npz", PIXELS[:2]
    public = Images(PIXELS[SIZE:])
    for labels in ([1, 0], [1.0, 0.0], ["1", "0"], [True, False]):
        for listed in (["0", "1"], ["False", "True"]):
            np.savez(path, images=pixels, labels=labels, classes=listed)
            found = held(OwnFile(data=path), public, tuple(listed))
            assert [found.classes[at] for at in found.labels.tolist()] == [listed[1], listed[0]]
        for listed in (["1", "0"], ["1", "2"], ["no", "7"], ["True", "False"]):
            np.savez(path, images=pixels, labels=labels, classes=listed)
            with pytest.raises(DataError, match="at place"):
                held(OwnFile(data=path), public, tuple(listed))


def test_a_patient_whose_number_has_lost_digits_is_left_out_alone(tmp_path: Path) -> None:
    """And is no other patient, however many of them a float stands for."""
    told = {}
    for name, first in (("with.parquet", 1e17), ("without.parquet", math.nan)):
        numbers = [first, *(float(at) for at in range(1, SIZE))]
        columns = {"lab": COLUMNS["lab"], "y": COLUMNS["smokes"], "who": numbers}
        written(tmp_path / name, columns)
        file = OwnFile(data=tmp_path / name, label="y", group="who")
        found, odd = file.read(None, ("0", "1"))
        told[name] = (
            found.row_hashes(),
            (found.groups if found.groups is None else found.groups.tolist()),
        )
        assert len(found) == SIZE - 1
        assert ("digits may be lost" in "".join(odd.lines())) == (first == 1e17)
    assert told["with.parquet"] == told["without.parquet"]
    # Digits and letters, of which none is a float that a program wrote.
    hexed = ["12e45", *map(str, range(1, SIZE))]
    written(tmp_path / "d.parquet", columns | {"who": hexed})
    found, _ = OwnFile(data=tmp_path / "d.parquet", label="y", group="who").read(None, ("0", "1"))
    assert found.groups is not None
    assert found.groups.tolist() == hexed
    exact = [10**17 + at for at in range(SIZE)]
    written(tmp_path / "d.parquet", {"lab": COLUMNS["lab"], "y": COLUMNS["smokes"], "who": exact})
    found, _ = OwnFile(data=tmp_path / "d.parquet", label="y", group="who").read(None, ("0", "1"))
    assert found.groups is not None
    assert found.groups.tolist() == [str(number) for number in exact]
