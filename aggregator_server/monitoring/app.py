"""Routes of the page: its files, the overview as JSON and as a stream, metrics, and two probes.

Every route requires the token unless it is listed here as open, so a new route is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import threading
from collections.abc import AsyncIterator  # noqa: TC003 - FastAPI reads the annotations of routes
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from fastapi import Depends, FastAPI, HTTPException, Response
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse
from fastapi.sse import EventSourceResponse, ServerSentEvent
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.requests import Request

from aggregator_server.monitoring import metrics
from aggregator_server.monitoring.overview import static
from pate.errors import PateError
from pate.runtime.home import same

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

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


#: Probes answer any client with one word: a supervisor needs neither token nor host name.
OPEN: Final = frozenset({"/healthz", "/readyz"})

_HEADERS: Final = {
    "content-security-policy": (
        "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}

_CLOSED: Final = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>The page of a PATE server</title>
<h1>This page needs its token</h1>
<p>Open the link that <code>pate-server</code> printed when it started. It ends with
<code>/?token=</code> and what is in the file <code>page.token</code> of the server's home.</p>
"""


class PageAccess:
    """ASGI middleware that admits requests with the right host and the token."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str,
        # host names and addresses that requests may name. Others are refused, which prevents DNS
        # rebinding: a site whose name resolves to this machine cannot read the page through a
        # browser
        hosts: Collection[str],
        cookie: str,
        secure: bool,  # whether the page is served over TLS
        # called with the address of an authenticated client: its connection is not evicted
        keep: Callable[[tuple[str, int]], None] = lambda _: None,
    ) -> None:
        self._app = app
        self._token = token
        self._hosts = frozenset(host.lower() for host in hosts)
        self._cookie = cookie
        self._cookie_value = cookie_of(token)
        self._secure = secure
        self._keep = keep

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request, or forward it."""
        if scope["type"] != "http":
            return  # only requests are served

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        request = Request(scope)
        # Not `request.url`, which raises for a query that is not UTF-8.
        answer = None
        if scope["path"] not in OPEN:
            answer = self._judge(request)
            if answer is None and request.client is not None:
                self._keep((request.client.host, request.client.port))
        await (answer or self._app)(scope, receive, send_with_headers)

    def _judge(self, request: Request) -> Response | None:
        """Return a response without calling the application; None to forward the request."""
        if _host(request.headers.get("host", "")) not in self._hosts:
            return PlainTextResponse("this server is not called that\n", 421)
        if request.method not in ("GET", "HEAD"):
            return PlainTextResponse("this page is only read\n", 405, {"allow": "GET, HEAD"})
        given = request.query_params.get("token")
        if request.scope["path"] == "/" and given is not None:
            return self._exchange(given)
        held = request.cookies.get(self._cookie)
        if held is not None and same(held, self._cookie_value):
            return None
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and same(bearer.strip(), self._token):
            return None
        return HTMLResponse(_CLOSED, 401, {"www-authenticate": 'Bearer realm="pate-server"'})

    def _exchange(self, given: str) -> Response:
        """Give a browser a cookie for the token, so that the token does not stay in its address."""
        if not same(given, self._token):
            return HTMLResponse(_CLOSED, 401, {"www-authenticate": 'Bearer realm="pate-server"'})
        answer = RedirectResponse("/", 303)
        answer.set_cookie(
            self._cookie,
            self._cookie_value,
            httponly=True,
            samesite="strict",
            secure=self._secure,
            path="/",
        )
        return answer


def _host(header: str) -> str:
    """Return the name in a Host header, without the port; empty if it is none."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


def cookie_of(token: str) -> str:
    """Return the browser's cookie, derived from the token; it is not valid as a bearer token."""
    return hmac.new(token.encode("ascii"), b"pate page cookie v1", hashlib.sha256).hexdigest()
