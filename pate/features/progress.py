"""How far the features of many inputs are: for whoever waits for them, however deep they are computed."""

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

    None is for parts of a whole that is told itself.

    A percentage, and not a number of inputs: how many records a party has is private.
    """
    before = _TOLD.set(progress)
    try:
        yield
    finally:
        _TOLD.reset(before)


def told(starts: Sequence[int]) -> Iterator[int]:
    """Yield where each block starts, and tell how far they are; a single block is not worth telling."""
    progress = _TOLD.get()
    for number, start in enumerate(starts):
        yield start
        if progress is not None and len(starts) > 1:
            progress(100 * (number + 1) // len(starts), 100)
