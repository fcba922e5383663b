"""Records with several labels, or a number, in place of one class; and what teachers need of records."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pate.data.cells import PLAIN, Reading
from pate.data.labels import plain_truth, yes_or_no
from pate.data.values import Dataset, Inputs
from pate.errors import DataError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pate.data.odd import Odd


@dataclass(frozen=True)
class Several:
    """The columns of several labels, or the column of a number; false for one class."""

    labels: tuple[str, ...]  # columns of yes or no
    number: str | None  # a column of numbers

    def __bool__(self) -> bool:
        return bool(self.columns)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that have the answers."""
        return self.labels if self.number is None else (self.number,)


def several_dataset(
    inputs: Inputs,  # n images or rows
    several: Several,  # what ``cells`` are
    cells: Sequence[Sequence[str]],  # n texts of each of its columns
    # (n,) the group of each record, or None
    groups: np.ndarray[tuple[int], np.dtype[np.str_]] | None,
    path: Path,
    *,
    # (n,) which inputs are usable; None: all
    good: np.ndarray[tuple[int], np.dtype[np.bool_]] | None = None,
    odd: Odd | None,  # collects the records that are left out; None: the first of them is an error
    # returns a record's place in the file, by its row
    place: Callable[[int], str] = lambda row: f"record {row + 1}",
    reading: Reading = PLAIN,  # format of a number
    none_fits: bool = False,  # whether no record may be left
) -> Dataset:
    """Join inputs, answers and groups, and exclude the records that lack one, each by its own cells."""
    if any(len(each) != len(inputs) for each in cells):
        raise DataError(f"{path} has {len(inputs)} inputs and {len(cells[0])} labels")
    made: list[list[float]] = []
    for column in cells:
        found = {cell: _said(cell, several, reading) for cell in set(column)}
        made.append([found[cell] for cell in column])
    answers = np.array(made, dtype=np.float64)
    whole = ~np.isnan(answers).any(axis=0)
    for row in np.flatnonzero(~whole).tolist():
        at = int(np.isnan(answers[:, row]).argmax())
        name, cell = several.columns[at], cells[at][row]
        why = "is neither yes nor no"
        if several.number is not None:
            why = "has no number" if reading.is_nothing(cell) else reading.why_not(cell)
        if odd is None:
            raise DataError(f"{path}: the cell of {place(row)} in the column {name!r} {why}")
        odd.record(f"its cell in the column {name!r} {why}", place(row))
    if good is not None:
        whole &= good
    if groups is not None and odd is not None:
        for row in np.flatnonzero(whole & (groups == "")).tolist():
            odd.record("it has no group", place(row))
        whole &= groups != ""
    if not whole.any() and not none_fits:
        reasons = "" if odd is None else odd.none_left()
        raise DataError(f"{path} has no record that can take part: {reasons}")
    kept = np.flatnonzero(whole)
    said = answers[0, kept] if several.number is not None else answers[:, kept].T.astype(np.bool_)
    return Dataset(
        inputs if whole.all() else inputs.take(kept),
        np.zeros(len(kept), dtype=np.int64),
        several.labels,
        None if groups is None else groups[kept],
        np.ascontiguousarray(said),
    )


def _said(cell: str, several: Several, reading: Reading) -> float:
    """Return what a cell says: 1 or 0 of a label, or a number; NaN if neither."""
    if several.number is None:
        said = None if reading.is_missing(cell) else yes_or_no(cell)
        return math.nan if said is None else float(said)
    number = reading.number(plain_truth(cell))
    return math.nan if number is None or not math.isfinite(number) else number


# What teachers need


def require_records(dataset: Dataset) -> None:
    """Check that there are records."""
    if not len(dataset):
        raise DataError("the data has no records, so nothing of it can vote")


def require_teachable(dataset: Dataset, teachers: int) -> None:
    """Check that teachers can learn what the records of a data set say, however few they are."""
    if dataset.kind == "number":
        raise DataError(
            "teachers learn a class or several labels a record, and the data has a number each: such "
            "records vote themselves, --votes neighbour"
        )
    if teachers < 1:
        raise UsageError(f"the number of teachers is {teachers}; it must be 1 or more")


def require_trainable(dataset: Dataset, teachers: int) -> None:
    """Check that a data set has enough records and classes for its teachers."""
    require_teachable(dataset, teachers)
    present = np.unique(dataset.labels)
    if dataset.kind == "labels":
        require_records(dataset)
    elif len(present) < 2:
        only = (
            "no records" if not len(present) else f"one class only, {dataset.classes[present[0]]!r}"
        )
        raise DataError(f"the data has {only}; teachers need records of two classes or more")
    units = len(dataset) if dataset.groups is None else len(np.unique(dataset.groups))
    if units < teachers:
        what = "records" if dataset.groups is None else "groups"
        raise DataError(
            f"the data has {units} {what} for {teachers} teachers; ask for at most {units} teachers"
        )
