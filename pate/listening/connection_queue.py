"""The queue of connections: bounded, fair between addresses, with rate-limited TLS.

Accepting a connection is cheap; a handshake costs a millisecond of CPU and 60 KiB of memory. So a
new connection waits as a bare socket until it has sent something, and is then admitted: one per
address in turn, and within an address in order of arrival. With TLS, :data:`HANDSHAKES` are started
per second. A client that floods the server gets only its share of them, and an admitted one has
time for its request before later ones evict it
(:mod:`pate.listening.bounded_listener`).
"""

from __future__ import annotations

import errno
import socket
import traceback
from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import asyncio
    import ssl
    from collections.abc import Callable

    from pate.listening.bounded_listener import BoundedListener

#: Handshakes started per second, and at once after a pause. One takes about a millisecond.
HANDSHAKES: Final = 128
_AT_ONCE: Final = 32
#: Connections accepted from the system before the waiting ones are checked again.
_TAKEN_AT_ONCE: Final = 16
#: The backlog of the socket.
_BACKLOG: Final = 2048
#: How long to pause accepting when no file handles are left, in seconds.
_PAUSE_S: Final = 1.0
_NO_ROOM: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


@dataclass(eq=False)
class _Waiting:
    """A waiting connection, silent at first."""

    plain: socket.socket
    address: Any
    source: str
    timer: asyncio.TimerHandle | None = None


class ConnectionQueue:
    """A server whose connections wait for admission. Used from one event loop.

    It implements the part of asyncio's servers that uvicorn uses.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        listener: BoundedListener,  # their source, which counts admitted ones
        protocol: Callable[[], asyncio.BaseProtocol],  # creates the protocol of a connection
        *,
        # the server's TLS context; None: no handshakes, and so no rate limit
        tls: ssl.SSLContext | None,
        # seconds after which a waiting connection is closed, and that a handshake may take
        patience: float,
        shutdown: float,  # seconds that the end of TLS may take
    ) -> None:
        """Start accepting connections."""
        self._loop, self._listener, self._protocol = loop, listener, protocol
        self._tls, self._patience = tls, patience
        self._deadlines: dict[str, Any] = {}
        if tls is not None:
            self._deadlines = {
                "ssl": tls,
                "ssl_handshake_timeout": patience,
                "ssl_shutdown_timeout": shutdown,
            }
        #: Silent connections, the oldest first, and others by source.
        self._silent: dict[_Waiting, None] = {}
        self._ready: dict[str, deque[_Waiting]] = {}
        self._held: Counter[str] = Counter()
        self._tokens, self._since = float(_AT_ONCE), loop.time()
        self._next: asyncio.TimerHandle | None = None
        self._inside: set[asyncio.Task[None]] = set()
        self._closed = False
        listener.setblocking(False)
        listener.listen(_BACKLOG)
        self._open()

    def __len__(self) -> int:
        """Return the number of waiting connections."""
        return self._held.total()

    def close(self) -> None:
        """Accept no more connections, and close waiting ones."""
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._listener.fileno())
        if self._next is not None:
            self._next.cancel()
        for each in [*self._silent, *(each for queue in self._ready.values() for each in queue)]:
            self._drop(each)

    async def wait_closed(self) -> None:
        """Return at once: each connection ends by itself."""

    def _open(self) -> None:
        if not self._closed:
            self._loop.add_reader(self._listener.fileno(), self._take)

    def _take(self) -> None:
        """Accept some connections from the system."""
        for _ in range(_TAKEN_AT_ONCE):
            try:
                plain, address, source = self._listener.take()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _NO_ROOM:
                    raise
                self._loop.remove_reader(self._listener.fileno())
                self._loop.call_later(_PAUSE_S, self._open)
                return
            if not self._makes_room(source):
                plain.close()
                continue
            plain.setblocking(False)
            each = _Waiting(plain, address, source)
            each.timer = self._loop.call_later(self._patience, self._drop, each)
            self._held[source] += 1
            self._silent[each] = None
            self._loop.add_reader(plain, self._spoke, each)

    def _makes_room(self, source: str) -> bool:
        """Return whether one more from ``source`` may wait, evicting another if needed."""
        room, crowded = self._listener.room, source
        if self._held[source] < room.waiting_per_address:
            if self._held.total() < room.waiting:
                return True
            crowded = max(self._held, key=self._held.__getitem__)
        silent = next((each for each in self._silent if each.source == crowded), None)
        if silent is None and crowded != source:
            silent = self._ready[crowded][-1]
        if silent is not None:
            self._drop(silent)
        return silent is not None

    def _spoke(self, each: _Waiting) -> None:
        """Queue a connection that has sent something; close one that has disconnected."""
        self._loop.remove_reader(each.plain)
        try:
            gone = each.plain.recv(1, socket.MSG_PEEK) == b""
        except BlockingIOError:
            gone = False
        except OSError:
            gone = True
        if gone:
            self._drop(each)
            return
        del self._silent[each]
        self._ready.setdefault(each.source, deque()).append(each)
        self._let_in()

    def _let_in(self) -> None:
        """Admit as many as the rate allows, one per source in turn."""
        while self._ready and self._next is None:
            if not self._may_begin():
                left = (1 - self._tokens) / HANDSHAKES
                self._next = self._loop.call_later(left, self._go_on)
                return
            source = next(iter(self._ready))
            queue = self._ready.pop(source)
            each = queue.popleft()
            if queue:
                self._ready[source] = queue
            self._forget(each)
            task = self._loop.create_task(self._serve(each))
            self._inside.add(task)
            task.add_done_callback(self._inside.discard)

    def _go_on(self) -> None:
        self._next = None
        self._let_in()

    def _may_begin(self) -> bool:
        """Consume one handshake of the rate limit, if available."""
        if self._tls is None:
            return True
        now = self._loop.time()
        self._tokens = min(_AT_ONCE, self._tokens + (now - self._since) * HANDSHAKES)
        self._since = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    async def _serve(self, each: _Waiting) -> None:
        """Pass a connection to its protocol."""
        try:
            counted = self._listener.let_in(each.plain, each.address)
            counted.setblocking(False)
            await self._loop.connect_accepted_socket(self._protocol, counted, **self._deadlines)
        # Errors of unauthenticated connections are ignored, as in asyncio itself.
        except Exception as error:  # noqa: BLE001
            # An error and its traceback refer to each other, and to the transport with its buffers.
            traceback.clear_frames(error.__traceback__)

    def _forget(self, each: _Waiting) -> None:
        if each.timer is not None:
            each.timer.cancel()
        self._held[each.source] -= 1
        if not self._held[each.source]:
            del self._held[each.source]

    def _drop(self, each: _Waiting) -> None:
        """Close a waiting connection."""
        self._forget(each)
        if each in self._silent:
            del self._silent[each]
            self._loop.remove_reader(each.plain)
        else:
            queue = self._ready[each.source]
            queue.remove(each)
            if not queue:
                del self._ready[each.source]
        each.plain.close()
