"""A link between the real commands without Flower: one TCP connection of loopback for each party.

A campaign over Flower spends nearly all of its time on starting Flower's processes. This link tests the rest
with hundreds of crashes: commands, state machines, ledgers, homes. :class:`DirectDeployment` and
:class:`DirectConnection` replace the two classes that use Flower; all other code is the shipped one.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
import uuid
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from multiprocessing.connection import wait as wait_for
from typing import TYPE_CHECKING, Final, Self

from aggregator_server.exchange.carrier import GONE, Arrival
from pate.errors import UnreachableError
from protos.bounds import MAX_MESSAGE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from party.flower.connection import Timeouts
    from party.flower.supernode import Server

#: What both sides need; pickled objects never travel, only bytes.
_KEY: Final = b"loopback only"
_HANDLE_BYTES: Final = 32
#: Between looks of a party whether it should stop, and of a server for new parties; bytes wake both.
_POLL_S: Final = 0.1
_AGAIN_S: Final = 0.05
_BACKLOG: Final = 64


class DirectDeployment:
    """Replaces :class:`aggregator_server.flower.deployment.Deployment`; it is its own carrier."""

    store: Final = None

    def __init__(self, home: Path, *, host: str, port: int, **_: object) -> None:
        del home
        self._where = (host, port)
        self._listener = Listener(self._where, backlog=_BACKLOG, authkey=_KEY)
        self.address = f"{host}:{port}"
        self._parties: dict[int, Connection] = {}
        self._turn = threading.Lock()
        self._under_way: dict[
            str, tuple[int, bytes]
        ] = {}  # node and digest, by a number of its own
        self._ready: list[Arrival] = []
        self._closing = threading.Event()
        self._door = threading.Thread(target=self._welcome, daemon=True)

    #: There is no SuperLink; its health is reported as good.
    superlink_pid: Final = 0

    @property
    def carrier(self) -> Self:
        return self

    def __enter__(self) -> Self:
        self._door.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def returning(self) -> frozenset[str]:
        return frozenset()

    def pause(self, seconds: float) -> None:
        """Wait until a party has sent something or has gone, or for a while."""
        with self._turn:
            held = list(self._parties.values())
        wait_for(held, seconds)

    def nodes(self) -> frozenset[int]:
        self._hear()
        with self._turn:
            return frozenset(self._parties)

    def send(self, node: int, digest: bytes, body: bytes) -> None:
        handle = uuid.uuid4().hex
        with self._turn:
            party = self._parties.get(node)
        try:
            if party is None:
                raise OSError("it has gone")
            party.send_bytes(handle.encode() + body)
        except OSError:
            self._ready.append(Arrival(node, digest, None, GONE))
        else:
            self._under_way[handle] = node, digest

    def receive(self) -> list[Arrival]:
        self._hear()
        arrivals, self._ready = self._ready, []
        return arrivals

    def close(self) -> None:
        self._closing.set()
        if self._door.is_alive():
            # A thread blocked in accept does not notice that its socket was closed.
            with contextlib.suppress(OSError):
                socket.create_connection(self._where, timeout=1).close()
            self._door.join(10)
        self._listener.close()
        with self._turn:
            for party in self._parties.values():
                party.close()
            self._parties.clear()

    def _welcome(self) -> None:
        while not self._closing.is_set():
            try:
                party = self._listener.accept()
            except (OSError, EOFError, AuthenticationError):
                continue  # it broke off, or belongs to another campaign
            with self._turn:
                self._parties[uuid.uuid4().int >> 65] = party  # as long as Flower's

    def _hear(self) -> None:
        with self._turn:
            held = {party: node for node, party in self._parties.items()}
        for party in wait_for(list(held), timeout=0):
            assert isinstance(party, Connection)
            node = held[party]
            try:
                frame = party.recv_bytes(MAX_MESSAGE + _HANDLE_BYTES)
            except (EOFError, OSError):
                self._gone(node)
                continue
            handle = frame[:_HANDLE_BYTES].decode("ascii", "replace")
            asked, digest = self._under_way.get(handle, (None, b""))
            if asked == node:
                del self._under_way[handle]
                self._ready.append(Arrival(node, digest, frame[_HANDLE_BYTES:], None))

    def _gone(self, node: int) -> None:
        with self._turn:
            self._parties.pop(node).close()
        for handle, (at, digest) in list(self._under_way.items()):
            if at == node:
                del self._under_way[handle]
                self._ready.append(Arrival(node, digest, None, GONE))


class DirectConnection:
    """Replaces :class:`party.flower.connection.Connection`; the app is a function of bytes."""

    def __init__(
        self,
        server: Server,
        app: Callable[[bytes], bytes],
        home: Path,
        *,
        timeouts: Timeouts | None = None,
        on_event: Callable[[str], None] = lambda _: None,
        **_: object,
    ) -> None:
        del home
        self._max_wait = None if timeouts is None else timeouts.server
        self._where = (server.host, server.port)
        self._app = app
        self._on_event = on_event

    def run(self, stop: Callable[[], bool]) -> None:
        looked = time.monotonic()
        while not stop():
            try:
                link = Client(self._where, authkey=_KEY)
            except (OSError, EOFError) as error:
                if self._max_wait is not None and time.monotonic() - looked > self._max_wait:
                    raise UnreachableError(f"nobody at {self._where}") from error
                time.sleep(_AGAIN_S)
                continue
            self._on_event("connected")
            with link:
                self._serve(link, stop)
            looked = time.monotonic()

    def _serve(self, link: Connection, stop: Callable[[], bool]) -> None:
        while not stop():
            try:
                if not link.poll(_POLL_S):
                    continue
                frame = link.recv_bytes(MAX_MESSAGE + _HANDLE_BYTES)
                handle, body = frame[:_HANDLE_BYTES], frame[_HANDLE_BYTES:]
                link.send_bytes(handle + self._app(body))
            except (EOFError, OSError):
                return


def install() -> None:
    """Make the commands of this process use the direct link, with shorter waiting times."""
    import aggregator_server.campaign.sums as sums
    import aggregator_server.exchange.exchange as exchange
    import aggregator_server.reaching as server
    import party.session as party
    import pate.runtime.forked as forked

    def probe(server: Server, **_: float) -> None:
        try:
            socket.create_connection((server.host, server.port), timeout=1).close()
        except OSError as error:
            raise UnreachableError(f"{server.address} does not answer") from error

    vars(server)["Deployment"] = DirectDeployment
    vars(party)["Connection"] = DirectConnection
    vars(party)["make_client_app"] = lambda handle: handle
    # A server of this link speaks no HTTP, and has no certificate for a party that is enrolled.
    vars(party)["Server"].probe = probe
    # A process of Flower would have nothing to do.
    vars(forked)["fork_ahead"] = lambda *_: None
    # One party is killed at every step of one sum.
    vars(sums)["_ATTEMPTS"] = 20
    # Waiting times chosen for Flower.
    vars(exchange)["_POLL_S"] = _AGAIN_S
    vars(exchange)["_RETURN_S"] = 2.0
