"""Tables from CSV files, with recovery after a malformed record, and from JSON lines.

The header decides what separates cells: the separator by which it has the most names. A ``.tsv`` has tabs
wherever its header has one, and a first line such as ``sep=;``, which Excel reads and writes, states it.

A record has as many lines as its quotes say: a line within a cell is no record, whatever it says, even if the
record has too many cells. A quote that nothing closes must not swallow the following lines: reading continues
with the line after it.
"""

from __future__ import annotations

import csv
import io
import re
from typing import TYPE_CHECKING, Final

from pate.data.cells import PLAIN, Reading, cell_text, clean_name
from pate.data.files.parquet import read_parquet
from pate.data.files.tables import (
    NO_TEXT,
    TextTable,
    clean,
    column_names,
    is_named,
    is_utf8,
    shown,
)
from pate.data.limits import CELL_BYTES, MAX_BYTES, read_whole, require_room
from pate.errors import DataError
from pate.foreign import json_value
from pate.printable import number_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pate.data.odd import Odd

_SEPARATORS: Final = ",;\t"
_STATED: Final = re.compile(r'"?sep=([,;|\t])"?[\r\n]*', re.IGNORECASE)
#: Lines of one record of a CSV file, with line breaks within quotes, from which on its owner is told.
_MANY_LINES: Final = 200
#: Most characters of a cell, which takes four bytes for each while it is read.
_LONGEST_CELL: Final = 2**27
csv.field_size_limit(_LONGEST_CELL)
#: What is often saved or renamed as a CSV file, by its first bytes.
_NO_TABLES: Final = {
    b"PK\x03\x04": "a workbook or an archive",
    b"\xd0\xcf\x11\xe0": "a workbook",
    b"\x1f\x8b": "a gzip file whose name does not end in .gz",
    b"\xff\xfe": "text in UTF-16",
    b"\xfe\xff": "text in UTF-16",
}


class Lines:
    """Reader of a CSV file's records."""

    def __init__(self, text: str, *, tabs: bool = False) -> None:
        # Line breaks are not translated: those within quotes belong to the cell.
        self._lines = list(io.StringIO(text, newline=""))
        # Behind the last line with a quote none is closed.
        quotes = (at for at in range(len(self._lines), 0, -1) if '"' in self._lines[at - 1])
        self._last_quote = next(quotes, 0)
        self.at = self._end = 0  # the last line of the last record
        stated = _STATED.fullmatch(self._lines[0]) if self._lines else None
        if stated is not None:
            self._separator, self.at = stated[1], 1
            return
        names = {each: self._names_by(each) for each in _SEPARATORS}
        by_tabs = names.pop("\t") if tabs else 0
        self._separator = max(names, key=names.__getitem__)
        if tabs and (by_tabs > 1 or names[self._separator] <= 1):
            self._separator = "\t"

    def _names_by(self, separator: str) -> int:
        """Return how many cells the first record has by a separator; 0 if it has none by it."""
        self._separator = separator
        _, row, _ = next(self.records(), (1, [], ""))
        self.at = 0
        return len(row or ())

    def records(self) -> Iterator[tuple[int, list[str] | None, str]]:
        """Yield, for each record, its first line's number, its cells, and the error if there are none."""
        reader = self._reader()
        while self.at < len(self._lines):
            start = self.at
            self._end = max(start + 1, self._last_quote)
            try:
                row = next(reader)
            except csv.Error as error:
                at, self.at = self.at, start + 1
                reader = self._reader()
                yield start + 1, None, f"(up to line {at}): {error}"
                continue
            if row:
                yield start + 1, row, ""

    def _reader(self) -> Iterator[list[str]]:
        return csv.reader(
            self._more(), delimiter=self._separator, skipinitialspace=True, strict=True
        )

    def _more(self) -> Iterator[str]:
        while True:
            if self.at >= self._end:
                return  # within a record, which is an error: an unclosed quote
            self.at += 1
            yield self._lines[self.at - 1]


def read_table_file(
    path: Path,
    odd: Odd | None = None,
    *,
    text: str | None = None,
    reading: Reading = PLAIN,
    wanted: Callable[[str], bool] = is_named,
) -> TextTable:
    """Return the cells of a CSV or Parquet file, by its name."""
    read = read_parquet if path.name.casefold().endswith(".parquet") else read_csv
    return read(path, odd, text=text, reading=reading, wanted=wanted)


def read_csv(
    path: Path,
    odd: Odd | None = None,
    *,
    text: str | None = None,
    reading: Reading = PLAIN,
    wanted: Callable[[str], bool] = is_named,
) -> TextTable:
    """Return the cells of a CSV file with a header line; comma, semicolon or tab between cells.

    A record takes one line, or more where a cell has line breaks within quotes. With ``odd``, a record
    without the header's number of cells is excluded by itself, and so is a line on which a quote begins that
    nothing closes. Long texts are neither cut, stripped nor taken for missing; text that is not UTF-8
    has surrogates there. Cells of columns that are not ``wanted`` cannot refuse the file.
    """
    content = read_whole(path)
    for start, what in _NO_TABLES.items():
        if content.startswith(start):
            raise DataError(f"{path} is {what}, by its first bytes; save it as CSV, in UTF-8")
    try:
        whole = content.decode("utf-8-sig", errors="strict" if odd is None else "surrogateescape")
    except UnicodeDecodeError as error:
        raise _not_utf8(path, content.count(b"\n", 0, error.start) + 1) from error
    del content
    tabs = path.name.casefold().removesuffix(".gz").endswith(".tsv")
    lines = Lines(whole, tabs=tabs)
    del whole
    names = _header(path, lines)
    columns: dict[str, list[str]] = {name: [] for name in names if wanted(name)}
    kept = [(names.index(name), held) for name, held in columns.items()]
    numbers: list[int] = []
    most = MAX_BYTES // (CELL_BYTES * max(1, len(columns)))
    why_none = ""
    for line, row, problem in lines.records():
        if row is None or len(row) != len(names):
            place, told = f"line {line}", "has a quote without an end"
            why = f"{told}: the file may be truncated"
            if row is not None:
                place += f" of {number_of(len(row), 'cell')}"
                told = "has more or fewer cells than the header"
                why = f"has {number_of(len(row), 'cell')}, {_shown(names)}"
            elif "field limit" in problem:  # with its lines as records, one could be many
                raise DataError(f"{path} line {line} has a cell that is too long: take it out")
            why_none = why_none or f"line {line} {why}"
            if odd is None:
                raise DataError(f"{path} {why_none}")
            odd.record(f"the line {told}", place)
            continue
        if len(numbers) == most:
            require_room(path, (most + 1) * CELL_BYTES * len(columns))
        numbers.append(line)
        if odd is not None and lines.at - line >= _MANY_LINES:
            odd.note(f"it has more than {_MANY_LINES} lines: is a quote left open?", f"line {line}")
        for spot, held in kept:
            held.append(row[spot])
    if not numbers:
        if odd is None:
            raise DataError(f"{path} holds no records below its header, {shown(names)}")
        # Whether there is one is nobody else's business.
        odd.of_file.append(why_none or f"its header is {shown(names)}")
    found = TextTable(path, columns, numbers, odd, text, reading, names=tuple(names))
    for name, held in columns.items():
        columns[name] = clean(found, name, held)
    return found


def _shown(names: Sequence[str]) -> str:
    """Return how a header was read, and what to do."""
    return (
        f"the header {len(names)} ({shown(names)}): name each cell of a line in the header, or delete "
        "lines above it and separators at the end of lines"
    )


def _header(path: Path, lines: Lines) -> list[str]:
    """Return the names of the header; a name that is empty is the one that pandas gives it."""
    at, row, why = next(lines.records(), (1, [], ""))
    if row is None:
        raise DataError(f"{path} line {at} {why}; the file may be truncated")
    if not row:
        raise DataError(f"{path} has no header line, which names its columns")
    names = [clean_name(name) for name in row]
    if any(NO_TEXT in name or not is_utf8(name) for name in names):
        raise _not_utf8(path, at)
    if 2 * names.count("") > len(names):
        raise DataError(
            f"{path} needs a header line of column names, and line {at} has {len(names)} cells of which "
            f"{names.count('')} are empty; delete the lines above the header"
        )
    return column_names(path, names)


def _not_utf8(path: Path, line: int) -> DataError:
    return DataError(f"{path} line {line} is not UTF-8 text; save the file as UTF-8")


# JSON lines: one object a line, its cells as a CSV file of the same table would have them.

#: Most bytes of one line: a text of 100,000 characters, each written as \\uXXXX, and other cells.
_LONGEST_LINE: Final = 1 << 20


def read_json_lines(
    path: Path,
    wanted: Sequence[str],
    odd: Odd | None,
    *,
    text: str | None = None,
    reading: Reading = PLAIN,
) -> TextTable:
    """Return the ``wanted`` keys of a file of JSON objects, one a line.

    A record that lacks a key has a missing cell there. ``odd`` collects lines that are no object, and cells
    that are a list or an object. ``text`` is the key of long texts.
    """
    wanted = tuple(dict.fromkeys(map(clean_name, wanted)))
    columns: dict[str, list[str]] = {name: [] for name in wanted}
    numbers: list[int] = []
    table = TextTable(path, columns, numbers, odd, text, reading, typed=True)
    seen: set[str] = set()
    most = MAX_BYTES // (CELL_BYTES * max(1, len(wanted)))
    for at, line in enumerate(read_whole(path).removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if not line.strip():
            continue
        held, why = _object(line)
        if held is None:
            if odd is None:
                raise DataError(f"{path} line {at} {why}; a line has one JSON object, in UTF-8")
            odd.record(f"the line {why}", f"line {at}")
            continue
        if len(numbers) == most:
            require_room(path, (most + 1) * CELL_BYTES * len(wanted))
        numbers.append(at)
        held = {clean_name(name): value for name, value in held.items()}
        seen.update(name for name in wanted if name in held)
        for name in wanted:
            cell = cell_text(held.get(name))
            if cell is None:
                if odd is None:
                    raise DataError(f"{path} line {at}: {name!r} holds a list or an object")
                odd.cell(name, "is a list or an object", f"line {at}")
            columns[name].append(cell or "")
    if not numbers and odd is None:
        raise DataError(f"{path} holds no records")
    if numbers and (missing := [name for name in wanted if name not in seen]):
        why = f"no line has {', '.join(map(repr, missing))}"
        if odd is None:
            raise DataError(f"{path}: {why}")
        odd.of_file.append(why)  # as where no line can be read: only one more might have it
    for name, cells in columns.items():
        columns[name] = clean(table, name, cells)
    return table


def _object(line: bytes) -> tuple[dict[str, object] | None, str]:
    """Return a line's object, or None and why it has none."""
    if len(line) > _LONGEST_LINE:
        return None, f"has more than {_LONGEST_LINE:,} bytes"
    try:
        held = json_value(line.decode(), parse_constant=lambda _: None)
    except UnicodeDecodeError:
        return None, "is not UTF-8 text"
    except ValueError:
        return None, "is no JSON"
    return (held, "") if isinstance(held, dict) else (None, "is no JSON object")
