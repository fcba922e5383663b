"""Heart disease (Janosi et al. 1988): four hospitals, one party each.

The data has no public set: a fifth of every site's patients, without diagnosis, replaces it, and a fifth is
the test set. With about 550 private patients the figures are only indicative.

Investigators: A. Janosi (Hungarian Institute of Cardiology, Budapest), W. Steinbrunn (University
Hospital, Zurich), M. Pfisterer (University Hospital, Basel), R. Detrano (V.A. Medical Center, Long
Beach, and Cleveland Clinic Foundation).
"""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Final

import numpy as np

from benchmarks.papers.data import data_folder
from benchmarks.papers.split import Split
from pate.data.values import Dataset, Table

if TYPE_CHECKING:
    from pate.data.values import Column

SITES: Final = ("cleveland", "hungarian", "switzerland", "va")
COLUMNS: Final = (
    "age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak",
    "slope", "ca", "thal",
)  # fmt: skip
#: Categorical columns with numeric codes.
KINDS: Final = ("cp", "restecg", "slope", "thal")
CLASSES: Final = ("healthy", "disease")
PUBLIC, TEST = 0.2, 0.2


def load() -> Split:
    """Return the patients of all sites: 60 % private, 20 % public, 20 % test, of every site.

    Needs PATE_TEST_DATA.

    Raises:
        SystemExit: if the data are not there.
    """
    parts = [_parts(site) for site in SITES]
    private, public, test = (together([part[at] for part in parts]) for at in range(3))
    return Split(
        private,
        public,
        test,
        note=(
            "label: any disease (num > 0); unit: record, one per patient; four sites are the "
            "parties; of every site 60 % private, 20 % public, 20 % test"
        ),
    )


def sites() -> dict[str, Dataset]:
    """Return each site's private records as the parties, instead of a random split."""
    return {site: _parts(site)[0] for site in SITES}


def _parts(site: str) -> tuple[Dataset, Dataset, Dataset]:
    """Return a site's private, public and test records."""
    whole = read(site)
    order = np.random.default_rng(SITES.index(site)).permutation(len(whole))
    public, test = round(len(whole) * PUBLIC), round(len(whole) * (PUBLIC + TEST))
    split = (order[test:], order[:public], order[public:test])
    private, shared, held = (whole.take(np.sort(rows)) for rows in split)
    return private, shared, held


def read(site: str) -> Dataset:
    """Return the patients of a site."""
    text = (data_folder() / "heart_disease" / f"processed.{site}.data").read_text()
    rows = [row for row in csv.reader(text.splitlines()) if row]
    cells = dict(zip((*COLUMNS, "num"), zip(*rows, strict=True), strict=True))
    labels = np.array([int(float(cell) > 0) for cell in cells["num"]], dtype=np.int64)
    columns = tuple(_column(name, cells[name]) for name in COLUMNS)
    return Dataset(Table(COLUMNS, columns), labels, CLASSES)


def _column(name: str, cells: tuple[str, ...]) -> Column:
    # A cholesterol of 0 means that it was not measured.
    numbers = np.array(
        [
            np.nan if cell == "?" or (name == "chol" and float(cell) == 0) else float(cell)
            for cell in cells
        ]
    )
    if name not in KINDS:
        return numbers
    # Sites write the same code as 3, 3.0 or 3.00.
    return np.array(["" if np.isnan(v) else f"{v:.0f}" for v in numbers.tolist()], dtype=np.str_)


def together(parts: list[Dataset]) -> Dataset:
    """Return the concatenated records of all parts."""
    tables = [part.inputs for part in parts]
    columns = zip(*(table.columns for table in tables if isinstance(table, Table)), strict=True)
    table = Table(COLUMNS, tuple(np.concatenate(pieces) for pieces in columns))
    return Dataset(table, np.concatenate([part.labels for part in parts]), CLASSES)
