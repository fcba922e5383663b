"""Of the SuperLink's port, the network sees the twelve routes for parties and the health check."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from fastapi.routing import iter_route_contexts
from flwr.proto.fab_pb2 import GetFabRequest
from flwr.proto.fleet_pb2 import (
    ActivateNodeResponse,
    DeactivateNodeRequest,
    PullMessagesResponse,
    PushMessagesRequest,
    PushMessagesResponse,
    RegisterNodeFleetRequest,
    UnregisterNodeFleetRequest,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.message_pb2 import Message, ObjectTree, PullObjectRequest, PushObjectResponse
from flwr.proto.run_pb2 import GetRunRequest
from flwr.supercore.error import FlowerError
from flwr.superlink.main import create_app

from aggregator_server.flower.fleet import allowance
from aggregator_server.flower.fleet import filter as filtering
from aggregator_server.flower.fleet.filter import FLEET_ROUTES
from aggregator_server.flower.fleet.requests import MAX_BODY, MAX_PIECE
from aggregator_server.flower.gateway import Gateway
from pate.errors import PortInUseError, UsageError
from pate.formats.enrolment import MAX_FILE, ROUTE
from pate.runtime.child import free_port, listen
from tests.support.processes.programs import until
from tests.support.server.fleet_nodes import Attacker, piece, signed, some_id

#: Flower's, and not the one of our own that exists while a party is invited.
ALLOWED = {("POST", route) for route in FLEET_ROUTES} | {("GET", "/health")}
#: The node, the run and the session of everybody here.
NODE, RUN, SESSION = 7, 5, "session"


def every_route_of_flower() -> set[tuple[str, str]]:
    """All methods and paths of a SuperLink, from its own tables."""
    found = set()
    for context in iter_route_contexts(create_app().routes):
        assert context.path is not None
        found |= {(method, context.path) for method in context.methods or ()}
    return found


class Upstream(http.server.ThreadingHTTPServer):
    """Replaces a SuperLink, and records the requests that reach it."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Noting)
        self.seen: list[tuple[str, str, dict[str, str], bytes]] = []
        #: What is delivered to each node.
        self.asked = PullMessagesResponse()
        metadata = self.asked.messages_list.add().metadata
        metadata.message_id, metadata.run_id = some_id(), RUN
        metadata.created_at, metadata.ttl = time.time(), 3600.0
        self.asked.message_object_trees.append(ObjectTree(object_id=metadata.message_id))

    @property
    def message(self) -> Message:
        return self.asked.messages_list[0]

    def answer(self, path: str, body: bytes) -> bytes:
        """Answer as a SuperLink does where the gateway reads it, and else as it was called."""
        if path.endswith("/activate-node"):
            return ActivateNodeResponse(node_id=NODE).SerializeToString()
        if path.endswith("/pull-messages"):
            return self.asked.SerializeToString()
        if path.endswith("/push-messages"):
            announced = PushMessagesRequest.FromString(body).message_object_trees[0]
            names = [announced.object_id, *(each.object_id for each in announced.children)]
            return PushMessagesResponse(
                objects_to_push=names, session_id=SESSION
            ).SerializeToString()
        if path.endswith("/push-object"):
            return PushObjectResponse(stored=True).SerializeToString()
        return body


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
        body = self.server.answer(self.path, body)
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


@pytest.fixture
def node(gateway: Gateway, upstream: Upstream) -> Iterator[Attacker]:
    """A node that is known and was handed a message."""
    node = Attacker(f"127.0.0.1:{gateway.port}")
    assert node.activate().is_success
    assert node.pull() is not None
    upstream.seen.clear()
    yield node
    node.client.close()


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


def test_every_route_for_parties_passes(
    client: httpx.Client, node: Attacker, upstream: Upstream
) -> None:
    asked, (name, content) = upstream.message, piece(100)
    reply = node.answer_to(asked)
    replies = [
        client.get("/health"),
        node.call("register-node", RegisterNodeFleetRequest(public_key=node.pem)),
        node.activate(),
        node.call("send-node-heartbeat", SendNodeHeartbeatRequest(node=node.node)),
        node.call("get-run", GetRunRequest(node=node.node, run_id=RUN)),
        node.call("get-fab", GetFabRequest(node=node.node, run_id=RUN, hash_str=some_id())),
        node.call(
            "pull-object",
            PullObjectRequest(node=node.node, run_id=RUN, object_id=asked.metadata.message_id),
        ),
        node.confirm(asked),
        node.push(reply, name),
        node.store(RUN, SESSION, name, content),
        node.call("deactivate-node", DeactivateNodeRequest(node_id=node.id)),
        node.call("unregister-node", UnregisterNodeFleetRequest(node_id=node.id)),
    ]
    assert [reply.status_code for reply in replies] == [200] * 12
    assert node.pull() is not None
    assert {(method, path) for method, path, _, _ in upstream.seen} == ALLOWED


def test_a_node_leaves_the_superlink_only_when_its_last_reply_is_fetched(
    node: Attacker, gateway: Gateway, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A SuperLink says of a node that has left that it is gone, and nothing of what it replied."""
    leave = DeactivateNodeRequest(node_id=node.id)
    name, content = piece(100)
    reply = node.answer_to(upstream.message)
    node.announce(reply, name)
    node.store(RUN, SESSION, name, content).raise_for_status()
    node.store(RUN, SESSION, reply.metadata.message_id, b"a message").raise_for_status()
    monkeypatch.setattr(filtering, "_FETCHED_S", 0.3)
    began = time.monotonic()
    assert node.call("deactivate-node", leave).is_success
    assert time.monotonic() - began >= 0.3, "nobody fetched it, and the node did not wait"
    monkeypatch.setattr(filtering, "_FETCHED_S", 3600.0)
    gateway.taken(upstream.message.metadata.message_id)
    assert node.call("deactivate-node", leave).is_success


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/fleet/pull-messages"), ("PUT", "/v1/fleet/pull-messages"),
        ("POST", "/health"), ("POST", "/v1/fleet/pull-messages/"),
        ("POST", "//v1/fleet/pull-messages"), ("POST", "/v1/fleet/../control/start-run"),
        ("POST", "/v1/fleet/%2e%2e/control/start-run"),
        ("POST", "/v1/fleet/pull-messages/../../control/start-run"),
        ("POST", "/V1/FLEET/PULL-MESSAGES"), ("GET", "/"),
    ],
)  # fmt: skip
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


def test_a_path_is_not_changed_by_its_query(node: Attacker, upstream: Upstream) -> None:
    node.call("get-run?path=/v1/control/start-run", GetRunRequest(node=node.node, run_id=RUN))
    assert [path for _, path, _, _ in upstream.seen] == ["/v1/fleet/get-run"]


def test_body_and_flowers_headers_pass_and_no_others(node: Attacker, upstream: Upstream) -> None:
    request = GetRunRequest(node=node.node, run_id=RUN)
    headers = {"x-forwarded-for": "10.0.0.1", "cookie": "c"}
    reply = node.call("get-run", request, **headers)
    assert reply.content == request.SerializeToString()
    assert reply.headers["flwr-component-name"] == "SuperLink"
    assert "x-internal" not in reply.headers
    _, _, seen, body = upstream.seen[0]
    assert body == request.SerializeToString()
    assert {"flwr-signature", "flwr-timestamp", "flwr-public-key"} <= set(seen)
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
    a, b, c = nodes = [Attacker(f"127.0.0.1:{gateway.port}") for _ in range(3)]
    try:
        gateway.keep_in([a.pem])
        assert b.activate().is_success, "before anybody was let in it changes nothing"
        gateway.let_in([a.pem, b.pem])
        gateway.keep_in([a.pem, c.pem])
        assert [each.activate().is_success for each in nodes] == [True, False, False]
    finally:
        for each in nodes:
            each.client.close()
        gateway.stop()


def test_a_piece_of_the_limit_passes_and_a_larger_one_does_not(
    node: Attacker, upstream: Upstream
) -> None:
    name, content = some_id(), bytes(MAX_PIECE)
    node.announce(node.answer_to(upstream.message), name)
    upstream.seen.clear()
    assert node.store(RUN, SESSION, name, content).status_code == 200
    assert len(upstream.seen) == 1

    def unannounced() -> Iterator[bytes]:
        for _ in range(MAX_BODY // 2**20 + 2):
            yield bytes(2**20)

    for body in (bytes(MAX_BODY + 1), unannounced()):
        # A client that continues sending after the answer may find the connection closed before reading it.
        with contextlib.suppress(httpx.TransportError):
            reply = node.client.post("push-object", content=body, headers=signed(node.key))
            assert reply.status_code == 413
    assert len(upstream.seen) == 1
    assert node.pull() is not None


@pytest.mark.parametrize("route", sorted(FLEET_ROUTES - {"/v1/fleet/push-object"}))
def test_what_carries_no_piece_is_small(node: Attacker, upstream: Upstream, route: str) -> None:
    with contextlib.suppress(httpx.TransportError):
        assert node.call(route.rpartition("/")[2], bytes(66_000)).status_code == 413
    assert upstream.seen == []


@pytest.mark.parametrize(
    "request_line", ["GET /health", "GET /", "POST /v1/control/start-run", "PUT /health"]
)
def test_a_body_that_nobody_wants_is_not_read(gateway: Gateway, request_line: str) -> None:
    """The answer is sent before the body arrives, and the connection is closed."""
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=10) as stranger:
        stranger.sendall(
            f"{request_line} HTTP/1.1\r\nhost: x\r\ncontent-length: 9999\r\n\r\n".encode()
        )
        said = b""
        while more := stranger.recv(4096):
            said += more
    assert said.startswith(b"HTTP/1.1 200" if request_line == "GET /health" else b"HTTP/1.1 404")
    assert b"connection: close" in said


def test_without_a_superlink_it_says_that_it_is_not_ready(
    gateway: Gateway, client: httpx.Client, node: Attacker, upstream: Upstream
) -> None:
    try:
        for nowhere in (None, f"127.0.0.1:{free_port()}"):
            gateway.point_at(nowhere)
            assert client.get("/health").status_code == 503
            assert node.activate().status_code == 503
            assert client.post("/v1/control/start-run").status_code == 404
    finally:
        gateway.point_at(f"127.0.0.1:{upstream.server_address[1]}")
    assert client.get("/health").status_code == 200


def test_the_health_check_waits_a_moment_for_a_superlink_that_starts(upstream: Upstream) -> None:
    gateway = Gateway("127.0.0.1", 0)
    gateway.start()
    try:
        with ThreadPoolExecutor(1) as pool:
            url = f"http://127.0.0.1:{gateway.port}/health"
            answer = pool.submit(httpx.get, url, trust_env=False)
            while not gateway._ready._waiters and not answer.done():
                time.sleep(0.01)
            gateway.point_at(f"127.0.0.1:{upstream.server_address[1]}")
            assert answer.result().status_code == 200
    finally:
        gateway.stop()


def test_strangers_who_ask_how_it_is_make_the_superlink_no_work(
    upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filtering, "_FRESH_S", 3600.0)
    gateway = Gateway("127.0.0.1", 0)
    gateway.point_at(f"127.0.0.1:{upstream.server_address[1]}")
    gateway.start()
    upstream.seen.clear()
    try:
        url = f"http://127.0.0.1:{gateway.port}/health"
        with ThreadPoolExecutor(10) as pool:
            answers = list(pool.map(lambda _: httpx.get(url, trust_env=False), range(30)))
        assert {answer.status_code for answer in answers} == {200}
        assert [path for _, path, _, _ in upstream.seen] == ["/health"]
    finally:
        gateway.stop()


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
        Gateway("127.0.0.1", 0, certificate=(broken, broken))


@pytest.fixture
def guarded(upstream: Upstream) -> Iterator[tuple[Gateway, list[Attacker]]]:
    """A gateway that admits two keys, with clients that have one of them or a third."""
    gateway = Gateway("127.0.0.1", 0)
    gateway.point_at(f"127.0.0.1:{upstream.server_address[1]}")
    gateway.start()
    nodes = [Attacker(f"127.0.0.1:{gateway.port}") for _ in range(3)]
    gateway.let_in([node.pem for node in nodes[:2]])
    upstream.seen.clear()
    yield gateway, nodes
    for node in nodes:
        node.client.close()
    gateway.stop()


@pytest.mark.parametrize("keys", [(), (2,), (0, 2), (0, 1), (0, 0)])
def test_a_stranger_ends_at_the_gateway(
    guarded: tuple[Gateway, list[Attacker]], upstream: Upstream, keys: tuple[int, ...]
) -> None:
    gateway, nodes = guarded
    proof = [item for key in keys for item in signed(nodes[key].key).items()]
    with httpx.Client(base_url=f"http://127.0.0.1:{gateway.port}", trust_env=False) as client:
        for route in FLEET_ROUTES:
            answer = client.post(route, content=b"body", headers=proof)
            first = route.rpartition("/")[2] in ("register-node", "activate-node")
            assert answer.status_code == (412 if first else 401), route
        assert upstream.seen == []
        assert client.get("/health").status_code == 200


def test_who_names_a_key_and_does_not_prove_it_is_no_stranger(
    guarded: tuple[Gateway, list[Attacker]], upstream: Upstream
) -> None:
    """So a party's check learns that its key is known, and naming it does not occupy memory."""
    gateway, nodes = guarded
    named = {"flwr-public-key": signed(nodes[0].key)["flwr-public-key"]}
    for route in FLEET_ROUTES:
        answer = httpx.post(
            f"http://127.0.0.1:{gateway.port}{route}", headers=named, trust_env=False
        )
        assert answer.status_code == 401
        assert answer.json() == {"detail": "Invalid SuperNode authentication"}
    assert upstream.seen == []


def test_a_stranger_is_told_so_in_flowers_words(guarded: tuple[Gateway, list[Attacker]]) -> None:
    gateway, _ = guarded
    for call, code in (("register-node", 2001), ("activate-node", 2004)):
        url = f"http://127.0.0.1:{gateway.port}/v1/fleet/{call}"
        error = FlowerError.from_json(httpx.post(url, trust_env=False).text)
        assert error is not None
        assert error.code == code


def test_bodies_that_are_held_are_bounded_for_each_key(
    guarded: tuple[Gateway, list[Attacker]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four bodies that do not end, of which there is room for three; another party passes."""
    monkeypatch.setattr(allowance, "ROOM_S", 0.3)
    monkeypatch.setattr(allowance, "SPAN_S", 3.0)
    gateway, (hostile, honest, _) = guarded
    head = f"POST /v1/fleet/push-object HTTP/1.1\r\nhost: x\r\ncontent-length: {MAX_BODY}\r\n"
    head += "".join(f"{k}: {v}\r\n" for k, v in signed(hostile.key).items()) + "\r\n"
    held = [socket.create_connection(("127.0.0.1", gateway.port), timeout=10) for _ in range(4)]
    try:
        for each in held[:3]:
            each.sendall(head.encode() + b"x" * 1000)
        allowed = gateway._held
        until(lambda: allowed.held[hostile.pem] == 3 * MAX_BODY, "three are held")
        held[3].sendall(head.encode() + b"x" * 1000)
        assert held[3].recv(100).startswith(b"HTTP/1.1 503"), "no room"
        assert honest.activate().is_success
        # Nor are they held for long: nothing comes any more.
        for each in held[:3]:
            assert each.recv(100).startswith(b"HTTP/1.1 503"), "too slow"
        until(lambda: allowed.total == 0, "nothing is held")
    finally:
        for each in held:
            each.close()


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
def enrolment() -> Counter:
    return Counter()


@pytest.fixture(scope="module")
def inviting(enrolment: Counter) -> Iterator[httpx.Client]:
    """A gateway that parties may enrol at, with no SuperLink yet."""
    gateway = Gateway("127.0.0.1", 0, enrolment=enrolment)
    gateway.start()
    with httpx.Client(base_url=f"http://127.0.0.1:{gateway.port}", trust_env=False) as client:
        yield client
    gateway.stop()


@pytest.fixture
def seen(enrolment: Counter) -> list[tuple[bytes, str]]:
    enrolment.is_open = True
    enrolment.seen.clear()
    return enrolment.seen


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
    inviting: httpx.Client, enrolment: Counter, seen: list[tuple[bytes, str]], client: httpx.Client
) -> None:
    enrolment.is_open = False
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
