"""Collector of excluded cells and records of a party's own file.

Whether a record is excluded depends only on that record; the others are used without it. The lines made
here are for the party's own screen; nothing of them leaves the machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections import Counter

#: Most places named per kind.
_NAMED: Final = 3
#: Most columns, or reasons, with their own line.
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
    """Collects the exclusions while a file is read."""

    def __init__(self) -> None:
        self._cells: dict[tuple[str, str], _Tally] = {}
        self._records: dict[str, _Tally] = {}
        self._notes: dict[str, _Tally] = {}
        #: Columns of the file that are not in the campaign's schema.
        self.left_out: list[str] = []
        #: By column: the number of missing cells by their word; "" for empty ones.
        self.missing: dict[str, Counter[str]] = {}

    def no_value(self, column: str, words: Counter[str]) -> None:
        """Record a column's cells with missing-value words."""
        self.missing[column] = words

    def cell(self, column: str, why: str, place: str) -> None:
        """Record a cell that counts as missing.

        Args:
            column: its name.
            why: the problem, such as ``is no number``, without the cell's content.
            place: where in the file, such as ``line 3``.
        """
        self._cells.setdefault((column, why), _Tally()).add(place)

    def record(self, why: str, place: str) -> None:
        """Record an excluded record; arguments as above."""
        self._records.setdefault(why, _Tally()).add(place)

    def note(self, why: str, place: str) -> None:
        """Record an included record that may be read otherwise than intended."""
        self._notes.setdefault(why, _Tally()).add(place)

    def take(self, other: Odd) -> None:
        """Adopt the findings of another reading of the file."""
        self._cells, self._records, self.left_out = other._cells, other._records, other.left_out
        self.missing, self._notes = other.missing, other._notes

    def __bool__(self) -> bool:
        return bool(self._cells or self._records)

    @property
    def notes(self) -> list[str]:
        """Reasons for which records may be read otherwise than intended."""
        return sorted(self._notes)

    @property
    def reasons(self) -> list[str]:
        """Reasons for excluded records."""
        return sorted(self._records)

    @property
    def names(self) -> frozenset[str]:
        """Columns with unreadable cells."""
        return frozenset(name for name, _ in self._cells)

    def columns(self) -> list[str]:
        """Return the problems by column, without number or place, so that they may be passed on."""
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
