"""A bound on the processor time of one record, by a clock that other work on the machine does not move."""

from __future__ import annotations

import math
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Callable

#: Processor seconds for one record, at most.
MOST_SECONDS: Final = 60.0
#: What is granted however fast the trial was: a scheduler's and a cache's noise is far below it.
LEAST_SECONDS: Final = 1.0
#: Times the slowest run of a trial. Sizes in a graph are fixed, so that a record takes about what a trial
#: input takes; a processor that shares its core or clocks down is within this.
TIMES: Final = 8.0
_POLL_S: Final = 0.01


def seconds_of(slowest: float) -> float:
    """Return the processor seconds that a record is granted, by those of the slowest run of a trial.

    >>> seconds_of(0.01), seconds_of(0.5), seconds_of(19.0)
    (1.0, 4.0, 60.0)
    """
    return min(MOST_SECONDS, max(LEAST_SECONDS, TIMES * slowest))


class Limit:
    """Ends a block's work when this thread has used its processor time, by a call of ``late`` from another.

    Where a system has no clock of another thread's processor time, a clock on the wall stands in for it, and
    :data:`MOST_SECONDS` is granted.
    """

    def __init__(self, seconds: float, late: Callable[[], None]) -> None:
        self._seconds, self._late = seconds, late
        self._over = threading.Event()

    def __enter__(self) -> Self:
        """Begin to count."""
        if self._seconds == math.inf:
            return self
        clock = _clock()
        granted = MOST_SECONDS if clock is time.monotonic else self._seconds
        watching = (clock, clock() + granted)
        threading.Thread(target=self._watch, args=watching, name="limit", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop to count."""
        self._over.set()

    def _watch(self, clock: Callable[[], float], end: float) -> None:
        with suppress(OSError):  # the thread has ended, and with it its clock
            # Its clock is never faster than the wall's, and stands still while it waits.
            while not self._over.wait(max(_POLL_S, end - clock())):
                if clock() >= end:
                    self._late()
                    return


def _clock() -> Callable[[], float]:
    """Return the clock of this thread's processor time, for another thread to read."""
    if not hasattr(time, "pthread_getcpuclockid"):
        return time.monotonic
    number = time.pthread_getcpuclockid(threading.get_ident())
    return lambda: time.clock_gettime(number)
