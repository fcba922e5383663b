"""Inputs as a public encoder sees them: one row of whole numbers each."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

#: A coordinate of 1 as a whole number; embeddings have length 1 but for rounding.
UNIT: Final = 2**15 - 1
_LINE: Final = re.compile(
    r"embeddings (?P<width>[1-9][0-9]{0,3}) by (?P<encoder>[0-9a-f]{64}) of "
    r"(?:(?P<texts>texts)|images(?: window (?P<low>-?[0-9]{1,10}) (?P<high>-?[0-9]{1,10}))?)",
    re.ASCII,
)
#: Most coordinates of an embedding.
WIDEST: Final = 2**13 - 1


@dataclass(frozen=True, eq=False)
class Embeddings:
    """What a public encoder made of images or texts."""

    # (n, d) int16, coordinates in units of 1/:data:`UNIT`; each row has length 1 but for rounding
    values: NDArray[np.int16]
    # "images" or "texts", from which they were made; "images window 0 4095" if files of more than 8 bits
    # a channel were read by that window
    source: str
    encoder: str  # SHA-256 of the encoder and its description, 64 hexadecimal digits

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or self.values.dtype != np.int16:
            raise DataError(
                f"embeddings must be (n, d) int16, got {self.values.shape} {self.values.dtype}"
            )
        if not 0 < self.values.shape[1] <= WIDEST:
            raise DataError(
                f"embeddings have 1 to {WIDEST} coordinates, got {self.values.shape[1]}"
            )
        self.values.setflags(write=False)

    def __len__(self) -> int:
        return len(self.values)

    @property
    def width(self) -> int:
        """Return the number of coordinates."""
        return int(self.values.shape[1])

    def points(self) -> NDArray[np.float32]:
        """Return (n, d) float32, of length about 1."""
        return self.values.astype(np.float32) / np.float32(UNIT)

    def take(self, rows: NDArray[np.integer] | Sequence[int]) -> Embeddings:
        """Return the inputs at ``rows``, in that order."""
        return Embeddings(self.values[np.asarray(rows, dtype=np.int64)], self.source, self.encoder)

    def schema(self) -> str:
        """Return one line that two sides compare: width, encoder and what they were made from."""
        return f"embeddings {self.width} by {self.encoder} of {self.source}"

    def row_hashes(self) -> list[bytes]:
        """Return one SHA-256 digest per input."""
        head = self.schema().encode() + b"\0"
        rows = self.values.astype("<i2")
        return [hashlib.sha256(head + row.tobytes()).digest() for row in rows]


def parsed_line(schema: str) -> re.Match[str] | None:
    """Return width, encoder, source and window in a line of :meth:`Embeddings.schema`; None if it is none."""
    found = _LINE.fullmatch(schema)
    return None if found is None or int(found["width"]) > WIDEST else found


def encoder_in(schema: str | None) -> str:
    """Return the digest of the encoder that a schema line names, "" if it names none."""
    found = parsed_line(schema or "")
    return "" if found is None else found["encoder"]
