"""Connections wait in turn: a crowd at one address blocks no other client, there or elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import resource
import socket
import ssl
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from itertools import product
from pathlib import Path

import httpx
import pytest

from aggregator_server.flower.gateway import Gateway
from aggregator_server.flower.superlink import trust_in
from aggregator_server.identities import Identities
from pate.listening.bounded_listener import BoundedListener, Room, raise_file_limit
from pate.listening.connection_queue import ConnectionQueue
from pate.listening.timeouts import Loop
from pate.runtime.child import listen
from tests.support.needs import others_slow
from tests.support.server import crowd
from tests.support.server.fleet_nodes import new_key, pem_of, signed

PULL = "/v1/fleet/pull-messages"
ROOM = Room(all=50, per_address=50, waiting=6, waiting_per_address=4)


class Noting(asyncio.Protocol):
    """Records admitted connections, by the port of the peer."""

    def __init__(self, ports: list[int]) -> None:
        self._ports = ports

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._ports.append(transport.get_extra_info("peername")[1])
        transport.close()


class Door:
    """A connection queue on its own loop, and its clients."""

    def __init__(self, loop: asyncio.AbstractEventLoop, room: Room) -> None:
        self.listener = BoundedListener(listen("127.0.0.1", 0), room)
        self.let_in: list[int] = []
        self.room = ConnectionQueue(
            loop, self.listener, lambda: Noting(self.let_in), tls=None, patience=30.0, shutdown=1.0
        )
        self.stood: list[socket.socket] = []
        self.is_open = False
        self.room._may_begin = lambda: self.is_open  # type: ignore[method-assign]

    async def come(self, source: str, said: bytes = b"x") -> int:
        """Stand one more before it; return his port."""
        came = socket.create_connection(self.listener.getsockname(), source_address=(source, 0))
        self.stood.append(came)
        came.send(said)
        port = int(came.getsockname()[1])
        await soon(lambda: self._has(port, silent=not said) or is_closed(came))
        return port

    def _has(self, port: int, *, silent: bool) -> bool:
        spoken = [each for queue in self.room._ready.values() for each in queue]
        return any(each.address[1] == port for each in (self.room._silent if silent else spoken))

    async def open(self) -> None:
        """Admit the waiting connections."""
        self.is_open = True
        self.room._go_on()
        await soon(lambda: not self.room._ready)


def is_closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


async def soon(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not holds():
            await asyncio.sleep(0.002)


def at_the_door(play: Callable[[Door], Awaitable[None]], room: Room = ROOM) -> None:
    async def run() -> None:
        listener = Door(asyncio.get_running_loop(), room)
        try:
            await play(listener)
        finally:
            listener.room.close()
            assert len(listener.room) == 0
            await soon(lambda: not listener.room._inside)
            for each in listener.stood:
                each.close()
            listener.listener.close()

    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(run())


def test_of_each_address_one_is_let_in_in_turn() -> None:
    async def play(listener: Door) -> None:
        crowd = [await listener.come("127.0.0.2") for _ in range(4)]
        alone = await listener.come("127.0.0.3")
        await listener.open()
        await soon(lambda: len(listener.let_in) == 5)
        assert listener.let_in == [crowd[0], alone, *crowd[1:]]

    at_the_door(play)


def test_who_says_nothing_is_not_let_in_and_makes_room() -> None:
    async def play(listener: Door) -> None:
        for _ in range(20):
            await listener.come("127.0.0.2", b"")
        assert [is_closed(each) for each in listener.stood] == [True] * 16 + [False] * 4
        speaks = await listener.come("127.0.0.2")
        await listener.open()
        await soon(lambda: listener.let_in == [speaks])
        assert len(listener.room) == 3

    at_the_door(play)


def test_a_crowd_that_speaks_loses_its_newest() -> None:
    """Those who came first keep their place, and another address finds one."""

    async def play(listener: Door) -> None:
        first = [await listener.come("127.0.0.2") for _ in range(4)]
        await listener.come("127.0.0.2")
        assert is_closed(listener.stood[-1])
        others = [await listener.come(f"127.0.0.{n}") for n in (3, 4, 5)]
        await listener.open()
        await soon(lambda: len(listener.let_in) == 6)
        assert set(listener.let_in) == {*first[:3], *others}

    at_the_door(play)


def test_who_has_gone_meanwhile_takes_no_turn() -> None:
    async def play(listener: Door) -> None:
        with socket.create_connection(listener.listener.getsockname()):
            await soon(lambda: len(listener.room) == 1)
        await soon(lambda: len(listener.room) == 0)
        assert listener.let_in == []

    at_the_door(play)


@pytest.fixture
def address(tmp_path: Path) -> Iterator[tuple[int, ssl.SSLContext, dict[str, str]]]:
    """A gateway with a certificate: its port, whom to trust, and what an enrolled party says."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    raise_file_limit()
    identities = Identities.create(tmp_path, (), 9092, dt.datetime.now(dt.UTC))
    gateway = Gateway(
        "127.0.0.1", 0, certificate=(identities.certificate, identities.certificate_key)
    )
    key = new_key()
    gateway.let_in([pem_of(key)])
    gateway.start()
    yield gateway.port, trust_in(identities), signed(key)
    gateway.stop()
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@contextlib.contextmanager
def crowded(port: int, number: int, kind: str) -> Iterator[None]:
    """Open ``number`` unauthenticated connections from our own address."""
    with subprocess.Popen(
        [sys.executable, crowd.__file__, str(port), str(number), kind], stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"all came\n"
            yield
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("number", "kind"),
    others_slow(
        product([100, 1000], ["silent", "hello", "shaken"]),
        lambda case: case[0] == 100 or case[1] == "silent",
    ),
)
def test_a_party_gets_through_beside_strangers_of_its_address(
    address: tuple[int, ssl.SSLContext, dict[str, str]], number: int, kind: str
) -> None:
    """Each time with a new connection, and without a second try."""
    port, trust, proof = address
    with crowded(port, number, kind):
        for _ in range(5):
            with httpx.Client(verify=trust, trust_env=False, timeout=60) as party:
                answer = party.post(
                    f"https://127.0.0.1:{port}{PULL}", headers=proof, content=b"no message"
                )
                assert answer.status_code == 400, "it was known, and its body was read"
