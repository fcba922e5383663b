"""Bounds on the time and memory of an encoder: a trial in a process of its own, and a clock for each record.

ONNX Runtime cannot bound the memory of a graph, or end an operator that runs. So a graph is first opened and
run in a process that the kernel bounds: one that takes a minute for an input, all memory, or breaks the
runtime, ends that process only. What it takes there bounds what it may take for a record, by a clock that
other work on the machine does not move.
"""

from __future__ import annotations

import math
import signal
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from pate.errors import DataError
from pate.exact import read
from pate.foreign import json_value
from pate.runtime.child import run_limited

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pate.encoders.description import Description

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


#: Processor seconds for opening a graph and one input.
TRIAL_SECONDS: Final = 20
#: Bytes of address space.
MOST_MEMORY: Final = 8 << 30
#: Wall-clock seconds, on a machine that has much other work.
_PATIENCE: Final = 300
#: What does it, in its own process.
_CHILD: Final = "pate.encoders.one_input:main"
#: By the digest of an encoder that was tried by this process: seconds that a record is granted.
_granted: dict[str, float] = {}


@dataclass(frozen=True)
class Trial:
    """What inputs took."""

    seconds: float  # processor time of the fastest run of an input
    slowest: float  # the same of the slowest
    opening: float  # processor time until the first input was finished
    memory: int  # largest resident memory of the process, bytes


def seconds_after(folder: Path, description: Description) -> float:
    """Return the processor seconds that a record is granted, after a trial; one in this process is enough."""
    if description.digest not in _granted:
        _granted[description.digest] = seconds_of(tried(folder).slowest)
    return _granted[description.digest]


def tried(folder: Path, seconds: int = TRIAL_SECONDS, memory: int = MOST_MEMORY) -> Trial:
    """Run some inputs of the largest size in another process, within ``seconds`` and ``memory``."""
    what = f"the encoder in {folder}"
    try:
        done = run_limited(
            _CHILD, folder.resolve(), seconds, seconds=seconds, memory=memory, patience=_PATIENCE
        )
    except subprocess.TimeoutExpired as error:
        raise DataError(f"{what} did not finish some inputs in {_PATIENCE} s") from error
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        raise DataError(
            f"{what} takes more than {seconds} seconds of processor time to open and run one input"
        )
    try:
        said = json_value(done.stdout[-4096:])
        if "error" in said:
            raise DataError(str(said["error"]))
        return read(Trial, said, error=DataError, what=f"{what} cannot be run")
    except (ValueError, TypeError) as error:
        ended = f"code {done.returncode}" if done.returncode >= 0 else f"signal {-done.returncode}"
        raise DataError(
            f"{what} cannot be run: a process that tried it within {memory >> 30} GiB of memory ended "
            f"with {ended}"
        ) from error
