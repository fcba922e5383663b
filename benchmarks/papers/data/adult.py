"""Adult (UCI Census Income, Becker and Kohavi 1996): whether a person earns more than 50,000 a year.

The parties' records are the file ``adult.data``; the public set is the beginning of ``adult.test``, the rest
of which is the test set. Two columns are left out: ``fnlwgt`` is a sampling weight, unrelated to the person,
and ``education`` repeats ``education-num`` in words.
"""

from __future__ import annotations

import csv
import gzip
from typing import TYPE_CHECKING, Final

import numpy as np

from benchmarks.papers.data import data_folder
from benchmarks.papers.split import Split
from pate.data.values import Dataset, Table

if TYPE_CHECKING:
    from pathlib import Path

    from pate.data.values import Column

COLUMNS: Final = (
    "age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation",
    "relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week",
    "native-country",
)  # fmt: skip
NUMBERS: Final = ("age", "education-num", "capital-gain", "capital-loss", "hours-per-week")
LEFT_OUT: Final = ("fnlwgt", "education")
CLASSES: Final = ("<=50K", ">50K")
#: Rows of adult.test that are the public set; the others are the test set.
PUBLIC: Final = 12_000


def load() -> Split:
    """Return 32,561 private, 12,000 public and 4,281 test rows. Needs PATE_TEST_DATA.

    Raises:
        SystemExit: if the data are not there.
    """
    folder = data_folder() / "adult"
    rest = read(folder / "adult.test.gz")
    return Split(
        private=read(folder / "adult.data.gz"),
        public=rest.take(np.arange(PUBLIC)),
        test=rest.take(np.arange(PUBLIC, len(rest))),
        note=(
            "label: income above 50,000; unit: record; private: adult.data; public: the first "
            f"{PUBLIC:,} rows of adult.test; test: its other rows"
        ),
    )


def read(path: Path) -> Dataset:
    """Return the rows of one of the two files."""
    with gzip.open(path, "rt", encoding="ascii", newline="") as file:
        lines = csv.reader(file, skipinitialspace=True)
        # The first line of adult.test is a remark, and both files end with an empty line.
        rows = [row for row in lines if len(row) == len(COLUMNS) + 1]
    cells = dict(zip((*COLUMNS, "income"), zip(*rows, strict=True), strict=True))
    names = tuple(name for name in COLUMNS if name not in LEFT_OUT)
    labels = np.array([CLASSES.index(text.rstrip(".")) for text in cells["income"]], dtype=np.int64)
    return Dataset(
        Table(names, tuple(_column(name, cells[name]) for name in names)), labels, CLASSES
    )


def _column(name: str, cells: tuple[str, ...]) -> Column:
    if name in NUMBERS:
        return np.array([float(cell) for cell in cells])
    return np.array(["" if cell == "?" else cell for cell in cells], dtype=np.str_)
