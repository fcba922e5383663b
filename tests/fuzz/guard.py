"""Limits of a parser on malformed input: it returns or raises our error, in bounded time and memory."""

from __future__ import annotations

import contextlib
import gc
import resource
import signal
from collections.abc import Callable, Iterator
from typing import Final

from pate.errors import PateError

#: Most processor time that one message may take; other programs on the machine don't count.
LIMIT_S: Final = 1.0
#: Longest that one message may wait.
LIMIT_WAIT_S: Final = 60.0
#: Most address space that handling messages may take beyond what the process had before.
ROOM_BYTES: Final = 256 * 2**20


class HangError(BaseException):
    """A message took too long. Not an Exception, so that no handler swallows it."""


def _ring(which: int, _: object) -> None:
    if which == signal.SIGPROF:
        raise HangError(f"it took longer than {LIMIT_S:g} s of the processor")
    raise HangError(f"it waited longer than {LIMIT_WAIT_S:g} s")


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Bound memory, and let :func:`attempt` bound time, in this process, while it lasts.

    What lives before is kept out of garbage collection: going through the objects of a long test run
    takes longer than a message may.
    """
    gc.collect()
    gc.freeze()
    held = _address_space()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    ringing = {which: signal.signal(which, _ring) for which in (signal.SIGPROF, signal.SIGALRM)}
    resource.setrlimit(resource.RLIMIT_AS, (held + ROOM_BYTES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        for which, handler in ringing.items():
            signal.signal(which, handler)
        gc.unfreeze()


def attempt(feed: Callable[[], object]) -> str:
    """Feed one message and say how it went: ``taken``, or the name of our error."""
    signal.setitimer(signal.ITIMER_PROF, LIMIT_S)
    signal.setitimer(signal.ITIMER_REAL, LIMIT_WAIT_S)
    try:
        feed()
    except PateError as error:
        return type(error).__name__
    except HangError as error:
        raise AssertionError(str(error)) from None
    except MemoryError:
        raise AssertionError(f"it took more than {ROOM_BYTES >> 20} MiB") from None
    finally:
        for timer in (signal.ITIMER_PROF, signal.ITIMER_REAL):
            signal.setitimer(timer, 0)
    return "taken"


def _address_space() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - no file of ours
        return int(file.read().split()[0]) * resource.getpagesize()
