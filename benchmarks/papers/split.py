"""The data of a row of the reproduction: the parties' parts, and the held-out part."""

from __future__ import annotations

from dataclasses import dataclass
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
        private: the records of all parties together, divided by :func:`deal`.
        public: the public set; its labels choose settings and the model without privacy, and are in
            reports. No student learns from them.
        test: only for measuring the finished student.
        note: one line on the label, the unit and the split, for the results.
        validation: labelled records of the public part that may choose settings; None without.
    """

    private: Dataset
    public: Dataset
    test: Dataset
    note: str
    validation: Dataset | None = None

    def __post_init__(self) -> None:
        for name in ("public", "test", "validation"):
            part = getattr(self, name)
            if part is None:
                continue
            if part.classes != self.private.classes:
                raise UsageError(f"the {name} part has other classes than the private one")
            if part.inputs.schema() != self.private.inputs.schema():
                raise UsageError(f"the {name} part has other inputs than the private one")

    @property
    def queries(self) -> Inputs:
        """Return the public inputs without their labels."""
        return self.public.inputs


def deal(private: Dataset, parties: int, seed: int) -> tuple[Dataset, ...]:
    """Return random disjoint parts of nearly equal size, one per party.

    Records of one group go to one party together, so that a patient has one data holder.

    Args:
        private: the records to divide.
        parties: number of parts.
        seed: of the split.

    Raises:
        UsageError: if there are fewer records, or groups, than parties.

    >>> from pate.data.values import Dataset, Table
    >>> table = Table(("age",), (np.arange(7.0),))
    >>> whole = Dataset(table, np.zeros(7, dtype=np.int64), ("no", "yes"))
    >>> [len(part) for part in deal(whole, 3, seed=0)]
    [3, 2, 2]
    """
    units = _units(private)
    count = int(units.max(initial=-1)) + 1
    if not 0 < parties <= count:
        raise UsageError(f"cannot deal {count} records or groups out to {parties} parties")
    place = np.random.default_rng(seed).permutation(count)
    party = (place % parties)[units]
    return tuple(private.take(np.flatnonzero(party == number)) for number in range(parties))


def units_in(data: Dataset) -> int:
    """Return the number of units, records or patients, of some records."""
    return len(data) if data.groups is None else len(np.unique(data.groups))


def _units(data: Dataset) -> NDArray[np.int64]:
    """Return the number of each record's unit: its own, or its group's."""
    if data.groups is None:
        return np.arange(len(data))
    return np.unique(data.groups, return_inverse=True)[1].astype(np.int64)
