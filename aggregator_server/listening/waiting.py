"""Who has connected and waits to be let in: so many at a time, in turn, and no faster than we work.

To take a connection costs next to nothing; a handshake costs a millisecond of this machine, and what
is held for it 60 KiB. So whoever connects waits first, as a bare socket, until he has said something,
and is then let in: one of each address in turn, and within an address in the order in which they came.
Where there is TLS, :data:`HANDSHAKES` are begun in a second. Whoever opens connections without end so
has a share of that and no more, and whoever was let in has the time that he needs for his request
before so many others have come after him that he has to make room
(:mod:`aggregator_server.listening.bounded_listener`).
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

    from aggregator_server.listening.bounded_listener import BoundedListener

#: Handshakes that are begun in a second, and at a time after a pause. One takes about a millisecond.
HANDSHAKES: Final = 128
_AT_ONCE: Final = 32
#: Connections that are taken from the system before those that are there are looked at again.
_TAKEN_AT_ONCE: Final = 16
#: Connections that the system keeps for us until we take them.
_BACKLOG: Final = 2048
#: How long no connection is taken when there are no open files left, in seconds.
_PAUSE_S: Final = 1.0
_NO_ROOM: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


@dataclass(eq=False)
class _Waiting:
    """A connection that waits: silent at first."""

    plain: socket.socket
    address: Any
    source: str
    timer: asyncio.TimerHandle | None = None


class WaitingRoom:
    """A server whose connections wait before they are let in. Used from one event loop.

    Of asyncio's servers it is what uvicorn uses.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        listener: BoundedListener,
        protocol: Callable[[], asyncio.BaseProtocol],
        *,
        tls: ssl.SSLContext | None,
        patience: float,
        shutdown: float,
    ) -> None:
        """Begin to take connections.

        Args:
            loop: that it runs in.
            listener: where they come from; it counts those that are let in.
            protocol: makes what takes one over.
            tls: the certificate to show; None: no handshakes, and so no ration of them.
            patience: seconds after which a connection that was not let in is closed, and that a
                handshake may take.
            shutdown: seconds that the end of TLS may take.
        """
        self._loop, self._listener, self._protocol = loop, listener, protocol
        self._tls, self._patience = tls, patience
        self._deadlines: dict[str, Any] = {}
        if tls is not None:
            self._deadlines = {
                "ssl": tls,
                "ssl_handshake_timeout": patience,
                "ssl_shutdown_timeout": shutdown,
            }
        #: Those who have said nothing, the oldest first, and those who have, by source.
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
        """Return how many wait."""
        return self._held.total()

    def close(self) -> None:
        """Take no more connections, and close those that wait."""
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
        """Take some connections from the system."""
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
        """Say whether one more from ``source`` may wait, after another had to go if need be."""
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
        """Let one that has said something take its turn; one that has gone is closed."""
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
        """Let in as many as the ration allows: of each source one, in turn."""
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
        """Take one handshake off the ration, if there is one."""
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
        """Hand one over to its protocol, which keeps it."""
        try:
            counted = self._listener.let_in(each.plain, each.address)
            counted.setblocking(False)
            await self._loop.connect_accepted_socket(self._protocol, counted, **self._deadlines)
        # What goes wrong with a stranger's connection is nobody's concern, as asyncio itself has it.
        except Exception as error:  # noqa: BLE001
            # An error and what raised it refer to each other, and to the transport with its buffers.
            traceback.clear_frames(error.__traceback__)

    def _forget(self, each: _Waiting) -> None:
        if each.timer is not None:
            each.timer.cancel()
        self._held[each.source] -= 1
        if not self._held[each.source]:
            del self._held[each.source]

    def _drop(self, each: _Waiting) -> None:
        """Close one that waits."""
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
