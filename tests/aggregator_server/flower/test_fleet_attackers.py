"""A real SuperLink behind the gateway, with attackers that flood it or impersonate others.

Three parties are enrolled. The campaign asks two of them; the third is not on its roster and gets no request.
Each is only a key: its requests are handcrafted.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from flwr.app import Message
from flwr.proto.fab_pb2 import GetFabRequest
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PushMessagesRequest,
    PushMessagesResponse,
    RegisterNodeFleetRequest,
)
from flwr.proto.message_pb2 import Message as Envelope
from flwr.proto.message_pb2 import PullObjectRequest, PullObjectResponse
from flwr.proto.node_pb2 import Node
from flwr.proto.run_pb2 import GetRunRequest
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree

from aggregator_server.flower import deployment as deploying
from aggregator_server.flower.deployment import Deployment
from aggregator_server.flower.fleet import traffic as trafficking
from aggregator_server.flower.superlink import trust_in
from aggregator_server.identities import Identities
from pate.errors import ProcessError
from protos.flower.carriage import pack
from tests.support.processes.programs import until
from tests.support.server.fleet_nodes import SERVER, Attacker, new_key, piece, signed, some_id
from tests.support.server.identities import answer as answered

NAMES = ("avon", "derwent", "outsider")


class Server:
    """A server with identities, and an attacker in the place of each enrolled party."""

    def __init__(self, home: Path) -> None:
        import datetime as dt

        now = dt.datetime.now(dt.UTC)
        self.identities = Identities.create(home, (), 9092, now)
        self.events: list[str] = []
        keys = {name: new_key() for name in NAMES}
        for name, key in keys.items():
            bundle = self.identities.invite(name, now=now)
            answer = answered(bundle, node=key)
            assert self.identities.admit(answer, now)
        self.deployment = Deployment(
            home, identities=self.identities, on_event=self.events.append, ttl=60.0
        )
        # These nodes often ask to see that there is nothing: none waits long for that.
        self.deployment._gateway.pulls._hold = 0.1
        self.deployment.start()
        trust = trust_in(self.identities)
        self.parties = {
            name: Attacker(self.deployment.address, trust, key) for name, key in keys.items()
        }
        for party in self.parties.values():
            assert party.activate().is_success

    @property
    def traffic(self) -> trafficking.Traffic:
        return self.deployment._gateway.traffic

    def ask(self, name: str) -> tuple[bytes, Envelope]:
        """Send a request to a party; return its digest, and what was delivered."""
        party, digest = self.parties[name], os.urandom(16)
        self.deployment.carrier.send(party.id, digest, os.urandom(16))
        return digest, party.pulled()[0]

    def tls(self) -> ssl.SSLSocket:
        host, _, port = self.deployment.address.rpartition(":")
        plain = socket.create_connection((host, int(port)), timeout=20)
        return trust_in(self.identities).wrap_socket(plain, server_hostname=host)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("server"))
    yield server
    for party in server.parties.values():
        party.client.close()
    server.deployment.close()


def test_an_honest_answer_passes_and_leaves_nothing_behind(server: Server) -> None:
    avon = server.parties["avon"]
    digest, asked = server.ask("avon")
    reply = Message(pack(b"the answer"), reply_to=_message(asked))
    reply.metadata.__dict__["_src_node_id"] = avon.id
    objects = get_all_nested_objects(reply)
    envelope = avon.answer_to(asked, message_id=reply.object_id)
    tree = get_object_tree(reply)
    request = PushMessagesRequest(
        node=avon.node, messages_list=[envelope], message_object_trees=[tree]
    )
    for _ in range(2):  # as Flower does it when an answer is lost
        given = PushMessagesResponse.FromString(
            avon.call("push-messages", request).raise_for_status().content
        )
    assert set(given.objects_to_push) == set(objects)
    for name, each in objects.items():
        assert avon.stored(asked.metadata.run_id, given.session_id, name, each.deflate())
    assert avon.confirm(asked).is_success
    bodies: list[bytes | None] = []

    def arrived() -> bool:
        bodies.extend(a.body for a in server.deployment.carrier.receive() if a.digest == digest)
        return bool(bodies)

    until(arrived, "the answer arrives")
    assert bodies == [b"the answer"]
    until(lambda: server.traffic.stored.total == 0, "what was fetched is not counted any more")
    assert server.deployment._gateway.traffic.most() == (avon.pem, sum(
        len(each.deflate()) for each in objects.values()
    ))  # fmt: skip


def _message(asked: Envelope) -> Message:
    """The message of an envelope, as far as a reply needs it."""
    from flwr.common.serde import message_from_proto

    message = message_from_proto(asked)
    message.metadata.__dict__["_message_id"] = asked.metadata.message_id
    return message


#: What an enrolled node sends instead of an answer, by what is wrong with it.
INSTEAD: dict[str, Callable[[Attacker, Envelope, Server], httpx.Response]] = {
    "an instruction to another party": lambda me, asked, server: me.push(
        me.answer_to(
            asked, reply_to_message_id="", src_node_id=SERVER,
            dst_node_id=server.parties["derwent"].id,
        ),
        some_id(),
    ),
    "an instruction to itself": lambda me, asked, _: me.push(
        me.answer_to(asked, reply_to_message_id="", src_node_id=SERVER, dst_node_id=me.id),
        some_id(),
    ),
    "a reply to nothing": lambda me, asked, _: me.push(
        me.answer_to(asked, reply_to_message_id=some_id()), some_id()
    ),
    "a reply in another's name": lambda me, asked, server: me.push(
        me.answer_to(asked, src_node_id=server.parties["derwent"].id), some_id()
    ),
    "a reply to another party": lambda me, asked, server: me.push(
        me.answer_to(asked, dst_node_id=server.parties["derwent"].id), some_id()
    ),
    "a reply in another run": lambda me, asked, _: me.push(
        me.answer_to(asked, run_id=asked.metadata.run_id ^ 1), some_id()
    ),
    "a reply whose pieces are another message's": lambda me, asked, _: me.push(
        me.answer_to(asked), some_id(), root=some_id()
    ),
    "a piece that is no hash": lambda me, asked, _: me.push(me.answer_to(asked), "x" * 64),
    "two thousand pieces": lambda me, asked, _: me.push(
        me.answer_to(asked), *(some_id() for _ in range(800))
    ),
    "no message": lambda me, _, __: me.call("push-messages", PushMessagesRequest(node=me.node)),
    "two messages": lambda me, asked, _: me.call(
        "push-messages",
        PushMessagesRequest(
            node=me.node, messages_list=[me.answer_to(asked)] * 2, message_object_trees=[]
        ),
    ),
    "no protobuf": lambda me, _, __: me.call("push-messages", b"\xff" * 100),
}  # fmt: skip


@pytest.mark.parametrize("what", sorted(INSTEAD))
def test_only_an_answer_passes(server: Server, what: str) -> None:
    """In the old gateway most of these were stored by the SuperLink, and some handed to others."""
    _, asked = server.ask("avon")
    before = server.traffic.stored.total
    reply = INSTEAD[what](server.parties["avon"], asked, server)
    assert reply.status_code in (400, 413), reply.status_code
    assert server.parties["derwent"].pull() is None
    assert server.parties["avon"].pull() is None
    assert server.traffic.stored.total == before


def test_one_answer_and_of_it_no_more_than_was_announced(server: Server) -> None:
    avon = server.parties["avon"]
    _, asked = server.ask("avon")
    run, (name, content) = asked.metadata.run_id, piece(1000)
    first = avon.answer_to(asked)
    session = avon.announce(first, name).session_id
    other = avon.push(avon.answer_to(asked), name)
    assert other.status_code == 409, "one reply to one message"
    same = avon.push(first, name, some_id())
    assert same.status_code == 409, "nor the same with other pieces"
    stray = piece(1000)
    assert avon.store(run, session, *stray).status_code == 400, "a piece that was not announced"
    assert avon.store(run, some_id(), name, content).status_code == 400, "another session"
    assert avon.store(run, "", name, content).status_code == 400, "no session at all"
    assert avon.store(run ^ 1, session, name, content).status_code == 400, "another run"
    derwent = server.parties["derwent"]
    assert derwent.store(run, session, name, content).status_code == 400, "another party"
    assert avon.stored(run, session, name, content)
    assert server.traffic.pushed[avon.pem] >= len(content)
    assert 0 < server.traffic.stored.total <= trafficking.MAX_REPLY


def test_a_reply_is_not_announced_without_end(server: Server) -> None:
    """Each time costs the SuperLink some memory that it frees only at its own end."""
    avon = server.parties["avon"]
    _, asked = server.ask("avon")
    # So long that the SuperLink does not take it.
    reply = avon.answer_to(asked, ttl=1e6)
    name = some_id()
    statuses = [avon.push(reply, name).status_code for _ in range(40)]
    assert statuses == [200] * 32 + [429] * 8


def test_a_party_reads_and_confirms_what_it_was_handed_and_nothing_else(server: Server) -> None:
    avon, derwent = server.parties["avon"], server.parties["derwent"]
    _, asked = server.ask("avon")
    run, name = asked.metadata.run_id, asked.metadata.message_id

    def fetch(who: Attacker) -> httpx.Response:
        return who.call("pull-object", PullObjectRequest(node=who.node, run_id=run, object_id=name))

    server.ask("derwent")
    assert fetch(derwent).status_code == 400, "another's, though its name is known"
    assert derwent.confirm(asked).status_code == 400, "it would be deleted"
    found = PullObjectResponse.FromString(fetch(avon).raise_for_status().content)
    assert found.object_available
    assert avon.confirm(asked).is_success


def test_who_is_not_on_the_roster_can_store_and_read_nothing(server: Server) -> None:
    """It is enrolled and connected, and knows the run and a message of another party."""
    me = server.parties["outsider"]
    _, asked = server.ask("avon")
    run, known = asked.metadata.run_id, asked.metadata.message_id
    assert me.pull() is None
    statuses = [
        me.push(me.answer_to(asked), some_id()),
        me.push(me.answer_to(asked, src_node_id=server.parties["avon"].id), some_id()),
        INSTEAD["an instruction to another party"](me, asked, server),
        me.store(run, some_id(), *piece(1000)),
        me.call("pull-object", PullObjectRequest(node=me.node, run_id=run, object_id=known)),
        me.confirm(asked),
        me.call("get-run", GetRunRequest(node=me.node, run_id=run)),
        me.call("get-fab", GetFabRequest(node=me.node, run_id=run, hash_str=some_id())),
    ]
    assert {reply.status_code for reply in statuses} == {400}
    assert server.traffic.stored.held[me.pem] == server.traffic.pushed[me.pem] == 0


def test_a_key_speaks_for_its_own_node(server: Server) -> None:
    me, other = server.parties["outsider"], server.parties["avon"]
    for request, name in (
        (PullMessagesRequest(node=other.node), "pull-messages"),
        (PullMessagesRequest(node=Node(node_id=SERVER)), "pull-messages"),
        (DeactivateNodeRequest(node_id=other.id), "deactivate-node"),
        (ActivateNodeRequest(public_key=other.pem, heartbeat_interval=30), "activate-node"),
        (RegisterNodeFleetRequest(public_key=other.pem), "register-node"),
    ):
        assert me.call(name, request).status_code == 401, name
    assert other.pull() is None, "it is still connected"


def signatures(key: Attacker, other: Attacker) -> dict[str, dict[str, str]]:
    """Headers that do not prove ``key``, by what is wrong with them."""
    good, stale = signed(key.key), signed(key.key, age=310.0)
    later, soon = signed(key.key, age=-10.0), signed(key.key)
    return {
        "no signature": {k: v for k, v in good.items() if k != "flwr-signature"},
        "no time": {k: v for k, v in good.items() if k != "flwr-timestamp"},
        "another's signature": good | {"flwr-signature": signed(other.key)["flwr-signature"]},
        "of another time": good | {"flwr-timestamp": soon["flwr-timestamp"]},
        "too old": stale,
        "from the future": later,
        "no time of any zone": good | {"flwr-timestamp": "2026-01-01T00:00:00"},
        "nonsense": good | {"flwr-timestamp": "now", "flwr-signature": "!"},
        "the end of time": good | {"flwr-timestamp": "0001-01-01T00:00:00+23:59"},
    }


def test_the_signature_is_checked_before_the_body_is_read(server: Server) -> None:
    """By the rule of a SuperLink, and from the head only: the body is never sent."""
    me = server.parties["avon"]
    superlink = server.deployment._superlink
    assert superlink is not None
    inside = Attacker(superlink.address, superlink.trust, me.key, me.id)
    for what, headers in signatures(me, server.parties["derwent"]).items():
        body = PullMessagesRequest(node=me.node).SerializeToString()
        there = inside.client.post("pull-messages", content=body, headers=headers)
        assert there.status_code == 401, f"a SuperLink takes {what}"
        head = "POST /v1/fleet/push-object HTTP/1.1\r\nhost: x\r\ncontent-length: 6000000\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        with server.tls() as connection:
            connection.sendall(head.encode() + b"\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.1 401"), what
    # What it does take passes here, too, at either end of the time that it allows.
    for age in (-4.0, 0.0, 300.0):
        body = PullMessagesRequest(node=me.node).SerializeToString()
        for client in (inside, me):
            reply = client.client.post("pull-messages", content=body, headers=signed(me.key, age))
            assert reply.status_code == 200, age
    inside.client.close()


def test_a_reply_that_nobody_fetches_is_not_kept_for_ever(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The party reconnected, so its earlier requests are not waited for and expire."""
    derwent = server.parties["derwent"]
    _, asked = server.ask("derwent")
    server.deployment._carrier.renew(derwent.id)
    server.deployment.carrier.receive()
    reply, (name, content) = derwent.answer_to(asked), piece(1000)
    run, session = asked.metadata.run_id, derwent.announce(reply, name).session_id
    assert derwent.stored(run, session, name, content)
    grid = server.deployment._session.grid  # type: ignore[union-attr]

    def found() -> bool:
        request = PullObjectRequest(node=grid.node, run_id=run, object_id=name)
        return grid.client.PullObject(request).object_found

    assert found()
    clock = server.traffic._clock
    monkeypatch.setattr(server.traffic, "_clock", lambda: clock() + 100)
    until(lambda: not found(), "the SuperLink forgot the reply")
    assert server.traffic.stored.total == 0


def given_up(server: Server) -> bool:
    try:
        server.deployment.carrier.nodes()
    except ProcessError as error:
        return "MiB of memory" in str(error)
    return False


def test_a_superlink_that_outgrows_its_bound_is_started_anew_and_at_last_given_up(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Last of all: this ends the server. Every SuperLink has more memory than it may have here."""
    avon = server.parties["avon"]
    _, asked = server.ask("avon")
    name, content = piece(2**20)
    session = avon.announce(avon.answer_to(asked), name).session_id
    assert avon.stored(asked.metadata.run_id, session, name, content)
    monkeypatch.setattr(deploying, "MOST_MEMORY", 2**20)
    monkeypatch.setattr(deploying, "_ATTEMPTS", 2)  # each start takes seconds
    until(lambda: any("restarted" in e or "restarting it" in e for e in server.events), "so")
    assert any("Most was sent by avon" in event for event in server.events), server.events
    until(lambda: given_up(server), "it is given up")
    assert server.deployment.superlink_pid is None
