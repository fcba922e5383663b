"""An event loop and a protocol that bound the resources of unauthenticated connections.

A connection costs an open file from the moment it is accepted, before TLS and long before a
request. So connections wait before they are admitted (:mod:`pate.listening.connection_queue`),
and are counted at the socket itself (:mod:`pate.listening.bounded_listener`). A
connection without a complete handshake or request in time, or whose peer does not read, is closed.
"""

from __future__ import annotations

import asyncio
import asyncio.sslproto
import logging
from typing import TYPE_CHECKING, Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

from pate.listening.bounded_listener import BoundedListener
from pate.listening.connection_queue import ConnectionQueue

if TYPE_CHECKING:
    from collections.abc import Callable

#: Seconds for a further request on a connection, and for reading an answer.
REQUEST_TIMEOUT_S: Final = 10.0
#: Seconds for which a connection may wait for admission, and in which then a handshake, and after
#: it the head of the first request, must be complete. Their resources are bounded, and the oldest
#: are evicted; a closed one may reconnect at once, which costs another handshake.
ACCEPT_TIMEOUT_S: Final = 30.0
_SHUTDOWN_S: Final = 5.0
#: Bytes buffered for sending on one connection, before its sender has to wait.
_UNSENT: Final = 64 * 2**10
#: Bytes of TLS read at a time, a buffer that each connection has from its start.
_READ: Final = 32 * 2**10


class Loop(asyncio.SelectorEventLoop):
    """An event loop whose connections wait for admission, with deadlines."""

    def __init__(self) -> None:
        """Create the loop."""
        super().__init__()
        # For the whole process: the default of 256 KiB is too much per connection.
        asyncio.sslproto.SSLProtocol.max_size = _READ

    async def create_server(self, *args: Any, **options: Any) -> Any:
        """Listen; with a connection queue and deadlines for a :class:`BoundedListener`."""
        listener = options.get("sock")
        if not isinstance(listener, BoundedListener):
            return await super().create_server(*args, **options)
        return ConnectionQueue(
            self,
            listener,
            args[0],
            tls=options.get("ssl"),
            patience=ACCEPT_TIMEOUT_S,
            shutdown=_SHUTDOWN_S,
        )


class TimedProtocol(H11Protocol):
    """HTTP/1.1 that closes a connection without a complete request head in time.

    It also closes a connection whose peer does not read its answer in time.
    """

    listener: BoundedListener | None = None  # of these connections; see :func:`protocol_of`

    def connection_made(self, transport: Any) -> None:
        """Start waiting for the first request."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=_UNSENT)
        self._waits_since = self.loop.time()
        self._stuck_since: float | None = None
        self._patience = ACCEPT_TIMEOUT_S
        self._watch = self.loop.call_later(REQUEST_TIMEOUT_S, self._look)
        if self.listener is not None and self.client is not None:
            self.listener.reach(self.client, transport.abort)

    def data_received(self, data: bytes) -> None:
        """Process data; data after closing our end is ignored.

        Under TLS the peer may then continue sending for a while.
        """
        if not self.transport.is_closing():
            super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._watch.cancel()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        # A transport and its protocol refer to each other, and under TLS have 256 KiB: the cycle is
        # broken now, without waiting for the garbage collector.
        self.transport = self.flow = self.cycle = None  # type: ignore[assignment]

    def on_response_complete(self) -> None:
        """Start waiting for the next request."""
        self._waits_since, self._patience = self.loop.time(), REQUEST_TIMEOUT_S
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Start waiting until the peer has read the answer."""
        self._stuck_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        """Stop waiting for that."""
        self._stuck_since = None
        super().resume_writing()

    def _look(self) -> None:
        under_way = self.cycle is not None and not self.cycle.response_complete
        now = self.loop.time()
        until = (now if under_way else self._waits_since) + self._patience
        if self._stuck_since is not None:
            until = min(until, self._stuck_since + REQUEST_TIMEOUT_S)
        left = until - now
        # A closing connection that still exists at the second check has unsent bytes.
        if left <= 0 or self.transport.is_closing():
            self.transport.abort()
        else:
            self._watch = self.loop.call_later(min(left, REQUEST_TIMEOUT_S), self._look)


def protocol_of(listener: BoundedListener) -> type[TimedProtocol]:
    """Return the protocol of the connections that ``listener`` accepts."""
    return type("TimedProtocol", (TimedProtocol,), {"listener": listener})


class BoundedHead:
    """An ASGI middleware that rejects requests with too large heads.

    The parser bounds incomplete heads, but accepts any head that arrives in one piece.
    """

    def __init__(self, app: Callable[..., Any], most: int) -> None:
        """Wrap ``app``.

        ``most``: largest head, in bytes: the request's line and its headers, without the spaces
        that the parser drops.
        """
        self._app = app
        self._most = most

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Refuse the request, or forward it."""
        if scope["type"] != "http" or _head(scope) <= self._most:
            await self._app(scope, receive, send)
            return
        headers = [(b"connection", b"close"), (b"content-length", b"0")]
        await send({"type": "http.response.start", "status": 431, "headers": headers})
        await send({"type": "http.response.body", "body": b""})


def _head(scope: Any) -> int:
    """Return the length of a request's head, each line with its end."""
    target = len(scope["raw_path"]) + (
        1 + len(scope["query_string"]) if scope["query_string"] else 0
    )
    line = len(scope["method"]) + target + len("  HTTP/1.1\r\n")
    return line + sum(len(name) + len(value) + 4 for name, value in scope["headers"]) + 2


def quiet_uvicorn() -> None:
    """Silence uvicorn's messages about malformed requests."""
    logger = logging.getLogger("uvicorn")
    logger.propagate = False
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
