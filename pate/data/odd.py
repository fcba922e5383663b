"""Collector of excluded cells and records of a party's own file, and what makes a record one of them.

Whether a record is excluded depends only on that record; the others are used without it. The lines made
here are for the party's own screen; nothing of them leaves the machine.

Files are foreign, and so are the decoders that take them apart: what one raises for one record is not known
beforehand. So :func:`judged` decides for pictures, DICOM, arrays of images, texts and encoders, and no error
passes it. A cell of a table is decided where its column is read.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from pate.errors import DataError
from pate.printable import number_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Made = TypeVar("Made")

#: Most places named per kind.
_NAMED: Final = 3
#: Most lines, and most columns of one reason with a line of their own.
_LINES: Final = 12
_COLUMNS: Final = 3

#: What to do about each kind of problem.
_RECORDS: Final = "correct them, or go on without them; --strict refuses them"
_NOTES: Final = "see whether they are read as you mean them"
_CELLS: Final = "correct them, or go on with them missing; --strict refuses them"


#: The reason for refusing deep images.
DEEP: Final = "has more than 8 bits a pixel"
#: The same of whole numbers in an archive.
OUTSIDE: Final = "pixels lie outside 0 to 255"
#: What to do about them, for messages.
WINDOW: Final = (
    "say which values are black and white (`--window LOW HIGH` of the server, which goes into the "
    "campaign's terms), or save them with 8 bits"
)


class UnusableRecordError(DataError):
    """A record of which nothing can be made.

    ``why`` names neither its content nor its place, so that equal reasons can be counted.
    """

    def __init__(self, text: str, why: str = "") -> None:
        super().__init__(text)
        self.why = why or text


class DeepImagesError(UnusableRecordError):
    """Images of more than 8 bits per pixel, without a window to read them by."""


class Unusable(NamedTuple):
    """A record of which nothing can be made."""

    why: str  # as of :class:`UnusableRecordError`
    error: DataError  # that said so


def judged(
    read: Callable[[], Made], reason: Callable[[DataError], str] | None = None
) -> Made | Unusable:
    """Return what a reader makes of one record, or that it makes nothing of it.

    Whatever ends it, an error of a decoder, of ours or too little memory, is of this record only. Without a
    ``reason`` an error of ours must be an :class:`UnusableRecordError`.
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
    """Return what was made of a record; None for an unusable one, which is noted."""
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


class Problem(NamedTuple):
    """What is left out, or may be read otherwise than intended."""

    what: str  # cells or records, how many if that is said, and up to the reason
    why: str  # the reason; what to do about it may follow a colon
    otherwise: str  # what to do if the reason does not say it

    def __str__(self) -> str:
        return f"{self.what}{self.why}"

    def parted(self) -> tuple[str, str]:
        """Return what is wrong, and what to do."""
        reason, _, to_do = self.why.partition(": ")
        if reason.count("'") % 2:  # the colon is within a name
            return str(self), self.otherwise
        return f"{self.what}{reason}", to_do or self.otherwise


class Odd:
    """Collects the exclusions while a file is read."""

    def __init__(self) -> None:
        self._cells: dict[tuple[str, str], _Tally] = {}
        self._records: dict[str, _Tally] = {}
        self._notes: dict[str, _Tally] = {}
        #: Places of excluded records: one may be excluded for two reasons.
        self._excluded: set[str] = set()
        #: Lines about the file as a whole, without its content.
        self.of_file: list[str] = []
        #: Columns of the file that are not in the campaign's schema.
        self.left_out: list[str] = []
        #: Labels that are not in the class list, nor spelled like one of it, and how many records have each.
        self.not_listed: Counter[str] = Counter()
        #: By column: the number of missing cells by their word; "" for empty ones.
        self.missing: dict[str, Counter[str]] = {}

    def no_value(self, column: str, words: Counter[str]) -> None:
        """Record a column's cells with missing-value words."""
        self.missing[column] = words

    def cell(self, column: str, why: str, place: str) -> None:
        """Record a cell that counts as missing, without its content: ``why`` is such as "is no number"."""
        self._cells.setdefault((column, why), _Tally()).add(place)

    def record(self, why: str, place: str) -> None:
        """Record an excluded record; arguments as above."""
        self._records.setdefault(why, _Tally()).add(place)
        self._excluded.add(place)

    def note(self, why: str, place: str) -> None:
        """Record an included record that may be read otherwise than intended."""
        self._notes.setdefault(why, _Tally()).add(place)

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

    def none_left(self) -> str:
        """Return why no record takes part, without number or place of records."""
        return "; ".join([*self.of_file, *self.reasons])

    @property
    def names(self) -> frozenset[str]:
        """Columns with unreadable cells."""
        return frozenset(name for name, _ in self._cells)

    def problems(self, *, counts: bool) -> list[Problem]:
        """Return what is left out or may be read otherwise: records, then the file, notes and cells.

        The most of each come first. With ``counts`` they say how many, and the first few places, which
        is private; without, the problems may be passed on.
        """

        def of(tally: _Tally, otherwise: str) -> str:
            return f"{number_of(tally.count, 'record')} ({tally.where()})" if counts else otherwise

        def verb(tally: _Tally) -> str:
            return "takes" if counts and tally.count == 1 else "take"

        found = [
            *(
                Problem(f"{of(tally, 'records')} {verb(tally)} no part: ", why, _RECORDS)
                for why, tally in _most_first(self._records)
            ),
            *(Problem("", why, _NOTES) for why in self.of_file),
            *(
                Problem(f"{of(tally, 'some records')}: ", why, _NOTES)
                for why, tally in _most_first(self._notes)
            ),
            *(self._counted_cells() if counts else self._cells_by_reason()),
        ]
        if (more := len(found) - _LINES) > 0:
            found[_LINES:] = [Problem(f"and {number_of(more, 'more reason')}", "", _RECORDS)]
        return found

    def lines(self, part: int | None = None) -> list[str]:
        """Return a line for each problem, with numbers and places, and how many take part. Private."""
        found = [str(each) for each in self.problems(counts=True)]
        return [*found, self.taking_part(part)] if found and part is not None else found

    def taking_part(self, part: int) -> str:
        """Return how many records take part, of how many."""
        return f"{part} of {number_of(part + len(self._excluded), 'record')} take part"

    def columns(self) -> list[str]:
        """Return the problems by column, without number or place, so that they may be passed on."""
        return list(map(str, self._cells_by_reason()))

    def _cells_by_reason(self) -> list[Problem]:
        found = []
        for why, columns in self._by_reason().items():
            names = ", ".join(map(repr, list(columns)[:_LINES]))
            if len(columns) > _LINES:
                names = f"{len(columns)} columns, such as {names},"
            else:
                names = f"column {names}" if len(columns) == 1 else f"columns {names}"
            has = "has" if len(columns) == 1 else "have"
            what = f"{names} {has} cells that count as missing: each "
            found.append(Problem(what, why, _CELLS))
        return found

    def _by_reason(self) -> dict[str, dict[str, _Tally]]:
        reasons: dict[str, dict[str, _Tally]] = {}
        for (name, why), tally in self._cells.items():
            reasons.setdefault(why, {})[name] = tally
        return reasons

    def _counted_cells(self) -> list[Problem]:
        """Return a problem for each column and reason; one for all columns of a reason that many have."""
        found: list[tuple[int, Problem]] = []
        for why, columns in self._by_reason().items():
            tallies = _most_first(columns)
            if len(tallies) > _COLUMNS:
                count = sum(tally.count for _, tally in tallies)
                some = ", ".join(
                    f"{name!r} ({tally.where()})" for name, tally in tallies[:_COLUMNS]
                )
                what = f"{len(tallies)} columns have {count} cells that count as missing, such as {some}: "
                found.append((count, Problem(f"{what}each ", why, _CELLS)))
                continue
            for name, tally in tallies:
                one = tally.count == 1
                what = f"column {name!r}: {number_of(tally.count, 'cell')} ({tally.where()}) " + (
                    "counts as missing: it " if one else "count as missing: each "
                )
                found.append((tally.count, Problem(what, why, _CELLS)))
        return [problem for _, problem in sorted(found, key=lambda each: -each[0])]


def none_usable(path: Path, odd: Odd | None) -> DataError:
    """Return the error that no record of a file can be used, and what helps."""
    reasons = "there is none" if odd is None else odd.none_left()
    if DEEP in reasons or OUTSIDE in reasons:
        return DeepImagesError(f"no image of {path} can be used: {reasons}; {WINDOW}")
    return DataError(f"{path} has no record that can take part: {reasons}")


def _most_first(tallies: dict[str, _Tally]) -> list[tuple[str, _Tally]]:
    return sorted(tallies.items(), key=lambda item: -item[1].count)
