"""An event loop and a protocol that bound what a stranger can hold before he is known.

A connection costs an open file from the moment it is accepted, before TLS and long before a
request. So connections wait before they are let in (:mod:`aggregator_server.listening.waiting`), and
are counted at the socket itself (:mod:`aggregator_server.listening.bounded_listener`). A connection
on which no request becomes complete, or no handshake, or whose other end does not take what is sent,
is closed after a while.
"""

from __future__ import annotations

import asyncio
import asyncio.sslproto
import logging
from typing import TYPE_CHECKING, Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

from aggregator_server.listening.bounded_listener import BoundedListener
from aggregator_server.listening.waiting import WaitingRoom

if TYPE_CHECKING:
    from collections.abc import Callable

#: Seconds in which a further request on a connection must be complete, and an answer be taken.
PATIENCE_S: Final = 10.0
#: Seconds for which a connection may wait to be let in, and in which then a handshake, and after it the
#: head of the first request, must be complete. What they hold is bounded, and the oldest make room; and
#: each that is closed may come again at once, which costs another handshake.
FIRST_PATIENCE_S: Final = 30.0
_SHUTDOWN_S: Final = 5.0
#: Bytes that wait in this process to be sent on one connection, before its sender has to wait.
_UNSENT: Final = 64 * 2**10
#: Bytes that are read of TLS at a time. Each connection has so many set aside, from its first moment.
_READ: Final = 32 * 2**10


class Loop(asyncio.SelectorEventLoop):
    """An event loop whose connections wait before they are let in, and not for long after that."""

    def __init__(self) -> None:
        """Make one."""
        super().__init__()
        # Of the whole process: 256 KiB, the default, are too much to give to whoever connects.
        asyncio.sslproto.SSLProtocol.max_size = _READ

    async def create_server(self, *args: Any, **options: Any) -> Any:
        """Listen; with a waiting room and deadlines where the socket is one of ours."""
        listener = options.get("sock")
        if not isinstance(listener, BoundedListener):
            return await super().create_server(*args, **options)
        return WaitingRoom(
            self,
            listener,
            args[0],
            tls=options.get("ssl"),
            patience=FIRST_PATIENCE_S,
            shutdown=_SHUTDOWN_S,
        )


class ImpatientProtocol(H11Protocol):
    """HTTP/1.1 that closes a connection on which no request head becomes complete in time.

    Nor does it wait longer for an other end that does not take its answer.

    Attributes:
        listener: whose connections these are; see :func:`protocol_of`.
    """

    listener: BoundedListener | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for the first request."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=_UNSENT)
        self._waits_since = self.loop.time()
        self._stuck_since: float | None = None
        self._patience = FIRST_PATIENCE_S
        self._watch = self.loop.call_later(PATIENCE_S, self._look)
        if self.listener is not None and self.client is not None:
            self.listener.reach(self.client, transport.abort)

    def data_received(self, data: bytes) -> None:
        """Take what has come; what comes after our end of it was closed is nobody's any more.

        Under TLS the other end may go on sending for a while then.
        """
        if not self.transport.is_closing():
            super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._watch.cancel()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        # A transport refers to its protocol, and under TLS holds 256 KiB: it is let go of now, and
        # not when the garbage collector comes by.
        self.transport = self.flow = self.cycle = None  # type: ignore[assignment]

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        self._waits_since, self._patience = self.loop.time(), PATIENCE_S
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Begin to wait until the other end has taken what was sent."""
        self._stuck_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        """Wait for that no more."""
        self._stuck_since = None
        super().resume_writing()

    def _look(self) -> None:
        under_way = self.cycle is not None and not self.cycle.response_complete
        now = self.loop.time()
        until = (now if under_way else self._waits_since) + self._patience
        if self._stuck_since is not None:
            until = min(until, self._stuck_since + PATIENCE_S)
        left = until - now
        # One that is being closed, and is still here at the second look, has unsent bytes.
        if left <= 0 or self.transport.is_closing():
            self.transport.abort()
        else:
            self._watch = self.loop.call_later(min(left, PATIENCE_S), self._look)


def protocol_of(listener: BoundedListener) -> type[ImpatientProtocol]:
    """Return the protocol of the connections that ``listener`` accepts."""
    return type("ImpatientProtocol", (ImpatientProtocol,), {"listener": listener})


class BoundedHead:
    """An ASGI application that does not hear of requests with a larger head than allowed.

    The parser bounds a head that is not complete; one that comes in one piece it takes whole.
    """

    def __init__(self, app: Callable[..., Any], most: int) -> None:
        """Stand before ``app``.

        Args:
            app: what answers.
            most: largest head, in bytes: the request's line and its headers, without the spaces
                that the parser drops.
        """
        self._app = app
        self._most = most

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Refuse the request, or pass it on."""
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
    """Keep what strangers provoke out of the operator's screen; uvicorn would say it there."""
    logger = logging.getLogger("uvicorn")
    logger.propagate = False
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
