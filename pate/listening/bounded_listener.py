"""A listening socket with limits on connections, per authenticated key or address and in total.

If there is no room, the oldest unauthenticated connection is closed; so new clients are always
accepted, and authenticated ones stay.
"""

from __future__ import annotations

import contextlib
import ipaddress
import resource
import socket
import threading
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

#: Wanted limit of open files; the system may allow less.
_WANTED_FILES: Final = 65_536
#: Open files reserved for other uses: registry, ledger, students, the SuperLink's log.
_RESERVE: Final = 256
_MOST: Final = 8192
_MOST_PER_ADDRESS: Final = 1024
#: Waiting connections: in total, and of one address.
_MOST_WAITING: Final = 4096
_MOST_WAITING_PER_ADDRESS: Final = 1024
#: Connections of one holder that are never evicted.
KEPT_EACH: Final = 32
#: Evicted connections that are still open; above this the newest is refused.
_MOST_GOING: Final = 64


@dataclass(frozen=True)
class Room:
    """Limits on open connections."""

    all: int
    per_address: int  # unauthenticated ones from one address; for IPv6, from one /64 network
    waiting: int = 256
    waiting_per_address: int = 256


def raise_file_limit() -> None:
    """Raise the limit of open files of this process and its children to the system's maximum."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED_FILES if hard == resource.RLIM_INFINITY else min(hard, _WANTED_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # the system may allow less than it reports
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def room_for_connections() -> Room:
    """Return how many connections the limit of open files allows.

    Each may need a second one, to the SuperLink.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = _WANTED_FILES if soft == resource.RLIM_INFINITY else soft
    free = files - min(_RESERVE, files // 2)
    waiting = max(2, min(_MOST_WAITING, free // 5))
    most = max(2, min(_MOST, (free - waiting) // 2))
    return Room(
        most,
        min(_MOST_PER_ADDRESS, max(1, most // 2)),
        waiting,
        min(_MOST_WAITING_PER_ADDRESS, max(1, waiting // 2)),
    )


class BoundedListener(socket.socket):
    """A listening socket that evicts old unauthenticated connections for new ones."""

    def __init__(self, listener: socket.socket, room: Room) -> None:
        """Take over a listening socket, which is closed with this one."""
        super().__init__(listener.family, listener.type, listener.proto, listener.detach())
        self.room = room
        self._lock = threading.Lock()
        #: All connections, the oldest first, by peer address and port.
        self._open: dict[tuple[str, int], _Counted] = {}
        #: Number of unauthenticated connections per source.
        self._held: Counter[str] = Counter()
        self._kept: Counter[object] = Counter()
        #: Evicted connections that are still open.
        self._going: set[tuple[str, int]] = set()

    def take(self) -> tuple[socket.socket, Any, str]:
        """Accept a connection without admitting it; return it, its peer, and its source."""
        handle, address = self._accept()  # type: ignore[attr-defined]
        taken = socket.socket(self.family, self.type, self.proto, fileno=handle)
        return taken, address, _network(str(address[0]))

    def let_in(self, taken: socket.socket, address: Any) -> socket.socket:
        """Admit an accepted connection, possibly evicting another; close it if none can be evicted."""
        source, client = _network(str(address[0])), (str(address[0]), int(address[1]))
        handle = taken.detach()
        with self._lock:
            goes = self._who_goes(source)
            fits = goes is None or goes in self._open
            if fits:
                self._held[source] += 1
                accepted = _Counted(self.family, self.type, self.proto, fileno=handle)
                accepted.source = source
                accepted.when_closed = lambda: self._release(client, accepted)
                self._open[client] = accepted
            leaving = None if goes is None else self._open.get(goes)
            if goes is not None and leaving is not None:
                self._going.add(goes)
        if not fits:
            socket.close(handle)
            raise ConnectionAbortedError(f"no room for another connection from {source}")
        if leaving is not None:
            leaving.leave()
        return accepted

    def reach(self, client: tuple[str, int], hang_up: Callable[[], None]) -> None:
        """Set the function that closes a connection at once."""
        with self._lock:
            found = self._open.get(client)
            if found is not None:
                found.hang_up = hang_up

    def keep(self, client: tuple[str, int], holder: object) -> None:
        """Exempt a connection from eviction, since its peer has authenticated as ``holder``.

        The number per holder is limited; others may be evicted.
        """
        with self._lock:
            found = self._open.get(client)
            if found is None or found.holder is not None or self._kept[holder] >= KEPT_EACH:
                return
            found.holder = holder
            self._kept[holder] += 1
            self._count(found.source, -1)

    def _who_goes(self, source: str) -> tuple[str, int] | None:
        """Return the connection to evict for one from ``source``; None if none must or can be."""
        everybody = len(self._open) - len(self._going)
        here = sum(
            self._open[client].source == source and self._open[client].holder is None
            for client in self._going
        )
        if self._held[source] - here >= self.room.per_address:
            crowded = source
        elif everybody >= self.room.all:
            # The source with the most connections loses one.
            crowded = max(self._held, key=self._held.__getitem__, default=source)
        else:
            return None
        may_go = (
            client
            for client, each in self._open.items()
            if each.source == crowded and each.holder is None and client not in self._going
        )
        nobody = ("", 0)
        return nobody if len(self._going) >= _MOST_GOING else next(may_go, nobody)

    def _release(self, client: tuple[str, int], gone: _Counted) -> None:
        with self._lock:
            if self._open.get(client) is gone:
                del self._open[client]
                self._going.discard(client)
            if gone.holder is None:
                self._count(gone.source, -1)
            else:
                self._kept[gone.holder] -= 1
                if self._kept[gone.holder] <= 0:
                    del self._kept[gone.holder]

    def _count(self, source: str, more: int) -> None:
        self._held[source] += more
        if self._held[source] <= 0:
            del self._held[source]


class _Counted(socket.socket):
    """A connection that reports its closing once, and can be evicted.

    ``source``: that it counts for; see :func:`_network`.
    """

    source = ""
    holder: object | None = None
    when_closed: Callable[[], None] | None = None
    hang_up: Callable[[], None] | None = None  # closes it, if another object reads from it

    def close(self) -> None:
        super().close()
        self.hang_up = None
        told, self.when_closed = self.when_closed, None
        if told is not None:
            told()

    def leave(self) -> None:
        """Shut it down from this side; its reader gets the end and closes it."""
        if self.hang_up is not None:
            self.hang_up()
            return
        with contextlib.suppress(OSError):
            self.shutdown(socket.SHUT_RDWR)


def _network(host: str) -> str:
    """Return the counted address; for IPv6 the /64 network."""
    address = ipaddress.ip_address(host)
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address.packed[:8] + bytes(8), 64)))
    return str(address)
