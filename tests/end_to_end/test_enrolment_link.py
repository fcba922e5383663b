"""Real SuperLink, gateway and SuperNodes with identities: only enrolled parties take part.

One server serves all tests, in the order of this file: the last ones revoke a party and kill the
SuperLink.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import httpx
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.proto.control_pb2 import ListNodesRequest, RegisterNodeRequest
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    PullMessagesRequest,
    RegisterNodeFleetRequest,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.message_pb2 import PullObjectRequest
from flwr.proto.node_pb2 import Node
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor
from typer.testing import CliRunner

from aggregator_server.exchange.carrier import GONE, Arrival
from aggregator_server.flower.deployment import Deployment
from aggregator_server.flower.internals import ControlClient
from aggregator_server.flower.superlink import trust_in
from aggregator_server.identities import Identities
from party.cli.main import app as pate_party
from party.flower.connection import Timeouts
from party.flower.supernode import Server, UntrustedServerError
from party.identity.enrolment import Enrolment, enrol
from pate.errors import RefusedError
from pate.formats.enrolment import node_key
from tests.end_to_end.test_flower_link import Party, collect, every_other_route
from tests.support.processes.programs import until
from tests.support.there import there

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def party(
    server: str, home: Path, ca: Path | None, node_key: Path | None, patience: float = 0.1
) -> Party:
    """Start a party; it takes no for an answer after ``patience`` seconds."""
    return Party(Server(server, ca), home, node_key=node_key, timeouts=Timeouts(refusal=patience))


@dataclass
class Link:
    """A server with identities, and two parties that enrolled with it."""

    identities: Identities
    deployment: Deployment
    home: Path
    events: list[str]
    parties: dict[str, Party] = field(default_factory=dict)

    def enrolled(self, name: str) -> Enrolment:
        """Enrol a party over the network, as a data holder does."""
        bundle = self.identities.invite(name, now=now(), server=self.deployment.address)
        done = enrol(bundle, self.home / name, file=self.home / "unused")
        assert done.answer is None
        return there(Enrolment.load(self.home / name))

    def start(self, name: str, kept: Enrolment, patience: float = 0.1) -> Party:
        return party(kept.server, self.home / name, kept.ca, kept.node_key, patience)

    def names(self) -> list[str]:
        """The parties that are connected."""
        names = self.deployment.names
        return sorted(names[node] for node in self.deployment.carrier.nodes() if node in names)

    def node(self, name: str) -> int:
        [node] = [n for n, known in self.deployment.names.items() if known == name]
        return node

    def ask(self, body: bytes) -> list[Arrival]:
        for node in self.deployment.carrier.nodes():
            self.deployment.carrier.send(node, b"digest", body)
        return collect(self.deployment.carrier, len(self.deployment.carrier.nodes()))


@pytest.fixture(scope="module")
def link(tmp_path_factory: pytest.TempPathFactory, children: None) -> Iterator[Link]:
    home = tmp_path_factory.mktemp("enrolment")
    identities = Identities.create(home / "server", (), 9092, now())
    events: list[str] = []
    with Deployment(
        home / "server" / "campaign", identities=identities, on_event=events.append
    ) as deployment:
        link = Link(identities, deployment, home, events)
        try:
            for name in ("a", "b"):
                # Patient: one of them outlives a SuperLink.
                link.parties[name] = link.start(name, link.enrolled(name), patience=60)
            until(lambda: link.names() == ["a", "b"], "both are connected")
            yield link
        finally:
            for each in link.parties.values():
                each.stop()
    assert not list(home.rglob("*.secret"))


def test_enrolled_parties_are_asked_and_answer(link: Link) -> None:
    arrivals = link.ask(b"hello")
    assert [a.body for a in arrivals] == [b"echo hello"] * 2
    assert sum("is enrolled" in event for event in link.events) == 2


def new_key(path: Path) -> Path:
    key = ec.generate_private_key(ec.SECP384R1())
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.OpenSSH,
            serialization.NoEncryption(),
        )
    )
    return path


def test_outsiders_are_refused_and_hear_nothing(link: Link, tmp_path: Path) -> None:
    """With the right authority: without a key, with a key of its own, and with a revoked one."""
    revoked = link.enrolled("c")
    until(lambda: "c" in link.deployment.names.values(), "c may connect", 20)
    link.identities.revoke("c", now())
    until(lambda: "c" not in link.deployment.names.values(), "c may not connect", 20)
    ca, server = link.identities.ca, link.deployment.address
    outsiders = {
        "admits only enrolled parties": party(server, tmp_path / "none", ca, None),
        "has refused this party's key": party(
            server, tmp_path / "own", ca, new_key(tmp_path / "own.key")
        ),
        "no longer enrolled there": link.start("c", revoked),
    }
    link.ask(b"the public set")
    for words, outsider in outsiders.items():
        error = outsider.ends()
        assert isinstance(error, RefusedError)
        assert words in str(error)
        assert "\n" not in str(error)
        assert outsider.heard == []
    assert link.names() == ["a", "b"]
    assert len(link.deployment.carrier.nodes()) == 2
    assert not [event for event in link.events if "cannot apply" in event]


def test_who_does_not_check_the_server_rightly_never_meets_it(link: Link, tmp_path: Path) -> None:
    others = Identities.create(tmp_path / "others", (), 9092, now())
    kept = there(Enrolment.load(link.home / "a"))
    in_clear = party(kept.server, tmp_path / "clear", None, None)
    wrong = party(kept.server, tmp_path / "wrong", others.ca, kept.node_key)
    for each, words in ((in_clear, "speaks TLS"), (wrong, "not one that this party trusts")):
        error = each.ends()
        assert isinstance(error, UntrustedServerError)
        assert words in str(error)
        assert each.heard == []


@pytest.mark.parametrize("where", ["gateway", "superlink", "with the public key of a"])
def test_a_stranger_cannot_speak_for_a_party(link: Link, where: str) -> None:
    """It knows address, node id and public key of a party; gateway and SuperLink each refuse it."""
    superlink = there(link.deployment._superlink)
    key = ec.generate_private_key(ec.SECP384R1())
    public = key.public_key()
    if where == "with the public key of a":
        public = node_key(link.identities.enrolled()["a"].node)
    node = Node(node_id=link.node("a"))
    pem = public.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    unknown = 401 if where == "with the public key of a" else 412
    calls = [
        ("PullMessages", PullMessagesRequest(node=node), 401),
        ("PullObject", PullObjectRequest(node=node, run_id=1, object_id="0" * 64), 401),
        ("SendNodeHeartbeat", SendNodeHeartbeatRequest(node=node, heartbeat_interval=30), 401),
        ("RegisterNode", RegisterNodeFleetRequest(public_key=pem), unknown),
        ("ActivateNode", ActivateNodeRequest(public_key=pem, heartbeat_interval=30), unknown),
    ]
    with FleetHttpClient.from_server_address(
        superlink.address if where == "superlink" else link.deployment.address,
        False,
        link.identities.ca.read_bytes(),
        interceptors=[NodeAuthHttpInterceptor(key, public)],
    ) as client:
        for name, request, status in calls:
            with pytest.raises(httpx.HTTPStatusError) as refused:
                getattr(client, name)(request)
            assert refused.value.response.status_code == status, name
            # Who names no known key does not get as far as the SuperLink.
            ours = where == "gateway" and status == 412
            assert ("enrolled part" in refused.value.response.text) is ours
    assert link.names() == ["a", "b"]


def test_whom_another_user_of_this_machine_lets_in_is_asked_nothing_and_shut_out(
    link: Link,
) -> None:
    """He reaches the SuperLink's interface for operators on loopback, and has no file of ours."""
    superlink = there(link.deployment._superlink)
    key = ec.generate_private_key(ec.SECP384R1())
    pem = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    with ControlClient(superlink.address, trust=superlink.trust) as control:
        node = control.RegisterNode(RegisterNodeRequest(public_key=pem, name="a")).node_id
        with (
            FleetHttpClient.from_server_address(
                superlink.address,
                False,
                link.identities.ca.read_bytes(),
                interceptors=[NodeAuthHttpInterceptor(key, key.public_key())],
            ) as fleet,
            contextlib.suppress(httpx.HTTPStatusError),
        ):  # shut out already
            fleet.ActivateNode(ActivateNodeRequest(public_key=pem, heartbeat_interval=30))
        assert node not in link.deployment.carrier.nodes()
        assert node not in link.deployment.names
        link.deployment.carrier.send(node, b"digest", b"a signed request")
        assert link.deployment.carrier.receive() == [Arrival(node, b"digest", None, GONE)]
        until(
            lambda: (
                not [
                    each
                    for each in control.ListNodes(ListNodesRequest()).nodes_info
                    if each.public_key == pem and each.status != "unregistered"
                ]
            ),
            "it is shut out",
            20,
        )
    # It is told after the SuperLink has shut the node out.
    until(
        lambda: any("that belong to no enrolled party" in event for event in link.events),
        "the operator is told",
        20,
    )
    assert "excluded: a" not in link.events, "what it calls itself is not said"
    assert link.names() == ["a", "b"]


def test_the_public_port_offers_nothing_but_what_parties_need(link: Link) -> None:
    with httpx.Client(verify=trust_in(link.identities), trust_env=False, timeout=30) as client:
        public = f"https://{link.deployment.address}"
        assert client.get(f"{public}/health").status_code == 200
        others = every_other_route()
        assert ("POST", "/v1/control/register-node") in others
        for method, path in others:
            assert client.request(method, public + path).status_code == 404, (method, path)
        # Open for a while after the last enrolment, and only for answers.
        assert client.post(public + "/pate/v1/enroll", content=b"{}").status_code == 403


def test_the_party_sees_that_the_server_confirmed(link: Link, tmp_path: Path) -> None:
    bundle = link.identities.invite("newcomer", now=now(), server=link.deployment.address)
    (tmp_path / "bundle.json").write_bytes(bundle.to_json())
    home = str(tmp_path / "home")
    done = CliRunner().invoke(pate_party, ["enroll", str(tmp_path / "bundle.json"), "--home", home])
    assert done.exit_code == 0, done.output
    assert f"{link.deployment.address} has confirmed" in done.output
    assert f"pate-party start --name newcomer --home {home}" in " ".join(done.output.split())


def test_a_party_that_is_revoked_in_another_terminal_is_out_at_once(link: Link) -> None:
    before = list(link.parties["b"].heard)
    node = link.node("b")
    script = (
        "import typer\n"
        "from aggregator_server.cli.identities import register\n"
        "register(app := typer.Typer())\n"
        "app()"
    )
    home = str(link.identities.directory.parent)
    subprocess.run([sys.executable, "-c", script, "revoke", "b", "--home", home], check=True)
    began = time.monotonic()
    until(lambda: link.names() == ["a"], "b is shut out", 20)
    assert time.monotonic() - began < 5
    assert link.deployment.carrier.nodes() == {link.node("a")}
    link.deployment.carrier.send(node, b"digest", b"for b")
    [arrival] = collect(link.deployment.carrier, 1)
    assert (arrival.digest, arrival.failure) == (b"digest", GONE)
    # Its SuperNode is refused at its next poll, and ends.
    until(lambda: any("connection" in event for event in link.parties["b"].events), "b ends", 30)
    assert link.parties["b"].heard == before
    assert any("excluded: b" in event for event in link.events)
    link.parties["b"].stop()


@pytest.mark.slow
def test_a_new_superlink_knows_who_is_enrolled(link: Link) -> None:
    """Its state is lost; the party reconnects with its key, the revoked one does not."""
    if "b" in link.identities.enrolled():  # unless the test above has revoked it
        link.identities.revoke("b", now())
        until(lambda: link.names() == ["a"], "b is shut out", 20)
        link.parties["b"].stop()
    first = there(link.deployment.superlink_pid)
    before = link.node("a")
    os.kill(first, signal.SIGKILL)
    until(lambda: link.names() == ["a"] and link.node("a") != before, "a is back")
    assert [a.body for a in link.ask(b"again")] == [b"echo again"]
    assert "b" not in link.deployment.names.values()
    assert not [event for event in link.parties["a"].events if "does not admit" in event]
