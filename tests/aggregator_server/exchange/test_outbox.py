"""The outbox: a request is known by its digest, answered once or closed, over both carriers."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np

from aggregator_server.exchange.carrier import GONE, Arrival
from aggregator_server.exchange.outbox import Outbox
from aggregator_server.exchange.store import FILE, Store
from pate.data.values import Images
from protos.pate.v1 import vote_pb2
from tests.support.campaign_messages import SERVER_KEY, campaign_message, request_in

if TYPE_CHECKING:
    from pathlib import Path

    from aggregator_server.exchange.aggregation import Steps

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
