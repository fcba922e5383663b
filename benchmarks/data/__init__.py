"""The data sets of the rows: three parts with disjoint records, and the dealing of the private one."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pate.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pate.data.values import Dataset, Inputs


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
    """Return the folder of the real data sets, PATE_TEST_DATA.

    Raises:
        UsageError: if it is not there.
    """
    folder = os.environ.get("PATE_TEST_DATA")
    if not folder or not Path(folder).is_dir():
        raise UsageError("set PATE_TEST_DATA to the folder that has the real data sets")
    return Path(folder)


def deal(private: Dataset, parties: int, seed: int) -> tuple[NDArray[np.int64], ...]:
    """Return the rows of random disjoint parts of nearly equal size, one per party.

    Records of one group go to one party together, so that a patient has one data holder.

    Raises:
        UsageError: if there are fewer records, or groups, than parties.

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
