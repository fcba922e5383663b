"""Records as they lie in files, before a public encoder embeds them: images of any sizes, or texts.

They are read one at a time, so memory holds one of them and the embeddings of all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pate.data.embeddings import Embeddings
from pate.data.files.images import DEEP, OUTSIDE, WINDOW, DeepImagesError
from pate.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pate.data.odd import Odd

#: One image, (height, width, 1 or 3) uint8, or one text.
Record: TypeAlias = NDArray[np.uint8] | str


class Encoder(Protocol):
    """A public encoder, as readers of files use it."""

    @property
    def source(self) -> str:
        """What it takes: ``images`` or ``texts``."""

    @property
    def digest(self) -> str:
        """SHA-256 of its files and its description, 64 hexadecimal digits."""

    @property
    def width(self) -> int:
        """Number of coordinates."""

    def rows(
        self, records: Iterable[Record], *, odd: Odd | None, place: Callable[[int], str]
    ) -> tuple[NDArray[np.int16], NDArray[np.bool_]]:
        """Return the embeddings of n records, each by its record only, and which are usable.

        Args:
            records: n of them, each read as it is asked for.
            odd: collects unusable records; None: the first of them is an error.
            place: returns the place of a record, by its number among those asked for.

        Returns:
            (n, :attr:`width`) int16, and (n,) whether each is usable.
        """


@dataclass(frozen=True, eq=False)
class Raw:
    """Records, and what is known of each before it is read.

    Attributes:
        path: of the file or folder, for messages.
        source: "images" or "texts", or "images window 0 4095", as of
            :class:`~pate.data.embeddings.Embeddings`.
        count: n, usable or not.
        stream: returns n records in order, each read as it is asked for, None for an unusable one, which
            is noted; without a collector of problems it is an error.
        place: returns a record's place, for messages.
        names: n class names, "" for none; None if nothing names the classes.
        groups: (n,) str, the group (patient) of each, "" for none; None if nothing names one.
        cells: n cells of each column of several labels, or of numbers.
        odd: the collector of problems; None: the first of them is an error.
    """

    path: Path
    source: str
    count: int
    stream: Callable[[], Iterator[Record | None]]
    place: Callable[[int], str]
    names: Sequence[str] | None
    groups: NDArray[np.str_] | None
    cells: Mapping[str, Sequence[str]]
    odd: Odd | None


def embedded(raw: Raw, encoder: Encoder) -> tuple[Embeddings, NDArray[np.bool_]]:
    """Return the embeddings of n records, and (n,) which of them are usable; others are zero.

    Raises:
        DataError: if none can be used, or one cannot and problems are errors.
        DeepImagesError: if all have more than 8 bits a pixel and there is no window.
    """
    kept: list[int] = []

    def usable() -> Iterator[Record]:
        for at, record in enumerate(raw.stream()):
            if record is not None:
                kept.append(at)
                yield record

    # An encoder may ask for records ahead of its work: `kept` has at least those that it names.
    rows, made = encoder.rows(usable(), odd=raw.odd, place=lambda row: raw.place(kept[row]))
    if not made.any():
        reasons = "; ".join(raw.odd.reasons) if raw.odd is not None else "there is none"
        if DEEP in reasons or OUTSIDE in reasons:
            raise DeepImagesError(f"no image of {raw.path} can be used: {reasons}; {WINDOW}")
        raise DataError(f"{raw.path} has no record that can take part: {reasons}")
    good = np.zeros(raw.count, dtype=np.bool_)
    good[kept] = made
    values = np.zeros((raw.count, encoder.width), dtype=np.int16)
    values[kept] = rows
    return Embeddings(values, raw.source, encoder.digest), good
