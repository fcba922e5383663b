"""Sending bytes to parties and getting bytes back over Flower: wires over any of its grids."""

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

#: How long a message and its answer are good for, unless it is said otherwise, in seconds.
DEFAULT_TTL_S: Final = 3600.0

#: Messages whose answers are fetched in one go.
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

    What the grid itself raises (its link is down) passes through :meth:`nodes`, :meth:`send` and
    :meth:`receive`; whoever owns the link decides what that means.
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
        """Speak through ``grid``.

        Args:
            grid: a grid whose run is set.
            ttl: how long a message and its answer are good for, in seconds.
            limit: largest body that is accepted from a party, in bytes.
            admits: says of a node whether it is a party's. Whoever it does not admit is never
                sent anything nor heard, whatever the grid lets in.
            on_sent: called with a node when a message to it is there to be fetched.
        """
        self._admits = admits
        self._on_sent = on_sent
        #: Nodes that were there at the last look, and those of them at which others are now.
        self._seen: frozenset[int] = frozenset()
        self._renewed: set[int] = set()
        #: Those that have answered since they came.
        self._known: set[int] = set()
        self._grid = grid
        self._ttl = ttl
        self._limit = limit
        self._under_way: dict[str, tuple[str, int]] = {}
        #: Of those under way, which are asked about next.
        self._turn: list[str] = []
        self._ready: list[Arrival] = []

    def nodes(self) -> frozenset[int]:
        """Return the parties that are connected now.

        A node that was renewed is absent once, so that whoever looks knows it for a new one.
        """
        here = frozenset(filter(self._admits, self._grid.get_node_ids()))
        renewed, self._renewed = self._renewed & self._seen, set()
        self._seen = here - renewed
        self._known &= self._seen
        return self._seen

    def renew(self, node: int) -> None:
        """Take note that another process is at a node: what the one before was sent is lost."""
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
        # Until it has answered nobody knows what it reads.
        content = pack(body, as_array=node not in self._known)
        message = query(self._grid.run.run_id, node, content, self._ttl)
        # An empty id, or none at all, is how a grid says that it does not know the node.
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
        # A few at a time: the answers of a thousand parties need not be in memory together.
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
        """Give up all that is under way, and return it as :data:`LOST`."""
        lost = [Arrival(handle, node, None, LOST) for handle, node in self._under_way.values()]
        arrivals, self._ready = self._ready + lost, []
        self._under_way.clear()
        return arrivals

    def close(self) -> None:
        """Forget what was under way. The grid belongs to whoever made it."""
        self._under_way.clear()
        self._ready.clear()

    def _arrival(self, reply: Message) -> Arrival | None:
        # Errors that Flower makes itself come from Flower's own node: only the id tells the party.
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
    """Put an error of Flower into our words. Of a party's own words only a class name passes."""
    code = reply.error.code
    if code in _REASONS:
        return _REASONS[code]
    reason = reply.error.reason or ""
    name = reason if _CLASS_NAME.fullmatch(reason) else "Exception"
    return f"{RAISED} {name}"


class SwitchableWire:
    """A wire whose link may be taken away and replaced while the campaign holds on to it.

    Without a link nobody is connected, and what is sent comes back as :data:`LOST`. It is what a
    supervisor hands out: it calls :meth:`attach` and :meth:`detach` from its own thread.
    """

    def __init__(self, suspect: Callable[[BaseException], None]) -> None:
        """Make a wire without a link.

        Args:
            suspect: called with what the link raised, from the thread that uses the wire; it must
                not wait.
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
        """Take the link away; what was under way is lost. Returns how many messages that were."""
        with self._lock:
            link, self._link = self._link, None
            lost = [] if link is None else link.abandon()
            self._ready += lost
            return sum(arrival.failure == LOST for arrival in lost)

    def renew(self, node: int) -> None:
        """Take note that another process is at a node; see :meth:`GridWire.renew`.

        From any thread and without waiting: it counts from the next call of another method on.
        """
        self._renewed.append(node)

    def fail(self, error: PateError) -> None:
        """Raise ``error`` from every call from now on: the link cannot be had again."""
        self.detach()
        self._over = error

    def nodes(self) -> frozenset[int]:
        """Return the parties that are connected now.

        Raises:
            PateError: what :meth:`fail` was called with; as all methods do.
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
        """Let go of the link. What was under way is forgotten."""
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
