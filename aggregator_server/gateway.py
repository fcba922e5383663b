"""The public face of the SuperLink: what parties need passes, and nothing else.

A SuperLink serves three APIs on one port. Two of them, for operators and for the processes of a
run, ask nobody who they are: whoever reaches them can start runs and read every reply. So the
SuperLink listens on loopback, and this gateway is what the network sees: the twelve routes of the
API for parties, and the health check. Anything else does not exist, but for one route of our own:
where parties that were invited send their keys, while a code is open for one.

With identities, what does not even name the node key of an enrolled party ends here, unread.
Whether the sender holds that key is for the SuperLink to check. What a stranger can make this
process hold is bounded: connections and their time (:mod:`aggregator_server.listening`), heads, and
bodies.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import threading
import time
from base64 import b64encode
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING, Any, Final, Protocol

import httpx

from aggregator_server.flower_internals import KEY_HEADER, KEY_NEEDED, KEY_REFUSED
from pate.enrolment import MAX_FILE, ROUTE
from pate.errors import ProcessError, UsageError
from pate.runtime.lifeline import LOOPBACK, listen

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, MutableMapping
    from pathlib import Path

    Scope = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
    Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
    Answer = tuple[int, list[tuple[bytes, bytes]], bytes]

#: What a party may call, all by POST.
FLEET_ROUTES: Final = frozenset(
    f"/v1/fleet/{call}"
    for call in (
        "register-node",
        "activate-node",
        "deactivate-node",
        "unregister-node",
        "send-node-heartbeat",
        "pull-messages",
        "push-messages",
        "get-run",
        "get-fab",
        "push-object",
        "pull-object",
        "confirm-message-received",
    )
)
HEALTH_ROUTE: Final = "/health"
#: What a node that is not enrolled is told where it first asks, in the words that it understands.
_STRANGER: Final = {
    "/v1/fleet/register-node": (KEY_NEEDED, "only enrolled parties may connect"),
    "/v1/fleet/activate-node": (KEY_REFUSED, "this key is not one of an enrolled party"),
}
#: Largest head of one request (its line and headers), in bytes; Flower's stay below 2 KiB.
MAX_HEAD: Final = 32 * 2**10
#: Largest body of one request, in bytes; Flower cuts what is larger into pieces of 5 MiB.
MAX_BODY: Final = 16 * 2**20
#: Seconds in which a body must have arrived: the largest, at half a megabit per second.
_BODY_S: Final = 300.0
#: The same for the answer of a party that was invited.
_ANSWER_S: Final = 10.0
_START_DEADLINE_S: Final = 20.0
_UPSTREAM_TIMEOUT_S: Final = 60.0


class Desk(Protocol):
    """Who takes in the answers of parties that were invited. Its methods may block."""

    def open(self) -> bool:
        """Say whether an answer could come at all; if not, the route does not exist."""

    def answer(self, body: bytes, source: str) -> bool:
        """Take in an answer that came from an address, and say whether that was possible."""


class Filter:
    """The gateway as an ASGI application.

    Attributes:
        upstream: ``host:port`` of the SuperLink, or None while there is none.
        keys: node keys that may pass, as they stand in a header; None: all.
    """

    def __init__(
        self,
        upstream: str | None = None,
        *,
        trust: ssl.SSLContext | None = None,
        desk: Desk | None = None,
    ) -> None:
        """Filter what goes to ``upstream``.

        Args:
            upstream: ``host:port`` of the SuperLink, or None.
            trust: whom to trust as the SuperLink; None: speak to it in clear.
            desk: who takes in answers of parties; None: nobody.
        """
        self.upstream = upstream
        self.keys: frozenset[bytes] | None = None
        self._trust = trust
        self._desk = desk
        self._client: httpx.AsyncClient | None = None
        self._one_answer = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or take part in the start and the end of the server."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            status, headers, body = await self._answer(scope, receive)
            headers = [*headers, (b"content-length", str(len(body)).encode())]
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": body})

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
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

    async def _answer(self, scope: Scope, receive: Receive) -> Answer:
        method, path = scope["method"], scope["path"]
        if (method, path) == ("POST", ROUTE) and self._desk is not None:
            return await self._enrol(self._desk, scope, receive)
        if not (
            (method == "POST" and path in FLEET_ROUTES)
            or (method == "GET" and path == HEALTH_ROUTE)
        ):
            return 404, [], b""
        if method == "POST" and not self._is_known(scope):
            return _refuse(path)
        body = await _body(scope, receive, MAX_BODY, _BODY_S)
        if body is None:
            # What is left of the body is not read: the connection cannot be used again.
            return 413, [(b"connection", b"close")], b""
        if self._client is None or self.upstream is None:
            return 503, [], b""
        try:
            # The path is one of ours, the query is dropped, and only these headers pass.
            reply = await self._client.request(
                method,
                f"{'http' if self._trust is None else 'https'}://{self.upstream}{path}",
                content=body,
                headers=[(k, v) for k, v in scope["headers"] if _passes(k)],
            )
        except httpx.HTTPError:
            return 503, [], b""
        headers = [(k.lower(), v) for k, v in reply.headers.raw if _passes(k.lower())]
        return reply.status_code, headers, reply.content

    def _is_known(self, scope: Scope) -> bool:
        """Say whether a request names a key that may pass, and no other."""
        named = [value for name, value in scope["headers"] if name == KEY_HEADER]
        return self.keys is None or (len(named) == 1 and named[0] in self.keys)

    async def _enrol(self, desk: Desk, scope: Scope, receive: Receive) -> Answer:
        """Pass on the answer of a party. Whatever is wrong with it, the reply is the same."""
        if not await asyncio.to_thread(desk.open):
            return 404, [], b""
        body = await _body(scope, receive, MAX_FILE, _ANSWER_S)
        if body is None:
            return 403, [(b"connection", b"close")], b""
        source = str((scope.get("client") or ("an unknown address",))[0])
        async with self._one_answer:
            taken = await asyncio.to_thread(desk.answer, body, source)
        return 200 if taken else 403, [], b""


def _refuse(path: str) -> Answer:
    """Answer a stranger, whose body is not read: the connection cannot be used again."""
    close = (b"connection", b"close")
    if path not in _STRANGER:
        return 401, [close], b""
    code, detail = _STRANGER[path]
    headers = [close, (b"content-type", b"application/json")]
    return 412, headers, json.dumps({"code": code, "detail": detail}).encode()


async def _body(scope: Scope, receive: Receive, limit: int, within: float) -> bytes | None:
    """Read a body; None if it has more than ``limit`` bytes, breaks off, or takes too long."""
    for name, value in scope["headers"]:
        if name == b"content-length" and int(value) > limit:
            return None
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within):
            return await _whole(receive, limit)
    return None


async def _whole(receive: Receive, limit: int) -> bytes | None:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        if len(body) > limit:
            return None
        if not message.get("more_body", False):
            return bytes(body)


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
    ) -> None:
        """Take the port. Nothing is served before :meth:`start`.

        Args:
            host: address to listen on.
            port: port to listen on; 0 takes any free one.
            tls_certificate: certificate chain (PEM); needed unless ``host`` is loopback.
            tls_key: its key (PEM).
            trust: whom to trust as the SuperLink; None: speak to it in clear.
            desk: who takes in answers of parties that were invited; None: nobody.

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
        self._filter = Filter(trust=trust, desk=desk)
        self._listener = listen(host, port)
        self.port = int(self._listener.getsockname()[1])
        self._server: Any = None  # uvicorn, which is imported when it is needed
        self._thread: threading.Thread | None = None

    def point_at(self, upstream: str | None) -> None:
        """Pass requests on to ``upstream`` (``host:port``) from now on; None: answer 503."""
        self._filter.upstream = upstream

    def let_in(self, keys: Iterable[bytes]) -> None:
        """Let pass from now on what names one of these node keys (PEM), and nothing else."""
        self._filter.keys = frozenset(map(b64encode, keys))

    def keep_in(self, keys: Iterable[bytes]) -> None:
        """Let pass no longer what names a node key (PEM) that is not one of these.

        Before the first :meth:`let_in` it changes nothing: nothing is passed on to anybody yet.
        """
        if self._filter.keys is not None:
            self._filter.keys &= frozenset(map(b64encode, keys))

    def start(self) -> None:
        """Begin to serve, and return when it does.

        Raises:
            ProcessError: if it does not.
        """
        import uvicorn

        from aggregator_server.listening import (
            BoundedListener,
            ImpatientProtocol,
            quiet_uvicorn,
            room_for_connections,
        )

        quiet_uvicorn()
        config = uvicorn.Config(
            self._filter,
            lifespan="on",
            ws="none",
            # The other parser that uvicorn may take bounds neither headers nor the request's line.
            http=ImpatientProtocol,
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
        self._listener = BoundedListener(self._listener, room_for_connections())
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
