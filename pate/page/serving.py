"""A page: its routes, and the thread that serves them in parallel to the work that the page shows.

The work never waits for it: a failure here is reported once, and the work continues. Every route
requires the token unless :data:`pate.page.access.OPEN` lists it, so a new route is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator  # noqa: TC003 - FastAPI reads the annotations of routes
from typing import TYPE_CHECKING, Any, Final, Self

from fastapi import Depends, FastAPI, HTTPException, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from fastapi.sse import EventSourceResponse, ServerSentEvent
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request  # noqa: TC002 - FastAPI reads it

from pate.errors import PateError, PortInUseError, ProcessError
from pate.listening.bounded_listener import Room
from pate.listening.http_server import HttpServer
from pate.page import static
from pate.page.access import PageAccess
from pate.runtime.child import LOOPBACK, joined, listen
from pate.runtime.home import PAGE_TOKEN, kept_token

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

    from pate.listening.bounded_listener import BoundedListener
    from pate.listening.http_server import App
    from pate.runtime.screen import Screen

#: Most open connections: authenticated ones, and the same number of others.
_CONNECTIONS: Final = 64
_MAX_HEAD: Final = 16 * 1024


class TokenPage(ABC):
    """A page on a port, for whoever has the token in ``page.token``; use it as a context manager."""

    #: Default port; any free one if it is in use.
    default_port: int
    #: How to do without the page, and what continues without it.
    without: str
    what: str

    def __init__(
        self,
        home: Path,
        *,
        host: str = "127.0.0.1",
        port: int | None = None,  # 0 for any free one; None for the default
        certificate: tuple[Path, Path] | None = None,  # for TLS; needed unless the host is loopback
        names: tuple[str, ...] = (),  # of the certificate
        # called with a line for the screen and its level
        say: Callable[[str, str], None] = lambda _, __: None,
    ) -> None:
        """Take the port. Nothing is served before :meth:`start`."""
        self.home, self._say = home, say
        self._token = kept_token(home / PAGE_TOKEN)
        self._hosts = {*LOOPBACK, host, *names}
        self._http = HttpServer(
            self._listener(host, port),
            name="page",
            max_head=_MAX_HEAD,
            certificate=certificate,
            # The last line of defence: any error may end the page, and nothing else.
            on_fault=self._failed,
        )
        self.port = self._http.port
        self._secure = certificate is not None
        shown = names[0] if self._secure and names else host
        self.address = f"{'https' if self._secure else 'http'}://{joined(shown, self.port)}"
        self._closing = threading.Event()
        self._faults: set[str] = set()

    @abstractmethod
    def make_app(self, **access: Any) -> App:
        """Return the application; ``access``: most arguments of :func:`page_app`."""

    @property
    def link(self) -> str:
        """The link that opens the page in a browser. It contains the token: secret."""
        return f"{self.address}/?token={self._token}"

    def __enter__(self) -> Self:
        """Start; see :meth:`start`."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.stop()

    def tell(self, screen: Screen) -> None:
        """Report the page's address; the token is shown on a terminal only, never in a log."""
        if screen.live:
            screen.say(f"page: {self.link}")
        else:
            screen.say(
                f"page: {self.address}/ ; to open it the first time add ?token= and what is in "
                f"{self.home / PAGE_TOKEN}"
            )

    def start(self) -> None:
        """Start serving; returns when it does."""
        # New connections are always accepted: a supervisor would end a campaign after an unanswered probe.
        try:
            self._http.start(Room(_CONNECTIONS, _CONNECTIONS), self._app)
        except ProcessError as error:
            raise ProcessError(f"{error}; {self.without}") from error

    def stop(self) -> None:
        """Stop serving and release the port. Harmless if it never started."""
        self._closing.set()
        self._http.stop()

    def _app(self, listener: BoundedListener) -> App:
        return self.make_app(
            token=self._token,
            hosts=self._hosts,
            # Browsers keep cookies by name and host, not by port.
            cookie=f"pate-page-{self.port}",
            secure=self._secure,
            closing=self._closing,
            on_fault=self._failed,
            keep=lambda client: listener.keep(client, "the token"),
        )

    def _listener(self, host: str, port: int | None) -> socket.socket:
        try:
            return listen(host, self.default_port if port is None else port)
        except PortInUseError as error:
            if port is None:
                return listen(host, 0)
            raise PortInUseError(
                f"port {port} of {host} is taken; stop what uses it, choose another with "
                f"--page-port, or {self.without}"
            ) from error

    def _failed(self, error: BaseException) -> None:
        """Report a failure, each kind once: a retrying browser would fill the screen."""
        kind = type(error).__name__
        if kind not in self._faults:
            self._faults.add(kind)
            self._say(f"the page failed ({kind}); {self.what} goes on without it", "warning")


#: Most browsers that may follow the stream at a time.
STREAMS: Final = 16
#: Seconds between two looks for news, and between two keep-alive messages.
_LOOK_S: Final = 0.5
_SIGN_S: Final = 5.0

_KINDS: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


def page_app(
    told: Callable[[], str],  # what the page shows, as JSON
    files: Mapping[str, str],  # the package of each file of this page only: page.html and a script
    *,
    closing: threading.Event,
    following: set[int],  # one for each browser that follows
    # called with an internal error of the page; the client gets no details
    on_fault: Callable[[BaseException], None],
    failed: str,  # what the client gets then
    **access: Any,  # see :class:`PageAccess`
) -> FastAPI:
    """Return the application of a page."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    app.add_middleware(PageAccess, **access)
    common = dict.fromkeys(("page.css", "page.js", "page.svg"), "pate.page")
    for name, package in (common | dict(files)).items():
        path = "/" if name == "page.html" else f"/{name}"
        kind = _KINDS[name.rpartition(".")[2]]
        app.add_api_route(path, _file(static(name, package), kind), methods=["GET", "HEAD"])

    @app.exception_handler(PateError)
    async def unreadable(_: Request, error: PateError) -> Response:
        on_fault(error)
        return PlainTextResponse(f"{type(error).public}\n", 503)

    @app.exception_handler(Exception)
    async def broken(_: Request, error: Exception) -> Response:
        on_fault(error)
        return PlainTextResponse(f"{failed}\n", 500)

    @app.get("/api/overview")
    def overview() -> Response:
        return Response(told(), media_type="application/json")

    async def seat(request: Request) -> AsyncIterator[None]:
        if len(following) >= STREAMS:
            raise HTTPException(503, f"{STREAMS} browsers follow already", {"retry-after": "10"})
        following.add(id(request))
        try:
            yield
        finally:
            following.discard(id(request))

    @app.get("/api/stream", response_class=EventSourceResponse, dependencies=[Depends(seat)])
    async def stream() -> AsyncIterator[ServerSentEvent]:
        last, quiet = "", 0.0
        while not closing.is_set():
            try:
                text = await run_in_threadpool(told)
            except PateError as error:
                on_fault(error)
                return  # the browser reconnects, and finds the server gone
            if text != last:
                yield ServerSentEvent(event="overview", raw_data=text)
                last, quiet = text, 0.0
            elif quiet >= _SIGN_S:
                yield ServerSentEvent(event="sign", raw_data="-")
                quiet = 0.0
            await asyncio.sleep(_LOOK_S)
            quiet += _LOOK_S
        # The final state: without it a browser shows an end as a lost connection.
        with contextlib.suppress(PateError):
            if (text := await run_in_threadpool(told)) != last:
                yield ServerSentEvent(event="overview", raw_data=text)

    @app.exception_handler(404)
    async def absent(_: Request, __: Exception) -> Response:
        return JSONResponse({"error": "there is nothing here"}, 404)

    return app


def _file(content: bytes, kind: str) -> Callable[[], Awaitable[Response]]:
    async def answer() -> Response:
        return Response(content, media_type=kind)

    return answer
