"""Routes of the page: its files, the overview as JSON and as a stream, metrics, and two probes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator  # noqa: TC003 - FastAPI reads the annotations of routes
from typing import TYPE_CHECKING, Final

from fastapi import Depends, FastAPI, HTTPException, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from fastapi.sse import EventSourceResponse, ServerSentEvent
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request  # noqa: TC002 - as above

from aggregator_server.monitoring import metrics
from aggregator_server.monitoring.auth import PageAccess
from aggregator_server.monitoring.overview import static
from pate.errors import PateError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from aggregator_server.monitoring.overview import Overview
    from aggregator_server.monitoring.status import Status

#: Most browsers that may follow the stream at a time.
STREAMS: Final = 16
#: Seconds between two reads of the status, and between two keep-alive messages.
_LOOK_S: Final = 0.5
_SIGN_S: Final = 5.0

_FILES: Final = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/page.svg": ("page.svg", "image/svg+xml"),
}


class _Told:
    """The current overview and its JSON text, computed once for all readers."""

    def __init__(self, status: Status) -> None:
        self._status = status
        self._last: tuple[Overview, str] | None = None

    def __call__(self) -> tuple[Overview, str]:
        found = self._status.overview()
        last = self._last
        if last is None or last[0] is not found:
            last = self._last = found, json.dumps(found.to_json(), allow_nan=False)
        return last


def make_app(
    status: Status,
    *,
    token: str,  # authorises reading
    hosts: Collection[str],  # host names and addresses that requests may name
    # name of the browser's cookie, different for each server of this machine
    cookie: str = "pate-page",
    secure: bool = False,
    closing: threading.Event | None = None,
    # renders metrics from an overview and the number of following browsers
    scrape: Callable[[Overview, int], bytes] = lambda found, _: metrics.render(found),
    # called with an internal error of the page; the client gets no details
    on_fault: Callable[[BaseException], None] = lambda _: None,
    # called with the address of an authenticated client; see :class:`PageAccess`
    keep: Callable[[tuple[str, int]], None] = lambda _: None,
) -> FastAPI:
    """Return the application that shows a campaign's status."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    app.add_middleware(
        PageAccess, token=token, hosts=hosts, cookie=cookie, secure=secure, keep=keep
    )
    told, over = _Told(status), closing or threading.Event()
    following: set[int] = set()

    for path, (name, kind) in _FILES.items():
        app.add_api_route(path, _file(name, kind), methods=["GET", "HEAD"])

    @app.exception_handler(PateError)
    async def unreadable(_: Request, error: PateError) -> Response:
        on_fault(error)
        return PlainTextResponse(f"{type(error).public}\n", 503)

    @app.exception_handler(Exception)
    async def broken(_: Request, error: Exception) -> Response:
        on_fault(error)
        return PlainTextResponse("the page failed; the campaign goes on\n", 500)

    @app.get("/api/overview")
    def overview() -> Response:
        return Response(told()[1], media_type="application/json")

    @app.get("/metrics")
    def measured() -> Response:
        content = scrape(told()[0], len(following))
        return Response(content, media_type=metrics.CONTENT_TYPE)

    @app.get("/healthz")
    async def alive() -> Response:
        return PlainTextResponse("alive\n")

    @app.get("/readyz")
    def ready() -> Response:
        fit = status.ready()
        return PlainTextResponse("ready\n" if fit else "not ready\n", 200 if fit else 503)

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
        while not over.is_set():
            try:
                text = (await run_in_threadpool(told))[1]
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
        # The final state: without it a browser shows a finished campaign as a lost connection.
        with contextlib.suppress(PateError):
            if (text := (await run_in_threadpool(told))[1]) != last:
                yield ServerSentEvent(event="overview", raw_data=text)

    @app.exception_handler(404)
    async def absent(_: Request, __: Exception) -> Response:
        return JSONResponse({"error": "there is nothing here"}, 404)

    return app


def _file(name: str, kind: str) -> Callable[[], Awaitable[Response]]:
    content = static(name)

    async def answer() -> Response:
        return Response(content, media_type=kind)

    return answer
