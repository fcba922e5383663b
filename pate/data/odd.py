"""Collector of excluded cells and records of a party's own file, and what makes a record one of them.

Whether a record is excluded depends only on that record; the others are used without it. The lines made
here are for the party's own screen; nothing of them leaves the machine.

Files are foreign, and so are the decoders that take them apart: what one raises for one record is not known
beforehand. So :func:`judged` decides for pictures, DICOM, arrays of images, texts and encoders, and no error
passes it. A cell of a table is decided where its column is read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from pate.errors import DataError

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable

Made = TypeVar("Made")

#: Most places named per kind.
_NAMED: Final = 3
#: Most columns, or reasons, with their own line.
_LINES: Final = 12


class UnusableRecordError(DataError):
    """A record of which nothing can be made.

    Attributes:
        why: without the record's content and its place, so that equal reasons can be counted.
    """

    def __init__(self, text: str, why: str = "") -> None:
        super().__init__(text)
        self.why = why or text


class Unusable(NamedTuple):
    """A record of which nothing can be made.

    Attributes:
        why: as of :class:`UnusableRecordError`.
        error: that said so.
    """

    why: str
    error: DataError


def judged(
    read: Callable[[], Made], reason: Callable[[DataError], str] | None = None
) -> Made | Unusable:
    """Return what a reader makes of one record, or that it makes nothing of it.

    Whatever ends it, an error of a decoder, of ours or too little memory, is of this record only.

    Args:
        read: makes it.
        reason: of an error of ours; None: as it says, if it is an :class:`UnusableRecordError`.
    """
    try:
        return read()
    except DataError as error:
        if reason is not None:
            return Unusable(reason(error), error)
        return Unusable(
            error.why if isinstance(error, UnusableRecordError) else _cannot(error), error
        )
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    # A decoder written in Rust panics with an error that is no Exception.
    except BaseException as error:  # noqa: BLE001
        made = UnusableRecordError(_cannot(error))
        made.__cause__ = error
        return Unusable(made.why, made)


def _cannot(error: BaseException) -> str:
    return f"it cannot be read ({type(error).__name__})"


def usable(found: Made | Unusable, odd: Odd | None, place: str) -> Made | None:
    """Return what was made of a record; None for an unusable one, which is noted.

    Args:
        found: by :func:`judged`.
        odd: collects unusable records; None: the first of them is an error.
        place: of the record.

    Raises:
        DataError: for an unusable record, if problems are not collected.
    """
    if not isinstance(found, Unusable):
        return found
    if odd is None:
        raise found.error
    odd.record(found.why, place)
    return None


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
