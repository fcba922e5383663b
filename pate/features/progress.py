"""Progress of computing features of many inputs, reported from any depth of calls."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_TOLD: Final[ContextVar[Callable[[int, int], None] | None]] = ContextVar("told", default=None)


@contextmanager
def telling(progress: Callable[[int, int], None] | None) -> Iterator[None]:
    """Call ``progress`` with a percentage and 100 while features are computed within the block.

    None: the caller reports the progress of the whole.

    A percentage, not a number of inputs: a party's number of records is private.
    """
    before = _TOLD.set(progress)
    try:
        yield
    finally:
        _TOLD.reset(before)


class Parts:
    """One task of several parts, whose ``sizes`` are the expected work of each, reported as one."""

    def __init__(self, *sizes: float) -> None:
        self._progress = _TOLD.get()
        self._sizes, self._whole = list(sizes), sum(sizes)
        self._done, self._shown = 0.0, -1

    @contextmanager
    def next(self) -> Iterator[None]:
        """Report what is done within the block as the next part."""
        size = self._sizes.pop(0)
        with telling(lambda done, total: self._tell(self._done + size * done / total)):
            yield
        self._done += size
        self._tell(self._done)

    def _tell(self, done: float) -> None:
        # A part that reports twice, each time from its beginning, does not turn back.
        share = int(100 * done / self._whole) if self._whole else 100
        if self._progress is not None and share > self._shown:
            self._shown = share
            self._progress(share, 100)


def told(starts: Sequence[int]) -> Iterator[int]:
    """Yield the start of each block, and report progress if there are several."""
    progress = _TOLD.get()
    for number, start in enumerate(starts):
        yield start
        if progress is not None and len(starts) > 1:
            progress(100 * (number + 1) // len(starts), 100)
