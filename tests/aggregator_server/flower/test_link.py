"""Every message that is sent comes back once, and replies that never arrive delay no others."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from flwr.app import Context, Error, Message
from flwr.clientapp import ClientApp
from flwr.proto.message_pb2 import (
    ConfirmMessageReceivedRequest,
    ObjectTree,
    PullObjectRequest,
    PullObjectResponse,
)
from flwr.proto.runtime_pb2 import PullAppMessagesRequest, PullAppMessagesResponse
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.run import Run

from aggregator_server.exchange.carrier import EXPIRED, GONE, LOST, UNREADABLE, Arrival, Carrier
from aggregator_server.flower import grid as grid_module
from aggregator_server.flower.carrier import GridCarrier, SwitchableCarrier
from aggregator_server.flower.grid import ResidentGrid
from aggregator_server.flower.internals import query
from benchmarks.methods.local_grid import FIRST_NODE, LocalGrid
from party.flower.connection import make_client_app
from pate.errors import ProcessError
from protos.flower.carriage import pack, unpack_message
from tests.support.server.fleet_nodes import some_id

FIRST, SECOND = FIRST_NODE, FIRST_NODE + 1


def raising(text: str) -> ClientApp:
    """An app that does not keep the text of its exceptions to itself."""
    app = ClientApp()

    @app.query()
    def answer(_message: Message, _context: Context) -> Message:
        raise ValueError(text)

    return app


def replying(code: int, reason: str | None) -> ClientApp:
    app = ClientApp()

    @app.query()
    def answer(message: Message, _context: Context) -> Message:
        return Message(Error(code, reason), reply_to=message)

    return app


ECHO = make_client_app(lambda body: b"echo " + body)


@pytest.fixture
def grid() -> Iterator[LocalGrid]:
    grid = LocalGrid([ECHO, ECHO])
    yield grid
    grid.close()


def collect(wire: Carrier, count: int) -> list[Arrival]:
    arrivals: list[Arrival] = []
    deadline = time.monotonic() + 10
    while len(arrivals) < count:
        assert time.monotonic() < deadline, f"only {arrivals}"
        arrivals += wire.receive()
        time.sleep(0.002)
    return arrivals


def one(app: ClientApp, *, limit: int = 1000) -> Arrival:
    """Ask a single party that runs ``app``."""
    grid = LocalGrid([app])
    wire = GridCarrier(grid, limit=limit)
    wire.send(FIRST, b"digest", b"abc")
    [arrival] = collect(wire, 1)
    grid.close()
    assert (arrival.digest, arrival.node) == (b"digest", FIRST)
    return arrival


def test_answers_come_back_under_the_digest_of_their_request(grid: LocalGrid) -> None:
    wire = GridCarrier(grid)
    assert wire.nodes() == {FIRST, SECOND}
    sent = {b"1": FIRST, b"2": SECOND, b"3": FIRST}
    for digest, node in sent.items():
        wire.send(node, digest, str(node).encode())
    arrivals = collect(wire, 3)
    assert {a.digest: a.node for a in arrivals} == sent
    assert all(a.body == b"echo " + str(a.node).encode() for a in arrivals)
    assert wire.receive() == []


def test_an_unknown_node_is_gone(grid: LocalGrid) -> None:
    wire = GridCarrier(grid)
    wire.send(7, b"digest", b"x")
    assert wire.receive() == [Arrival(7, b"digest", None, GONE)]


def test_who_is_not_admitted_is_never_asked_nor_heard(grid: LocalGrid) -> None:
    """Whatever the grid admits: anyone with access to a SuperLink's operator API can admit nodes."""
    asked: list[int] = []
    push = grid.push_messages

    def pushing(messages: Iterable[Message]) -> Iterable[str]:
        sent = list(messages)
        asked.extend(message.metadata.dst_node_id for message in sent)
        return push(sent)

    grid.push_messages = pushing  # type: ignore[method-assign, assignment]
    admitted = {FIRST, SECOND}
    wire = GridCarrier(grid, admits=admitted.__contains__)
    assert wire.nodes() == {FIRST, SECOND}
    grid.slow_down(SECOND, 0.05)
    wire.send(SECOND, b"late", b"x")
    admitted.remove(SECOND)
    assert wire.nodes() == {FIRST}
    # What it answers now to what it was asked before is not taken.
    assert collect(wire, 1) == [Arrival(SECOND, b"late", None, GONE)]
    wire.send(SECOND, b"digest", b"secret")
    assert wire.receive() == [Arrival(SECOND, b"digest", None, GONE)]
    assert asked == [SECOND]
    wire.send(FIRST, b"digest", b"x")
    assert collect(wire, 1)[0].body == b"echo x"


def test_a_party_that_left_is_gone_and_may_come_back(grid: LocalGrid) -> None:
    wire = GridCarrier(grid)
    grid.leave(SECOND)
    assert wire.nodes() == {FIRST}
    wire.send(SECOND, b"digest", b"x")
    [away] = collect(wire, 1)
    assert (away.node, away.failure) == (SECOND, GONE)
    grid.come_back(SECOND)
    wire.send(SECOND, b"digest", b"x")
    assert collect(wire, 1)[0].body == b"echo x"


def test_a_party_that_leaves_while_it_works_is_gone(grid: LocalGrid) -> None:
    wire = GridCarrier(grid)
    grid.slow_down(FIRST, 0.05)
    wire.send(FIRST, b"digest", b"x")
    grid.leave(FIRST)
    assert collect(wire, 1)[0].failure == GONE


def test_a_slow_party_delays_nobody(grid: LocalGrid) -> None:
    wire = GridCarrier(grid)
    grid.slow_down(FIRST, 3600)
    wire.send(FIRST, b"digest", b"x")
    wire.send(SECOND, b"digest", b"x")
    assert collect(wire, 1)[0].node == SECOND
    assert wire.receive() == []


def test_of_an_exception_arrives_only_that_there_was_one() -> None:
    def handle(_body: bytes) -> bytes:
        raise ValueError("secret 42")

    assert one(make_client_app(handle)).failure == "raised Exception"


@pytest.mark.parametrize(
    ("app", "failure"),
    [
        (raising("secret 42"), "raised Exception"), (replying(2, "KeyError"), "raised KeyError"),
        (replying(2, "rm -rf /"), "raised Exception"), (replying(2, None), "raised Exception"),
        (replying(3, "late"), EXPIRED), (replying(4, "cut off"), UNREADABLE),
        (replying(5, None), GONE), (replying(8, None), GONE),
    ],
)  # fmt: skip
def test_errors_of_flower_become_ours(app: ClientApp, failure: str) -> None:
    assert one(app).failure == failure


def test_an_answer_that_is_too_large_is_unreadable() -> None:
    assert one(make_client_app(lambda _: b"x" * 1000)).body == b"x" * 1000
    assert one(make_client_app(lambda _: b"x" * 1001)).failure == UNREADABLE


def test_neither_side_sees_what_the_other_does_to_its_message() -> None:
    seen: list[Message] = []
    app = ClientApp()

    @app.query()
    def answer(message: Message, _context: Context) -> Message:
        seen.append(message)
        message.content.clear()
        return Message(pack(b"done"), reply_to=message)

    grid = LocalGrid([app])
    message = grid.create_message(pack(b"abc"), "query", FIRST, "")
    [reply] = grid.send_and_receive([message], timeout=10)
    grid.close()
    assert len(seen) == 1
    assert list(message.content) == ["pate"]
    assert reply.metadata.src_node_id == FIRST


def test_each_party_has_its_own_configuration_and_memory() -> None:
    app = ClientApp()

    @app.query()
    def answer(message: Message, context: Context) -> Message:
        return Message(pack(str(context.node_config["name"]).encode()), reply_to=message)

    grid = LocalGrid([app, app], node_configs=[{"name": "a"}, {"name": "b"}])
    wire = GridCarrier(grid)
    for node in wire.nodes():
        wire.send(node, b"digest", b"")
    names = {a.node: a.body for a in collect(wire, 2)}
    grid.close()
    assert names == {FIRST: b"a", SECOND: b"b"}
    with pytest.raises(ValueError, match="1 node configurations for 2 parties"):
        LocalGrid([app, app], node_configs=[{}])


def test_an_arrival_has_a_body_or_a_failure() -> None:
    with pytest.raises(ValueError, match="either"):
        Arrival(1, b"d", None, None)
    with pytest.raises(ValueError, match="either"):
        Arrival(1, b"d", b"", GONE)


class Unplugged(LocalGrid):
    """A grid whose link is down."""

    def get_node_ids(self) -> list[int]:
        raise httpx.ConnectError("refused")

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        raise httpx.ConnectError("refused")


def test_without_a_link_nobody_is_connected_and_messages_are_lost(grid: LocalGrid) -> None:
    wire = SwitchableCarrier(lambda _: None)
    assert wire.nodes() == frozenset()
    wire.send(FIRST, b"digest", b"x")
    assert wire.receive() == [Arrival(FIRST, b"digest", None, LOST)]
    wire.attach(GridCarrier(grid))
    wire.send(FIRST, b"digest", b"x")
    assert collect(wire, 1)[0].body == b"echo x"


def test_what_is_under_way_is_lost_with_the_link(grid: LocalGrid) -> None:
    wire = SwitchableCarrier(lambda _: None)
    wire.attach(GridCarrier(grid))
    grid.slow_down(FIRST, 3600)
    wire.send(FIRST, b"digest", b"x")
    assert wire.detach() == 1
    wire.attach(GridCarrier(grid))
    assert wire.receive() == [Arrival(FIRST, b"digest", None, LOST)]


def test_a_link_that_is_down_is_reported_and_raises_nothing() -> None:
    reported: list[BaseException] = []
    wire = SwitchableCarrier(reported.append)
    grid = Unplugged([ECHO])
    wire.attach(GridCarrier(grid))
    assert wire.nodes() == frozenset()
    wire.send(FIRST, b"digest", b"x")
    grid.close()
    assert [a.failure for a in wire.receive()] == [LOST]
    assert [type(e) for e in reported] == [httpx.ConnectError, httpx.ConnectError]


def test_a_link_that_cannot_be_had_again_is_an_error_everywhere(grid: LocalGrid) -> None:
    wire = SwitchableCarrier(lambda _: None)
    wire.attach(GridCarrier(grid))
    wire.fail(ProcessError("it is over"))
    for call in (wire.nodes, wire.receive, lambda: wire.send(FIRST, b"", b"")):
        with pytest.raises(ProcessError, match="it is over"):
            call()
    wire.close()


def test_what_a_node_was_sent_is_lost_when_another_process_is_there(grid: LocalGrid) -> None:
    """And it is absent once, so that it is asked again for its description."""
    told: list[int] = []
    wire = SwitchableCarrier(lambda error: pytest.fail(str(error)))
    wire.attach(GridCarrier(grid, on_sent=told.append))
    assert wire.nodes() == {FIRST, SECOND}
    wire.send(FIRST, b"1", b"kept")
    wire.send(SECOND, b"2", b"lost")
    assert told == [FIRST, SECOND]
    wire.renew(SECOND)
    wire.renew(7)  # it was never there
    arrivals = {arrival.digest: arrival for arrival in collect(wire, 2)}
    assert arrivals[b"1"].body == b"echo kept"
    assert arrivals[b"2"].failure == LOST
    assert wire.nodes() == {FIRST}
    assert wire.nodes() == {FIRST, SECOND}
    assert wire.receive() == []


RUN = 5


class SuperLink:
    """What a grid asks of one: replies, their pieces, and what may be forgotten."""

    def __init__(self) -> None:
        self.announced = PullAppMessagesResponse()
        self.pieces: dict[str, bytes] = {}
        self.promised: set[str] = set()
        self.asked: Counter[str] = Counter()
        self.forgotten: list[str] = []

    def announce(self, asked: str, root: str, tree: ObjectTree, ttl: float = 60.0) -> None:
        data = self.announced.messages_list.add().metadata
        data.message_id, data.reply_to_message_id, data.run_id, data.ttl = root, asked, RUN, ttl
        self.announced.message_object_trees.append(tree)

    def promise(self, ttl: float = 60.0) -> str:
        """Announce a reply of one piece that is not here; return what it answers."""
        asked, root = some_id(), some_id()
        self.promised.add(root)
        self.announce(asked, root, ObjectTree(object_id=root), ttl)
        return asked

    def reply(self, body: bytes, *, here: bool = True) -> str:
        """Announce a reply; return what it answers."""
        asked = some_id()
        message = query(RUN, 1, pack(body), 60.0)
        message.metadata.__dict__["_reply_to_message_id"] = asked
        objects = {name: each.deflate() for name, each in get_all_nested_objects(message).items()}
        (self.pieces.update if here else self.promised.update)(objects)
        self.late = objects
        self.announce(asked, message.object_id, get_object_tree(message))
        return asked

    def PullMessages(self, request: PullAppMessagesRequest) -> PullAppMessagesResponse:  # noqa: N802
        del request
        answer, self.announced = self.announced, PullAppMessagesResponse()
        return answer

    def PullObject(self, request: PullObjectRequest) -> PullObjectResponse:  # noqa: N802
        name = request.object_id
        self.asked[name] += 1
        return PullObjectResponse(
            object_found=name in self.pieces or name in self.promised,
            object_available=name in self.pieces,
            object_content=self.pieces.get(name, b""),
        )

    def ConfirmMessageReceived(self, request: ConfirmMessageReceivedRequest) -> None:  # noqa: N802
        self.forgotten.append(request.message_object_id)

    def close(self) -> None: ...


@pytest.fixture
def play() -> Iterator[SimpleNamespace]:
    taken: list[str] = []
    grid = ResidentGrid("127.0.0.1:9", "token", on_taken=taken.append)
    grid.client.close()
    link: Any = SuperLink()
    grid.client = link
    grid.set_run(Run.create_empty(RUN))
    yield SimpleNamespace(grid=grid, link=link, taken=taken)
    grid._client = link
    grid.close()


def arrives(play: SimpleNamespace, asked: str, others: tuple[str, ...] = ()) -> Message:
    """Look as the campaign does until the reply to ``asked`` is here."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        for reply in play.grid.pull_messages([*others, asked]):
            if reply.metadata.reply_to_message_id == asked:
                return reply  # type: ignore[no-any-return]
        time.sleep(0.01)
    raise AssertionError("it never came")


def test_many_replies_that_do_not_come_delay_no_other(play: SimpleNamespace) -> None:
    others = tuple(play.link.promise() for _ in range(100))
    assert unpack_message(arrives(play, play.link.reply(b"votes"), others), 100) == b"votes"
    assert len(play.taken) == 1


def test_a_reply_that_comes_late_is_fetched(
    play: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grid_module, "_HERE_S", 0.0)
    asked = play.link.reply(b"votes", here=False)
    names = list(play.link.late)
    for name in names:
        seen = play.link.asked.total()
        while play.link.asked.total() == seen:
            assert not list(play.grid.pull_messages([asked]))
        play.link.pieces[name] = play.link.late[name]
    assert unpack_message(arrives(play, asked), 100) == b"votes"
    assert len(play.link.forgotten) == len(play.taken) == 1


def test_one_that_never_comes_is_given_up_when_it_ends(play: SimpleNamespace) -> None:
    for ttl in (0.1, float("nan")):
        reply = arrives(play, play.link.promise(ttl))
        assert reply.has_error()
    assert len(play.link.forgotten) == len(play.taken) == 2


def test_one_whose_pieces_nobody_announces_is_an_error_at_once(play: SimpleNamespace) -> None:
    asked = play.link.promise()
    play.link.promised.clear()
    assert arrives(play, asked).has_error()
    assert play.taken == [asked]
