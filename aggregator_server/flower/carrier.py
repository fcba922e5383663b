"""The carrier over Flower: any of its grids, whose link may be replaced while a campaign uses it."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Final

from aggregator_server.exchange.carrier import (
    EXPIRED,
    GONE,
    LOST,
    RAISED,
    UNREADABLE,
    Arrival,
    Carrier,
)
from aggregator_server.flower.internals import LINK_ERRORS, query
from pate.errors import ProtocolError
from protos.bounds import MAX_MESSAGE
from protos.flower.carriage import pack, unpack_message
from protos.flower.runtime import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from flwr.app import Message
    from flwr.serverapp import Grid

    from pate.errors import PateError

#: Default lifetime of a message and its answer, in seconds.
DEFAULT_TTL_S: Final = 3600.0

#: Number of messages whose answers are fetched at once.
_MOST_AT_ONCE: Final = 32

_REASONS: Final = {
    ErrorCode.MESSAGE_UNAVAILABLE: EXPIRED,
    ErrorCode.REPLY_MESSAGE_UNAVAILABLE: UNREADABLE,
    ErrorCode.NODE_UNAVAILABLE: GONE,
    ErrorCode.CLIENT_APP_CRASHED: GONE,
}
_CLASS_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


class GridCarrier(Carrier):
    """A carrier over any Flower grid: of a SuperLink, of a simulation, or of this process.

    Errors of the grid itself (its link is down) pass through :meth:`nodes`, :meth:`send` and
    :meth:`receive`; the owner of the link handles them.
    """

    def __init__(
        self,
        grid: Grid,
        *,
        ttl: float = DEFAULT_TTL_S,  # lifetime of a message and its answer, in seconds
        limit: int = MAX_MESSAGE,  # largest accepted body from a party, in bytes
        # returns whether a node is a party's. Others are never sent anything and ignored, even if
        # the grid admits them
        admits: Callable[[int], bool] = lambda _: True,
        # called with a node when there is a message for it
        on_sent: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._admits = admits
        self._on_sent = on_sent
        #: Nodes at the last check, and those of them with a new process.
        self._seen: frozenset[int] = frozenset()
        self._renewed: set[int] = set()
        self._grid = grid
        self._ttl = ttl
        self._limit = limit
        #: Recipient and digest of the requests under way, by the id of the message.
        self._under_way: dict[str, tuple[int, bytes]] = {}
        #: Messages under way, in polling order.
        self._turn: list[str] = []
        self._ready: list[Arrival] = []

    def nodes(self) -> frozenset[int]:
        """Return the parties that are connected now.

        A renewed node is absent once, so that callers recognise it as new.
        """
        here = frozenset(filter(self._admits, self._grid.get_node_ids()))
        renewed, self._renewed = self._renewed & self._seen, set()
        self._seen = here - renewed
        return self._seen

    def renew(self, node: int) -> None:
        """Record that a node has a new process: messages to the earlier one are lost."""
        self._renewed.add(node)
        for sent, (at, digest) in list(self._under_way.items()):
            if at == node:
                del self._under_way[sent]
                self._ready.append(Arrival(node, digest, None, LOST))

    def send(self, node: int, digest: bytes, body: bytes) -> None:
        """Send a request to a party; what becomes of it will arrive under its digest."""
        sent = None
        if self._admits(node):
            message = query(self._grid.run.run_id, node, pack(body), self._ttl)
            # A grid returns an empty id, or none, for an unknown node.
            sent = next(iter(self._grid.push_messages([message])), None)
        if sent:
            self._under_way[sent] = (node, digest)
            self._on_sent(node)
        else:
            self._ready.append(Arrival(node, digest, None, GONE))

    def receive(self) -> list[Arrival]:
        """Return what has arrived since the last call, without waiting."""
        arrivals, self._ready = self._ready, []
        if arrivals:
            return arrivals
        # A few at a time: a thousand answers need not be in memory at once.
        for _ in range(0, len(self._under_way) + _MOST_AT_ONCE, _MOST_AT_ONCE):
            if not (turn := [i for i in self._turn if i in self._under_way]):
                turn = list(self._under_way)
            asked, self._turn = turn[:_MOST_AT_ONCE], turn[_MOST_AT_ONCE:]
            replies = self._grid.pull_messages(asked)
            arrivals = [a for a in map(self._arrival, replies) if a is not None]
            if arrivals:
                break
        return arrivals

    def abandon(self) -> list[Arrival]:
        """Abandon all messages under way, and return them as :data:`LOST`."""
        lost = [Arrival(node, digest, None, LOST) for node, digest in self._under_way.values()]
        arrivals = self._ready + lost
        self.close()
        return arrivals

    def close(self) -> None:
        """Forget messages under way. The grid belongs to its creator."""
        self._under_way.clear()
        self._ready = []

    def _arrival(self, reply: Message) -> Arrival | None:
        # Flower's own errors come from its own node: only the id identifies the party.
        known = self._under_way.pop(reply.metadata.reply_to_message_id, None)
        if known is None:
            return None
        node, digest = known
        if not self._admits(node):
            return Arrival(node, digest, None, GONE)
        if reply.has_error():
            return Arrival(node, digest, None, _failure(reply))
        try:
            return Arrival(node, digest, unpack_message(reply, self._limit), None)
        except ProtocolError:
            return Arrival(node, digest, None, UNREADABLE)


def _failure(reply: Message) -> str:
    """Translate an error of Flower. Of a party's error only the class name passes."""
    code = reply.error.code
    if code in _REASONS:
        return _REASONS[code]
    reason = reply.error.reason or ""
    name = reason if _CLASS_NAME.fullmatch(reason) else "Exception"
    return f"{RAISED} {name}"


class SwitchableCarrier:
    """A carrier whose link may be replaced while the campaign uses it.

    Without a link no party is connected, and messages return as :data:`LOST`. A supervisor provides
    it, and calls :meth:`attach` and :meth:`detach` from its own thread.
    """

    store: Final = None

    def __init__(
        self,
        # called with an error of the link, from the thread that uses the carrier; it must not block
        suspect: Callable[[BaseException], None],
        # returns the names of parties that are reconnecting
        returning: Callable[[], Collection[str]] = frozenset,
        # waits that many seconds, or less if something may have arrived
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._suspect = suspect
        self.returning, self.pause = returning, pause
        self._lock = threading.Lock()
        self._link: GridCarrier | None = None
        self._ready: list[Arrival] = []
        self._renewed: deque[int] = deque()
        self._over: PateError | None = None

    def attach(self, link: GridCarrier) -> None:
        """Use ``link`` from now on."""
        with self._lock:
            self._link = link

    def detach(self) -> int:
        """Remove the link; messages under way are lost. Returns their number."""
        with self._lock:
            link, self._link = self._link, None
            lost = [] if link is None else link.abandon()
            self._ready += lost
            return sum(arrival.failure == LOST for arrival in lost)

    def renew(self, node: int) -> None:
        """Record that a node has a new process; see :meth:`GridCarrier.renew`.

        From any thread and without blocking: it takes effect at the next call of another method.
        """
        self._renewed.append(node)

    def fail(self, error: PateError) -> None:
        """Raise ``error`` from every call from now on: the link cannot be restored."""
        self.detach()
        self._over = error

    def nodes(self) -> frozenset[int]:
        """Return the parties that are connected now."""
        with self._reachable() as link:
            if link is not None:
                return link.nodes()
        return frozenset()

    def send(self, node: int, digest: bytes, body: bytes) -> None:
        """Send a request to a party; what becomes of it will arrive under its digest."""
        with self._reachable() as link:
            if link is not None:
                link.send(node, digest, body)
                return
        self._ready.append(Arrival(node, digest, None, LOST))

    def receive(self) -> list[Arrival]:
        """Return what has arrived since the last call, without waiting."""
        with self._reachable() as link:
            arrivals, self._ready = self._ready, []
            if link is not None:
                arrivals += link.receive()
        return arrivals

    def close(self) -> None:
        """Release the link. Messages under way are forgotten."""
        self.detach()
        self._ready.clear()

    @contextlib.contextmanager
    def _reachable(self) -> Iterator[GridCarrier | None]:
        """Lock the link and yield it, None without one; an error of it ends the block, and is reported."""
        with self._lock:
            if self._over is not None:
                raise self._over
            while self._renewed:
                node = self._renewed.popleft()
                if self._link is not None:
                    self._link.renew(node)
            try:
                yield self._link
            except LINK_ERRORS as error:
                self._suspect(error)
