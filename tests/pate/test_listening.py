"""Resources of unauthenticated clients: connections are bounded in number and duration."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from aggregator_server.flower.gateway import MAX_HEAD, Gateway
from aggregator_server.flower.superlink import trust_in
from aggregator_server.identities import Identities
from pate.listening import bounded_listener, timeouts
from pate.listening.bounded_listener import (
    KEPT_EACH,
    BoundedListener,
    Room,
    room_for_connections,
)
from pate.listening.timeouts import Loop, protocol_of
from pate.runtime.child import listen
from tests.support.server.fleet_nodes import new_key, pem_of, signed
from tests.support.server.identities import NOW

ROOMY = Room(all=100, per_address=100)
PULL = b"POST /v1/fleet/pull-messages HTTP/1.1\r\nhost: x\r\n"


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeouts, "REQUEST_TIMEOUT_S", 0.3)
    monkeypatch.setattr(timeouts, "ACCEPT_TIMEOUT_S", 0.3)


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    gateway = Gateway("127.0.0.1", 0)
    gateway.let_in([b"key"])
    gateway.start()
    yield gateway
    gateway.stop()


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=10)


def ends(connection: socket.socket) -> bytes:
    """Read until the other side closes, and return what it said; fails if it does not."""
    said = b""
    try:
        while more := connection.recv(4096):
            said += more
    except ConnectionResetError:
        pass
    return said


@pytest.mark.parametrize("head", [b"GET /", PULL + b"flwr-x: "])
def test_a_head_without_an_end_is_cut_off(gateway: Gateway, head: bytes) -> None:
    """The line of the request, and a header: each longer than a head may be."""
    with connect(gateway.port) as stranger:
        stranger.sendall(head)
        sent = 0
        try:
            while sent < 64 * 2**20:
                sent += stranger.send(bytes([97]) * 2**16)
        except (ConnectionResetError, BrokenPipeError):
            pass
        # The rest is what the two ends of a socket hold; the gateway read a head's worth.
        assert sent < 16 * 2**20
    assert httpx.get(f"http://127.0.0.1:{gateway.port}/health", trust_env=False).status_code == 503


def test_a_head_of_the_size_that_flower_needs_passes(gateway: Gateway) -> None:
    with connect(gateway.port) as stranger:
        stranger.sendall(
            PULL + b"flwr-x: " + b"a" * (MAX_HEAD // 2) + b"\r\nconnection: close\r\n\r\n"
        )
        assert ends(stranger).startswith(b"HTTP/1.1 401")


@pytest.mark.parametrize("sent", [b"", b"GET /", PULL])
@pytest.mark.usefixtures("hurried")
def test_a_connection_without_a_request_is_closed(gateway: Gateway, sent: bytes) -> None:
    with connect(gateway.port) as idle:
        idle.sendall(sent)
        assert ends(idle) == b""


@pytest.mark.usefixtures("hurried")
def test_a_trickle_is_no_request(gateway: Gateway) -> None:
    """Each byte is new, and the connection is closed all the same."""
    began, cut_off = time.monotonic(), False
    with connect(gateway.port) as trickling:
        trickling.sendall(PULL)
        while not cut_off:
            assert time.monotonic() - began < 10
            time.sleep(0.02)
            try:
                trickling.sendall(b"a")
            except (ConnectionResetError, BrokenPipeError):
                cut_off = True


@pytest.mark.usefixtures("hurried")
def test_nor_is_the_second_one_waited_for_without_end(gateway: Gateway) -> None:
    with connect(gateway.port) as idle:
        idle.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\nGET /hea")
        assert ends(idle).startswith(b"HTTP/1.1 503")


@pytest.mark.usefixtures("hurried")
def test_a_handshake_that_does_not_come_is_not_waited_for(tmp_path: Path) -> None:
    identities = Identities.create(tmp_path, (), 9092, NOW)
    gateway = Gateway(
        "127.0.0.1", 0, certificate=(identities.certificate, identities.certificate_key)
    )
    gateway.start()
    try:
        with connect(gateway.port) as silent:
            assert ends(silent) == b""
        context = trust_in(identities)
        with context.wrap_socket(connect(gateway.port), server_hostname="127.0.0.1") as idle:
            assert ends(idle) == b""
    finally:
        gateway.stop()


@pytest.mark.usefixtures("hurried")
def test_a_request_that_takes_longer_is_not_disturbed(gateway: Gateway) -> None:
    """The head arrives at once; the rest has another deadline."""
    key = new_key()
    gateway.let_in([pem_of(key)])
    proof = "".join(f"{name}: {value}\r\n" for name, value in signed(key).items())
    with connect(gateway.port) as slow:
        slow.sendall(PULL + proof.encode() + b"content-length: 3\r\nconnection: close\r\n\r\n")
        for _ in range(3):
            time.sleep(0.25)
            slow.sendall(b"a")
        # Whole, and no message of Flower's.
        assert ends(slow).startswith(b"HTTP/1.1 400")


@pytest.mark.slow
@pytest.mark.parametrize("filler", [b"flwr-x: %s\r\n", b"%s: x\r\n"])
def test_a_head_is_bounded_to_the_byte_however_it_comes(gateway: Gateway, filler: bytes) -> None:
    """In one piece, which a parser may accept whole, and in two, of which it must buffer the first."""
    frame = b"GET /health HTTP/1.1\r\nhost: x\r\n%sconnection: close\r\n\r\n"
    room = MAX_HEAD - len(frame % (filler % b""))
    for extra, pieces in ((0, 1), (0, 2), (1, 1), (1, 2), (8000, 1), (8000, 2), (250_000, 1)):
        head = frame % (filler % (b"a" * (room + extra)))
        assert len(head) == MAX_HEAD + extra
        with connect(gateway.port) as stranger:
            middle = len(head) // pieces
            stranger.sendall(head[:middle])
            time.sleep(0.05 * (pieces - 1))
            with contextlib.suppress(ConnectionError):
                stranger.sendall(head[middle:])
            status = ends(stranger)[9:12]
        assert status in ((b"503",) if extra == 0 else (b"400", b"431", b"")), (extra, pieces)


@pytest.mark.usefixtures("hurried")
def test_who_does_not_take_what_is_sent_is_cut_off() -> None:
    """Answers pile up at one that asks on and on, and does not read."""
    with serving(b"x" * 2**20) as (port, listener), connect(port) as deaf:
        deaf.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n" * 100)
        deadline = time.monotonic() + 20
        while listener._open:
            assert time.monotonic() < deadline, "it is held on to"
            time.sleep(0.02)


@contextlib.contextmanager
def serving(answer: bytes, room: Room = ROOMY) -> Iterator[tuple[int, BoundedListener]]:
    """A server of ours that gives one answer to every client."""

    async def app(scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for at in range(0, len(answer), 2**16):
            piece = answer[at : at + 2**16]
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    listener = BoundedListener(listen("127.0.0.1", 0), room)
    config = uvicorn.Config(
        app, lifespan="off", ws="none", http=protocol_of(listener), log_config=None
    )
    server = uvicorn.Server(config)

    def serve() -> None:
        with asyncio.Runner(loop_factory=Loop) as runner:
            runner.run(server.serve(sockets=[listener]))

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield listener.getsockname()[1], listener
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def test_whoever_comes_is_answered_while_others_hold_all_the_room() -> None:
    """Of one address, as a probe on the same machine has it: idle, and half a request each."""
    with serving(b"alive", Room(all=20, per_address=20)) as (port, listener):
        held = []
        try:
            for at in range(60):
                held.append(connect(port))
                held[-1].sendall(PULL if at % 2 else b"")
                if at % 10 == 9:
                    answer = httpx.get(f"http://127.0.0.1:{port}/", trust_env=False)
                    assert answer.text == "alive"
            assert len(listener._open) - len(listener._going) <= 20
        finally:
            for each in held:
                each.close()


@pytest.fixture
def listener() -> Iterator[BoundedListener]:
    with BoundedListener(listen("127.0.0.1", 0), Room(all=3, per_address=2)) as listener:
        yield listener


def come(listener: BoundedListener, source: str, held: list[socket.socket]) -> socket.socket:
    held.append(socket.create_connection(listener.getsockname(), source_address=(source, 0)))
    taken, address, _ = listener.take()
    return listener.let_in(taken, address)


def known(listener: BoundedListener, source: str, held: list[socket.socket]) -> socket.socket:
    """An authenticated connection."""
    accepted = come(listener, source, held)
    held.append(accepted)
    listener.keep(accepted.getpeername(), source)
    return accepted


def test_those_who_are_known_are_counted_in_all(listener: BoundedListener) -> None:
    """New connections evict none of them."""
    held: list[socket.socket] = []
    try:
        first = known(listener, "127.0.0.2", held)
        known(listener, "127.0.0.2", held)
        known(listener, "127.0.0.3", held)
        for source in ("127.0.0.2", "127.0.0.4"):
            with pytest.raises(ConnectionAbortedError, match=f"from {source}"):
                come(listener, source, held)
            assert held[-1].recv(1) == b"", "closed at once"
        first.close()
        first.close()  # counted once
        known(listener, "127.0.0.4", held)
        with pytest.raises(ConnectionAbortedError):
            come(listener, "127.0.0.5", held)
    finally:
        for each in held:
            each.close()


def test_an_address_has_room_beside_those_of_it_who_are_known() -> None:
    """Many parties may share one: each has the room of its key, and strangers one for all."""
    held, room = list[socket.socket](), Room(all=20, per_address=2)
    with BoundedListener(listen("127.0.0.1", 0), room) as listener:
        try:
            ours = [known(listener, "127.0.0.2", held) for _ in range(5)]
            strangers = [come(listener, "127.0.0.2", held) for _ in range(2)]
            for each in strangers:
                each.send(b"x")
            strangers.append(come(listener, "127.0.0.2", held))
            assert strangers[0].recv(1) == b"", "told to go: a third one came"
            for each in (*strangers[1:], *ours):
                each.send(b"x")
            held += strangers
        finally:
            for each in held:
                each.close()
        assert (listener._held, listener._kept, listener._open) == ({}, {}, {})


def test_the_oldest_of_the_unknown_makes_room(listener: BoundedListener) -> None:
    held: list[socket.socket] = []
    try:
        old, kept = come(listener, "127.0.0.2", held), known(listener, "127.0.0.2", held)
        second, third = come(listener, "127.0.0.2", held), come(listener, "127.0.0.2", held)
        held += [old, second, third]
        for each in held:
            each.settimeout(10)
        assert held[0].recv(1) == b"", "the oldest of this address was told to go"
        assert old.recv(1) == b""
        old.close()
        # All is full now, and no connection of the new address is there: the crowded one gives one up.
        other = come(listener, "127.0.0.4", held)
        held.append(other)
        assert second.recv(1) == b""
        kept.send(b"x")
        third.send(b"x")
        other.send(b"x")
    finally:
        for each in held:
            each.close()


def test_of_one_holder_so_many_stay() -> None:
    room, held = Room(all=100, per_address=100), list[socket.socket]()
    with BoundedListener(listen("127.0.0.1", 0), room) as listener:
        try:
            for _ in range(100):
                held.append(come(listener, "127.0.0.2", held))
                listener.keep(held[-1].getpeername(), "one party")
            assert sum(each.holder is not None for each in listener._open.values()) == KEPT_EACH
        finally:
            for each in held:
                each.close()
        assert (listener._held, listener._kept, listener._open) == ({}, {}, {})


@pytest.mark.slow
def test_all_who_left_make_room_again(gateway: Gateway) -> None:
    listener = gateway._http._listener
    assert isinstance(listener, BoundedListener)
    for _ in range(5):
        httpx.get(f"http://127.0.0.1:{gateway.port}/health", trust_env=False)
    deadline = time.monotonic() + 10
    while listener._held:
        assert time.monotonic() < deadline, listener._held
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("192.0.2.1", "192.0.2.2", False),
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.2", False),
    ],
)
def test_what_is_one_address(one: str, other: str, same: bool) -> None:
    assert (bounded_listener._network(one) == bounded_listener._network(other)) is same


@pytest.mark.parametrize("files", [64, 256, 1024, 65_536])
def test_connections_leave_files_for_the_rest(monkeypatch: pytest.MonkeyPatch, files: int) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))
    room = room_for_connections()
    assert 2 * room.all <= files - min(256, files // 2)
    assert 1 <= room.per_address < room.all


def test_the_limit_of_files_is_raised_as_far_as_the_system_allows() -> None:
    script = (
        "import resource\n"
        "from pate.listening.bounded_listener import raise_file_limit\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (200, 300))\n"
        "raise_file_limit()\n"
        "print(*resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert done.stdout.split() == [b"300", b"300"]


def test_what_strangers_send_is_not_said_on_the_screen() -> None:
    """In its own process: without a handler of logging, Python prints warnings."""
    script = (
        "import socket\n"
        "from aggregator_server.flower.gateway import Gateway\n"
        "gateway = Gateway('127.0.0.1', 0)\n"
        "gateway.start()\n"
        "stranger = socket.create_connection(('127.0.0.1', gateway.port))\n"
        "stranger.sendall(b'nonsense\\r\\n\\r\\n')\n"
        "print(stranger.recv(100)[:12])\n"
        "stranger.close()\n"
        "gateway.stop()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"b'HTTP/1.1 400'\n", b"")
