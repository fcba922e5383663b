"""Pieces of a public set, and answers of many parties: a few at a time, until all are transferred."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from flwr.supercore.run import Run

from aggregator_server.exchange import carrier
from aggregator_server.exchange.carrier import Distribution
from aggregator_server.flower.carrier import GridCarrier
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
    monkeypatch.setattr(carrier, "_PIECES_EACH", 2)
    made: list[int] = []

    def pieces() -> Sequence[bytes]:
        made.append(1)
        return PIECES

    held = Distribution(pieces)

    def due(party: str) -> list[int]:
        sent = [each.public_piece for each in held.due(party)]
        assert all((each.pieces, each.content) == (5, PIECES[each.index]) for each in sent)
        return [each.index for each in sent]

    assert not made, "not before somebody lacks it"
    assert due("a") == [0, 1]
    assert due("b") == [0, 1]
    assert due("a") == [2, 3]
    assert due("a") == [4]
    assert due("a") == [0, 1], "it lacks it still"
    held.began("b")
    assert due("b") == [0, 1]
    assert made == [1]


class Grid100:
    """A hundred parties that have all answered; it notes how many answers are fetched at a time."""

    def __init__(self) -> None:
        self.run = Run.create_empty(1)
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
    link = GridCarrier(cast("Grid", grid))
    for node in range(100):
        link.send(node, b"%d" % node, b"?")
    got: list[bytes] = []
    while arrivals := link.receive():
        got += [each.digest for each in arrivals]
    assert set(got) == {b"%d" % node for node in range(100)}
    assert len(got) == 100
    assert max(grid.fetched) == 32


def test_one_late_answer_among_many_is_found_at_the_next_look() -> None:
    grid = Grid100()
    link = GridCarrier(cast("Grid", grid))
    for node in range(100):
        link.send(node, b"%d" % node, b"?")
    late = {name: grid.waiting.pop(name) for name in list(grid.waiting) if name != "m57"}
    assert [each.digest for each in link.receive()] == [b"57"]
    assert link.receive() == []
    grid.waiting["m99"] = late["m99"]
    assert [each.digest for each in link.receive()] == [b"99"]
    assert link.receive() == []
