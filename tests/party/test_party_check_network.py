"""Checks of the connection to a server: real sockets and TLS, with the server's own certificates."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import http.server
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from flwr.common.constant import SYSTEM_TIME_TOLERANCE, TIMESTAMP_TOLERANCE
from flwr.superlink.main import create_app

from aggregator_server.flower.gateway import Gateway
from aggregator_server.identities import Identities
from aggregator_server.identities.authority import Authority, issue
from party.flower.supernode import Server, UntrustedServerError
from party.preflight import network
from party.preflight.network import (
    Handshake,
    check_certificate,
    check_clock,
    check_exposed,
    check_name,
    check_proxy,
    check_server,
    meet,
    proxy_for,
)
from pate.errors import StateError, UnreachableError, UsageError
from pate.preflight import machine
from pate.preflight.checks import Status
from pate.runtime.child import free_port
from protos.bounds import CLOCK_AHEAD_S, CLOCK_BEHIND_S

#: An address of this machine that is not called loopback, so that it stands for another one.
HOST = "127.0.0.2"
DAY = dt.timedelta(days=1)


def utc_now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


class Plain(http.server.BaseHTTPRequestHandler):
    """Answers 200 to a question for its health and to a POST, and what ``others`` says to all else."""

    protocol_version = "HTTP/1.1"
    others = 404

    def do_GET(self) -> None:
        self.answer(200 if self.path == "/health" else self.others)

    def answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        pass


class Operators(Plain):
    """As a SuperLink without a gateway: its other interfaces are there."""

    others = 405


@contextlib.contextmanager
def serving(
    handler: type[Plain], host: str = HOST, identities: Identities | None = None
) -> Iterator[int]:
    """Serve, over TLS if there are identities."""
    with http.server.ThreadingHTTPServer((host, 0), handler) as server:
        if identities is not None:
            way = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            way.load_cert_chain(identities.certificate, identities.certificate_key)
            server.socket = way.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield int(server.server_address[1])
        finally:
            server.shutdown()
            thread.join()


@contextlib.contextmanager
def gateway_of(
    identities: Identities, upstream: int | None = None, host: str = HOST
) -> Iterator[Gateway]:
    gateway = Gateway(host, 0, certificate=(identities.certificate, identities.certificate_key))
    gateway.point_at(None if upstream is None else f"{HOST}:{upstream}")
    gateway.start()
    try:
        yield gateway
    finally:
        gateway.stop()


def pinning(identities: Identities, port: int, host: str = HOST) -> Server:
    return Server(f"{host}:{port}", identities.ca)


def in_clear(port: int) -> Server:
    return Server(f"127.0.0.1:{port}")


@pytest.fixture(scope="module")
def identities(tmp_path_factory: pytest.TempPathFactory) -> Identities:
    return Identities.create(tmp_path_factory.mktemp("server"), (HOST,), 9092, utc_now())


@pytest.fixture(scope="module")
def plain() -> Iterator[int]:
    with serving(Plain) as port:
        yield port


@pytest.fixture(scope="module")
def server(identities: Identities, plain: int) -> Iterator[Server]:
    with gateway_of(identities, plain) as gateway:
        yield pinning(identities, gateway.port)


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def test_a_server_that_is_as_it_should_be(server: Server) -> None:
    handshake, now = meet(server), utc_now()
    assert (handshake.error, handshake.status, handshake.protocol) == (None, 200, "TLSv1.3")
    found = check_certificate(server, handshake, now)
    assert found.status is Status.OK
    assert "364 days left" in found.text
    for each in (
        check_server(server, handshake),
        check_clock(server, handshake, now),
        check_name(server),
    ):
        assert each.status is Status.OK, each.text


def test_a_certificate_that_ends_soon_is_a_warning(server: Server) -> None:
    found = check_certificate(server, meet(server), utc_now() + 350 * DAY)
    assert found.status is Status.WARNING
    assert "rotate" in found.to_do


def refusal(identities: Identities, target_host: str = HOST, **of: Identities) -> str:
    """What is said of a server with ``identities`` by a party that pins those of ``pins``."""
    with gateway_of(identities) as gateway:
        server = pinning(of.get("pins", identities), gateway.port, target_host)
        handshake = meet(server)
    found = check_certificate(server, handshake, utc_now())
    assert found.kind is UnreachableError
    assert isinstance(handshake.error, UntrustedServerError)
    assert found.text.startswith(str(handshake.error)), "as a start says it"
    assert check_server(server, handshake).status is Status.SKIPPED
    assert check_exposed(server, handshake).status is Status.SKIPPED
    return f"{found.text}; {found.to_do}"


def test_another_authority(identities: Identities, tmp_path: Path) -> None:
    other = Identities.create(tmp_path, (HOST,), 9092, utc_now())
    text = refusal(other, pins=identities)
    assert "not one that this party trusts" in text
    assert "not of the pinned authority" in text
    assert "opens TLS" in text


def test_an_expired_certificate_and_an_expired_authority(tmp_path: Path) -> None:
    long_ago = utc_now() - 500 * DAY
    stale = Identities.create(tmp_path / "a", (HOST,), 9092, long_ago)
    text = refusal(stale)
    ended = (long_ago + 365 * DAY).strftime("%Y-%m-%d")
    assert "has expired" in text
    assert "`pate-server rotate`" in text
    assert f" to {ended}" in text
    assert "pinned authority" not in text
    dead = Identities.create(tmp_path / "b", (HOST,), 9092, utc_now() - 4000 * DAY)
    text = refusal(dead)
    assert "has expired" in text
    assert "the pinned authority expired" in text
    assert "a new bundle" in text


def test_a_certificate_of_tomorrow_asks_for_the_clock(tmp_path: Path) -> None:
    begins = utc_now() + 3 * DAY
    ahead = Identities.create(tmp_path, (HOST,), 9092, begins)
    text = refusal(ahead)
    assert "is not valid yet: is the clock of this machine right?" in text
    assert f"from {begins - DAY:%Y-%m-%d}" in text
    assert "this clock says" in text


def test_a_certificate_for_another_host(tmp_path: Path) -> None:
    named = Identities.create(tmp_path, ("pate.example.org",), 9092, utc_now())
    text = refusal(named)
    assert "is for another host" in text
    assert "is for pate.example.org" in text


def test_a_certificate_whose_key_was_signed_by_a_stranger_of_the_same_name(
    identities: Identities, tmp_path: Path
) -> None:
    """Our authorities are all called alike: it is the key that counts."""
    other = Identities.create(tmp_path, (HOST,), 9092, utc_now())
    key = (other.directory / "ca.key").read_bytes()
    forged = Authority(other.ca.read_bytes(), key)
    other.certificate.write_bytes(issue(forged, (HOST,), utc_now()))
    text = refusal(other, pins=identities)
    assert "not one that this party trusts" in text
    assert "not of the pinned authority" in text


def test_a_server_without_tls_and_one_with_nothing_else(identities: Identities, plain: int) -> None:
    server = pinning(identities, plain)
    handshake = meet(server)
    found = check_certificate(server, handshake, utc_now())
    assert (found.kind, "does not speak TLS" in found.text) == (UnreachableError, True)
    assert check_server(server, handshake).status is Status.SKIPPED
    with gateway_of(identities, host="127.0.0.1") as gateway:
        clear = in_clear(gateway.port)
        handshake = meet(clear)
    assert isinstance(handshake.error, UntrustedServerError)
    found = check_server(clear, handshake)
    assert (found.kind, "speaks TLS" in found.text) == (UnreachableError, True)
    assert "enroll" in found.text
    with serving(Plain, "127.0.0.1") as port:
        assert meet(in_clear(port)).error is None


def test_nobody_answers(identities: Identities) -> None:
    nobody = pinning(identities, free_port(HOST))
    handshake = meet(nobody)
    assert type(handshake.error) is UnreachableError
    found = check_server(nobody, handshake)
    assert found.kind is UnreachableError
    assert "Connection refused" in found.text
    assert check_certificate(nobody, handshake, utc_now()).status is Status.SKIPPED
    assert type(meet(in_clear(free_port())).error) is UnreachableError


def test_a_server_that_accepts_and_says_nothing_is_given_up() -> None:
    with socket.create_server((HOST, 0)) as dumb:
        silent = Server(f"{HOST}:{dumb.getsockname()[1]}")
        assert type(meet(silent, timeout=0.2).error) is UnreachableError


def test_a_gateway_without_a_campaign_is_not_ready(identities: Identities) -> None:
    with gateway_of(identities) as gateway:
        server = pinning(identities, gateway.port)
        found = check_server(server, meet(server))
    assert found.status is Status.WARNING
    assert "503" in found.text


@pytest.mark.parametrize(
    ("ahead", "status"),
    [(0.0, "ok"), (4.0, "warning"), (10.0, "failed"), (-100.0, "warning"), (-400.0, "failed"),
     (-86_400.0, "failed")],
)  # fmt: skip
def test_clocks_that_differ(server: Server, ahead: float, status: str) -> None:
    handshake = meet(server, clock=lambda: utc_now() + dt.timedelta(seconds=ahead))
    found = check_clock(server, handshake, utc_now())
    assert found.status.value == status, found.text
    assert "Date header" in found.text
    if status == "failed":
        assert found.kind is StateError


def test_flower_allows_what_the_clock_is_held_against() -> None:
    assert CLOCK_AHEAD_S == SYSTEM_TIME_TOLERANCE
    assert CLOCK_BEHIND_S == TIMESTAMP_TOLERANCE + SYSTEM_TIME_TOLERANCE


def test_a_clock_without_a_server_is_held_against_the_pinned_authority(server: Server) -> None:
    assert check_clock(server, None, utc_now()).status is Status.OK
    found = check_clock(
        server, Handshake(UnreachableError("it does not answer")), utc_now() - 30 * DAY
    )
    assert found.kind is StateError
    assert check_clock(None, None, utc_now()).status is Status.SKIPPED


def test_a_name_that_nobody_knows() -> None:
    assert check_name(in_clear(1)).status is Status.OK
    assert check_name(Server("no-such-host.invalid:1")).kind is UnreachableError
    for name in ("localhost", "no-such-host.invalid", "x" * 64 + ".invalid"):
        found = machine.check_name(name, 1)
        assert found.kind is (None if name == "localhost" else UnreachableError)


def test_what_is_not_for_parties_is_a_warning(identities: Identities, server: Server) -> None:
    closed = (free_port(HOST),)
    assert check_exposed(server, meet(server), ports=closed).status is Status.OK
    with serving(Operators, identities=identities) as port:
        bare = pinning(identities, port)
        found = check_exposed(bare, meet(bare), ports=closed)
        assert found.status is Status.WARNING
        assert "/v1/control/list-runs" in found.text
        found = check_exposed(server, meet(server), ports=(port, server.port))
        assert found.status is Status.WARNING
        assert f"port {port} is open" in found.text
        assert str(server.port) not in found.text
    assert check_exposed(in_clear(1), meet(server)).status is Status.SKIPPED


def test_a_superlink_shows_that_its_other_interfaces_are_there() -> None:
    """The routes asked for are Flower's, and asking for them does nothing."""

    async def ask() -> list[int]:
        way = httpx.ASGITransport(app=create_app())
        async with httpx.AsyncClient(transport=way, base_url="http://superlink") as client:
            return [(await client.get(route)).status_code for route in network._NOT_FOR_PARTIES]

    statuses = asyncio.run(ask())
    assert set(statuses) <= network._THERE, statuses
    assert 405 in statuses


class Proxy(Plain):
    """A proxy that refuses everything, and records its requests."""

    asked: list[str] = []  # noqa: RUF012 - one list for all that one server handles

    def do_CONNECT(self) -> None:
        self.asked.append(self.path)
        self.answer(403)


def test_a_proxy_that_is_named_is_used_and_told_without_its_password(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    Proxy.asked.clear()
    with serving(Proxy) as port:
        monkeypatch.setenv("https_proxy", f"http://user:secret@{HOST}:{port}")
        found = check_proxy(server)
        handshake = meet(server)
        through = proxy_for(server)
    assert type(handshake.error) is UnreachableError
    assert Proxy.asked == [server.address]
    assert through == f"{HOST}:{port}"
    assert found.status is Status.OK
    assert "secret" not in found.text
    refused = check_server(server, handshake)
    assert refused.kind is UnreachableError
    assert "CONNECT" in refused.to_do
    # A range is not understood where Flower's requests are made, the host itself is.
    monkeypatch.setenv("no_proxy", "127.0.0.0/8")
    assert check_proxy(server).status is Status.WARNING
    assert meet(server).error is not None
    monkeypatch.setenv("no_proxy", HOST)
    assert check_proxy(server).status is Status.OK
    assert "straight" in check_proxy(server).text
    assert meet(server).error is None


@pytest.mark.parametrize("proxy", [f"strange://{HOST}:1", "http://[::g]:1", "http://a:x:y"])
def test_proxies_that_do_not_matter_and_one_that_cannot_be_used(
    server: Server, monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    assert "none is set" in check_proxy(server).text
    monkeypatch.setenv("HTTPS_PROXY", f"http://{HOST}:1")
    assert "on this machine" in check_proxy(in_clear(1)).text
    monkeypatch.delenv("HTTPS_PROXY")
    monkeypatch.setenv("all_proxy", proxy)
    assert check_proxy(server).kind is UsageError
    refused = check_server(server, meet(server))
    assert refused.kind is UnreachableError
    assert "the proxy variables cannot be used" in refused.text
    with pytest.raises(UsageError, match="the proxy variables cannot be used"):
        server.probe()  # as a start does
