"""Access to a page: any request needs the right host and the token, and one that changes anything more."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse

from pate.runtime.home import same

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from starlette.responses import Response
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

_NOT_OURS: Final = "this is not from the page, opened by its link\n"
_CLOSED: Final = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>A page of PATE</title>
<h1>This page needs its token</h1>
<p>Open the link that <code>PROGRAM</code> printed when it started. It ends with
<code>/?token=</code> and what is in the file <code>page.token</code> of its home.</p>
"""
#: The header in which the page's own script proves that it was opened by the link with the token.
KEY_HEADER: Final = "x-pate-key"


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
        program: str,  # that printed the link
        # paths that change something: by POST without a body, from the page itself
        posts: Collection[str] = (),
        # called with the address of an authenticated client: its connection is not evicted
        keep: Callable[[tuple[str, int]], None] = lambda _: None,
    ) -> None:
        self._app = app
        self._token = token
        self._hosts = frozenset(host.lower() for host in hosts)
        self._cookie = cookie
        self._cookie_value = cookie_of(token)
        self._secure = secure
        self._program = program
        self._posts = frozenset(posts)
        # Of this start only: what listened on this port before, or does afterwards, has no use for it.
        self._key = secrets.token_hex(32)
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
        path = request.scope["path"]
        if path in self._posts:
            return None if self._may_post(request) else PlainTextResponse(_NOT_OURS, 403)
        if request.method not in ("GET", "HEAD"):
            return PlainTextResponse("this page is only read\n", 405, {"allow": "GET, HEAD"})
        given = request.query_params.get("token")
        if path == "/" and given is not None:
            return self._exchange(given)
        return None if self._has_token(request) else self._closed()

    def _has_token(self, request: Request) -> bool:
        held = request.cookies.get(self._cookie)
        if held is not None and same(held, self._cookie_value):
            return True
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and same(bearer.strip(), self._token)

    def _may_post(self, request: Request) -> bool:
        """Return whether the page itself sends a request, in a browser that was given the token.

        Browsers send a cookie to every port of a host, so that a server of another user of this
        machine could collect it: it does not suffice. The key is stored by origin, port included.
        """
        ours = f"{request.scope['scheme']}://{request.headers.get('host', '')}"
        return (
            request.method == "POST"
            and request.headers.get("content-length", "0") == "0"
            and "transfer-encoding" not in request.headers
            and request.headers.get("origin") == ours
            and request.headers.get("sec-fetch-site", "same-origin") == "same-origin"
            and same(request.headers.get(KEY_HEADER, ""), self._key)
            and self._has_token(request)
        )

    def _closed(self) -> Response:
        asks = {"www-authenticate": f'Bearer realm="{self._program}"'}
        return HTMLResponse(_CLOSED.replace("PROGRAM", self._program), 401, asks)

    def _exchange(self, given: str) -> Response:
        """Give a browser a cookie for the token, so that the token does not stay in its address."""
        if not same(given, self._token):
            return self._closed()
        # A browser sends nobody what follows the hash.
        answer = RedirectResponse(f"/#{self._key}" if self._posts else "/", 303)
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
