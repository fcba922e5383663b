"""Real SuperLink and SuperNodes: messages are exchanged, outsiders refused, crashes repaired.

A SuperNode looks for messages every three seconds, so each round takes about that long.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
from fastapi.routing import iter_route_contexts
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.supercore.inflatable.inflatable_object import add_header_to_object_body
from flwr.superlink.main import create_app

from aggregator_server.exchange.carrier import LOST, UNREADABLE, Arrival, Carrier
from aggregator_server.flower.carrier import GridCarrier
from aggregator_server.flower.deployment import Deployment
from aggregator_server.flower.fleet.filter import FLEET_ROUTES
from aggregator_server.flower.grid import Session
from aggregator_server.flower.internals import codeless_fab, make_fab, start_run
from party.flower.connection import Connection, Timeouts, make_client_app
from party.flower.supernode import Server
from pate.errors import PateError, PortInUseError, UnreachableError
from pate.runtime.child import free_port
from simulation.programs import is_alive
from tests.support.processes.programs import DEADLINE_S, until
from tests.support.there import there

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flwr.app import Context


def answer(body: bytes) -> bytes:
    """What the parties of these tests do with a message."""
    if body == b"raise":
        raise ValueError("secret 42")
    return b"echo " + body


@dataclass
class Party:
    """A party in a thread, with its received messages and its end."""

    server: Server
    home: Path
    app: ClientApp | None = None
    node_key: Path | None = None
    timeouts: Timeouts | None = None
    heard: list[bytes] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    error: PateError | None = None
    leave: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.connection = Connection(
            self.server, self.app or make_client_app(self._answer), self.home,
            node_key=self.node_key, timeouts=self.timeouts, on_event=self.events.append,
        )  # fmt: skip
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _answer(self, body: bytes) -> bytes:
        self.heard.append(body)
        return answer(body)

    def _run(self) -> None:
        try:
            self.connection.run(self.leave.is_set)
        except PateError as error:
            self.error = error

    def ends(self) -> PateError:
        """Wait until it gives up by itself, and return why."""
        until(lambda: not self.thread.is_alive(), f"it gives up; so far: {self.events}", 60)
        return there(self.error)

    def stop(self) -> None:
        self.leave.set()
        self.thread.join(DEADLINE_S)
        assert not self.thread.is_alive()


def party(server: str, home: Path, app: ClientApp | None = None) -> Party:
    return Party(Server(server), home, app)


@dataclass
class Link:
    """A deployment with two parties."""

    deployment: Deployment
    home: Path
    events: list[str]
    parties: list[Party]

    @property
    def wire(self) -> Carrier:
        return self.deployment.carrier

    def connected(self, count: int) -> frozenset[int]:
        until(lambda: len(self.wire.nodes()) == count, f"{count} parties connected")
        return self.wire.nodes()

    def ask(self, *bodies: bytes) -> list[Arrival]:
        """Send each body to each party and wait for all that comes back."""
        sent = [(node, body) for body in bodies for node in self.wire.nodes()]
        for node, body in sent:
            self.wire.send(node, body, body)
        arrivals = collect(self.wire, len(sent))
        assert sorted((a.node, a.digest) for a in arrivals) == sorted(sent)
        return arrivals


def collect(wire: Carrier, count: int) -> list[Arrival]:
    arrivals: list[Arrival] = []

    def all_here() -> bool:
        arrivals.extend(wire.receive())
        return len(arrivals) >= count

    until(all_here, f"{count} answers")
    return arrivals


@pytest.fixture(scope="module")
def link(tmp_path_factory: pytest.TempPathFactory, children: None) -> Iterator[Link]:
    home = tmp_path_factory.mktemp("link")
    events: list[str] = []
    with Deployment(home / "server", on_event=events.append) as deployment:
        parties = [party(deployment.address, home / name) for name in ("a", "b")]
        try:
            link = Link(deployment, home, events, parties)
            link.connected(2)
            yield link
        finally:
            before = said_to_leave(home)
            for each in parties:
                each.stop()
        assert deployment.carrier.nodes() == frozenset()
        # Also after the last test's refusals: the server answered each before Flower ended it.
        assert said_to_leave(home) - before == len(parties)
    # Nothing is left behind: neither a process nor a secret.
    assert not list(home.rglob("*.secret"))


def said_to_leave(home: Path) -> int:
    """How many SuperNodes have left in order; one that waits too long to is ended before this."""
    log = (home / "server" / "superlink" / "superlink.log").read_text()
    return log.count('"POST /v1/fleet/unregister-node HTTP/1.1" 200')


def test_every_party_answers(link: Link) -> None:
    arrivals = link.ask(b"hello", b"")
    assert sorted(a.body or b"" for a in arrivals) == [b"echo ", b"echo ", *[b"echo hello"] * 2]
    assert {a.node for a in arrivals} == link.wire.nodes()


def test_what_a_party_raises_arrives_without_its_text(link: Link) -> None:
    assert {a.failure for a in link.ask(b"raise")} == {"raised Exception"}


def test_bodies_of_twenty_megabytes_pass(link: Link) -> None:
    body = os.urandom(20_000_000)
    assert all(a.body == b"echo " + body for a in link.ask(body))


def test_nothing_of_an_answer_touches_a_disk(link: Link) -> None:
    """With plain aggregation an answer contains votes in the clear."""
    body = os.urandom(32)
    assert all(a.body == b"echo " + body for a in link.ask(body))
    files = [path for path in link.home.rglob("*") if path.is_file()]
    assert any(path.name == "superlink.log" for path in files)
    assert not [path for path in files if body in path.read_bytes()]


class Broken(Array):
    """An array with invalid metadata, in an envelope that Flower accepts."""

    def deflate(self) -> bytes:
        return add_header_to_object_body(b"{ not json", self)


Broken.__qualname__ = Array.__qualname__


def rogue() -> ClientApp:
    app = ClientApp()

    @app.query()
    def answer(message: Message, _context: Context) -> Message:
        arrays = ArrayRecord()
        arrays["pate"] = Broken("uint8", (1,), "pate.bytes", b"x")
        return Message(RecordDict({"pate": arrays}), reply_to=message)

    return app


def test_a_late_and_broken_party_costs_the_others_nothing(link: Link, tmp_path: Path) -> None:
    before = link.wire.nodes()
    late = party(link.deployment.address, tmp_path, app=rogue())
    try:
        [newcomer] = link.connected(3) - before
        arrivals = {a.node: a for a in link.ask(b"hello")}
    finally:
        late.stop()
    assert arrivals.pop(newcomer).failure == UNREADABLE
    assert [a.body for a in arrivals.values()] == [b"echo hello"] * 2
    assert link.connected(2) == before


def every_other_route() -> list[tuple[str, str]]:
    """The routes of a SuperLink that are not for parties, from Flower's own tables."""
    routes = set()
    for context in iter_route_contexts(create_app().routes):
        assert context.path is not None
        routes |= {(method, context.path) for method in context.methods or ()}
    allowed = {("POST", route) for route in FLEET_ROUTES} | {("GET", "/health")}
    return sorted(routes - allowed)


def test_the_public_port_offers_nothing_but_what_parties_need(link: Link) -> None:
    superlink = there(link.deployment._superlink)
    refused = []
    with httpx.Client(trust_env=False, timeout=30) as client:
        public = f"http://{link.deployment.address}"
        assert client.get(f"{public}/health").status_code == 200
        for method, path in every_other_route():
            status = client.request(method, public + path).status_code
            assert status == 404, (method, path, status)
            refused.append(path)
        # The same call exists at the SuperLink itself, without authentication.
        inside = client.post(
            f"http://{superlink.address}/v1/control/list-nodes",
            headers={"content-type": "application/x-protobuf"},
        )
    assert inside.status_code != 404
    assert "/v1/control/list-nodes" in refused
    assert "/v1/runtime/acquire-task" in refused


def test_a_killed_superlink_is_replaced_and_the_parties_come_back(link: Link) -> None:
    before = link.connected(2)
    first = there(link.deployment.superlink_pid)
    for node in before:
        link.wire.send(node, b"digest", b"under way")
    os.kill(first, signal.SIGKILL)
    lost = collect(link.wire, 2)
    assert {(a.node, a.digest) for a in lost} == {(node, b"digest") for node in before}
    assert {a.failure for a in lost} == {LOST}
    after = link.connected(2)
    assert not before & after, "a SuperLink that forgets everything knows no node of before"
    assert [a.body for a in link.ask(b"again")] == [b"echo again"] * 2
    assert link.deployment.superlink_pid != first
    assert not Path(f"/proc/{first}").exists(), "the old SuperLink was not reaped"
    assert any("2 messages will be sent again" in event for event in link.events)


def test_tasks_are_given_to_nobody_without_the_secret(link: Link) -> None:
    superlink = there(link.deployment._superlink)
    start_run(superlink.address, codeless_fab())
    with pytest.raises(httpx.HTTPStatusError) as refused:
        Session(superlink.address, b"not the secret")
    assert refused.value.response.status_code == 401


def test_code_of_a_run_is_never_run_at_a_party(link: Link, tmp_path: Path) -> None:
    """An insider, with all that the server has, starts a run whose bundle carries code."""
    superlink = there(link.deployment._superlink)
    marker = tmp_path / "marker"
    code = f"from pathlib import Path\nPath({str(marker)!r}).write_text('ran')\n".encode()
    fab = make_fab(
        {
            "pyproject.toml": textwrap.dedent("""
                [project]
                name = "intruder"
                version = "1.0.0"
                [tool.flwr.app]
                publisher = "intruder"
                [tool.flwr.app.components]
                serverapp = "intruder.app:app"
                clientapp = "intruder.app:app"
            """).encode(),
            "intruder/__init__.py": code,
            "intruder/app.py": code,
        }
    )
    insider = Session(superlink.address, superlink.secret, fab)
    try:
        wire = GridCarrier(insider.grid, on_sent=link.deployment._gateway.pulls.wake)
        for node in wire.nodes():
            wire.send(node, b"digest", b"hello")
        arrivals = collect(wire, 2)
    finally:
        insider.close()
    assert {a.failure for a in arrivals} == {"raised RefusedError"}
    assert not marker.exists()
    for each in link.parties:
        assert any("carries code" in event for event in each.events)
        assert not list(each.home.rglob("*.py")), "something was unpacked"
    # Both continue to serve the campaign.
    assert [a.body for a in link.ask(b"still here")] == [b"echo still here"] * 2


def test_children_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    script = textwrap.dedent(f"""
        import threading, time
        from pathlib import Path
        from aggregator_server.flower.deployment import Deployment
        from party.flower.connection import make_client_app
        from party.flower.connection import Connection
        from party.flower.supernode import Server
        home = Path({str(tmp_path)!r})
        with Deployment(home / "server") as deployment:
            party = Connection(Server(deployment.address), make_client_app(bytes), home / "party")
            threading.Thread(target=party.run, args=(lambda: False,), daemon=True).start()
            while party.supernode_pid is None:
                time.sleep(0.01)
            print(deployment.superlink_pid, party.supernode_pid, flush=True)
            time.sleep(3600)
    """)
    holder = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    with holder:
        assert holder.stdout is not None
        pids = [int(pid) for pid in holder.stdout.readline().split()]
        assert len(pids) == 2
        assert all(map(is_alive, pids))
        holder.kill()
        holder.wait()
    until(lambda: not any(map(is_alive, pids)), "both children have ended", 20)


def test_two_servers_do_not_share_a_port(link: Link, tmp_path: Path) -> None:
    port = int(link.deployment.address.rpartition(":")[2])
    with pytest.raises(PortInUseError, match=str(port)):
        Deployment(tmp_path, port=port)


def test_a_server_that_is_not_there_is_waited_for_and_then_given_up(tmp_path: Path) -> None:
    nowhere = f"127.0.0.1:{free_port()}"
    with pytest.raises(UnreachableError, match="does not answer"):
        Server(nowhere).probe()
    events: list[str] = []
    connection = Connection(
        Server(nowhere),
        make_client_app(answer),
        tmp_path,
        timeouts=Timeouts(server=2.0),
        on_event=events.append,
    )
    with pytest.raises(UnreachableError, match="gave up after"):
        connection.run(lambda: False)
    # It may come in a moment: the looks of the first seconds are said once.
    assert len(events) == 1
    assert "may not be running yet; trying again" in events[0]
    assert "Errno" not in events[0]
    assert connection.supernode_pid is None
