"""Transport over Flower: wires over any of its grids."""

from __future__ import annotations

import re
import threading
import uuid
from collections import deque
from typing import TYPE_CHECKING, Final

from aggregator_server.exchange.wire import EXPIRED, GONE, LOST, RAISED, UNREADABLE, Arrival
from aggregator_server.flower.internals import LINK_ERRORS, query
from pate.errors import ProtocolError
from protos.bounds import MAX_MESSAGE
from protos.flower.carriage import pack, unpack_message
from protos.flower.runtime import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

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


class GridWire:
    """A wire over any Flower grid: of a SuperLink, of a simulation, or of this process.

    Errors of the grid itself (its link is down) pass through :meth:`nodes`, :meth:`send` and
    :meth:`receive`; the owner of the link handles them.
    """

    def __init__(
        self,
        grid: Grid,
        *,
        ttl: float = DEFAULT_TTL_S,
        limit: int = MAX_MESSAGE,
        admits: Callable[[int], bool] = lambda _: True,
        on_sent: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Use ``grid``.

        Args:
            grid: a grid whose run is set.
            ttl: lifetime of a message and its answer, in seconds.
            limit: largest accepted body from a party, in bytes.
            admits: returns whether a node is a party's. Others are never sent anything and ignored,
                even if the grid admits them.
            on_sent: called with a node when there is a message for it.
        """
        self._admits = admits
        self._on_sent = on_sent
        #: Nodes at the last check, and those of them with a new process.
        self._seen: frozenset[int] = frozenset()
        self._renewed: set[int] = set()
        #: Nodes that have answered since they connected.
        self._known: set[int] = set()
        self._grid = grid
        self._ttl = ttl
        self._limit = limit
        self._under_way: dict[str, tuple[str, int]] = {}
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
        self._known &= self._seen
        return self._seen

    def renew(self, node: int) -> None:
        """Record that a node has a new process: messages to the earlier one are lost."""
        self._renewed.add(node)
        self._known.discard(node)
        for sent, (handle, at) in list(self._under_way.items()):
            if at == node:
                del self._under_way[sent]
                self._ready.append(Arrival(handle, node, None, LOST))

    def send(self, node: int, body: bytes) -> str:
        """Send ``body`` to a party and return a handle under which the answer will arrive."""
        handle = uuid.uuid4().hex
        if not self._admits(node):
            self._ready.append(Arrival(handle, node, None, GONE))
            return handle
        # Until it has answered it is unknown which messages it reads.
        content = pack(body, as_array=node not in self._known)
        message = query(self._grid.run.run_id, node, content, self._ttl)
        # A grid returns an empty id, or none, for an unknown node.
        sent = next(iter(self._grid.push_messages([message])), None)
        if sent:
            self._under_way[sent] = (handle, node)
            self._on_sent(node)
        else:
            self._ready.append(Arrival(handle, node, None, GONE))
        return handle

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
        lost = [Arrival(handle, node, None, LOST) for handle, node in self._under_way.values()]
        arrivals, self._ready = self._ready + lost, []
        self._under_way.clear()
        return arrivals

    def close(self) -> None:
        """Forget messages under way. The grid belongs to its creator."""
        self._under_way.clear()
        self._ready.clear()

    def _arrival(self, reply: Message) -> Arrival | None:
        # Flower's own errors come from its own node: only the id identifies the party.
        known = self._under_way.pop(reply.metadata.reply_to_message_id, None)
        if known is None:
            return None
        handle, node = known
        if not self._admits(node):
            return Arrival(handle, node, None, GONE)
        if reply.has_error():
            return Arrival(handle, node, None, _failure(reply))
        try:
            body = unpack_message(reply, self._limit)
            self._known.add(node)
            return Arrival(handle, node, body, None)
        except ProtocolError:
            return Arrival(handle, node, None, UNREADABLE)


def _failure(reply: Message) -> str:
    """Translate an error of Flower. Of a party's error only the class name passes."""
    code = reply.error.code
    if code in _REASONS:
        return _REASONS[code]
    reason = reply.error.reason or ""
    name = reason if _CLASS_NAME.fullmatch(reason) else "Exception"
    return f"{RAISED} {name}"


class SwitchableWire:
    """A wire whose link may be replaced while the campaign uses it.

    Without a link no party is connected, and messages return as :data:`LOST`. A supervisor provides
    it, and calls :meth:`attach` and :meth:`detach` from its own thread.
    """

    def __init__(self, suspect: Callable[[BaseException], None]) -> None:
        """Create a wire without a link.

        Args:
            suspect: called with an error of the link, from the thread that uses the wire; it must
                not block.
        """
        self._suspect = suspect
        self._lock = threading.Lock()
        self._link: GridWire | None = None
        self._ready: list[Arrival] = []
        self._renewed: deque[int] = deque()
        self._over: PateError | None = None

    def attach(self, link: GridWire) -> None:
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
        """Record that a node has a new process; see :meth:`GridWire.renew`.

        From any thread and without blocking: it takes effect at the next call of another method.
        """
        self._renewed.append(node)

    def fail(self, error: PateError) -> None:
        """Raise ``error`` from every call from now on: the link cannot be restored."""
        self.detach()
        self._over = error

    def nodes(self) -> frozenset[int]:
        """Return the parties that are connected now.

        Raises:
            PateError: the error given to :meth:`fail`; likewise in all methods.
        """
        with self._lock:
            if (link := self._usable()) is not None:
                try:
                    return link.nodes()
                except LINK_ERRORS as error:
                    self._suspect(error)
            return frozenset()

    def send(self, node: int, body: bytes) -> str:
        """Send ``body`` to a party and return a handle under which the answer will arrive."""
        with self._lock:
            if (link := self._usable()) is not None:
                try:
                    return link.send(node, body)
                except LINK_ERRORS as error:
                    self._suspect(error)
            handle = uuid.uuid4().hex
            self._ready.append(Arrival(handle, node, None, LOST))
            return handle

    def receive(self) -> list[Arrival]:
        """Return what has arrived since the last call, without waiting."""
        with self._lock:
            link = self._usable()
            arrivals, self._ready = self._ready, []
            if link is not None:
                try:
                    arrivals += link.receive()
                except LINK_ERRORS as error:
                    self._suspect(error)
            return arrivals

    def close(self) -> None:
        """Release the link. Messages under way are forgotten."""
        self.detach()
        self._ready.clear()

    def _usable(self) -> GridWire | None:
        if self._over is not None:
            raise self._over
        while self._renewed:
            node = self._renewed.popleft()
            if self._link is not None:
                self._link.renew(node)
        return self._link
