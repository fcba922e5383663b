"""Announced replies that never arrive delay no others, however many there are."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from flwr.app import Message
from flwr.proto.message_pb2 import (
    ConfirmMessageReceivedRequest,
    ObjectTree,
    PullObjectRequest,
    PullObjectResponse,
)
from flwr.proto.runtime_pb2 import PullAppMessagesRequest, PullAppMessagesResponse
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.run import Run

from aggregator_server.flower import grid as grid_module
from aggregator_server.flower.grid import ResidentGrid
from aggregator_server.flower.internals import query
from protos.flower.carriage import pack, unpack_message
from tests.support.server.fleet_nodes import some_id

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
