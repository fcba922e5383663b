"""Records as they lie in files, before a public encoder embeds them: images of any sizes, or texts.

They are read one at a time, so memory holds one of them and the embeddings of all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from pate.data.encoded import Record
    from pate.data.odd import Odd


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
