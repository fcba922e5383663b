"""Compact tables of a campaign's answers: a hundred thousand labels in a few megabytes.

A state of the ledger is a value, and the state after a release has all labels of the one before and
some more. So both share one growing table, of which each uses a prefix. Only the newest can append
in place; appending to an older one copies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, Literal, Self, TypeVar

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Source = Literal["teachers", "records", "reinforced"]
_SOURCES: Final[tuple[Source, ...]] = ("teachers", "records", "reinforced")
_LEAST_ROOM: Final = 64
_Any = TypeVar("_Any")


@dataclass(frozen=True)
class ReleasedLabel:
    """The single, permanent label of a query; ``entry`` is its number in the ledger, ``round`` from 1.

    ``source``: the teachers' noisy vote, that of the records, or the student's uncontradicted
    prediction.
    """

    label: int
    round: int
    source: Source
    entry: int


class _Rows:
    """Rows of int32, indexed by their first number, a query, each unique."""

    def __init__(self, columns: int) -> None:
        self.used = 0
        self.table: NDArray[np.int32] = np.empty((0, columns), dtype=np.int32)
        #: By query: its row, from 1; 0 for none.
        self._places: NDArray[np.int32] = np.zeros(0, dtype=np.int32)

    def copy(self, length: int) -> _Rows:
        """Return a copy of the first ``length`` rows."""
        made = _Rows(self.table.shape[1])
        made.append(self.table[:length])
        return made

    def append(self, rows: NDArray[np.int32]) -> None:
        """Add rows with new queries."""
        end = self.used + len(rows)
        if end > len(self.table):
            grown = np.empty((max(end, self.used * 5 // 4, _LEAST_ROOM), rows.shape[1]), np.int32)
            grown[: self.used] = self.table[: self.used]
            self.table = grown
        self.table[self.used : end] = rows
        highest = int(rows[:, 0].max(initial=-1))
        if highest >= len(self._places):
            places = np.zeros(max(highest + 1, len(self._places) * 5 // 4, _LEAST_ROOM), np.int32)
            places[: len(self._places)] = self._places
            self._places = places
        self._places[rows[:, 0]] = np.arange(self.used + 1, end + 1)
        self.used = end

    def find(self, query: object, length: int) -> int | None:
        """Return the row of a query among the first ``length``, or None."""
        if not isinstance(query, int | np.integer) or not 0 <= query < len(self._places):
            return None
        place = int(self._places[query])
        return place - 1 if 0 < place <= length else None


class _Prefix:
    """A prefix of a growing table: the rows as of one state."""

    columns: ClassVar[int]

    def __init__(self, rows: _Rows | None = None) -> None:
        self._rows = _Rows(self.columns) if rows is None else rows
        self._length = self._rows.used

    def _extended(self, more: NDArray[np.int32]) -> Self:
        """Return these rows and more; in place if this is the newest prefix."""
        rows = self._rows if self._rows.used == self._length else self._rows.copy(self._length)
        rows.append(more)
        return type(self)(rows)

    def __contains__(self, query: object) -> bool:
        return self._rows.find(query, self._length) is not None

    def __iter__(self) -> Iterator[int]:
        for row in range(self._length):
            yield int(self._rows.table[row, 0])

    def __len__(self) -> int:
        return self._length


class Labels(_Prefix, Mapping[int, ReleasedLabel]):
    """Released labels by query, in the order of release.

    >>> labels = Labels().grown([(7, ReleasedLabel(2, 1, "teachers", 5))])
    >>> len(labels), labels[7].label, 8 in labels
    (1, 2, False)
    """

    columns = 5

    def grown(self, more: Iterable[tuple[int, ReleasedLabel]]) -> Labels:
        """Return these labels and more, of distinct queries without a label."""
        rows = np.array(
            [(q, x.label, x.round, _SOURCES.index(x.source), x.entry) for q, x in more],
            dtype=np.int32,
        ).reshape(-1, self.columns)
        return self._extended(rows)

    def by_class(self, classes: int) -> list[int]:
        """Return the number of labels of each class."""
        found: list[int] = np.bincount(
            self._rows.table[: self._length, 1], minlength=classes
        ).tolist()
        return found

    def __getitem__(self, query: int) -> ReleasedLabel:
        row = self._rows.find(query, self._length)
        if row is None:
            raise KeyError(query)
        _, label, round_, source, entry = self._rows.table[row].tolist()
        return ReleasedLabel(label, round_, _SOURCES[source], entry)

    def __repr__(self) -> str:
        return f"Labels({dict(self)!r})"


class Answered(_Prefix, AbstractSet[int]):
    """The queries that were answered in one round, by a label or by no answer.

    >>> answered = Answered().grown([3, 1])
    >>> answered == {1, 3}, 2 in answered, len(answered)
    (True, False, 2)
    """

    columns = 1

    @classmethod
    def _from_iterable(cls, it: Iterable[_Any]) -> AbstractSet[_Any]:
        # Results of set operations are independent copies.
        return frozenset(it)

    def grown(self, more: Iterable[int]) -> Answered:
        """Return these queries and more, which are new and distinct."""
        return self._extended(np.array(list(more), dtype=np.int32).reshape(-1, self.columns))

    def __hash__(self) -> int:
        return self._hash()

    def __repr__(self) -> str:
        return f"Answered({sorted(self)!r})"
