"""Foreign text on a screen: only printable characters, so that it is what it looks like.

Names of files, parties, campaigns, classes and columns are chosen by others. An escape sequence in one
could rewrite the screen, a line end could forge a line, and a bidirectional override could reverse it.
"""

from __future__ import annotations

import io
import re
import sys
from typing import IO, TYPE_CHECKING, Any, Final, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: What a stream passes on besides printable characters: line ends; to a terminal colours, too.
_LINE_END: Final = re.compile(r"(\n)")
_STYLED: Final = re.compile(r"(\n|\x1b\[[0-9;]*m)")

#: Most names in one line.
_NAMED: Final = 8


def printable(text: str, most: int | None = None) -> str:
    r"""Return a text with each unprintable character written as its escape, line ends included.

    >>> printable("a\x1b[31m\nb\u202e")
    'a\\x1b[31m\\nb\\u202e'

    ``most``: characters of the result; a longer one is cut. None: any number.
    """
    if not text.isprintable():
        text = "".join(
            each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
        )
    return text if most is None or len(text) <= most else text[: most - 1] + "…"


def listed(names: Sequence[str]) -> str:
    """Return names for one line of a screen: the first few, and their number."""
    shown = ", ".join(names[:_NAMED])
    return shown if len(names) <= _NAMED else f"{shown}, … ({len(names)} in all)"


def number_of(count: int, one: str, many: str | None = None) -> str:
    """Return a number and its noun."""
    if count == 1:
        return f"1 {one}"
    ies = one.endswith("y") and one[-2] not in "aeo"  # replies, but days
    return f"{count:,} {many or (one[:-1] + 'ies' if ies else one + 's')}"


class PrintableStream:
    """A text stream that writes only printable characters and line ends, and on a terminal colours.

    It is the last place that a text passes, whoever prints it: a library's log, a warning, a traceback.
    """

    def __init__(self, stream: TextIO) -> None:
        self.raw = stream
        self._passed = _STYLED if stream.isatty() else _LINE_END

    def write(self, text: str) -> int:
        """Write a text, and return its length."""
        parts = self._passed.split(text)
        self.raw.write(
            "".join(each if at % 2 else printable(each) for at, each in enumerate(parts))
        )
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts."""
        for each in lines:
            self.write(each)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


def print_only_printable() -> None:
    """Let this process write only printable characters to its standard output and error.

    What the encoding of a stream does not have is written as its escape, too, also by :func:`raw`.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
        if stream is not None and not isinstance(stream, PrintableStream):
            setattr(sys, name, PrintableStream(stream))


def raw(stream: IO[str]) -> IO[str]:
    """Return the stream itself, for a writer of terminal commands that checks all texts."""
    return stream.raw if isinstance(stream, PrintableStream) else stream
