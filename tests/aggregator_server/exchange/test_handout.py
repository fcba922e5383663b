"""Pieces of a public set, and answers of many parties: a few at a time, until all are transferred."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from aggregator_server.exchange import public_set
from aggregator_server.exchange.public_set import Handout
from aggregator_server.flower.internals import empty_run
from aggregator_server.flower.wire import GridWire
from protos.flower.carriage import pack

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pytest
    from flwr.app import Message
    from flwr.serverapp import Grid

PIECES = [bytes([at]) * 3 for at in range(5)]


def test_each_party_gets_all_pieces_in_turn_and_anew_if_it_starts_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(public_set, "_PIECES_EACH", 2)
    made: list[int] = []

    def pieces() -> Sequence[bytes]:
        made.append(1)
        return PIECES

    held = Handout(pieces)
    assert not made, "not before somebody lacks it"
    assert held.due("a") == [(0, 5, PIECES[0]), (1, 5, PIECES[1])]
    assert [at for at, _, _ in held.due("b")] == [0, 1]
    assert [at for at, _, _ in held.due("a")] == [2, 3]
    assert [at for at, _, _ in held.due("a")] == [4]
    assert [at for at, _, _ in held.due("a")] == [0, 1], "it lacks it still"
    held.began("b")
    assert [at for at, _, _ in held.due("b")] == [0, 1]
    assert made == [1]


class Grid100:
    """A hundred parties that have all answered; it notes how many answers are fetched at a time."""

    def __init__(self) -> None:
        self.run = empty_run(1)
        self.waiting: dict[str, Message] = {}
        self.fetched: list[int] = []

    def get_node_ids(self) -> list[int]:
        return list(range(100))

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        ids = []
        for message in messages:
            ids.append(f"m{len(self.waiting)}")
            self.waiting[ids[-1]] = message
        return ids

    def pull_messages(self, ids: Iterable[str]) -> list[Message]:
        from flwr.app import Message

        asked = [each for each in ids if each in self.waiting]
        replies = []
        for each in asked:
            question = self.waiting.pop(each)
            question.metadata.__dict__["_message_id"] = each
            replies.append(Message(pack(each.encode()), reply_to=question))
        self.fetched.append(len(replies))
        return replies


def test_answers_are_fetched_a_few_at_a_time_until_none_is_left() -> None:
    grid = Grid100()
    link = GridWire(cast("Grid", grid))
    sent = {link.send(node, b"?") for node in range(100)}
    got: list[str] = []
    while arrivals := link.receive():
        got += [each.handle for each in arrivals]
    assert set(got) == sent
    assert len(got) == 100
    assert max(grid.fetched) == 32


def test_one_late_answer_among_many_is_found_at_the_next_look() -> None:
    grid = Grid100()
    link = GridWire(cast("Grid", grid))
    handles = [link.send(node, b"?") for node in range(100)]
    late = {name: grid.waiting.pop(name) for name in list(grid.waiting) if name != "m57"}
    assert [each.handle for each in link.receive()] == [handles[57]]
    assert link.receive() == []
    grid.waiting["m99"] = late["m99"]
    assert [each.handle for each in link.receive()] == [handles[99]]
    assert link.receive() == []
