"""What goes to parties: requests known by their digest, pieces of a public set, an encoder."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, cast

import numpy as np
import pytest
from flwr.supercore.run import Run

from aggregator_server.exchange import carrier, conversation
from aggregator_server.exchange.attendance import Keyring
from aggregator_server.exchange.carrier import GONE, Arrival, Distribution
from aggregator_server.exchange.exchange import Exchange
from aggregator_server.exchange.outbox import Outbox, Request
from aggregator_server.exchange.store import FILE, Store
from aggregator_server.flower.carrier import GridCarrier
from benchmarks.methods.local_grid import LocalGrid
from party.flower.connection import make_client_app
from pate.campaign.roster import RosterParty
from pate.data.values import Images
from protos.flower.carriage import pack
from protos.pate.v1 import vote_pb2
from protos.public_set import PackedEncoder
from tests.aggregator_server.exchange.test_exchange import Quick
from tests.party.voting.test_encoders import CLASSES, WIDTH, Party
from tests.support.campaign_messages import SERVER_KEY, campaign_message, request_in
from tests.support.encoders import tiny_encoders as tiny
from tests.support.server.lines import Lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from flwr.app import Message
    from flwr.serverapp import Grid

    from aggregator_server.exchange.aggregation import Steps
    from pate.runtime.screen import Screen


CAMPAIGN = campaign_message(
    Images(np.zeros((2, 4, 4, 1), dtype=np.uint8)), classes=("x", "y")
).offer()
FILES = -1  # the node of the one party by envelope


class Step:
    """The one step of a sum."""

    step = "ask"


STEP = cast("Steps", Step())


class Hand:
    """A carrier that tests direct."""

    def __init__(self, store: Store | None = None) -> None:
        self.store = store
        self.sent: list[tuple[int, bytes, bytes]] = []
        self.arrivals: list[Arrival] = []

    def nodes(self) -> frozenset[int]:
        return frozenset()

    def returning(self) -> tuple[str, ...]:
        return ()

    def send(self, node: int, digest: bytes, body: bytes) -> None:
        self.sent.append((node, digest, body))

    def receive(self) -> list[Arrival]:
        arrivals, self.arrivals = self.arrivals, []
        return arrivals

    def pause(self, seconds: float) -> None: ...

    def close(self) -> None: ...


def outbox(hand: Hand) -> Outbox:
    return Outbox(hand, CAMPAIGN, SERVER_KEY)


def ask(box: Outbox, node: int, steps: Steps | None = None) -> None:
    box.put(node, vote_pb2.PartyRequest(ask=vote_pb2.Ask()), "ask", "p", steps)


def test_a_request_is_answered_once_and_only_under_its_digest() -> None:
    hand = Hand()
    box = outbox(hand)
    ask(box, 7)
    ask(box, 7)
    (_, first, _), (_, second, _) = hand.sent
    assert first != second
    reply = Arrival(7, first, b"reply", None)
    hand.arrivals = [
        Arrival(7, b"?" * 32, b"forged", None), Arrival(8, first, b"of another", None), reply,
        Arrival(7, first, b"other bytes", None), reply,
    ]  # fmt: skip
    assert [arrival for _, arrival in box.arrivals()] == [reply]
    assert box.busy(None) == {"p"}, "the second is open"
    hand.arrivals = [reply, Arrival(7, second, None, GONE)]
    assert [arrival.failure for _, arrival in box.arrivals()] == [GONE]
    assert box.busy(None) == set()


def test_a_party_that_failed_is_sent_the_whole_campaign_again() -> None:
    hand = Hand()
    box = outbox(hand)

    def whole() -> bool:
        ask(box, 7)
        return bool(request_in(hand.sent[-1][2]).campaign)

    assert whole()
    hand.arrivals = [Arrival(7, hand.sent[-1][1], b"reply", None)]
    for request, _ in box.arrivals():
        box.learns(request, vote_pb2.Reply(votes=vote_pb2.VoteMatrix()))
    assert not whole()
    hand.arrivals = [Arrival(7, hand.sent[-1][1], None, GONE)]
    assert len(list(box.arrivals())) == 1
    assert whole()
    box.fix_terms(CAMPAIGN)
    assert whole()


def test_what_is_asked_by_envelope_outlives_the_process(tmp_path: Path) -> None:
    """Asked again it has the same bytes; its reply is found, and it is not closed meanwhile."""

    def process() -> tuple[Outbox, Store]:
        store = Store(tmp_path / FILE, ["p"], nonce_key=b"n" * 32)
        box = outbox(Hand(store))
        ask(box, FILES, STEP)
        return box, store

    box, store = process()
    (asked,) = store.waiting()
    assert (box.busy(STEP), box.closed(STEP)) == ({"p"}, set())
    box, store = process()
    assert store.waiting() == {asked}
    (out,) = store.due()
    store.note(out, bytes(32))
    assert store.take(out, bytes(32), bytes(32), [b"reply"]) == [(asked[1], b"reply")]
    box, store = process()
    assert store.waiting() == set()
    assert (box.busy(STEP), box.closed(STEP)) == ({"p"}, set()), "its reply is under way"
    assert [arrival.body for _, arrival in box.arrivals()] == [b"reply"]
    assert box.busy(STEP) == set()


def test_a_closed_request_stays_closed_and_its_party_is_not_waited_for(tmp_path: Path) -> None:
    for _ in range(2):  # and after a restart
        store = Store(tmp_path / FILE, ["p"], nonce_key=b"n" * 32)
        box = outbox(Hand(store))
        ask(box, FILES, STEP)
        for out in store.due():
            store.note(out, bytes(32))
            assert box.closed(STEP) == set()
            assert store.end_wait() == ["p"]
            assert box.closed(STEP) == set(), "what lies in the inbox is in time"
            store.close_due()
        assert box.closed(STEP) == {"p"}


def test_a_party_by_envelope_gets_the_next_step_though_an_earlier_one_is_open(
    tmp_path: Path,
) -> None:
    later = cast("Steps", Step())
    store = Store(tmp_path / FILE, ["p"], nonce_key=b"n" * 32)
    hand = Hand(store)
    box = outbox(hand)
    ask(box, FILES, STEP)
    ask(box, 7, STEP)
    assert box.busy(later) == {"p"}, "one that is connected answers one after the other"
    box.leaves(7)
    assert box.busy(later) == set()


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


class House:
    """Three parties over photographs, of which only the first has the encoder's folder."""

    def __init__(self, root: Path) -> None:
        self.lines = Lines()
        self.said = self.lines.said
        self.folder = tiny.image_folder(root / "encoder", 16, WIDTH)
        self.parties = []
        self.pieces: dict[str, list[int]] = {}
        for at, own in enumerate((True, False, False)):
            (root / f"p{at}").mkdir()
            party = Party(root / f"p{at}", self.folder, own=own)
            party.voter._name = f"p{at}"
            self.parties.append(party)
        self.grid = LocalGrid([make_client_app(self._counted(party)) for party in self.parties])

    def _counted(self, party: Party) -> Callable[[bytes], bytes]:
        taken = self.pieces.setdefault(party.voter._name, [])

        def handle(body: bytes) -> bytes:
            request = request_in(body)
            if request.WhichOneof("body") == "public_piece" and request.public_piece.encoder:
                taken.append(request.public_piece.index)
            return party.voter.handle(body)

        return handle

    def exchange(
        self, *, sends: bool = True, enrolled: Callable[[], Mapping[str, bytes]] | None = None
    ) -> Exchange:
        return Exchange(
            Quick(self.grid), self.parties[0].campaign.offer(), Keyring(SERVER_KEY, enrolled),
            Distribution(list), cast("Screen", self.lines),
            encoder=Distribution(lambda: PackedEncoder(self.folder), encoder=True) if sends else None,
        )  # fmt: skip

    def key(self, at: int) -> bytes:
        return self.parties[at].voter._identity.public_key().public_bytes_raw()


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path)
    with contextlib.closing(made.grid):
        yield made


def test_parties_without_a_copy_get_it_and_then_describe_themselves(house: House) -> None:
    found = house.exchange().gather(3)
    assert [party.name for party in found] == ["p0", "p1", "p2"]
    assert all(party.classes == CLASSES for party in found)
    assert {name: sorted(taken) for name, taken in house.pieces.items()} == {
        "p0": [], "p1": [0, 1, 2, 3], "p2": [0, 1, 2, 3],
    }  # fmt: skip
    assert sum("has no copy of the encoder: it is sent" in line for line in house.said) == 2


def test_who_is_not_enrolled_gets_no_piece(house: House) -> None:
    exchange = house.exchange(enrolled=lambda: {"p0": house.key(0), "p1": house.key(1)})
    assert [party.name for party in exchange.gather(2)] == ["p0", "p1"]
    while not any("p2 is not enrolled with that key" in line for line in house.said):
        exchange.look()
        exchange.carrier.pause(0)
    assert house.pieces["p2"] == []


def test_without_a_folder_the_server_says_who_refused(house: House) -> None:
    exchange = house.exchange(sends=False)
    assert [party.name for party in exchange.gather(1)] == ["p0"]
    while sum("refused to join: its own screen has" in line for line in house.said) < 2:
        exchange.look()
        exchange.carrier.pause(0)
    assert "--encoder" in house.parties[1].said[-1]


def test_they_are_served_one_after_the_other_if_they_are_many(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation, "_MOST_SENT", 1)
    exchange = house.exchange()
    seen = set()
    while len(exchange.here) < 3:
        exchange.look()
        seen.add(len(exchange._outbox.open("encoder_piece")))
        exchange.carrier.pause(0)
    assert seen == {0, 1}
    assert len(house.pieces["p1"]) == len(house.pieces["p2"]) == 4


def test_who_is_not_on_the_roster_gets_no_piece(house: House) -> None:
    exchange = house.exchange()
    exchange._who.fix_roster([RosterParty("p0", house.key(0).hex(), 100, "record")])
    while sum("is not on the roster" in line for line in house.said) < 2:
        exchange.look()
        exchange.carrier.pause(0)
    assert exchange.here in ([], ["p0"])
    assert house.pieces == {"p0": [], "p1": [], "p2": []}


def test_a_node_that_returns_is_not_held_back_by_what_was_lost(house: House) -> None:
    exchange = house.exchange()
    for (
        node
    ) in house.grid.get_node_ids():  # pieces that it was sent before it left, and never answers
        lost = Request(node, "encoder_piece", None, None, left=True)
        exchange._outbox._open[node, b"lost"] = lost
    assert len(exchange.gather(3)) == 3
