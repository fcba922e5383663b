"""The records of a CSV file, each found by itself as far as its line breaks tell.

A quote without an end must not take the lines behind it along: whoever reads can go on with the line that
follows the one on which a bad record begins.
"""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_SEPARATORS: Final = ",;\t"
#: Lines that one record of a CSV file may take, by line breaks within quotes.
_MOST_LINES: Final = 200


class Lines:
    """The lines of a CSV file, from which records are read.

    Args:
        text: of the file.
    """

    def __init__(self, text: str) -> None:
        # Line breaks are as they are: those within quotes belong to the cell.
        self._lines = list(io.StringIO(text, newline=""))
        self._at = self._end = 0
        first = self._lines[0] if self._lines else ""
        self._separator = max(_SEPARATORS, key=first.count)

    def records(self) -> Iterator[tuple[int, list[str] | None, str]]:
        """Yield, for each record, its first line's number, its cells, and what is wrong if there are none."""
        reader = self._reader()
        while self._at < len(self._lines):
            start = self._at
            self._end = min(start + _MOST_LINES, len(self._lines))
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
        """Go on with the line that follows, though the last record may have taken more than one."""
        self._at = line

    def _reader(self) -> Iterator[list[str]]:
        return csv.reader(
            self._more(), delimiter=self._separator, skipinitialspace=True, strict=True
        )

    def _more(self) -> Iterator[str]:
        while True:
            if self._at >= self._end:
                return  # within a record, which is an error: its quote has no end
            self._at += 1
            yield self._lines[self._at - 1]
