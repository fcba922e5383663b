"""The records of a CSV file, with recovery after a malformed one.

The header decides what separates cells: the separator by which it has the most names. A ``.tsv`` has tabs
wherever its header has one, and a first line such as ``sep=;``, which Excel reads and writes, states it.

An unclosed quote must not swallow the following lines: a reader may continue with the line after the
one on which a malformed record begins.
"""

from __future__ import annotations

import csv
import io
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_SEPARATORS: Final = ",;\t"
_STATED: Final = re.compile(r'"?sep=([,;|\t])"?[\r\n]*', re.IGNORECASE)
#: Most lines of one record of a CSV file, with line breaks within quotes.
MOST_LINES: Final = 200
#: The same in a file with a column of long texts.
MOST_LINES_OF_A_TEXT: Final = 5_000
#: Part of the error of a cell beyond the csv module's limit.
TOO_LONG: Final = "field limit"


class Lines:
    """Reader of a CSV file's records.

    Args:
        text: of the file.
        most_lines: of one record.
        tabs: whether the file's name says that cells are separated by tabs.
    """

    def __init__(self, text: str, most_lines: int = MOST_LINES, *, tabs: bool = False) -> None:
        self._most_lines = most_lines
        # Line breaks are not translated: those within quotes belong to the cell.
        self._lines = list(io.StringIO(text, newline=""))
        self._at = self._end = 0
        stated = _STATED.fullmatch(self._lines[0]) if self._lines else None
        if stated is not None:
            self._separator, self._at = stated[1], 1
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
        self._at = 0
        return len(row or ())

    def records(self) -> Iterator[tuple[int, list[str] | None, str]]:
        """Yield, for each record, its first line's number, its cells, and the error if there are none."""
        reader = self._reader()
        while self._at < len(self._lines):
            start = self._at
            self._end = min(start + self._most_lines, len(self._lines))
            try:
                row = next(reader)
            except csv.Error as error:
                at, self._at = self._at, start + 1
                reader = self._reader()
                yield start + 1, None, f"(up to line {at}): {error}"
                continue
            if row:
                yield start + 1, row, ""

    def go_on_after(self, line: int) -> None:
        """Continue with the line after the last record's first line."""
        self._at = line

    def _reader(self) -> Iterator[list[str]]:
        return csv.reader(
            self._more(), delimiter=self._separator, skipinitialspace=True, strict=True
        )

    def _more(self) -> Iterator[str]:
        while True:
            if self._at >= self._end:
                return  # within a record, which is an error: an unclosed quote
            self._at += 1
            yield self._lines[self._at - 1]
