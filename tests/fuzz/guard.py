"""Limits of a parser on malformed input: it returns or raises our error, in bounded time and memory."""

from __future__ import annotations

import contextlib
import resource
import signal
from typing import TYPE_CHECKING, Final

from pate.errors import PateError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Longest that one message may take.
LIMIT_S: Final = 1.0
#: Most address space that handling messages may take beyond what the process had before.
ROOM_BYTES: Final = 256 * 2**20


class HangError(BaseException):
    """A message took too long. Not an Exception, so that no handler swallows it."""


def _ring(*_: object) -> None:
    raise HangError


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Bound memory, and let :func:`attempt` bound time, in this process, while it lasts."""
    held = _address_space()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    ringing = signal.signal(signal.SIGALRM, _ring)
    resource.setrlimit(resource.RLIMIT_AS, (held + ROOM_BYTES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.signal(signal.SIGALRM, ringing)


def attempt(feed: Callable[[], object]) -> str:
    """Feed one message and say how it went: ``taken``, or the name of our error.

    Raises:
        AssertionError: for whatever else happens: another exception, too long, too much memory.
    """
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
    try:
        feed()
    except PateError as error:
        return type(error).__name__
    except HangError:
        raise AssertionError(f"it took longer than {LIMIT_S:g} s") from None
    except MemoryError:
        raise AssertionError(f"it took more than {ROOM_BYTES >> 20} MiB") from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return "taken"


def _address_space() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - no file of ours
        return int(file.read().split()[0]) * resource.getpagesize()
