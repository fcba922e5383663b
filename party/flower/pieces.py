"""Timeout for stalled messages: waits for pieces of a message only while some arrive.

A SuperNode takes one message at a time, and Flower's waits up to two hours for a piece that its
server announced and does not have. Other messages are blocked meanwhile.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from flwr.supercore.inflatable.inflatable_utils import ObjectPullError, ObjectUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

#: How many seconds a server may have no piece for us. The time of a transfer does not count,
#: however slow the link.
SILENCE_S: Final = 60.0


def unless_silent(
    pull: Callable[..., bytes], clock: Callable[[], float] = time.monotonic
) -> Callable[..., bytes]:
    """Wrap ``pull`` so that it gives up on a stalled message.

    ``pull``: fetches a piece; it raises ObjectUnavailableError if the server has only announced it.
    The last of its arguments is the piece's name; ``clock``: seconds, monotonic.
    """
    last, under_way, lock = clock(), 0, threading.Lock()

    def pulling(*args: object) -> bytes:
        nonlocal last, under_way
        with lock:
            under_way += 1
        try:
            content = pull(*args)
        except ObjectUnavailableError:
            # Other pieces may be in transfer in other threads.
            if under_way == 1 and clock() - last > SILENCE_S:
                raise ObjectPullError(
                    str(args[-1]), f"the server has had nothing of it for {SILENCE_S:.0f} s"
                ) from None
            raise
        finally:
            with lock:
                under_way -= 1
        last = clock()
        return content

    return pulling
