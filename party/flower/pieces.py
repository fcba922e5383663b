"""Waiting for the pieces of a message: as long as some come, and not much longer.

A SuperNode takes one message at a time, and Flower's waits up to two hours for a piece that its
server announced and does not have. Nothing else that it is asked is looked at meanwhile.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from flwr.supercore.inflatable.inflatable_utils import ObjectPullError, ObjectUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

#: How long a server may have no piece for us, in seconds. The time in which a piece comes does not
#: count, however slow the link.
SILENCE_S: Final = 60.0


def unless_silent(
    pull: Callable[..., bytes], clock: Callable[[], float] = time.monotonic
) -> Callable[..., bytes]:
    """Return ``pull`` so that it gives a message up of which nothing comes any more.

    Args:
        pull: fetches a piece; it raises ObjectUnavailableError if the server has only announced it.
            The last of its arguments is the piece's name.
        clock: seconds, monotonic.
    """
    last, under_way, lock = clock(), 0, threading.Lock()

    def pulling(*args: object) -> bytes:
        nonlocal last, under_way
        with lock:
            under_way += 1
        try:
            content = pull(*args)
        except ObjectUnavailableError:
            # Others may be on their way, in threads of their own.
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
