"""An open encoder as the readers of data take it: with a cache, and a bar that shows the time left."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, Self, TypeAlias

from pate.encoders.cache import Cache, Memory
from pate.encoders.encoder import Encoder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from pate.data.encoded import Record
    from pate.data.odd import Odd

#: Folder of the cache in a home.
CACHE: Final = "embeddings"


#: Opens a bar of a title, and yields what moves it: what is done, and of how much.
Bar: TypeAlias = "Callable[[str], AbstractContextManager[Callable[[int, int], None]]]"


class Reader:
    """Embeds the records that a reader hands it; ``memory`` replaces a cache in a private folder."""

    def __init__(
        self,
        encoder: Encoder,
        *,
        cache: Path | None = None,
        bar: Bar | None = None,
        memory: Memory | None = None,
    ) -> None:
        self.encoder = encoder
        self.digest, self.width = encoder.digest, encoder.width
        self.source = encoder.source  # ``images`` or ``texts``
        self.words = encoder.description.in_words()
        self._cache, self._bar, self._memory = cache, bar, memory

    @classmethod
    def open(
        cls, folder: Path | None, *, home: Path | None = None, bar: Bar | None = None
    ) -> Self | None:
        """Open the encoder of ``--encoder``, None if the option was not given."""
        return None if folder is None else cls.of(folder, home=home, bar=bar)

    @classmethod
    def of(cls, folder: Path, *, home: Path | None = None, bar: Bar | None = None) -> Self:
        """Open the encoder of a folder; arguments and errors as of :meth:`open`."""
        return cls(Encoder.open(folder), cache=None if home is None else home / CACHE, bar=bar)

    def embed(
        self, records: Iterable[Record], total: int, *, odd: Odd | None, place: Callable[[int], str]
    ) -> tuple[NDArray[np.int16], NDArray[np.bool_]]:
        """Return (n, d) embeddings and (n,) which records are usable."""
        with ExitStack() as held:
            cache: Cache | Memory | None = self._memory
            if self._cache is not None:
                cache = held.enter_context(Cache(self._cache, self.digest, self.width))
            move = None
            if self._bar is not None:
                moved = held.enter_context(self._bar(f"embedding {self.source}"))
                move = lambda done: moved(done, max(done, total))  # noqa: E731
            return self.encoder.rows(records, odd=odd, place=place, move=move, cache=cache)
