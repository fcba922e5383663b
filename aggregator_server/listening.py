"""Listening where anybody may connect: what a stranger can hold is bounded before he is known.

A connection costs an open file from the moment it is accepted, before TLS and long before a
request. So connections are counted at the socket itself, all together and per address, and those
above the bound are closed unread; and a connection on which no request becomes complete, or no
handshake, is closed after a while.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import resource
import socket
import threading
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

#: Seconds in which a handshake, and after it the head of a request, must be complete.
PATIENCE_S: Final = 10.0
_SHUTDOWN_S: Final = 5.0
#: Open files that are wanted; what the system allows may be less.
_WANTED_FILES: Final = 65_536
#: Open files that are kept for all else: registry, ledger, students, the SuperLink's log.
_RESERVE: Final = 256
_MOST: Final = 8192
_MOST_PER_ADDRESS: Final = 256


@dataclass(frozen=True)
class Room:
    """How many connections are held at once.

    Attributes:
        all: from everywhere.
        per_address: from one address; of IPv6, from one network of 64 bits.
    """

    all: int
    per_address: int


def raise_file_limit() -> None:
    """Let this process, and those that it starts, open as many files as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED_FILES if hard == resource.RLIM_INFINITY else min(hard, _WANTED_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # a system may allow less than it says
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def room_for_connections() -> Room:
    """Return how many connections the limit of open files has room for.

    Each may need a second one, to the SuperLink.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = _WANTED_FILES if soft == resource.RLIM_INFINITY else soft
    most = max(2, min(_MOST, (files - min(_RESERVE, files // 2)) // 2))
    return Room(most, min(_MOST_PER_ADDRESS, max(1, most // 2)))


class BoundedListener(socket.socket):
    """A listening socket that closes at once whom it has no room for."""

    def __init__(self, listener: socket.socket, room: Room) -> None:
        """Take over a socket that listens; ``listener`` is closed by it."""
        super().__init__(listener.family, listener.type, listener.proto, listener.detach())
        self._room = room
        self._lock = threading.Lock()
        self._held: Counter[str] = Counter()

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection for which there is room.

        Raises:
            ConnectionAbortedError: if there was none; the next may be accepted.
        """
        handle, address = self._accept()  # type: ignore[attr-defined]
        source = _network(str(address[0]))
        with self._lock:
            fits = (
                self._held.total() < self._room.all and self._held[source] < self._room.per_address
            )
            if fits:
                self._held[source] += 1
        if not fits:
            socket.close(handle)
            raise ConnectionAbortedError(f"no room for another connection from {source}")
        accepted = _Counted(self.family, self.type, self.proto, fileno=handle)
        accepted.when_closed = lambda: self._release(source)
        return accepted, address

    def _release(self, source: str) -> None:
        with self._lock:
            self._held[source] -= 1
            if self._held[source] <= 0:
                del self._held[source]


class _Counted(socket.socket):
    """A connection that says once when it is closed."""

    when_closed: Callable[[], None] | None = None

    def close(self) -> None:
        super().close()
        told, self.when_closed = self.when_closed, None
        if told is not None:
            told()


def _network(host: str) -> str:
    """Return what counts as one address: who has one of IPv6 has 2^64 of them."""
    address = ipaddress.ip_address(host)
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address.packed[:8] + bytes(8), 64)))
    return str(address)


class Loop(asyncio.SelectorEventLoop):
    """An event loop whose servers wait for a handshake no longer than for a request."""

    async def create_server(self, *args: Any, **options: Any) -> Any:
        """Listen, with deadlines where there is TLS."""
        if options.get("ssl") is not None:
            options.setdefault("ssl_handshake_timeout", PATIENCE_S)
            options.setdefault("ssl_shutdown_timeout", _SHUTDOWN_S)
        return await super().create_server(*args, **options)


class ImpatientProtocol(H11Protocol):
    """HTTP/1.1 that closes a connection on which no request head becomes complete in time."""

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._waits_since = self.loop.time()
        self._watch = self.loop.call_later(PATIENCE_S, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._watch.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        self._waits_since = self.loop.time()
        super().on_response_complete()

    def _look(self) -> None:
        under_way = self.cycle is not None and not self.cycle.response_complete
        left = PATIENCE_S if under_way else self._waits_since + PATIENCE_S - self.loop.time()
        if left <= 0:
            self.transport.abort()
        else:
            self._watch = self.loop.call_later(left, self._look)


def quiet_uvicorn() -> None:
    """Keep what strangers provoke out of the operator's screen; uvicorn would say it there."""
    logger = logging.getLogger("uvicorn")
    logger.propagate = False
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
