"""Cells and records of a party's own file that do not take part: counted and named, one by one.

What is odd about a record is decided by that record alone, and the others go on without it. The
lines made here are for the party's own screen; nothing of them leaves the machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections import Counter

#: Of each kind so many places are named.
_NAMED: Final = 3
#: So many columns, or reasons, have a line of their own.
_LINES: Final = 12


@dataclass
class _Tally:
    count: int = 0
    places: list[str] = field(default_factory=list)

    def add(self, place: str) -> None:
        self.count += 1
        if len(self.places) < _NAMED:
            self.places.append(place)

    def where(self) -> str:
        return ", ".join(self.places) + (", …" if self.count > len(self.places) else "")


class Odd:
    """Collects what was left out while a file was read."""

    def __init__(self) -> None:
        self._cells: dict[tuple[str, str], _Tally] = {}
        self._records: dict[str, _Tally] = {}
        self._notes: dict[str, _Tally] = {}
        #: Columns of the file that the campaign's schema has not.
        self.left_out: list[str] = []
        #: By column: how many cells say that they have no value, by what they say; "" for nothing.
        self.missing: dict[str, Counter[str]] = {}

    def no_value(self, column: str, words: Counter[str]) -> None:
        """Take note of the cells of a column that say that they have no value."""
        self.missing[column] = words

    def cell(self, column: str, why: str, place: str) -> None:
        """Take note of a cell that counts as missing.

        Args:
            column: its name.
            why: what is wrong with it, such as ``is no number``; not what it holds.
            place: where in the file, such as ``line 3``.
        """
        self._cells.setdefault((column, why), _Tally()).add(place)

    def record(self, why: str, place: str) -> None:
        """Take note of a record that does not take part; arguments as above."""
        self._records.setdefault(why, _Tally()).add(place)

    def note(self, why: str, place: str) -> None:
        """Take note of a record that takes part, and is read otherwise than may be meant."""
        self._notes.setdefault(why, _Tally()).add(place)

    def take(self, other: Odd) -> None:
        """Take over what another reading of the file found."""
        self._cells, self._records, self.left_out = other._cells, other._records, other.left_out
        self.missing, self._notes = other.missing, other._notes

    def __bool__(self) -> bool:
        return bool(self._cells or self._records)

    @property
    def notes(self) -> list[str]:
        """What is read otherwise than may be meant."""
        return sorted(self._notes)

    @property
    def reasons(self) -> list[str]:
        """Why records were left out."""
        return sorted(self._records)

    @property
    def names(self) -> frozenset[str]:
        """Columns of which some cells can't be read."""
        return frozenset(name for name, _ in self._cells)

    def columns(self) -> list[str]:
        """Return what is odd about which columns: no number and no place, so fit to be passed on."""
        reasons: dict[str, list[str]] = {}
        for name, why in self._cells:
            reasons.setdefault(why, []).append(repr(name))
        return [
            f"{'column' if len(names) == 1 else 'columns'} {', '.join(names[:_LINES])}"
            f"{', …' if len(names) > _LINES else ''} {'has' if len(names) == 1 else 'have'} cells that "
            f"count as missing: each {why}"
            for why, names in reasons.items()
        ]

    def lines(self) -> list[str]:
        """Return a line for each column and reason: how many, and the first few places. Private."""
        found = [
            f"column {name!r}: {_many(tally.count, 'cell')} ({tally.where()}) count as missing: "
            f"each {why}"
            for (name, why), tally in self._cells.items()
        ]
        found += [
            f"{_many(tally.count, 'record')} ({tally.where()}) take no part: {why}"
            for why, tally in self._records.items()
        ]
        found += [
            f"{_many(tally.count, 'record')} ({tally.where()}): {why}"
            for why, tally in self._notes.items()
        ]
        more = len(found) - _LINES
        return found if more <= 0 else [*found[:_LINES], f"and {more} more columns and reasons"]


def _many(count: int, what: str) -> str:
    return f"{count} {what}" + ("" if count == 1 else "s")
