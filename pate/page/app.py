"""Routes of a page: its files, what it shows as JSON and as a stream.

Every route requires the token unless :data:`pate.page.access.OPEN` lists it, so a new route is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator  # noqa: TC003 - FastAPI reads the annotations of routes
from typing import TYPE_CHECKING, Any, Final

from fastapi import Depends, FastAPI, HTTPException, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from fastapi.sse import EventSourceResponse, ServerSentEvent
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request  # noqa: TC002 - FastAPI reads it

from pate.errors import PateError
from pate.page import static
from pate.page.access import PageAccess

if TYPE_CHECKING:
    import threading
    from collections.abc import Awaitable, Callable, Mapping

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
