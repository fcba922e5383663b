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


def told(starts: Sequence[int]) -> Iterator[int]:
    """Yield the start of each block, and report progress if there are several."""
    progress = _TOLD.get()
    for number, start in enumerate(starts):
        yield start
        if progress is not None and len(starts) > 1:
            progress(100 * (number + 1) // len(starts), 100)
