"""The gateway as an ASGI application: filters the requests that reach the SuperLink.

Requests from unknown senders are rejected unread: with identities they must name the key of an
enrolled party, and always be signed by the named key
(:func:`is_signed`). A request of a party's node is read, and passes
if it answers a message that the node was sent (:mod:`aggregator_server.flower.fleet.traffic`).
Bodies and answers in memory are bounded, per key and in total
(:mod:`aggregator_server.flower.fleet.allowance`).
"""

from __future__ import annotations

import asyncio
import binascii
import contextlib
import datetime as dt
import json
import time
from base64 import b64decode
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING, Any, Final, Protocol

import httpx
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from aggregator_server.flower.fleet.allowance import Allowance, read_body
from aggregator_server.flower.fleet.requests import CALLS, MAX_BODY, RefusedCallError
from aggregator_server.flower.fleet.traffic import Traffic
from aggregator_server.flower.internals import (
    KEY_HEADER,
    KEY_NEEDED,
    KEY_REFUSED,
    SIGNATURE_HEADER,
    TIME_HEADER,
)
from pate.formats.enrolment import MAX_FILE, ROUTE
from protos.bounds import CLOCK_AHEAD_S, CLOCK_BEHIND_S

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Iterable, MutableMapping

    from aggregator_server.flower.fleet.requests import Call
    from aggregator_server.flower.node_sessions import Sessions

    Scope = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
    Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
    Answer = tuple[int, list[tuple[bytes, bytes]], bytes]

#: The routes that a party may call, all by POST.
FLEET_ROUTES: Final = frozenset(CALLS)
HEALTH_ROUTE: Final = "/health"
#: The answer to the first request of a node that is not enrolled, in Flower's format.
_STRANGER: Final = {
    "/v1/fleet/register-node": (KEY_NEEDED, "only enrolled parties may connect"),
    "/v1/fleet/activate-node": (KEY_REFUSED, "this key is not one of an enrolled party"),
}
#: The answer to a node whose signature is invalid or too old.
_UNPROVEN: Final = b'{"detail":"Invalid SuperNode authentication"}'
#: Bytes of bodies and answers in memory at a time for parties' nodes: in total, per key. A node
#: sends or fetches two pieces at a time.
HELD_IN_ALL: Final = 128 * 2**20
HELD_EACH: Final = 3 * MAX_BODY
#: The same for the answers of invited parties: in total, per address.
_INVITED_IN_ALL: Final = 128 * MAX_FILE
_INVITED_EACH: Final = 8 * MAX_FILE
#: Bytes of an answer sent at a time.
_SLICE: Final = 64 * 2**10
#: Seconds in which the answer of an invited party must arrive.
_ANSWER_S: Final = 10.0
#: How long the health check waits for a starting SuperLink; parties give up after 5 seconds.
_READY_S: Final = 3.0
_UPSTREAM_TIMEOUT_S: Final = 60.0
#: How long a node that leaves waits until its last reply is fetched, such as a refusal. Flower ends
#: its process by then; what it asked for is carried out all the same.
_FETCHED_S: Final = 5.0
#: How long the answer to a health check is cached.
_FRESH_S: Final = 0.5
#: Longest key, in bytes of PEM; those of our parties have 215.
_MAX_KEY: Final = 512
#: Longest time, in characters; Flower's have 32.
_MAX_TIME: Final = 64
_CLOSE: Final = (b"connection", b"close")
_JSON: Final = (b"content-type", b"application/json")


class EnrolmentService(Protocol):
    """Accepts the answers of invited parties. Its methods may block."""

    def open(self) -> bool:
        """Return whether an answer is possible; if not, the route does not exist."""

    def answer(self, body: bytes, source: str) -> bool:
        """Process an answer from an address; return whether it was accepted."""


class Filter:
    """The gateway as an ASGI application."""

    def __init__(
        self,
        sessions: Sessions,  # tracks the process of each key and held pulls
        *,
        trust: ssl.SSLContext | None = None,  # TLS context for the SuperLink; None: clear text
        enrolment: EnrolmentService | None = None,  # accepts answers of parties; None: no enrolment
    ) -> None:
        """Filter requests to the SuperLink of :meth:`point_at`."""
        self.keys: frozenset[bytes] | None = None  # admitted node keys (PEM); None: all
        self._trust = trust
        self._desk = enrolment
        self._sessions = sessions
        # called with the address and the key of a connection that a party's node uses
        self.keep: Callable[[tuple[str, int], bytes], None] = lambda _, __: None
        self._client: httpx.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._one_answer = asyncio.Lock()
        self._one_look = asyncio.Lock()
        self._ready = asyncio.Event()
        self._held = Allowance(HELD_IN_ALL, HELD_EACH)
        self._invited = Allowance(_INVITED_IN_ALL, _INVITED_EACH)
        self.point_at(None)

    @property
    def traffic(self) -> Traffic:
        """The traffic between the SuperLink and its nodes."""
        return self._link[1]

    def point_at(self, upstream: str | None, run: int | None = None) -> None:
        """Forward to another, fresh SuperLink; None: answer 503.

        ``run``: the campaign's; None: every run is. From any thread.
        """
        self._link = upstream, Traffic(on_whole=self._sessions.on_news, run=run)
        #: The last health check: the SuperLink, its expiry, and the answer.
        self._look: tuple[str | None, float, Answer] = None, 0.0, (503, [], b"")
        if self._loop is not None and upstream is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._ready.set)

    def taken(self, message: str) -> None:
        """Record, from any thread, that the campaign has fetched the reply to ``message``."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # it has stopped, and so has all traffic
                self._loop.call_soon_threadsafe(self.traffic.taken, message)

    def left(self) -> list[str]:
        """Return, from any thread, the ids of replies that will not be fetched, each once."""
        traffic = self.traffic
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(traffic.forget_expired)
        return [traffic.left.popleft() for _ in range(len(traffic.left))]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or a lifespan event of the server."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            async with contextlib.AsyncExitStack() as reserved:
                try:
                    answer = await self._answer(scope, receive, reserved)
                except TimeoutError:
                    # No room, or too slow. The rest of the body is not read.
                    answer = 503, [_CLOSE], b""
                except RefusedCallError as error:
                    answer = _refusal(error.status)
                await _say(send, answer)

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self._loop = asyncio.get_running_loop()
                self._client = httpx.AsyncClient(
                    timeout=_UPSTREAM_TIMEOUT_S,
                    trust_env=False,
                    verify=True if self._trust is None else self._trust,
                    limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
                    # Parties share this client: its cookies must not be shared.
                    cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
                )
                await send({"type": "lifespan.startup.complete"})
            else:
                if self._client is not None:
                    await self._client.aclose()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _answer(
        self, scope: Scope, receive: Receive, reserved: contextlib.AsyncExitStack
    ) -> Answer:
        """Answer a request; memory reserved until the answer is sent is released by ``reserved``."""
        method, path, headers = scope["method"], scope["path"], scope["headers"]
        if (method, path) == ("POST", ROUTE) and self._desk is not None:
            return await self._enrol(self._desk, scope, receive)
        if (method, path) == ("GET", HEALTH_ROUTE):
            if self._link[0] is None:
                await self._wait_until_ready()
            status, said, body = await self._health()
            return status, [*said, *([_CLOSE] if _length(headers) != 0 else [])], body
        if method != "POST" or path not in FLEET_ROUTES:
            return 404, [_CLOSE], b""
        key = named_key(headers)
        if key is None or (self.keys is not None and key not in self.keys):
            return _stranger(path)
        if not is_signed(headers, key, dt.datetime.now(dt.UTC)):
            raise RefusedCallError(401, "not signed by this key, or not now")
        if scope.get("client"):
            self.keep(scope["client"], key)
        return await self._call(key, CALLS[path], scope, receive, reserved)

    async def _call(
        self,
        key: bytes,
        call: Call,
        scope: Scope,
        receive: Receive,
        reserved: contextlib.AsyncExitStack,
    ) -> Answer:
        """Forward a call of the holder of ``key``, if allowed."""
        length = _length(scope["headers"])
        size = call.most if length is None else length
        if size > call.most:
            raise RefusedCallError(413, f"a body of {size} bytes")
        await reserved.enter_async_context(self._held.holding(key, size + call.answer))
        body = await read_body(receive, size)
        if body is None:
            raise RefusedCallError(413, "more or less than stated")

        async def ask(path: str, body: bytes) -> Answer:
            upstream, traffic = self._link
            settle, answer = await traffic.admit(key, CALLS[path], body), None
            try:
                answer = await self._pass_on("POST", path, scope["headers"], body, upstream)
            finally:
                settle(answer[2] if answer is not None and answer[0] == httpx.codes.OK else None)
            return answer

        if call.name == "deactivate-node":
            await self.traffic.fetched(key, within=_FETCHED_S)
        return await self._sessions.call(key, scope["path"], scope["headers"], body, ask, receive)

    async def _health(self) -> Answer:
        """Check the SuperLink's health, once for all clients, without authentication."""
        upstream = self._link[0]
        async with self._one_look:
            asked, until, answer = self._look
            if asked != upstream or time.monotonic() >= until:
                answer = await self._pass_on("GET", HEALTH_ROUTE, (), b"", upstream)
                self._look = upstream, time.monotonic() + _FRESH_S, answer
        return answer

    async def _wait_until_ready(self) -> None:
        """Wait a moment for a starting SuperLink, so that clients need not poll often."""
        self._ready.clear()
        if self._link[0] is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_READY_S):
                    await self._ready.wait()

    async def _pass_on(
        self,
        method: str,
        path: str,
        headers: Iterable[tuple[bytes, bytes]],
        body: bytes,
        upstream: str | None,
    ) -> Answer:
        """Forward to the SuperLink and return its answer; 503 without one."""
        if self._client is None or upstream is None:
            return 503, [], b""
        try:
            # The path is allowed, the query is dropped, and only these headers pass.
            reply = await self._client.request(
                method,
                f"{'http' if self._trust is None else 'https'}://{upstream}{path}",
                content=body,
                headers=[(k, v) for k, v in headers if _passes(k)],
            )
        except httpx.HTTPError:
            return 503, [], b""
        said = [(k.lower(), v) for k, v in reply.headers.raw if _passes(k.lower())]
        return reply.status_code, said, reply.content

    async def _enrol(self, enrolment: EnrolmentService, scope: Scope, receive: Receive) -> Answer:
        """Forward the answer of a party. The reply is the same for every error."""
        if not await asyncio.to_thread(enrolment.open):
            return 404, [_CLOSE], b""
        source = str((scope.get("client") or ("an unknown address",))[0])
        length, body = _length(scope["headers"]), None
        if length is None or length <= MAX_FILE:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_ANSWER_S), self._invited.holding(source, MAX_FILE):
                    body = await read_body(receive, MAX_FILE)
        if body is None:
            return 403, [_CLOSE], b""
        async with self._one_answer:
            taken = await asyncio.to_thread(enrolment.answer, body, source)
        return 200 if taken else 403, [], b""


async def _say(send: Send, answer: Answer) -> None:
    """Send an answer no faster than it is read: the rest stays in memory."""
    status, headers, body = answer
    headers = [*headers, (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    for at in range(0, len(body), _SLICE):
        piece = body[at : at + _SLICE]
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def _length(headers: Iterable[tuple[bytes, bytes]]) -> int | None:
    """Return the stated length of a body, 0 without a body; None if it is not stated."""
    for name, value in headers:
        if name == b"content-length":
            # Our server's parser rejects invalid numbers.
            return int(value) if value.isdigit() else None
    return None if any(name == b"transfer-encoding" for name, _ in headers) else 0


def _refusal(status: int) -> Answer:
    """Answer a rejected call. The rest of its body is not read."""
    if status == httpx.codes.UNAUTHORIZED:
        return status, [_CLOSE, _JSON], _UNPROVEN
    return status, [_CLOSE], b""


def _stranger(path: str) -> Answer:
    """Answer an unknown sender, whose body is not read: the connection cannot be used again."""
    if path not in _STRANGER:
        return 401, [_CLOSE], b""
    code, detail = _STRANGER[path]
    return 412, [_CLOSE, _JSON], json.dumps({"code": code, "detail": detail}).encode()


def _passes(header: bytes) -> bool:
    """Return whether a header is forwarded: the content type, and Flower's own."""
    return header in {b"content-type", b"accept"} or header.startswith(b"flwr-")


def named_key(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    """Return the node key (PEM) that a request names, or None if it does not name exactly one."""
    named = [value for name, value in headers if name == KEY_HEADER]
    if len(named) != 1:
        return None
    try:
        key = b64decode(named[0], validate=True)
    except binascii.Error:
        return None
    return key if len(key) <= _MAX_KEY else None


def is_signed(headers: Iterable[tuple[bytes, bytes]], key: bytes, now: dt.datetime) -> bool:
    """Return whether the node ``key`` (PEM) signed the time of a request, and that time is recent.

    A SuperLink checks the same after it has read a body; with this check a body is read only from a known
    sender. The rule is Flower's, and no stricter: the signed time is valid for 305 seconds. A signature
    could be replayed in that time; TLS protects it.
    """
    found = [(name, value) for name, value in headers if name in (SIGNATURE_HEADER, TIME_HEADER)]
    values = dict(found)
    if len(found) != 2 or len(values) != 2 or len(values[TIME_HEADER]) > _MAX_TIME:
        return False
    try:
        signed_at = dt.datetime.fromisoformat(values[TIME_HEADER].decode("ascii"))
        if not -CLOCK_AHEAD_S < (now - signed_at).total_seconds() < CLOCK_BEHIND_S:
            return False
        public = load_pem_public_key(key)
        if not isinstance(public, ec.EllipticCurvePublicKey):
            return False
        signature = b64decode(values[SIGNATURE_HEADER], validate=True)
        public.verify(signature, values[TIME_HEADER], ec.ECDSA(SHA256()))
    # A time without a zone raises TypeError; one far from ours, OverflowError.
    except (ValueError, TypeError, OverflowError, UnsupportedAlgorithm, InvalidSignature):
        return False
    return True
