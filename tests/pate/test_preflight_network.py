"""The way to a server: real sockets, real TLS with certificates of the server's own making."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import http.server
import socket
import ssl
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import httpx
import pytest
from flwr.common.constant import SYSTEM_TIME_TOLERANCE, TIMESTAMP_TOLERANCE
from flwr.superlink.main import create_app

from aggregator_server.gateway import Gateway
from aggregator_server.identities import Identities
from aggregator_server.identities.authority import Authority, issue
from pate.errors import StateError, UnreachableError, UsageError
from pate.runtime.lifeline import free_port
from pate.runtime.preflight import network
from pate.runtime.preflight.finding import Status
from pate.runtime.preflight.meeting import Fault, Meeting, Target, meet, utc_now
from pate.runtime.preflight.network import (
    check_certificate,
    check_clock,
    check_exposed,
    check_fleet,
    check_name,
    check_proxy,
    proxy_for,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: An address of this machine that is not called loopback, so that it stands for another one.
HOST = "127.0.0.2"
DAY = dt.timedelta(days=1)


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
def serving(handler: type[Plain], host: str = HOST) -> Iterator[int]:
    with http.server.ThreadingHTTPServer((host, 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield int(server.server_address[1])
        finally:
            server.shutdown()
            thread.join()


@contextlib.contextmanager
def gateway_of(identities: Identities, upstream: int | None = None) -> Iterator[Gateway]:
    gateway = Gateway(
        HOST, 0, tls_certificate=identities.certificate, tls_key=identities.certificate_key
    )
    gateway.point_at(None if upstream is None else f"{HOST}:{upstream}")
    gateway.start()
    try:
        yield gateway
    finally:
        gateway.stop()


def pinning(identities: Identities, port: int, host: str = HOST) -> Target:
    ca = identities.ca.read_bytes()
    return Target(host, port, trust=ssl.create_default_context(cadata=ca.decode()), authority=ca)


@pytest.fixture(scope="module")
def identities(tmp_path_factory: pytest.TempPathFactory) -> Identities:
    return Identities.create(tmp_path_factory.mktemp("server"), (HOST,), 9092, utc_now())


@pytest.fixture(scope="module")
def plain() -> Iterator[int]:
    with serving(Plain) as port:
        yield port


@pytest.fixture(scope="module")
def target(identities: Identities, plain: int) -> Iterator[Target]:
    with gateway_of(identities, plain) as gateway:
        yield pinning(identities, gateway.port)


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def test_a_server_that_is_as_it_should_be(target: Target) -> None:
    meeting, now = meet(target), utc_now()
    assert (meeting.fault, meeting.status, meeting.protocol) == (None, 200, "TLSv1.3")
    found = check_certificate(target, meeting, now)
    assert found.status is Status.OK
    assert "364 days left" in found.text
    for each in (
        check_fleet(target, meeting),
        check_clock(target, meeting, now),
        check_name(target),
    ):
        assert each.status is Status.OK, each.text


def test_a_certificate_that_ends_soon_is_a_warning(target: Target) -> None:
    found = check_certificate(target, meet(target), utc_now() + 350 * DAY)
    assert found.status is Status.WARNING
    assert "rotate" in found.mend


def refusal(identities: Identities, target_host: str = HOST, **of: Identities) -> tuple[str, Fault]:
    """What is said of a server with ``identities`` by a party that pins those of ``pins``."""
    with gateway_of(identities) as gateway:
        target = pinning(of.get("pins", identities), gateway.port, target_host)
        meeting = meet(target)
    found = check_certificate(target, meeting, utc_now())
    assert found.kind is UnreachableError
    assert found.mend
    assert check_fleet(target, meeting).status is Status.SKIPPED
    assert check_exposed(target, meeting).status is Status.SKIPPED
    assert meeting.fault is not None
    return found.text, meeting.fault


def test_another_authority(identities: Identities, tmp_path: Path) -> None:
    other = Identities.create(tmp_path, (HOST,), 9092, utc_now())
    text, fault = refusal(other, pins=identities)
    assert (fault, "not of the pinned authority" in text) == (Fault.AUTHORITY, True)


def test_an_expired_certificate_and_an_expired_authority(tmp_path: Path) -> None:
    long_ago = utc_now() - 500 * DAY
    stale = Identities.create(tmp_path / "a", (HOST,), 9092, long_ago)
    text, fault = refusal(stale)
    ended = (long_ago + 365 * DAY).strftime("%Y-%m-%d")
    assert (fault, f"its certificate expired on {ended}" in text) == (Fault.EXPIRED, True)
    dead = Identities.create(tmp_path / "b", (HOST,), 9092, utc_now() - 4000 * DAY)
    text, fault = refusal(dead)
    assert (fault, "the pinned authority expired" in text) == (Fault.EXPIRED, True)


def test_a_certificate_of_tomorrow_asks_for_the_clock(tmp_path: Path) -> None:
    ahead = Identities.create(tmp_path, (HOST,), 9092, utc_now() + 3 * DAY)
    text, fault = refusal(ahead)
    assert fault is Fault.EARLY
    assert "not valid" not in text
    assert "its certificate begins on" in text
    assert "this clock says" in text


def test_a_certificate_for_another_host(tmp_path: Path) -> None:
    named = Identities.create(tmp_path, ("pate.example.org",), 9092, utc_now())
    text, fault = refusal(named)
    assert (fault, "is for pate.example.org" in text) == (Fault.NAME, True)


def test_a_certificate_whose_key_was_signed_by_a_stranger_of_the_same_name(
    identities: Identities, tmp_path: Path
) -> None:
    """Our authorities are all called alike: it is the key that counts."""
    other = Identities.create(tmp_path, (HOST,), 9092, utc_now())
    key = (other.directory / "ca.key").read_bytes()
    forged = Authority(other.ca.read_bytes(), key)
    other.certificate.write_bytes(issue(forged, (HOST,), utc_now()))
    assert refusal(other, pins=identities)[1] is Fault.AUTHORITY


def test_a_server_without_tls_and_one_with_nothing_else(plain: int, target: Target) -> None:
    meeting = meet(replace(target, port=plain))
    assert meeting.fault is Fault.NO_TLS
    assert check_certificate(target, meeting, utc_now()).kind is UnreachableError
    clear = Target(target.host, target.port, tls=False)
    meeting = meet(clear)
    assert meeting.fault is Fault.ONLY_TLS
    found = check_fleet(clear, meeting)
    assert found.kind is UnreachableError
    assert "enroll" in found.mend
    assert meet(replace(clear, port=plain)).fault is None


def test_nobody_answers(target: Target) -> None:
    nobody = replace(target, port=free_port(HOST))
    meeting = meet(nobody)
    assert meeting.fault is Fault.SILENT
    found = check_fleet(nobody, meeting)
    assert found.kind is UnreachableError
    assert "Connection refused" in found.text
    assert check_certificate(nobody, meeting, utc_now()).status is Status.SKIPPED
    assert meet(replace(nobody, tls=False)).fault is Fault.SILENT


def test_a_server_that_accepts_and_says_nothing_is_given_up() -> None:
    with socket.create_server((HOST, 0)) as dumb:
        silent = Target(HOST, dumb.getsockname()[1])
        assert meet(silent, timeout=0.2).fault is Fault.SILENT


def test_a_gateway_without_a_campaign_is_not_ready(identities: Identities) -> None:
    with gateway_of(identities) as gateway:
        target = pinning(identities, gateway.port)
        found = check_fleet(target, meet(target))
    assert found.status is Status.WARNING
    assert "503" in found.text


@pytest.mark.parametrize(
    ("ahead", "status"),
    [(0.0, "ok"), (4.0, "warning"), (10.0, "failed"), (-100.0, "warning"), (-400.0, "failed"),
     (-86_400.0, "failed")],
)  # fmt: skip
def test_clocks_that_differ(target: Target, ahead: float, status: str) -> None:
    meeting = meet(target, clock=lambda: utc_now() + dt.timedelta(seconds=ahead))
    found = check_clock(target, meeting, utc_now())
    assert found.status.value == status, found.text
    assert "Date header" in found.text
    if status == "failed":
        assert found.kind is StateError


def test_flower_allows_what_the_clock_is_held_against() -> None:
    assert network.NEWEST_S == SYSTEM_TIME_TOLERANCE
    assert network.OLDEST_S == TIMESTAMP_TOLERANCE + SYSTEM_TIME_TOLERANCE


def test_a_clock_without_a_server_is_held_against_the_pinned_authority(target: Target) -> None:
    assert check_clock(target, None, utc_now()).status is Status.OK
    found = check_clock(target, Meeting(Fault.SILENT), utc_now() - 30 * DAY)
    assert found.kind is StateError
    assert check_clock(None, None, utc_now()).status is Status.SKIPPED


def test_a_name_that_nobody_knows() -> None:
    assert check_name(Target("localhost", 1)).status is Status.OK
    for name in ("no-such-host.invalid", "x" * 64 + ".invalid"):
        assert check_name(Target(name, 1)).kind is UnreachableError


def test_what_is_not_for_parties_is_a_warning(identities: Identities, target: Target) -> None:
    closed = (free_port(HOST),)
    assert check_exposed(target, meet(target), ports=closed).status is Status.OK
    with serving(Operators) as port:
        bare = Target(HOST, port, tls=False)
        found = check_exposed(bare, meet(bare), ports=closed)
        assert found.status is Status.WARNING
        assert "/v1/control/list-runs" in found.text
        found = check_exposed(target, meet(target), ports=(port, target.port))
        assert found.status is Status.WARNING
        assert f"port {port} is open" in found.text
        assert str(target.port) not in found.text
    here = replace(target, direct=True)
    assert check_exposed(here, meet(target)).status is Status.SKIPPED


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
    """A proxy that lets nothing through, and notes what it is asked for."""

    asked: list[str] = []  # noqa: RUF012 - one list for all that one server handles

    def do_CONNECT(self) -> None:
        self.asked.append(self.path)
        self.answer(403)


def test_a_proxy_that_is_named_is_used_and_told_without_its_password(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    Proxy.asked.clear()
    with serving(Proxy) as port:
        monkeypatch.setenv("https_proxy", f"http://user:secret@{HOST}:{port}")
        found = check_proxy(target)
        meeting = meet(target)
        through = proxy_for(target)
    assert meeting.fault is Fault.PROXY
    assert Proxy.asked == [target.address]
    assert through == f"{HOST}:{port}"
    assert found.status is Status.OK
    assert "secret" not in found.text
    refused = check_fleet(target, meeting)
    assert refused.kind is UnreachableError
    assert "CONNECT" in refused.mend
    # A range is not understood where Flower's requests are made, the host itself is.
    monkeypatch.setenv("no_proxy", "127.0.0.0/8")
    assert check_proxy(target).status is Status.WARNING
    assert meet(target).fault is not None
    monkeypatch.setenv("no_proxy", HOST)
    assert check_proxy(target).status is Status.OK
    assert "straight" in check_proxy(target).text
    assert meet(target).fault is None


def test_proxies_that_do_not_matter_and_one_of_another_kind(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "none is set" in check_proxy(target).text
    monkeypatch.setenv("HTTPS_PROXY", f"http://{HOST}:1")
    assert "on this machine" in check_proxy(replace(target, direct=True)).text
    monkeypatch.delenv("HTTPS_PROXY")
    monkeypatch.setenv("all_proxy", f"strange://{HOST}:1")
    assert check_proxy(target).kind is UsageError
    assert meet(target).fault is Fault.PROXY
