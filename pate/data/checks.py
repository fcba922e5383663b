"""Validation of a labelled data set before teachers are trained on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pate.errors import DataError, UsageError

if TYPE_CHECKING:
    from pate.data.values import Dataset


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
