"""Tables of any file, and the rules for cells that all of them follow.

Empty cells and words such as ``NA`` are missing (:mod:`pate.data.cells`). If a schema states a column's
kind, each cell is read only by it. Without one, a column is numbers if every cell is one or missing, else
categories. CSV and Parquet files (:mod:`pate.data.files.parquet`) follow the same rule.

A party's own file is read with a collector of problems (:class:`~pate.data.odd.Odd`): an unreadable
cell is missing, a malformed line is excluded, and both are noted there. Without a collector the first
of them is an error.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.data.cells import (
    PLAIN,
    SEPARATOR,
    Reading,
    clean_name,
    may_be_number,
    may_be_thousands,
    plain_truth,
)
from pate.data.limits import MAX_CELL, require_room
from pate.data.values import Column, Table
from pate.errors import DataError, SchemaError, UsageError
from pate.printable import listed

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from pate.data.odd import Odd

#: A longer text in a party's own file counts as missing. In an array every cell takes the size of the
#: longest, so without a bound one record could exhaust the memory.
LONGEST_TEXT: Final = 256
#: What a column of groups is for, as messages name it.
OF_GROUPS: Final = "group (patient)"
#: The problem of a whole number stored as a float.
LOST_DIGITS: Final = (
    "is a number of 16 digits or more that was written as a float, so that digits may be lost: "
    "save the column as whole numbers or text"
)
#: Replacement of bytes that are not UTF-8.
NO_TEXT: Final = "\N{REPLACEMENT CHARACTER}"
#: The names that pandas gives to a column without one, and Parquet to a frame's unnamed row numbers.
_NAMELESS: Final = re.compile(r"Unnamed: [0-9]+(?:_level_[0-9]+)?|__index_level_[0-9]+__", re.ASCII)


@dataclass(frozen=True)
class TextTable:
    """The cells of a file as text, column by column, "" for empty ones."""

    path: Path
    columns: dict[str, list[str]]  # n cells by column name, in the order of the file
    lines: Sequence[int] | None = None  # of a CSV file, the line on which each record begins
    # collects unreadable cells and lines; None: they are errors
    odd: Odd | None = field(default=None, compare=False)
    # the column of long texts, whose cells are as they are in the file; None if there is none
    text: str | None = None
    reading: Reading = PLAIN  # how the file writes its cells
    typed: bool = False  # whether the file has numbers as such, and not only as text
    # of all of the file's columns, also of those that were not read; () if all were
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        # By the kind of file and not of a column, which one cell of text changes.
        if self.typed and self.reading.thousands == "point":
            raise UsageError(
                f"{self.path} has numbers as such, where 1.250 is one and a quarter, so --thousands point is "
                "not for it: save columns as numbers, or the table as a CSV file"
            )

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def place(self, row: int) -> str:
        """Return a record's place in the file, for messages."""
        return f"record {row + 1}" if self.lines is None else f"line {self.lines[row]}"

    def column(self, name: str, role: str) -> list[str]:
        """Return one column's cells, "" for missing if problems are collected."""
        held = self.cells(name, role)
        # 12 and 12.0 are one class, and one patient: otherwise a patient could have two teachers.
        names = self.reading.identities(held, labels=role == "label")
        cells = [names[cell] for cell in held]
        require_room(self.path, _room(cells))
        for row, cell in enumerate(cells):
            if cell:
                continue
            lost = not self.reading.is_nothing(held[row])
            if self.odd is None:
                raise DataError(
                    f"{self.path}: {self.place(row)} "
                    + (
                        f"{LOST_DIGITS}, in the {role} column {name!r}"
                        if lost
                        else f"has no value in the {role} column {name!r}; "
                        "fill it in or take the record out"
                    )
                )
            if lost:
                self.odd.cell(name, LOST_DIGITS, self.place(row))
        return cells

    def cells(self, name: str, role: str) -> list[str]:
        """Return the cells of a column as they are written; as :meth:`column`, but any may be missing."""
        name = clean_name(name)
        if name not in self.columns:
            told = [] if self.odd is None else self.odd.of_file
            raise DataError(
                f"{self.path} has no {role} column {name!r}; "
                f"it has: {'; '.join([', '.join(self.names or self.columns), *told])}"
            )
        return self.columns[name]

    def table(
        self,
        without: Sequence[str],
        as_text: Collection[str] = (),
        numeric: Mapping[str, bool] | None = None,
        notes: Odd | None = None,
    ) -> Table:
        """Return the columns that are not in ``without``, as numbers or categories.

        Columns ``as_text`` are categories even if every cell of them is a number, with usual words for
        no value as they are. ``numeric`` has the kinds by the schema, and other columns are excluded;
        without it they are inferred. ``notes`` collects what may be read otherwise than intended.
        """
        left = set(map(clean_name, without))
        names = tuple(name for name in self.columns if name not in left)
        notes = self.odd if notes is None else notes
        if notes is not None:
            notes.of_file += self._nameless(left)
        if not names and numeric is None:
            raise DataError(f"{self.path} has no columns besides {', '.join(without)}")
        if numeric is not None:
            if self.odd is not None:
                self.odd.left_out += [
                    name
                    for name in self.names or self.columns
                    if name not in numeric and name not in left and is_named(name)
                ]
            names = tuple(name for name in names if name in numeric)
            if not names:
                raise SchemaError(
                    f"{self.path} has none of the campaign's columns: {', '.join(numeric):.200}; correct "
                    "its column names, or agree with the coordinator"
                )
        made: list[Column] = []
        held = 0
        for name in names:
            wanted = None if numeric is None else numeric[name]
            raw = name in as_text
            typed = not raw and self._parses(name) if wanted is None else wanted
            made.append(self._numbers(name, numeric) if typed else self._text(name, held, raw))
            held += made[-1].nbytes
            if typed and notes is not None:
                self.note_points(name, notes)
        return Table(names, tuple(made))

    def _nameless(self, left: Collection[str]) -> list[str]:
        """Return a line about columns that are left out for want of a name, if there are any."""
        told = {*self.columns, *left}
        names = [name for name in self.names if name not in told and not is_named(name)]
        what = "columns without a name in the file are left out, as row numbers"
        return [f"{what}: name those that are features ({shown(names)})"] if names else []

    def _parses(self, name: str) -> bool:
        """Return whether all cells of a column are numbers, or words for no value."""
        cells = set(self.columns[name])
        if all(self.reading.number(cell) is not None for cell in cells):
            return True
        if self.odd is None and all(map(may_be_number, cells)):
            row = next(
                row
                for row, cell in enumerate(self.columns[name])
                if self.reading.number(cell) is None
            )
            raise DataError(
                f"{self.path} {self.place(row)}: the cell in column {name!r} {SEPARATOR}: "
                "write a decimal point and nothing between thousands, or leave the column out"
            )
        return False

    def note_points(self, name: str, notes: Odd) -> None:
        """Note the cells of a column of numbers, read as decimals, whose points could be of thousands."""
        cells = self.cells(name, "label")
        stated = self.reading.comma or self.reading.thousands is not None
        either = frozenset() if stated else may_be_thousands(set(cells))
        for row, cell in enumerate(cells):
            if cell in either:
                notes.note(
                    f"in column {name!r} three digits follow each point, which is read as decimal: if it is "
                    "of thousands, say --decimal comma --thousands point",
                    self.place(row),
                )

    def _numbers(self, name: str, numeric: Mapping[str, bool] | None) -> Column:
        cells = self.columns[name]
        found = {cell: self.reading.number(plain_truth(cell)) for cell in set(cells)}
        numbers = {
            cell: math.nan if number is None or math.isinf(number) else number
            for cell, number in found.items()
        }
        wrong = {cell for cell, number in found.items() if number is None or math.isinf(number)}
        if self.odd is not None:
            # By word: a few words, and no number.
            none = {cell for cell, number in numbers.items() if math.isnan(number)} - wrong
            self.odd.no_value(name, Counter(cell.casefold() for cell in cells if cell in none))
        if wrong:
            for row, cell in enumerate(cells):
                if cell not in wrong:
                    continue
                why = self.reading.why_not(cell)
                if self.odd is not None:
                    self.odd.cell(name, why, self.place(row))
                elif numeric is None:
                    raise DataError(f"{self.path}: column {name!r} holds {cell}; leave it empty")
                else:
                    raise SchemaError(
                        f"{self.path}: column {name!r} holds numbers by the campaign's schema, and "
                        f"the cell of {self.place(row)} is none: it {why}"
                    )
        return np.array([numbers[cell] for cell in cells], dtype=np.float64)

    def _text(self, name: str, held: int, raw: bool) -> Column:
        """Return a column of text, ``raw`` with usual words for no value; others take ``held`` bytes."""
        cells = self.columns[name]
        is_nothing = self.reading.is_missing if raw else self.reading.is_nothing
        none = set(filter(is_nothing, set(cells)))
        if self.odd is not None:
            self.odd.no_value(name, Counter(cell.casefold() for cell in cells if cell in none))
        cells = ["" if cell in none else cell.rstrip("\0") for cell in cells]
        if self.odd is None:
            require_room(self.path, held + _room(cells))
        # As objects no cell takes the room of the longest, which one record decides.
        return np.array(cells, dtype="U" if self.odd is None else "O")


def is_named(name: str) -> bool:
    """Return whether somebody named a column: others are left out, unless an option or schema names them.

    >>> is_named("age"), is_named("Unnamed: 0"), is_named("__index_level_0__")
    (True, False, False)
    """
    return _NAMELESS.fullmatch(name) is None


def is_wanted(
    roles: Collection[str], drop: Collection[str], features: Collection[str] | None, name: str
) -> bool:
    """Return whether a column has a role or may be a feature."""
    if name in map(clean_name, roles):
        return True
    if name in map(clean_name, drop):
        return False
    return is_named(name) if features is None else name in features


def column_names(path: Path, written: Sequence[str]) -> list[str]:
    """Return the names of a file's columns; an empty one is called as pandas calls it."""
    names = [clean_name(name) or f"Unnamed: {at}" for at, name in enumerate(written)]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise DataError(f"{path} has two columns called {twice[0]!r:.80}; give each its own name")
    return names


def shown(names: Sequence[str]) -> str:
    """Return the first names of a file's columns, each cut, for a message."""
    return listed([name[:40] for name in names])


def is_utf8(text: str) -> bool:
    """Return whether a text can be written in UTF-8: it has no surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def clean(table: TextTable, name: str, cells: Sequence[str], first: int = 0) -> list[str]:
    """Return cells as :func:`~pate.data.cells.clean_name` makes them; long texts as they are."""
    if name == table.text:
        return list(cells)
    odd, clean = table.odd, {cell: clean_name(cell) for cell in set(cells)}
    if odd is None:
        if max(map(len, clean), default=0) > MAX_CELL:
            raise DataError(
                f"{table.path}: column {name!r} has a text of more than {MAX_CELL} characters; "
                "take the column out, or shorten its texts"
            )
        return [clean[cell] for cell in cells]
    unread = {cell: why for cell, text in clean.items() if (why := _unreadable(text))}
    for cell in unread:
        clean[cell] = ""
    if unread:
        for row, cell in enumerate(cells, start=first):
            if cell in unread:
                odd.cell(name, unread[cell], table.place(row))
    return [clean[cell] for cell in cells]


def _unreadable(cell: str) -> str:
    """Return why a cell of a party's own file is unreadable, or ""."""
    if len(cell) > LONGEST_TEXT:
        return f"is longer than {LONGEST_TEXT} characters"
    return "is not UTF-8 text" if NO_TEXT in cell or not is_utf8(cell) else ""


def _room(cells: Sequence[str]) -> int:
    """Return the size in bytes of an array of these texts: each takes the size of the longest."""
    return 4 * max(map(len, cells), default=0) * len(cells)
