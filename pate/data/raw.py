"""Records as they lie in files, before a public encoder embeds them: images of any sizes, or texts.

They are read one at a time, so memory holds one of them and the embeddings of all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

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
