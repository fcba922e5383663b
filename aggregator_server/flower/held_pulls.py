"""Long polling: pulls are held at the gateway until there is a message.

A SuperNode polls for its next message: if often, a thousand of them keep the server busy; if
seldom, each step of a sum waits for the slowest. So a pull that finds nothing is held until this
server has sent something to that node, or for :data:`HOLD_S`. Then the node is asked to poll again,
which our SuperNode does at once. An idle node costs one request in that time, and a message is
fetched as soon as it was sent.

A held pull is never answered with a message: the connection may have died unnoticed, and a
SuperLink delivers a message once. A node has one held pull; a later one replaces it, so their
number is bounded by the number of nodes.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from protos.flower.node_session import HELD_HEADER

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
    Answer = tuple[int, list[tuple[bytes, bytes]], bytes]

#: Seconds for which a pull is held. A SuperNode gives up a request after 30.
HOLD_S: Final = 10.0
_OK: Final = 200
_HELD: Final = (HELD_HEADER.encode(), b"1")


class HeldPulls:
    """The held pulls. :meth:`pull` runs in one event loop, other methods in any thread."""

    def __init__(self, hold: float = HOLD_S) -> None:
        """Hold pulls for up to ``hold`` seconds."""
        self._hold = hold
        self._lock = threading.Lock()
        #: Number of messages sent to each node, so that none is missed between two checks.
        self._sent: Counter[int] = Counter()
        self._held: dict[int, _Held] = {}
        self._closed = False

    def wake(self, node: int) -> None:
        """Record that a message was sent to ``node``, and answer its held pull."""
        with self._lock:
            self._sent[node] += 1
            held = self._held.get(node)
        if held is not None:
            held.end()

    def release(self, node: int) -> bool:
        """Answer a held pull of ``node`` now; return whether there was one."""
        with self._lock:
            held = self._held.get(node)
        if held is not None:
            held.end()
        return held is not None

    def release_all(self) -> None:
        """Answer all held pulls."""
        with self._lock:
            released = list(self._held.values())
        for held in released:
            held.end()

    def close(self) -> None:
        """Answer all held pulls, and hold no more."""
        self._closed = True
        self.release_all()

    async def pull(
        self, node: int, ask: Callable[[], Awaitable[Answer]], receive: Receive
    ) -> Answer:
        """Answer a pull of ``node``: at once if there is a message, else when it should poll again.

        ``node``: of the pull, if the SuperLink accepts it: refused pulls are not held; ``receive``:
        reports when the client has disconnected.
        """
        sent = self._sent[node]
        answer = await ask()
        status, headers, body = answer
        if status != _OK or body or self._closed:
            return answer
        held = _Held()
        with self._lock:
            if self._sent[node] != sent:
                held.end()
            older = self._held.get(node)
            self._held[node] = held
        if older is not None:
            older.end()
        try:
            await held.wait(self._hold, receive)
        finally:
            with self._lock:
                if self._held.get(node) is held:
                    del self._held[node]
        return status, [*headers, _HELD], body


class _Held:
    """One held pull, in the event loop in which it was created."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._over = asyncio.Event()

    def end(self) -> None:
        """End the wait, from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop has ended, and so has the wait
            self._loop.call_soon_threadsafe(self._over.set)

    async def wait(self, seconds: float, receive: Receive) -> None:
        """Wait for the end, or until the client has disconnected, at most ``seconds``."""
        either = {asyncio.ensure_future(self._over.wait()), asyncio.ensure_future(_gone(receive))}
        try:
            await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in either:
                each.cancel()


async def _gone(receive: Receive) -> bool:
    """Return when the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass
    return True
