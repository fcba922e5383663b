"""Flower's SuperNode as a process of ours, which looks for the next message sooner.

Between two looks at the server Flower's SuperNode sleeps three seconds, always. A masked sum has
five steps, each of which waits for it; so for a while after a message this one sleeps half a
second. Nothing else of it is changed. ``tests/test_flower_internals.py`` holds the names that this
relies on; without them it is Flower's SuperNode as it is, and slower.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Final

from flwr.supernode.cli.flower_supernode import flower_supernode
from flwr.supernode.start_client_internal import start_client_internal

if TYPE_CHECKING:
    from collections.abc import Callable

#: What the loop gets messages with.
_PULL: Final = "_pull_and_store_message"
#: Flower's own pause, and the one that takes its place, in seconds.
SLOW_S: Final = 3
_QUICK_S: Final = 0.5
#: How long after a message the next one is looked for soon: parties may take that long to train
#: nothing more and vote.
_LIVELY_S: Final = 120.0


class Pauses:
    """Stands in for :mod:`time` in Flower's loop.

    Args:
        clock: seconds, monotonic.
        sleep: waits that many seconds.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._last: float | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def noted(self, pull: Callable[..., int | None]) -> Callable[..., int | None]:
        """Return ``pull`` so that it notes when it got a message."""

        def pulling(*args: object, **kwargs: object) -> int | None:
            run = pull(*args, **kwargs)
            if run is not None:
                self._last = self._clock()
            return run

        return pulling

    def sleep(self, seconds: float) -> None:
        """Sleep, and less than Flower would while messages come."""
        if seconds == SLOW_S and self._last is not None and self._clock() - self._last < _LIVELY_S:
            seconds = _QUICK_S
        self._sleep(seconds)


def main() -> None:
    """Run the SuperNode with the arguments of this process."""
    pauses, loop = Pauses(), sys.modules[start_client_internal.__module__]
    pull = getattr(loop, _PULL, None)
    if pull is not None and hasattr(loop, "time"):
        setattr(loop, _PULL, pauses.noted(pull))
        loop.time = pauses  # type: ignore[attr-defined]
    flower_supernode()
