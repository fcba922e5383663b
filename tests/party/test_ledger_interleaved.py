"""Campaigns that are spoken of in turn are not read again each time, and memory is bounded still."""

from __future__ import annotations

import gc
import hashlib
import tracemalloc
from typing import TYPE_CHECKING

import pytest

from party import ledger_shelf
from party.ledger import LEDGER_FILE, PartyLedger
from party.ledger_past import FilePast
from party.ledger_records import BatchRecord, EndingRecord
from party.ledger_shelf import Campaign, Nothing, Shelf
from pate.errors import LedgerError
from tests.party.offers import SIX, answer, answer_and_open, queries, settled

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from party.ledger_shelf import Entry
    from party.offer import Offer


def offer_of(number: int) -> Offer:
    digest = hashlib.sha256(b"%d" % number)
    return settled(
        campaign=digest.hexdigest()[:32],
        key=digest.digest(),
        public_set=digest.hexdigest(),
        identities=tuple(hashlib.sha256(name.encode()).hexdigest() for name in SIX),
    )


@pytest.fixture
def read_again(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The campaigns whose entries were read from the file once more, each time anew."""
    found: list[str] = []
    real = FilePast.entries

    def entries(self: FilePast, campaign: str, first: int, last: int) -> Iterator[Entry]:
        found.append(campaign)
        yield from real(self, campaign, first, last)

    monkeypatch.setattr(FilePast, "entries", entries)
    return found


@pytest.mark.parametrize("side_by_side", [3, 20])
def test_campaigns_side_by_side_are_never_read_again(
    tmp_path: Path, read_again: list[str], side_by_side: int
) -> None:
    ledger = PartyLedger(tmp_path / LEDGER_FILE)
    for at in range(2):
        for number in range(side_by_side):
            answer_and_open(ledger, offer_of(number), queries(100 * number + 2 * at, 3))
    again = PartyLedger(ledger.path)
    assert again.head == ledger.head
    assert again.campaigns() == ledger.campaigns()
    assert read_again == []
    # Each batch after the first brings two queries that are new to its campaign.
    assert [each.queries for each in again.totals()] == [5] * side_by_side


def shelf_of(batches: dict[int, int], ended: Iterable[int] = ()) -> tuple[Shelf, list[str]]:
    """A shelf with campaigns of so many batches, and the list of those that are read again."""
    read: list[str] = []

    def read_anew(campaign: str, entries: Iterable[Entry]) -> Campaign:
        del entries
        read.append(campaign)
        return made[campaign]

    shelf, made = Shelf(read_anew), {}
    for number, count in batches.items():
        ending = EndingRecord(1, 1, 1.0, 1e-5, "") if number in ended else None
        held = Campaign(offer_of(number), "", number, number, ending=ending)
        for each in range(count):
            held.batches[str(each)] = BatchRecord(str(each), 1, ("",))
        made[held.offer.campaign] = held
        shelf.add(held)
    return shelf, read


def evicted(shelf: Shelf, read: list[str], numbers: Iterable[int]) -> set[int]:
    """Which of these campaigns are not held whole."""
    found = set()
    for number in numbers:
        shelf.peek(offer_of(number).campaign, Nothing())
        if read:
            found.add(number)
        read.clear()
    return found


def test_no_more_than_64_are_held_and_the_oldest_go_first() -> None:
    shelf, read = shelf_of(dict.fromkeys(range(70), 1))
    assert evicted(shelf, read, range(70)) == set(range(6))


def test_those_that_have_ended_go_before_any_that_go_on() -> None:
    shelf, read = shelf_of(dict.fromkeys(range(70), 1), ended={3, 5, *range(40, 50)})
    assert evicted(shelf, read, range(70)) == {3, 5, 40, 41, 42, 43}


def test_no_more_batches_are_held_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_shelf, "_MOST_BATCHES", 100)
    shelf, read = shelf_of(dict.fromkeys(range(20), 10))
    assert evicted(shelf, read, range(20)) == set(range(10))
    # The last few that go on stay, however large; of those that have ended none does.
    shelf, read = shelf_of(dict.fromkeys(range(9), 80), ended={7})
    assert evicted(shelf, read, range(9)) == {0, 1, 2, 3, 7}


def test_a_summary_is_that_of_now_also_of_campaigns_spoken_of_in_turn() -> None:
    """Summaries are kept until their campaign is spoken of, and may change, again."""
    shelf, _ = shelf_of(dict.fromkeys(range(3), 1))
    for queries_of_it in (5, 6):
        for number in range(3):
            held = shelf.find(offer_of(number).campaign, Nothing())
            assert held is not None
            assert shelf.summary(held.offer.campaign) == held.summary()
            held.queries = queries_of_it
            told = shelf.summary(held.offer.campaign)
            assert told is not None
            assert told.queries == queries_of_it
        assert [each.queries for each in shelf.summaries()] == [queries_of_it] * 3


def test_a_campaign_that_is_put_away_leaves_less_than_two_kibibytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_shelf, "_MOST_WHOLE", 8)
    books, held = PartyLedger(tmp_path / LEDGER_FILE), []
    tracemalloc.start()
    try:
        for number in range(30):
            answer_and_open(books, offer_of(number), queries(100 * number, 100))
            if number in (9, 29):  # by then as many are held whole as ever will be
                gc.collect()
                held.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert (held[1] - held[0]) / 20 < 2048  # the hashes alone are 3,200 bytes


def test_a_shelf_that_lost_a_campaign_says_so() -> None:
    shelf, _ = shelf_of({0: 1})
    shelf._whole.clear()
    with pytest.raises(LedgerError, match="neither whole nor"):
        shelf.find(offer_of(0).campaign, Nothing())


def test_what_was_read_is_what_was_written(tmp_path: Path) -> None:
    """Books with all campaigns in memory and books with one of them say the same."""
    ledger = PartyLedger(tmp_path / LEDGER_FILE)
    for at in range(4):
        for number in range(3):
            answer(ledger, offer_of(number), queries(3 * number + at, 2))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ledger_shelf, "_MOST_WHOLE", 1)
        lean = PartyLedger(ledger.path, read_only=True)
        assert lean.summaries() == ledger.summaries()
        assert lean.campaigns() == ledger.campaigns()
