"""The parsed schema line of a campaign's inputs, by which a party reads its own file.

The line is signed with the campaign's terms before any record is read by it, so the content of one
record cannot change how another is read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pate.data.embeddings import Embeddings, parsed_line
from pate.data.values import Table, check_window, is_numeric
from pate.errors import SchemaError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pate.data.values import Inputs, Window

_IMAGES: Final = re.compile(
    r"images ([1-9][0-9]{0,9})x([1-9][0-9]{0,9})x([13])"
    r"(?: window (?P<low>-?[0-9]{1,10}) (?P<high>-?[0-9]{1,10}))?",
    re.ASCII,
)
_COLUMN: Final = re.compile(r"(.+?):(number|category)(?:, |\Z)", re.DOTALL)


@dataclass(frozen=True)
class Schema:
    """The kind of inputs: images of one size, rows of named columns, or what an encoder makes of either."""

    # height, width and channels of images; None for a table
    size: tuple[int, int, int] | None = None
    # of images of more than 8 bits a channel, or None if none was stated
    window: Window | None = None
    # of a table, by column name, whether it has numbers; None for images
    numeric: Mapping[str, bool] | None = None
    encoder: str | None = None  # SHA-256 of the public encoder; None if there is none
    source: str = ""  # "images" or "texts" that the encoder takes; "" if there is none
    width: int = 0  # coordinates of its embeddings; 0 if there is none

    def __hash__(self) -> int:
        return hash((self.size, self.window, tuple(self.numeric or ()), self.encoder))

    @classmethod
    def parse(cls, line: str) -> Schema:
        """Parse a line of :meth:`pate.data.values.Table.schema`, or of images.

        >>> dict(Schema.parse("table age:number, sex:category").numeric)
        {'age': True, 'sex': False}
        >>> Schema.parse("images 28x28x1 window 0 4095").window
        (0, 4095)
        """
        if line.startswith("table "):
            found, at = {}, len("table ")
            while at < len(line):
                column = _COLUMN.match(line, at)
                if column is None or column[1] in found:
                    raise _unreadable(line)
                found[column[1]] = column[2] == "number"
                at = column.end()
            if not found or line.endswith(", "):
                raise _unreadable(line)
            return cls(numeric=found)
        if made := parsed_line(line):
            source = "texts" if made["texts"] else "images"
            return cls(
                window=_window(made),
                encoder=made["encoder"],
                source=source,
                width=int(made["width"]),
            )
        images = _IMAGES.fullmatch(line)
        if images is None:
            raise _unreadable(line)
        height, width, channels = (int(images[at]) for at in (1, 2, 3))
        return cls((height, width, channels), _window(images))

    @classmethod
    def of(cls, inputs: Inputs) -> Schema:
        """Return the schema of inputs."""
        if isinstance(inputs, Table):
            kinds = map(is_numeric, inputs.columns)
            return cls(numeric=dict(zip(inputs.names, kinds, strict=True)))
        if isinstance(inputs, Embeddings):
            return cls.parse(inputs.schema())
        return cls(inputs.size, inputs.window)

    def in_words(self) -> str:
        """Return it in few words, for any number of columns."""
        if self.encoder is not None:
            return f"{self.source} by the encoder {self.encoder[:8]}"
        if self.size is None:
            return f"a table of {len(self.numeric or ())} columns"
        return "images {}x{}x{}".format(*self.size)


def _window(found: re.Match[str]) -> Window | None:
    if found["low"] is None:
        return None
    try:
        return check_window((int(found["low"]), int(found["high"])))
    except UsageError as error:
        raise SchemaError(str(error)) from error


def _unreadable(line: str) -> SchemaError:
    return SchemaError(f"the line {line!r:.80} does not say what the inputs of a campaign are")
