"""Access control of the page: the Host header, the token, and security headers.

Every route requires the token unless it is listed here as open, so a new route is closed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from aggregator_server.monitoring.token import cookie_of
from pate.runtime.tokens import same

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
        token: str,  # see :func:`aggregator_server.monitoring.token.kept_token`
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
