"""The records of a CSV file, with recovery after a malformed one.

An unclosed quote must not swallow the following lines: a reader may continue with the line after the
one on which a malformed record begins.
"""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_SEPARATORS: Final = ",;\t"
#: Most lines of one record of a CSV file, with line breaks within quotes.
_MOST_LINES: Final = 200
#: The same in a file with a column of long texts.
MOST_LINES_OF_A_TEXT: Final = 5_000
#: Part of the error of a cell beyond the csv module's limit.
TOO_LONG: Final = "field limit"


class Lines:
    """Reader of a CSV file's records.

    Args:
        text: of the file.
        most_lines: of one record.
    """

    def __init__(self, text: str, most_lines: int = _MOST_LINES) -> None:
        self._most_lines = most_lines
        # Line breaks are not translated: those within quotes belong to the cell.
        self._lines = list(io.StringIO(text, newline=""))
        self._at = self._end = 0
        first = self._lines[0] if self._lines else ""
        self._separator = max(_SEPARATORS, key=first.count)

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
