"""Access control and answers of the page, over TLS too, and data that it never contains."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import re
import socket
import ssl
import stat
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from aggregator_server.identities import Identities
from aggregator_server.monitoring.serving import Page, PageServer, make_app
from pate.errors import LedgerError, PortInUseError, StateError, UsageError
from pate.page.access import OPEN, cookie_of
from pate.page.serving import STREAMS
from pate.runtime.child import listen
from pate.runtime.home import PAGE_TOKEN, kept_token
from tests.support.server.statuses import a_campaign, a_page, say

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aggregator_server.ledger.ledger import Ledger
    from aggregator_server.monitoring.status import Status


TOKEN = "t" * 43
PATHS = (
    "/", "/page.css", "/page.js", "/campaign.js", "/page.svg", "/api/overview", "/api/stream", "/metrics",
)  # fmt: skip
BEARER = {"authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def campaign(tmp_path: Path) -> Iterator[tuple[Ledger, Status]]:
    with a_campaign(tmp_path) as made:
        yield made


def ask(
    status: Status, *requests: tuple[str, dict[str, str]], **options: Any
) -> list[httpx.Response]:
    """Ask the application, in this process, one after the other."""
    closing = threading.Event()
    closing.set()  # streams end at once
    app = make_app(status, token=TOKEN, hosts={"localhost"}, closing=closing, **options)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)

    async def all_of_them() -> list[httpx.Response]:
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost:9") as client:
            return [
                await client.get(path, headers=httpx.Headers(headers, encoding="latin-1"))
                for path, headers in requests
            ]

    return asyncio.run(all_of_them())


def test_nothing_but_the_probes_is_told_without_the_token(
    campaign: tuple[Ledger, Status],
) -> None:
    wrong = [{}, {"authorization": "Bearer "}, {"authorization": f"Bearer {'u' * 43}"}]
    wrong += [{"authorization": f"Basic {TOKEN}"}, {"cookie": f"pate-page={TOKEN}"}]
    wrong += [{"authorization": f"Bearer {cookie_of(TOKEN)}"}, {"cookie": "pate-page=\xfc"}]
    asked = [(path, headers) for path in (*PATHS, "/docs", "/nothing") for headers in wrong]
    for (path, headers), reply in zip(asked, ask(campaign[1], *asked), strict=True):
        assert reply.status_code == 401, (path, headers)
        assert "chest-xray" not in reply.text
    said = {reply.text for reply in ask(campaign[1], *((path, {}) for path in sorted(OPEN)))}
    assert said == {"alive\n", "ready\n"}


def test_with_the_token_everything_is_answered(campaign: tuple[Ledger, Status]) -> None:
    replies = ask(campaign[1], *((path, BEARER) for path in PATHS))
    assert [reply.status_code for reply in replies] == [200] * len(PATHS)
    kinds = [reply.headers["content-type"].partition(";")[0] for reply in replies]
    assert kinds == [
        "text/html", "text/css", "text/javascript", "text/javascript", "image/svg+xml",
        "application/json", "text/event-stream", "text/plain",
    ]  # fmt: skip
    assert replies[5].json()["campaign"] == "chest-xray"
    assert "pate_campaign_round 2.0" in replies[7].text
    assert [r.status_code for r in ask(campaign[1], ("/docs", BEARER), ("/openapi.json", BEARER))] \
        == [404, 404]  # fmt: skip


def test_probes_are_answered_whatever_others_hold(
    campaign: tuple[Ledger, Status], tmp_path: Path
) -> None:
    """A supervisor that gets no answer would end the campaign. Nobody here has the token."""
    with a_page(campaign[1], tmp_path) as page:
        held: list[socket.socket] = []
        try:
            for half in (b"", b"GET / HT", b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"):
                for _ in range(100):
                    held.append(socket.create_connection(("127.0.0.1", page.port), timeout=10))
                    with contextlib.suppress(OSError):  # the oldest are closed
                        held[-1].sendall(half)
                for path in sorted(OPEN):
                    reply = httpx.get(f"http://127.0.0.1:{page.port}{path}", trust_env=False)
                    assert reply.status_code == 200, (half, path)
        finally:
            for each in held:
                each.close()


def test_who_has_the_token_is_not_sent_away_for_those_who_have_not(
    campaign: tuple[Ledger, Status], tmp_path: Path
) -> None:
    with a_page(campaign[1], tmp_path) as page:
        follows = socket.create_connection(("127.0.0.1", page.port), timeout=30)
        token = kept_token(tmp_path / PAGE_TOKEN)
        follows.sendall(
            b"GET /api/stream HTTP/1.1\r\nhost: localhost\r\n"
            b"authorization: Bearer " + token.encode() + b"\r\n\r\n"
        )
        said = b""
        while b"event: overview" not in said:
            said += follows.recv(4096)
        held = [socket.create_connection(("127.0.0.1", page.port), timeout=10) for _ in range(200)]
        try:
            # It continues: the next sign of life comes after them.
            follows.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while follows.recv(4096):
                    pass
            follows.settimeout(30)
            assert follows.recv(4096)
        finally:
            for each in (follows, *held):
                each.close()


def test_the_token_is_exchanged_for_a_cookie_once(campaign: tuple[Ledger, Status]) -> None:
    good, bad = ask(campaign[1], (f"/?token={TOKEN}", {}), ("/?token=guess", {}))
    assert (bad.status_code, "set-cookie" in bad.headers) == (401, False)
    assert (good.status_code, good.headers["location"]) == (303, "/")
    cookie = good.headers["set-cookie"]
    assert TOKEN not in cookie
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
    assert "Secure" not in cookie
    (secure,) = ask(campaign[1], (f"/?token={TOKEN}", {}), secure=True)
    assert "Secure" in secure.headers["set-cookie"].split("; ")
    held = {"cookie": cookie.partition(";")[0]}
    assert [r.status_code for r in ask(campaign[1], ("/", held), ("/api/overview", held))] == [
        200, 200,
    ]  # fmt: skip
    # Elsewhere than on the page itself a token in an address opens nothing: addresses are logged.
    (elsewhere,) = ask(campaign[1], (f"/api/overview?token={TOKEN}", {}))
    assert elsewhere.status_code == 401


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example:9094", "", "[::1", "127.1"]
)
def test_another_host_is_refused_even_with_the_token(
    campaign: tuple[Ledger, Status], host: str
) -> None:
    replies = ask(campaign[1], *((path, BEARER | {"host": host}) for path in ("/", "/metrics")))
    assert [reply.status_code for reply in replies] == [421, 421]
    probe, named = ask(
        campaign[1], ("/healthz", {"host": host}), ("/", BEARER | {"host": "LOCALHOST"})
    )
    assert (probe.status_code, named.status_code) == (200, 200)


def test_every_answer_tells_browsers_to_be_careful(campaign: tuple[Ledger, Status]) -> None:
    asked = [(path, BEARER) for path in PATHS]
    asked += [("/", {}), ("/nothing", BEARER), ("/healthz", {}), (f"/?token={TOKEN}", {})]
    for reply in ask(campaign[1], *asked):
        policy = reply.headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["referrer-policy"] == "no-referrer"
        assert reply.headers["cache-control"] == "no-store"


def test_the_page_is_only_read(campaign: tuple[Ledger, Status]) -> None:
    app = make_app(campaign[1], token=TOKEN, hosts={"localhost"})

    async def post() -> list[int]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return [
                (await client.request(method, "/", headers=BEARER)).status_code
                for method in ("POST", "PUT", "DELETE", "OPTIONS", "HEAD")
            ]

    assert asyncio.run(post()) == [405, 405, 405, 405, 200]


def test_the_files_are_small_and_ask_nothing_of_anybody_else(
    campaign: tuple[Ledger, Status],
) -> None:
    replies = ask(campaign[1], *((path, BEARER) for path in PATHS[:5]))
    assert sum(len(reply.content) for reply in replies) < 60_000
    for reply in replies:
        text = reply.text.replace("http://www.w3.org/2000/svg", "")
        assert "//" not in re.sub(r"(?m)(^|\s)//.*$", "", text), "an address elsewhere"
    script = replies[2].text + replies[3].text
    for way_in in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert way_in not in script


def test_an_unreadable_ledger_is_told_by_kind_alone(campaign: tuple[Ledger, Status]) -> None:
    faults: list[BaseException] = []
    ledger, status = campaign

    def fails(*_: object) -> None:
        raise LedgerError("entry 7 of /secret/place")

    ledger.entries = fails  # type: ignore[method-assign, assignment]
    say(status, "news")
    overview, ready, alive = ask(
        status, ("/api/overview", BEARER), ("/readyz", {}), ("/healthz", {}), on_fault=faults.append
    )
    assert (overview.status_code, overview.text) == (503, f"{LedgerError.public}\n")
    assert (ready.status_code, ready.text) == (503, "not ready\n")
    assert alive.status_code == 200
    assert [type(fault) for fault in faults] == [LedgerError]


def test_an_error_of_the_page_is_not_told_to_whoever_asked(
    campaign: tuple[Ledger, Status],
) -> None:
    faults: list[BaseException] = []

    def fails(*_: object) -> bytes:
        raise ZeroDivisionError("with a secret in it")

    (reply,) = ask(campaign[1], ("/metrics", BEARER), scrape=fails, on_fault=faults.append)
    assert (reply.status_code, "secret" in reply.text) == (500, False)
    assert [type(fault) for fault in faults] == [ZeroDivisionError]


def test_a_stream_tells_news_and_the_seats_are_counted(
    campaign: tuple[Ledger, Status], tmp_path: Path
) -> None:
    ledger, status = campaign
    with a_page(status, tmp_path) as page:
        headers = {"authorization": f"Bearer {kept_token(tmp_path / PAGE_TOKEN)}"}
        limits = httpx.Limits(max_connections=STREAMS + 4)
        with httpx.Client(base_url=page.address, headers=headers, limits=limits) as client:
            with client.stream("GET", "/api/stream") as stream:
                lines = (line for line in stream.iter_lines() if line.startswith("data: {"))
                assert '"finished"' in (first := next(lines))
                assert '"phase": "labelling"' in first
                ledger.end_round(wants_predictions=False)
                ledger.finish()
                assert any('"phase": "finished"' in line for line in lines)
                others = [
                    client.send(client.build_request("GET", "/api/stream"), stream=True)
                    for _ in range(STREAMS - 1)
                ]
                assert {reply.status_code for reply in others} == {200}
                assert client.get("/api/stream").status_code == 503
                assert f"pate_page_streams {STREAMS}.0" in client.get("/metrics").text
            for reply in others:
                reply.close()


def test_a_stop_ends_streams_and_frees_the_port(
    campaign: tuple[Ledger, Status], tmp_path: Path
) -> None:
    with a_page(campaign[1], tmp_path) as page:
        headers = {"authorization": f"Bearer {kept_token(tmp_path / PAGE_TOKEN)}"}
        with httpx.stream("GET", f"{page.address}/api/stream", headers=headers) as stream:
            lines = stream.iter_lines()
            assert next(lines) == "event: overview"
            page.stop()
            assert len(list(lines)) < 10  # it ends
    listen("127.0.0.1", page.port).close()
    assert "page" not in [thread.name for thread in threading.enumerate()]


def test_the_token_is_kept_for_its_owner_alone(tmp_path: Path) -> None:
    token = kept_token(tmp_path / "home" / PAGE_TOKEN)
    path = tmp_path / "home" / PAGE_TOKEN
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert re.fullmatch(r"[\w-]{43}", token)
    assert kept_token(tmp_path / "home" / PAGE_TOKEN) == token
    assert kept_token(tmp_path / "other" / PAGE_TOKEN) != token
    path.write_text("short\n")
    with pytest.raises(StateError, match="damaged"):
        kept_token(tmp_path / "home" / PAGE_TOKEN)


def test_a_taken_port_is_an_error_only_if_it_was_asked_for(
    campaign: tuple[Ledger, Status], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortInUseError, match="--page-port"):
            Page(campaign[1], PageServer(port=port), tmp_path)
        monkeypatch.setattr(Page, "default_port", port)
        page = Page(campaign[1], PageServer(), tmp_path)
        assert page.port not in (0, port)
        page.stop()


def test_from_outside_it_needs_the_servers_certificate(
    campaign: tuple[Ledger, Status], tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="pate-server init"):
        Page(campaign[1], PageServer(host="0.0.0.0", port=0), tmp_path)  # noqa: S104


def test_it_speaks_tls_under_the_names_of_the_certificate(tmp_path: Path) -> None:
    now = dt.datetime.now(dt.UTC)
    identities = Identities.create(
        tmp_path / "home", ["pate.hospital.example", "127.0.0.1"], 9092, now
    )
    trust = ssl.create_default_context(cafile=str(identities.ca))
    headers = {"authorization": f"Bearer {kept_token(tmp_path / 'home' / PAGE_TOKEN)}"}
    everywhere = PageServer("0.0.0.0", 0)  # noqa: S104 - over TLS
    with (
        a_campaign(tmp_path) as (_, status),
        Page(status, everywhere, tmp_path / "home", identities=identities) as page,
        httpx.Client(verify=trust, headers=headers) as client,
    ):  # fmt: skip
        assert page.address == f"https://pate.hospital.example:{page.port}"
        here = f"https://127.0.0.1:{page.port}"
        assert client.get(f"{here}/api/overview").json()["campaign"] == "chest-xray"
        named = client.get(here, headers={"host": f"pate.hospital.example:{page.port}"})
        stranger = client.get(here, headers={"host": "other.example"})
        assert (named.status_code, stranger.status_code) == (200, 421)
        ends = [
            float(line.split()[1])
            for line in client.get(f"{here}/metrics").text.splitlines()
            if line.startswith("pate_certificate_expiry_timestamp_seconds ")
        ]
        assert len(ends) == 1
        assert ends[0] > time.time()
        cookie = client.get(f"{here}/?token={kept_token(tmp_path / 'home' / PAGE_TOKEN)}").headers[
            "set-cookie"
        ]
        assert "Secure" in cookie.split("; ")
        try:
            plain = httpx.get(f"http://127.0.0.1:{page.port}/")
        except httpx.TransportError:
            plain = None
        assert plain is None
