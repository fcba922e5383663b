"""Of the SuperLink's port, the network sees the twelve routes for parties and the health check."""

from __future__ import annotations

import base64
import contextlib
import http.client
import http.server
import threading
from typing import TYPE_CHECKING

import httpx
import pytest
from fastapi.routing import iter_route_contexts
from flwr.supercore.error import FlowerError
from flwr.superlink.main import create_app

from aggregator_server.gateway import FLEET_ROUTES, MAX_BODY, Gateway
from pate.enrolment import MAX_FILE, ROUTE
from pate.errors import PortInUseError, UsageError
from pate.runtime.lifeline import free_port, listen

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: Flower's, and not the one of our own that exists while a party is invited.
ALLOWED = {("POST", route) for route in FLEET_ROUTES} | {("GET", "/health")}


def every_route_of_flower() -> set[tuple[str, str]]:
    """All methods and paths of a SuperLink, from its own tables."""
    found = set()
    for context in iter_route_contexts(create_app().routes):
        assert context.path is not None
        found |= {(method, context.path) for method in context.methods or ()}
    return found


class Upstream(http.server.ThreadingHTTPServer):
    """Stands where a SuperLink would be, and notes what gets through to it."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Noting)
        self.seen: list[tuple[str, str, dict[str, str], bytes]] = []


class Noting(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __getattr__(self, name: str) -> object:
        # Any method at all: the server looks for do_GET, do_POST and so on.
        if name.startswith("do_"):
            return self.note
        raise AttributeError(name)

    def note(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        assert isinstance(self.server, Upstream)
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.seen.append((self.command, self.path, headers, body))
        self.send_response(200)
        self.send_header("content-type", "application/protobuf")
        self.send_header("flwr-component-name", "SuperLink")
        self.send_header("x-internal", "127.0.0.1")
        self.send_header("set-cookie", "session=1; path=/")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        pass


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def gateway(upstream: Upstream) -> Iterator[Gateway]:
    gateway = Gateway("127.0.0.1", 0)
    gateway.point_at(f"127.0.0.1:{upstream.server_address[1]}")
    gateway.start()
    yield gateway
    gateway.stop()


@pytest.fixture
def client(gateway: Gateway) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://127.0.0.1:{gateway.port}", trust_env=False) as client:
        yield client


def test_the_allowed_routes_are_those_that_flower_has_for_parties() -> None:
    routes = every_route_of_flower()
    assert len(FLEET_ROUTES) == 12
    assert routes >= ALLOWED
    assert {path for _, path in routes if path.startswith("/v1/fleet/")} == FLEET_ROUTES
    # The test below is about something: there are many others, and they are not for parties.
    others = {path for method, path in routes - ALLOWED}
    assert {"/v1/control/start-run", "/v1/runtime/acquire-task", "/docs"} <= others
    assert len(others) > 40


def test_every_other_route_of_flower_does_not_exist(
    client: httpx.Client, upstream: Upstream
) -> None:
    upstream.seen.clear()
    for method, path in sorted(every_route_of_flower() - ALLOWED):
        assert client.request(method, path).status_code == 404, (method, path)
    assert upstream.seen == []


def test_every_route_for_parties_passes(client: httpx.Client, upstream: Upstream) -> None:
    upstream.seen.clear()
    for method, path in sorted(ALLOWED):
        assert client.request(method, path).status_code == 200, (method, path)
    assert {(method, path) for method, path, _, _ in upstream.seen} == ALLOWED


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/fleet/pull-messages"),
        ("PUT", "/v1/fleet/pull-messages"),
        ("POST", "/health"),
        ("POST", "/v1/fleet/pull-messages/"),
        ("POST", "//v1/fleet/pull-messages"),
        ("POST", "/v1/fleet/../control/start-run"),
        ("POST", "/v1/fleet/%2e%2e/control/start-run"),
        ("POST", "/v1/fleet/pull-messages/../../control/start-run"),
        ("POST", "/V1/FLEET/PULL-MESSAGES"),
        ("GET", "/"),
    ],
)
def test_nothing_that_only_resembles_an_allowed_route_passes(
    gateway: Gateway, upstream: Upstream, method: str, path: str
) -> None:
    upstream.seen.clear()
    assert raw_status(gateway.port, method, path) == 404
    assert upstream.seen == []


def raw_status(port: int, method: str, path: str) -> int:
    """Send a path exactly as it is written; clients tidy it up."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.putrequest(method, path, skip_accept_encoding=True)
        connection.putheader("content-length", "0")
        connection.endheaders()
        return connection.getresponse().status
    finally:
        connection.close()


def test_a_path_is_not_changed_by_its_query(client: httpx.Client, upstream: Upstream) -> None:
    upstream.seen.clear()
    client.post("/v1/fleet/get-run?path=/v1/control/start-run")
    assert [path for _, path, _, _ in upstream.seen] == ["/v1/fleet/get-run"]


def test_body_and_flowers_headers_pass_and_no_others(
    client: httpx.Client, upstream: Upstream
) -> None:
    upstream.seen.clear()
    headers = {"flwr-signature": "s", "x-forwarded-for": "10.0.0.1", "cookie": "c"}
    reply = client.post("/v1/fleet/push-object", content=b"\x00body\xff", headers=headers)
    assert reply.content == b"\x00body\xff"
    assert reply.headers["flwr-component-name"] == "SuperLink"
    assert "x-internal" not in reply.headers
    _, _, seen, body = upstream.seen[0]
    assert body == b"\x00body\xff"
    assert seen["flwr-signature"] == "s"
    assert not {"x-forwarded-for", "cookie"} & set(seen)


def test_what_a_superlink_tells_one_party_to_keep_does_not_come_back(
    client: httpx.Client, upstream: Upstream
) -> None:
    upstream.seen.clear()
    for _ in range(2):
        assert "set-cookie" not in client.get("/health").headers
    assert not [headers for *_, headers, _ in upstream.seen if "cookie" in headers]


def test_who_may_pass_can_be_narrowed_and_not_widened(upstream: Upstream) -> None:
    gateway = Gateway("127.0.0.1", 0)
    gateway.point_at(f"127.0.0.1:{upstream.server_address[1]}")
    gateway.start()
    try:
        url = f"http://127.0.0.1:{gateway.port}/v1/fleet/get-run"

        def passes(key: bytes) -> bool:
            return httpx.post(url, headers=named(key), trust_env=False).is_success

        gateway.keep_in([b"a"])
        assert passes(b"b"), "before anybody was let in it changes nothing"
        gateway.let_in([b"a", b"b"])
        gateway.keep_in([b"a", b"c"])
        assert [passes(key) for key in (b"a", b"b", b"c")] == [True, False, False]
    finally:
        gateway.stop()


def test_a_body_of_the_limit_passes_and_a_larger_one_does_not(
    client: httpx.Client, upstream: Upstream
) -> None:
    upstream.seen.clear()
    assert client.post("/v1/fleet/push-object", content=bytes(MAX_BODY)).status_code == 200
    assert len(upstream.seen) == 1

    def unannounced() -> Iterator[bytes]:
        for _ in range(MAX_BODY // 2**20 + 2):
            yield bytes(2**20)

    for body in (bytes(MAX_BODY + 1), unannounced()):
        # Who goes on sending after the answer may find the connection closed instead of reading it.
        with contextlib.suppress(httpx.TransportError):
            assert client.post("/v1/fleet/push-object", content=body).status_code == 413
    assert len(upstream.seen) == 1
    assert client.get("/health").status_code == 200


def test_without_a_superlink_it_says_that_it_is_not_ready(
    gateway: Gateway, client: httpx.Client, upstream: Upstream
) -> None:
    try:
        for nowhere in (None, f"127.0.0.1:{free_port()}"):
            gateway.point_at(nowhere)
            assert client.get("/health").status_code == 503
            assert client.post("/v1/fleet/get-run").status_code == 503
            assert client.post("/v1/control/start-run").status_code == 404
    finally:
        gateway.point_at(f"127.0.0.1:{upstream.server_address[1]}")
    assert client.get("/health").status_code == 200


def test_a_taken_port_is_said_to_be_taken() -> None:
    with listen("127.0.0.1", 0) as other, pytest.raises(PortInUseError):
        Gateway("127.0.0.1", other.getsockname()[1])


def test_the_network_is_not_listened_to_in_clear() -> None:
    with pytest.raises(UsageError, match="without TLS"):
        Gateway("0.0.0.0", 0)  # noqa: S104 - it must be refused


def test_a_certificate_that_cannot_be_used_is_a_usage_error(tmp_path: Path) -> None:
    broken = tmp_path / "server.crt"
    broken.write_text("no certificate")
    with pytest.raises(UsageError, match="cannot be used"):
        Gateway("127.0.0.1", 0, tls_certificate=broken, tls_key=broken)
    with pytest.raises(UsageError, match="go together"):
        Gateway("127.0.0.1", 0, tls_certificate=broken)


@pytest.fixture
def guarded(upstream: Upstream) -> Iterator[httpx.Client]:
    """A gateway that lets in whoever names one of two keys."""
    gateway = Gateway("127.0.0.1", 0)
    gateway.point_at(f"127.0.0.1:{upstream.server_address[1]}")
    gateway.let_in([b"first key", b"second key"])
    gateway.start()
    upstream.seen.clear()
    with httpx.Client(base_url=f"http://127.0.0.1:{gateway.port}", trust_env=False) as client:
        yield client
    gateway.stop()


def named(*keys: bytes) -> list[tuple[str, str]]:
    return [("flwr-public-key", base64.b64encode(key).decode()) for key in keys]


def test_who_names_a_known_key_passes(guarded: httpx.Client, upstream: Upstream) -> None:
    for key in (b"first key", b"second key"):
        for route in FLEET_ROUTES:
            assert guarded.post(route, headers=named(key)).status_code == 200
    assert len(upstream.seen) == 24


@pytest.mark.parametrize(
    "keys", [(), (b"third key",), (b"first key", b"third key"), (b"first key", b"second key")]
)
def test_a_stranger_ends_at_the_gateway(
    guarded: httpx.Client, upstream: Upstream, keys: tuple[bytes, ...]
) -> None:
    for route in FLEET_ROUTES:
        answer = guarded.post(route, content=b"body", headers=named(*keys))
        first = route.rpartition("/")[2] in ("register-node", "activate-node")
        assert answer.status_code == (412 if first else 401), route
    assert upstream.seen == []
    assert guarded.get("/health").status_code == 200


def test_a_stranger_is_told_so_in_flowers_words(guarded: httpx.Client) -> None:
    for call, code in (("register-node", 2001), ("activate-node", 2004)):
        error = FlowerError.from_json(guarded.post(f"/v1/fleet/{call}").text)
        assert error is not None
        assert error.code == code


class Counter:
    """Takes what says yes, and notes what it was shown."""

    def __init__(self) -> None:
        self.is_open = True
        self.seen: list[tuple[bytes, str]] = []

    def open(self) -> bool:
        return self.is_open

    def answer(self, body: bytes, source: str) -> bool:
        self.seen.append((body, source))
        return body == b"yes"


@pytest.fixture(scope="module")
def desk() -> Counter:
    return Counter()


@pytest.fixture(scope="module")
def inviting(desk: Counter) -> Iterator[httpx.Client]:
    """A gateway that parties may enrol at, with no SuperLink yet."""
    gateway = Gateway("127.0.0.1", 0, desk=desk)
    gateway.start()
    with httpx.Client(base_url=f"http://127.0.0.1:{gateway.port}", trust_env=False) as client:
        yield client
    gateway.stop()


@pytest.fixture
def seen(desk: Counter) -> list[tuple[bytes, str]]:
    desk.is_open = True
    desk.seen.clear()
    return desk.seen


def test_an_answer_reaches_the_desk_and_only_its_verdict_comes_back(
    inviting: httpx.Client, seen: list[tuple[bytes, str]]
) -> None:
    good = inviting.post(ROUTE, content=b"yes", headers={"x-forwarded-for": "192.0.2.1"})
    bad = inviting.post(ROUTE, content=b"no")
    assert (good.status_code, good.content) == (200, b"")
    assert (bad.status_code, bad.content) == (403, b"")
    # Where it came from is not for the sender to say.
    assert seen == [(b"yes", "127.0.0.1"), (b"no", "127.0.0.1")]


def test_while_nobody_is_invited_the_route_does_not_exist(
    inviting: httpx.Client, desk: Counter, seen: list[tuple[bytes, str]], client: httpx.Client
) -> None:
    desk.is_open = False
    assert inviting.post(ROUTE, content=b"yes").status_code == 404
    assert client.post(ROUTE, content=b"yes").status_code == 404, "a gateway without a desk"
    assert seen == []


def test_the_route_is_that_one_and_no_other(
    inviting: httpx.Client, seen: list[tuple[bytes, str]]
) -> None:
    for method, path in (("GET", ROUTE), ("PUT", ROUTE), ("POST", ROUTE + "/"), ("POST", "/pate")):
        assert inviting.request(method, path).status_code == 404
    assert seen == []


def test_an_answer_that_is_too_large_is_not_read(
    inviting: httpx.Client, seen: list[tuple[bytes, str]]
) -> None:
    assert inviting.post(ROUTE, content=bytes(MAX_FILE)).status_code == 403

    def unannounced() -> Iterator[bytes]:
        for _ in range(3):
            yield bytes(MAX_FILE)

    for body in (bytes(MAX_FILE + 1), unannounced()):
        with contextlib.suppress(httpx.TransportError):
            assert inviting.post(ROUTE, content=body).status_code == 403
    assert [len(body) for body, _ in seen] == [MAX_FILE]
    assert inviting.post(ROUTE, content=b"yes").status_code == 200
