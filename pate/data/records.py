"""Records with several labels, or a number, in place of one class; and what teachers need of records."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pate.data.cells import PLAIN, Reading, plain_truth
from pate.data.labels import encode_labels, yes_or_no
from pate.data.values import Dataset, Inputs
from pate.errors import DataError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pate.data.encoded import Raw
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


def joined(
    raw: Raw,  # what a file says of n records; it has names, or cells of the columns of ``several``
    inputs: Inputs,  # n images or rows
    several: Several,  # the columns of several labels, or of a number; false for one class
    *,
    classes: Sequence[str] | None = None,  # the class list; None: the classes that occur
    # (n,) which inputs are usable; None: all
    good: NDArray[np.bool_] | None = None,
    odd: Odd | None,  # collects the records that are left out; None: the first of them is an error
    reading: Reading = PLAIN,  # format of a number
    none_fits: bool = False,  # whether no record may be left
) -> Dataset:
    """Join inputs, classes or answers, and groups; each record that lacks one is excluded by itself."""
    names, groups, known = raw.names or (), raw.groups, several.labels
    said = [raw.cells[name] for name in several.columns] if several else [names]
    counts = [*map(len, said), *([] if groups is None else [len(groups)])]
    if any(count != len(inputs) for count in counts):
        raise DataError(f"{raw.path}: {len(inputs)} inputs and {len(said[0])} labels")
    if several:
        answers = _answers(raw, several, odd, reading)
        whole = ~np.isnan(answers).any(axis=0)
    elif not names and none_fits and classes is not None:
        labels, known, whole = np.zeros(0, np.int64), tuple(classes), np.zeros(0, np.bool_)
    else:
        labels, known = encode_labels(names, classes, path=raw.path, odd=odd, place=raw.place)
        whole = labels >= 0
    if good is not None:
        whole &= good
    if groups is not None and odd is not None:
        for row in np.flatnonzero(whole & (groups == "")).tolist():
            odd.record("its patient (--group) is missing", raw.place(row))
        whole &= groups != ""
    if not whole.any() and not (none_fits and (several or classes is not None)):
        if not several:
            encode_labels(names, classes, path=raw.path)  # says so, if it is for the labels
        reasons = "" if odd is None else odd.none_left()
        raise DataError(f"{raw.path} has no record that can take part: {reasons}")
    kept = np.flatnonzero(whole)
    inputs = inputs if whole.all() else inputs.take(kept)
    groups = None if groups is None else groups[kept]
    if several:
        made = answers[0, kept] if several.number is not None else answers[:, kept].T.astype(bool)
        no_class = np.zeros(len(kept), dtype=np.int64)
        return Dataset(inputs, no_class, known, groups, np.ascontiguousarray(made))
    spoken = [names[at] for at in kept.tolist()]
    if classes is None:  # without classes that only excluded records have
        labels, known = encode_labels(spoken, None, path=raw.path)
    else:
        labels = labels[kept]
    return Dataset(inputs, labels, known, groups, said=np.array(spoken, dtype=np.str_))


def _answers(raw: Raw, several: Several, odd: Odd | None, reading: Reading) -> NDArray[np.float64]:
    """Return (columns, n) what the cells say, NaN for those that say nothing, which are noted."""
    made: list[list[float]] = []
    for name in several.columns:
        found = {cell: _said(cell, several, reading) for cell in set(raw.cells[name])}
        made.append([found[cell] for cell in raw.cells[name]])
    answers = np.array(made, dtype=np.float64)
    for row in np.flatnonzero(np.isnan(answers).any(axis=0)).tolist():
        name = several.columns[int(np.isnan(answers[:, row]).argmax())]
        cell, why = raw.cells[name][row], "is neither yes nor no"
        if several.number is not None:
            why = "has no number" if reading.is_nothing(cell) else reading.why_not(cell)
        if odd is None:
            place = raw.place(row)
            raise DataError(f"{raw.path}: the cell of {place} in the column {name!r} {why}")
        odd.record(f"its cell in the column {name!r} {why}", raw.place(row))
    return answers


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
