"""Memory quotas: a total, and a limit per holder."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, MutableMapping
    from typing import Any

    Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

#: How long a request waits for memory, in seconds.
ROOM_S: Final = 20.0
#: Most waiting requests of one holder; each occupies its connection and its buffers.
MOST_WAITING: Final = 8
#: Least speed of a body: this many bytes in each span of this many seconds, or its end.
SPAN_S: Final = 10.0
SPAN_BYTES: Final = 160 * 2**10


class Allowance:
    """A quota of bytes in memory. Used from one event loop."""

    def __init__(self, in_all: int, each: int) -> None:
        self.in_all, self.each = in_all, each
        self.held: Counter[Hashable] = Counter()  # bytes of each holder now
        self._total = 0
        self._waiting: Counter[Hashable] = Counter()
        self._freed = asyncio.Event()

    @property
    def total(self) -> int:
        """Total bytes in use now."""
        return self._total

    async def take(self, holder: Hashable, amount: int, within: float | None = None) -> None:
        """Reserve ``amount`` bytes, as soon as there is room.

        ``amount``: number of bytes; more than ``each`` is never granted; ``within``: how long to
        wait, in seconds; default: :data:`ROOM_S`.
        """
        if not self._fits(holder, amount):
            if amount > min(self.in_all, self.each) or self._waiting[holder] >= MOST_WAITING:
                raise TimeoutError
            await self._wait(holder, amount, ROOM_S if within is None else within)
        self._total += amount
        self.held[holder] += amount

    def _fits(self, holder: Hashable, amount: int) -> bool:
        return self._total + amount <= self.in_all and self.held[holder] + amount <= self.each

    async def _wait(self, holder: Hashable, amount: int, within: float) -> None:
        self._waiting[holder] += 1
        try:
            async with asyncio.timeout(within):
                while not self._fits(holder, amount):
                    await self._freed.wait()
        finally:
            self._waiting[holder] -= 1
            if not self._waiting[holder]:
                del self._waiting[holder]

    def give(self, holder: Hashable, amount: int) -> None:
        """Release ``amount`` bytes."""
        self._total -= amount
        self.held[holder] -= amount
        if not self.held[holder]:
            del self.held[holder]
        # Current waiters check again; later ones wait for the next release.
        freed, self._freed = self._freed, asyncio.Event()
        freed.set()

    @asynccontextmanager
    async def holding(self, holder: Hashable, amount: int) -> AsyncIterator[None]:
        """Reserve ``amount`` bytes for the duration of a block."""
        await self.take(holder, amount)
        try:
            yield
        finally:
            self.give(holder, amount)


async def read_body(receive: Receive, most: int) -> bytes | None:
    """Read the body of a request; None if it breaks off, or has more than ``most`` bytes.

    ``receive``: returns the pieces (ASGI); ``most``: largest body, in bytes.
    """
    body, clock = bytearray(), asyncio.get_running_loop().time
    until, arrived = clock() + SPAN_S, 0
    while True:
        async with asyncio.timeout_at(until):
            message = await receive()
        if message["type"] == "http.disconnect":
            return None
        piece = message.get("body", b"")
        body += piece
        if len(body) > most:
            return None
        if not message.get("more_body", False):
            return bytes(body)
        arrived += len(piece)
        if arrived >= SPAN_BYTES:
            until, arrived = clock() + SPAN_S, 0
