"""The public face of the SuperLink: what parties need passes, and nothing else.

A SuperLink serves three APIs on one port. Two of them, for operators and for the processes of a
run, ask nobody who they are: whoever reaches them can start runs and read every reply. So the
SuperLink listens on loopback, and this gateway is what the network sees: the twelve routes of the
API for parties, and the health check. Anything else does not exist, but for one route of our own:
where parties that were invited send their keys, while a code is open for one.

What a stranger sends ends here, unread: with identities the key of an enrolled party must be named,
and always the holder of the named key must have signed (:mod:`aggregator_server.fleet.signature`).
What a party's node sends is read, and passes if it follows from what the node was asked
(:mod:`aggregator_server.fleet.traffic`). What anybody can make this process hold is bounded:
connections and their time (:mod:`aggregator_server.listening`), heads, and the bytes of bodies and
answers, for each key and in all (:mod:`aggregator_server.fleet.allowance`).
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import json
import ssl
import threading
import time
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING, Any, Final, Protocol

import httpx

from aggregator_server.fleet.allowance import Allowance, read_body
from aggregator_server.fleet.requests import CALLS, MAX_BODY, RefusedCallError
from aggregator_server.fleet.signature import is_signed, named_key
from aggregator_server.fleet.traffic import Traffic
from aggregator_server.flower_internals import KEY_NEEDED, KEY_REFUSED
from aggregator_server.held_pulls import HeldPulls
from aggregator_server.node_sessions import Sessions
from pate.enrolment import MAX_FILE, ROUTE
from pate.errors import ProcessError, UsageError
from pate.runtime.lifeline import LOOPBACK, listen

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, MutableMapping
    from pathlib import Path

    from aggregator_server.fleet.requests import Call

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
#: Largest head of one request (its line and headers), in bytes; Flower's stay below 2 KiB.
MAX_HEAD: Final = 32 * 2**10
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
_START_DEADLINE_S: Final = 20.0
#: How long the health check waits for a SuperLink that starts; parties give up after 5 seconds.
_READY_S: Final = 3.0
_UPSTREAM_TIMEOUT_S: Final = 60.0
#: How long the answer to a health check holds for others who ask.
_FRESH_S: Final = 0.5
_CLOSE: Final = (b"connection", b"close")
_JSON: Final = (b"content-type", b"application/json")


class Desk(Protocol):
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
        desk: Desk | None = None,
        sessions: Sessions | None = None,
        on_whole: Callable[[], None] = lambda: None,
    ) -> None:
        """Filter what goes to ``upstream``.

        Args:
            upstream: ``host:port`` of the SuperLink, or None.
            trust: whom to trust as the SuperLink; None: speak to it in clear.
            desk: who takes in answers of parties; None: nobody.
            sessions: which process speaks for a key, and where pulls wait; None: pass all on.
            on_whole: called when all of a reply is in the SuperLink.
        """
        self.keys: frozenset[bytes] | None = None
        self._trust = trust
        self._desk = desk
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

    async def _enrol(self, desk: Desk, scope: Scope, receive: Receive) -> Answer:
        """Pass on the answer of a party. Whatever is wrong with it, the reply is the same."""
        if not await asyncio.to_thread(desk.open):
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
            taken = await asyncio.to_thread(desk.answer, body, source)
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


class Gateway:
    """The filter on a public port, served by a thread of this process.

    Attributes:
        port: where it listens.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        tls_certificate: Path | None = None,
        tls_key: Path | None = None,
        trust: ssl.SSLContext | None = None,
        desk: Desk | None = None,
        on_knock: Callable[[bytes], None] = lambda _: None,
        on_arrived: Callable[[int], None] = lambda _: None,
        on_stir: Callable[[], None] = lambda: None,
    ) -> None:
        """Take the port. Nothing is served before :meth:`start`.

        Args:
            host: address to listen on.
            port: port to listen on; 0 takes any free one.
            tls_certificate: certificate chain (PEM); needed unless ``host`` is loopback.
            tls_key: its key (PEM).
            trust: whom to trust as the SuperLink; None: speak to it in clear.
            desk: who takes in answers of parties that were invited; None: nobody.
            on_knock: called with the node key (PEM) of a party that asks to be let in; as the next
                two, from the gateway's thread.
            on_arrived: called with a node at which there is another process than before.
            on_stir: called when there may be something new from a party.

        Raises:
            PortInUseError: if somebody else listens there.
            UsageError: if ``host`` is reached from outside and there is no certificate, or the
                certificate cannot be used.
        """
        if (tls_certificate is None) != (tls_key is None):
            raise UsageError("a TLS certificate and its key go together: give both, or neither")
        if tls_certificate is None and host not in LOOPBACK:
            raise UsageError(
                f"{host} is reached from outside this machine, and without TLS everybody on the "
                "way reads the votes: run `pate-server init`, or listen on 127.0.0.1"
            )
        self._certificate, self._key = tls_certificate, tls_key
        _check_certificate(tls_certificate, tls_key)
        self._pulls = HeldPulls()
        sessions = Sessions(
            self._pulls,
            on_knock=on_knock,
            on_arrived=on_arrived,
            on_stir=on_stir,
        )
        self._filter = Filter(trust=trust, desk=desk, sessions=sessions, on_whole=on_stir)
        self._listener = listen(host, port)
        self.port = int(self._listener.getsockname()[1])
        self._server: Any = None  # uvicorn, which is imported when it is needed
        self._thread: threading.Thread | None = None

    def point_at(self, upstream: str | None) -> None:
        """Pass requests on to ``upstream`` (``host:port``) from now on; None: answer 503."""
        self._filter.point_at(upstream)
        self._pulls.release_all()

    def taken(self, message: str) -> None:
        """Note that the campaign has fetched the reply to ``message``: it is stored no longer."""
        self._filter.taken(message)

    def left(self) -> list[str]:
        """Return the ids of replies whose messages have expired, each of them once."""
        return self._filter.left()

    def most_pushed(self) -> tuple[bytes, int] | None:
        """Return the node key (PEM) that has pushed most to this SuperLink, and how many bytes."""
        return self._filter.traffic.most()

    def wake(self, node: int) -> None:
        """Let a node look now whether there is a message for it."""
        self._pulls.wake(node)

    def let_in(self, keys: Iterable[bytes]) -> None:
        """Let pass from now on what names one of these node keys (PEM), and nothing else."""
        self._filter.keys = frozenset(keys)

    def keep_in(self, keys: Iterable[bytes]) -> None:
        """Let pass no longer what names a node key (PEM) that is not one of these.

        Before the first :meth:`let_in` it changes nothing: nothing is passed on to anybody yet.
        """
        if self._filter.keys is not None:
            self._filter.keys &= frozenset(keys)

    def start(self) -> None:
        """Begin to serve, and return when it does.

        Raises:
            ProcessError: if it does not.
        """
        import uvicorn

        from aggregator_server.listening import (
            BoundedHead,
            BoundedListener,
            protocol_of,
            quiet_uvicorn,
            room_for_connections,
        )

        quiet_uvicorn()
        listener = self._listener = BoundedListener(self._listener, room_for_connections())
        self._filter.keep = listener.keep
        config = uvicorn.Config(
            BoundedHead(self._filter, MAX_HEAD),
            lifespan="on",
            ws="none",
            # The other parser that uvicorn may take bounds neither headers nor the request's line.
            http=protocol_of(listener),
            h11_max_incomplete_event_size=MAX_HEAD,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,  # nobody may say for another where he comes from
            timeout_graceful_shutdown=2,
            ssl_certfile=None if self._certificate is None else str(self._certificate),
            ssl_keyfile=None if self._key is None else str(self._key),
        )
        config.load()
        if config.ssl is not None:
            # Both ends are ours, and the version before lets an onlooker see certificates.
            config.ssl.minimum_version = ssl.TLSVersion.TLSv1_3
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._serve, name="gateway", daemon=True)
        self._thread.start()
        deadline = time.monotonic() + _START_DEADLINE_S
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                self.stop()
                raise ProcessError(f"the gateway at port {self.port} did not start")
            time.sleep(0.01)

    def _serve(self) -> None:
        from aggregator_server.listening import Loop

        with asyncio.Runner(loop_factory=Loop) as runner:
            runner.run(self._server.serve(sockets=[self._listener]))

    def stop(self) -> None:
        """Stop serving and give the port back. Harmless if it never started."""
        self._pulls.close()
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join(timeout=10)
        self._listener.close()


def _passes(header: bytes) -> bool:
    """Say which headers go through: the kind of body, and Flower's own."""
    return header in {b"content-type", b"accept"} or header.startswith(b"flwr-")


def _check_certificate(certificate: Path | None, key: Path | None) -> None:
    if certificate is None:
        return
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(
            f"{certificate} and {key} cannot be used as certificate and key: {error}"
        ) from error
