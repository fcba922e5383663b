"""What of a network's requests reaches the SuperLink: the gateway as an ASGI application.

What a stranger sends ends here, unread: with identities the key of an enrolled party must be named,
and always the holder of the named key must have signed (:mod:`aggregator_server.flower.fleet.signature`).
What a party's node sends is read, and passes if it follows from what the node was asked
(:mod:`aggregator_server.flower.fleet.traffic`). Bodies and answers that are held are bounded, for each key
and in all (:mod:`aggregator_server.flower.fleet.allowance`).
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import json
import time
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING, Any, Final, Protocol

import httpx

from aggregator_server.flower.fleet.allowance import Allowance, read_body
from aggregator_server.flower.fleet.requests import CALLS, MAX_BODY, RefusedCallError
from aggregator_server.flower.fleet.signature import is_signed, named_key
from aggregator_server.flower.fleet.traffic import Traffic
from aggregator_server.flower.internals import KEY_NEEDED, KEY_REFUSED
from pate.formats.enrolment import MAX_FILE, ROUTE

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Iterable, MutableMapping

    from aggregator_server.flower.fleet.requests import Call
    from aggregator_server.flower.node_sessions import Sessions

    Scope = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
    Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
    Answer = tuple[int, list[tuple[bytes, bytes]], bytes]

#: What a party may call, all by POST.
FLEET_ROUTES: Final = frozenset(CALLS)
HEALTH_ROUTE: Final = "/health"
#: What a node that is not enrolled is told where it first asks, in the words that it understands.
_STRANGER: Final = {
    "/v1/fleet/register-node": (KEY_NEEDED, "only enrolled parties may connect"),
    "/v1/fleet/activate-node": (KEY_REFUSED, "this key is not one of an enrolled party"),
}
#: What a node is told whose signature is not that of its key, or not of this hour.
_UNPROVEN: Final = b'{"detail":"Invalid SuperNode authentication"}'
#: Bytes of bodies and answers that are held for parties' nodes at a time: for all, for one key.
#: A node sends or fetches two pieces at a time.
HELD_IN_ALL: Final = 128 * 2**20
HELD_EACH: Final = 3 * MAX_BODY
#: The same for the answers of parties that were invited: for all, for one address.
_INVITED_IN_ALL: Final = 128 * MAX_FILE
_INVITED_EACH: Final = 8 * MAX_FILE
#: Bytes of an answer that are sent at a time.
_SLICE: Final = 64 * 2**10
#: Seconds in which the answer of a party that was invited must have arrived.
_ANSWER_S: Final = 10.0
#: How long the health check waits for a SuperLink that starts; parties give up after 5 seconds.
_READY_S: Final = 3.0
_UPSTREAM_TIMEOUT_S: Final = 60.0
#: How long the answer to a health check holds for others who ask.
_FRESH_S: Final = 0.5
_CLOSE: Final = (b"connection", b"close")
_JSON: Final = (b"content-type", b"application/json")


class EnrolmentService(Protocol):
    """Who takes in the answers of parties that were invited. Its methods may block."""

    def open(self) -> bool:
        """Say whether an answer could come at all; if not, the route does not exist."""

    def answer(self, body: bytes, source: str) -> bool:
        """Take in an answer that came from an address, and say whether that was possible."""


class Filter:
    """The gateway as an ASGI application.

    Attributes:
        keys: node keys (PEM) that may pass; None: all.
        keep: called with the address and the key of a connection that a party's node uses.
    """

    def __init__(
        self,
        upstream: str | None = None,
        *,
        trust: ssl.SSLContext | None = None,
        enrolment: EnrolmentService | None = None,
        sessions: Sessions | None = None,
        on_whole: Callable[[], None] = lambda: None,
    ) -> None:
        """Filter what goes to ``upstream``.

        Args:
            upstream: ``host:port`` of the SuperLink, or None.
            trust: whom to trust as the SuperLink; None: speak to it in clear.
            enrolment: who takes in answers of parties; None: nobody.
            sessions: which process speaks for a key, and where pulls wait; None: pass all on.
            on_whole: called when all of a reply is in the SuperLink.
        """
        self.keys: frozenset[bytes] | None = None
        self._trust = trust
        self._desk = enrolment
        self._sessions = sessions
        self._on_whole = on_whole
        self.keep: Callable[[tuple[str, int], bytes], None] = lambda _, __: None
        self._client: httpx.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._one_answer = asyncio.Lock()
        self._one_look = asyncio.Lock()
        self._ready = asyncio.Event()
        self._held = Allowance(HELD_IN_ALL, HELD_EACH)
        self._invited = Allowance(_INVITED_IN_ALL, _INVITED_EACH)
        self.point_at(upstream)

    @property
    def traffic(self) -> Traffic:
        """What passed between the SuperLink and its nodes."""
        return self._link[1]

    def point_at(self, upstream: str | None) -> None:
        """Pass on to another SuperLink, to which no node has spoken yet; None: answer 503.

        From any thread.
        """
        self._link = upstream, Traffic(on_whole=self._on_whole)
        #: Which SuperLink was asked last how it is, until when that holds, and what it said.
        self._look: tuple[str | None, float, Answer] = None, 0.0, (503, [], b"")
        if self._loop is not None and upstream is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._ready.set)

    def taken(self, message: str) -> None:
        """Note, from any thread, that the campaign has fetched the reply to ``message``."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # it has stopped, and so has all traffic
                self._loop.call_soon_threadsafe(self.traffic.taken, message)

    def left(self) -> list[str]:
        """Return, from any thread, the ids of replies that nobody will fetch, each of them once."""
        traffic = self.traffic
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(traffic.forget_expired)
        return [traffic.left.popleft() for _ in range(len(traffic.left))]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or take part in the start and the end of the server."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            async with contextlib.AsyncExitStack() as held:
                try:
                    answer = await self._answer(scope, receive, held)
                except TimeoutError:
                    # No room, or too slow. What is left of the body is not read.
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
                    # Parties share this client: what one is told to keep is not another's.
                    cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
                )
                await send({"type": "lifespan.startup.complete"})
            else:
                if self._client is not None:
                    await self._client.aclose()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _answer(
        self, scope: Scope, receive: Receive, held: contextlib.AsyncExitStack
    ) -> Answer:
        """Answer a request; what it holds until the answer is sent goes to ``held``.

        Raises:
            TimeoutError: if there is no room for its body, or that comes too slowly.
            RefusedCallError: if it may not pass.
        """
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
        return await self._call(key, CALLS[path], scope, receive, held)

    async def _call(
        self,
        key: bytes,
        call: Call,
        scope: Scope,
        receive: Receive,
        held: contextlib.AsyncExitStack,
    ) -> Answer:
        """Pass on a call of the holder of ``key``, if it may pass."""
        length = _length(scope["headers"])
        size = call.most if length is None else length
        if size > call.most:
            raise RefusedCallError(413, f"a body of {size} bytes")
        await held.enter_async_context(self._held.holding(key, size + call.answer))
        body = await read_body(receive, size)
        if body is None:
            raise RefusedCallError(413, "more than was said, or less")

        async def ask(path: str, body: bytes) -> Answer:
            upstream, traffic = self._link
            settle, answer = await traffic.admit(key, CALLS[path], body), None
            try:
                answer = await self._pass_on("POST", path, scope["headers"], body, upstream)
            finally:
                settle(answer[2] if answer is not None and answer[0] == httpx.codes.OK else None)
            return answer

        if self._sessions is None:
            return await ask(scope["path"], body)
        return await self._sessions.call(key, scope["path"], scope["headers"], body, ask, receive)

    async def _health(self) -> Answer:
        """Ask the SuperLink how it is, once for all who want to know: anybody may."""
        upstream = self._link[0]
        async with self._one_look:
            asked, until, answer = self._look
            if asked != upstream or time.monotonic() >= until:
                answer = await self._pass_on("GET", HEALTH_ROUTE, (), b"", upstream)
                self._look = upstream, time.monotonic() + _FRESH_S, answer
        return answer

    async def _wait_until_ready(self) -> None:
        """Wait a moment for a SuperLink that starts, so that nobody has to ask often for it."""
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
        """Ask the SuperLink, and return its answer; 503 if it gives none."""
        if self._client is None or upstream is None:
            return 503, [], b""
        try:
            # The path is one of ours, the query is dropped, and only these headers pass.
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
        """Pass on the answer of a party. Whatever is wrong with it, the reply is the same."""
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
    """Send an answer, no faster than it is taken: what was not taken is still held."""
    status, headers, body = answer
    headers = [*headers, (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    for at in range(0, len(body), _SLICE):
        piece = body[at : at + _SLICE]
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def _length(headers: Iterable[tuple[bytes, bytes]]) -> int | None:
    """Return how long a body is said to be, 0 if there is none; None if that is not said."""
    for name, value in headers:
        if name == b"content-length":
            # Unreadable numbers do not come from our server's parser.
            return int(value) if value.isdigit() else None
    return None if any(name == b"transfer-encoding" for name, _ in headers) else 0


def _refusal(status: int) -> Answer:
    """Answer a call that may not pass. What is left of its body is not read."""
    if status == httpx.codes.UNAUTHORIZED:
        return status, [_CLOSE, _JSON], _UNPROVEN
    return status, [_CLOSE], b""


def _stranger(path: str) -> Answer:
    """Answer a stranger, whose body is not read: the connection cannot be used again."""
    if path not in _STRANGER:
        return 401, [_CLOSE], b""
    code, detail = _STRANGER[path]
    return 412, [_CLOSE, _JSON], json.dumps({"code": code, "detail": detail}).encode()


def _passes(header: bytes) -> bool:
    """Say which headers go through: the kind of body, and Flower's own."""
    return header in {b"content-type", b"accept"} or header.startswith(b"flwr-")
