"""Memory that is shared: so many bytes for all who hold some, and so many for each of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, MutableMapping
    from typing import Any

    Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

#: How long somebody waits for room that others have, in seconds.
ROOM_S: Final = 20.0
#: How many may wait so of one holder; each of them holds its connection, and what is buffered on it.
MOST_WAITING: Final = 8
#: The slowest that a body may arrive: in each span of so many seconds so many bytes, or its end.
SPAN_S: Final = 10.0
SPAN_BYTES: Final = 160 * 2**10


class Allowance:
    """Bytes that may be held at a time. Used from one event loop.

    Attributes:
        in_all: by everybody.
        each: by one holder.
        held: how many each holder has now.
    """

    def __init__(self, in_all: int, each: int) -> None:
        self.in_all, self.each = in_all, each
        self.held: Counter[Hashable] = Counter()
        self._total = 0
        self._waiting: Counter[Hashable] = Counter()
        self._freed = asyncio.Event()

    @property
    def total(self) -> int:
        """How many bytes are held now."""
        return self._total

    async def take(self, holder: Hashable, amount: int, within: float | None = None) -> None:
        """Hold ``amount`` bytes more, as soon as there is room.

        Args:
            holder: who holds them.
            amount: how many; more than one may ever hold are never given.
            within: how long to wait, in seconds; left out, :data:`ROOM_S`.

        Raises:
            TimeoutError: if there was no room for so long, or too many of this holder wait already.
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
        """Hold ``amount`` bytes less."""
        self._total -= amount
        self.held[holder] -= amount
        if not self.held[holder]:
            del self.held[holder]
        # Whoever waits looks again; who comes later waits for the next time.
        freed, self._freed = self._freed, asyncio.Event()
        freed.set()

    @asynccontextmanager
    async def holding(self, holder: Hashable, amount: int) -> AsyncIterator[None]:
        """Hold ``amount`` bytes for the length of a block.

        Raises:
            TimeoutError: if there was no room for them; see :meth:`take`.
        """
        await self.take(holder, amount)
        try:
            yield
        finally:
            self.give(holder, amount)


async def read_body(receive: Receive, most: int) -> bytes | None:
    """Read the body of a request; None if it breaks off, or has more than ``most`` bytes.

    Args:
        receive: gives the pieces (ASGI).
        most: largest body, in bytes.

    Raises:
        TimeoutError: if it comes more slowly than :data:`SPAN_BYTES` in :data:`SPAN_S`.
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
