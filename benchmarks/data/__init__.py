"""The data sets of the rows: three parts with disjoint records, and the dealing of the private one."""

from __future__ import annotations

import csv
import gzip
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from pate.data.values import Column, Dataset, Images, Inputs, Table
from pate.errors import UsageError


@dataclass(frozen=True)
class Split:
    """One data set in three parts with disjoint records, and disjoint persons where known.

    Attributes:
        private: the records of all parties together.
        public: the public set; its labels choose settings and the model without privacy, and are in
            reports. No student learns from them.
        test: only for measuring what was trained.
        note: one line on the label, the unit and the split, for the results.
        validation: labelled records, neither private nor test, that may choose settings; None without.
        sizes: of the sites' parts of ``private``, in its order; none: the parties are dealt.
        whole: the same private, validation and test records with more columns, for models without
            privacy; None if there are no more.
    """

    private: Dataset
    public: Dataset
    test: Dataset
    note: str
    validation: Dataset | None = None
    sizes: tuple[int, ...] = ()
    whole: Split | None = None

    def __post_init__(self) -> None:
        for name in ("public", "test", "validation"):
            part = getattr(self, name)
            if part is None:
                continue
            if part.classes != self.private.classes:
                raise UsageError(f"the {name} part has other classes than the private one")
            if part.inputs.schema() != self.private.inputs.schema():
                raise UsageError(f"the {name} part has other inputs than the private one")
        if self.sizes and sum(self.sizes) != len(self.private):
            raise UsageError("the sites are not the private part")

    @property
    def queries(self) -> Inputs:
        """Return the public inputs without their labels."""
        return self.public.inputs


def data_folder() -> Path:
    """Return the folder of the real data sets, PATE_TEST_DATA."""
    folder = os.environ.get("PATE_TEST_DATA")
    if not folder or not Path(folder).is_dir():
        raise UsageError("set PATE_TEST_DATA to the folder that has the real data sets")
    return Path(folder)


def columns_of(path: Path, names: Sequence[str] = ()) -> dict[str, tuple[str, ...]]:
    """Return the cells of a table below :func:`data_folder` by column; without names its first line has them.

    Lines of another number of cells are left out: remarks, and the empty one at the end.
    """
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8", newline="") as file:
        lines = csv.reader(file, skipinitialspace=True)
        heads = tuple(names) or tuple(next(lines))
        return dict(
            zip(
                heads,
                zip(*(row for row in lines if len(row) == len(heads)), strict=True),
                strict=True,
            )
        )


def joined(*parts: Dataset) -> Dataset:
    """Return the images, or rows of one kind of table, of several parts."""
    first = parts[0]
    some = [part.inputs for part in parts]
    if isinstance(first.inputs, Images):
        inputs: Inputs = Images(
            np.concatenate([one.pixels for one in some if isinstance(one, Images)])
        )
    else:
        tables = [one for one in some if isinstance(one, Table)]
        columns = zip(*(one.columns for one in tables), strict=True)
        inputs = Table(tables[0].names, tuple(cast("Column", np.concatenate(of)) for of in columns))
    groups = [part.groups for part in parts if part.groups is not None]
    return replace(
        first, inputs=inputs, labels=np.concatenate([part.labels for part in parts]),
        groups=np.concatenate(groups) if groups else None,
    )  # fmt: skip


def deal(private: Dataset, parties: int, seed: int) -> tuple[NDArray[np.int64], ...]:
    """Return the rows of random disjoint parts of nearly equal size, one per party.

    Records of one group go to one party together, so that a patient has one data holder.

    >>> from pate.data.values import Dataset, Table
    >>> table = Table(("age",), (np.arange(7.0),))
    >>> whole = Dataset(table, np.zeros(7, dtype=np.int64), ("no", "yes"))
    >>> [len(part) for part in deal(whole, 3, seed=0)]
    [3, 2, 2]
    """
    units = units_of(private)
    count = int(units.max(initial=-1)) + 1
    if not 0 < parties <= count:
        raise UsageError(f"cannot deal {count} records or groups out to {parties} parties")
    place = np.random.default_rng(seed).permutation(count)
    party = (place % parties)[units]
    return tuple(np.flatnonzero(party == number) for number in range(parties))


def units_in(data: Dataset) -> int:
    """Return the number of units, records or patients, of some records."""
    return len(data) if data.groups is None else len(np.unique(data.groups))


def units_of(data: Dataset) -> NDArray[np.int64]:
    """Return (n,) the number of each record's unit: its own, or its group's."""
    if data.groups is None:
        return np.arange(len(data))
    return np.unique(data.groups, return_inverse=True)[1].astype(np.int64)
