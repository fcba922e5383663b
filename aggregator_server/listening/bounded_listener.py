"""A socket that counts whom it lets in: by the keys of those who showed one, else by address, and in all.

Where there is no room for another connection, the oldest goes on which nobody has said who he is; so
whoever comes is let in, whatever others hold, and who has said so stays.
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

#: Open files that are wanted; what the system allows may be less.
_WANTED_FILES: Final = 65_536
#: Open files that are kept for all else: registry, ledger, students, the SuperLink's log.
_RESERVE: Final = 256
_MOST: Final = 8192
_MOST_PER_ADDRESS: Final = 1024
#: Connections that wait before they are let in: all, and of one address.
_MOST_WAITING: Final = 4096
_MOST_WAITING_PER_ADDRESS: Final = 1024
#: Connections of one holder that stay whatever comes.
KEPT_EACH: Final = 32
#: Connections that were told to go and are still open; if there are more, the newest is refused.
_MOST_GOING: Final = 64


@dataclass(frozen=True)
class Room:
    """How many connections are held at once.

    Attributes:
        all: from everywhere.
        per_address: from one address, without those who have said who they are; of IPv6, from one
            network of 64 bits.
        waiting: from everywhere, that have not been let in yet.
        waiting_per_address: the same from one address.
    """

    all: int
    per_address: int
    waiting: int = 256
    waiting_per_address: int = 256


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
    """A listening socket that has room for so many, and for the newest of those it does not know.

    Attributes:
        room: for how many.
    """

    def __init__(self, listener: socket.socket, room: Room) -> None:
        """Take over a socket that listens; ``listener`` is closed by it."""
        super().__init__(listener.family, listener.type, listener.proto, listener.detach())
        self.room = room
        self._lock = threading.Lock()
        #: All connections, the oldest first, by the address and the port of the other end.
        self._open: dict[tuple[str, int], _Counted] = {}
        #: How many there are of each source, without those whose holder is known.
        self._held: Counter[str] = Counter()
        self._kept: Counter[object] = Counter()
        #: Those that were told to go and have not gone yet.
        self._going: set[tuple[str, int]] = set()

    def take(self) -> tuple[socket.socket, Any, str]:
        """Take a connection that is not let in yet; return it, whose it is, and its source.

        Raises:
            OSError: if there is none, as of any socket.
        """
        handle, address = self._accept()  # type: ignore[attr-defined]
        taken = socket.socket(self.family, self.type, self.proto, fileno=handle)
        return taken, address, _network(str(address[0]))

    def let_in(self, taken: socket.socket, address: Any) -> socket.socket:
        """Let in a connection that was taken, for which another may have to go.

        Raises:
            ConnectionAbortedError: if all must stay; ``taken`` is closed then.
        """
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
        """Say how a connection is closed at once, by what has taken it over meanwhile."""
        with self._lock:
            found = self._open.get(client)
            if found is not None:
                found.hang_up = hang_up

    def keep(self, client: tuple[str, int], holder: object) -> None:
        """Let a connection stay, since its other end has shown that it is ``holder``.

        Of one holder so many stay; the others may have to go for somebody new.
        """
        with self._lock:
            found = self._open.get(client)
            if found is None or found.holder is not None or self._kept[holder] >= KEPT_EACH:
                return
            found.holder = holder
            self._kept[holder] += 1
            self._count(found.source, -1)

    def _who_goes(self, source: str) -> tuple[str, int] | None:
        """Return who makes room for one more from ``source``; None: nobody must, or can."""
        everybody = len(self._open) - len(self._going)
        here = sum(
            self._open[client].source == source and self._open[client].holder is None
            for client in self._going
        )
        if self._held[source] - here >= self.room.per_address:
            crowded = source
        elif everybody >= self.room.all:
            # Whoever has the most connections has to give one up.
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
    """A connection that says once when it is closed, and can be told to go.

    Attributes:
        source: what it counts for; see :func:`_network`.
        holder: who has shown that it is his, or None.
        when_closed: called when it is closed.
        hang_up: closes it, if something else reads from it by now.
    """

    source = ""
    holder: object | None = None
    when_closed: Callable[[], None] | None = None
    hang_up: Callable[[], None] | None = None

    def close(self) -> None:
        super().close()
        self.hang_up = None
        told, self.when_closed = self.when_closed, None
        if told is not None:
            told()

    def leave(self) -> None:
        """End it from this side. Whoever reads from it meets its end, and closes it."""
        if self.hang_up is not None:
            self.hang_up()
            return
        with contextlib.suppress(OSError):
            self.shutdown(socket.SHUT_RDWR)


def _network(host: str) -> str:
    """Return what counts as one address: who has one of IPv6 has 2^64 of them."""
    address = ipaddress.ip_address(host)
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address.packed[:8] + bytes(8), 64)))
    return str(address)
