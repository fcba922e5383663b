"""A ledger of many campaigns: hashes of queries stay in the file, and nothing is forgotten for that."""

from __future__ import annotations

import gc
import hashlib
import sqlite3
import tracemalloc
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from party.ledger.file import SCHEMA
from party.ledger.ledger import LEDGER_FILE, PartyLedger
from pate.campaign.offer import Offer
from pate.errors import LedgerError, RefusedError
from tests.support.party.offers import (
    SIX,
    altered,
    answer,
    answer_and_open,
    batch_of,
    noisy,
    queries,
    settled,
)

FIVE = SIX[:5]
MANY = 6


def offer_of(number: int) -> Offer:
    """A campaign of its own key and public set, as those of real servers are."""
    digest = hashlib.sha256(b"%d" % number)
    return settled(
        campaign=digest.hexdigest()[:32],
        key=digest.digest(),
        public_set=digest.hexdigest(),
        identities=tuple(hashlib.sha256(name.encode()).hexdigest() for name in SIX),
    )


def end(ledger: PartyLedger, number: int) -> None:
    ledger.end(
        offer_of(number).campaign, queries_asked=40, labels_released=9, epsilon=1.5, delta=1e-5
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger of some campaigns, each with an unmasked batch, another batch, and an end."""
    ledger = PartyLedger(tmp_path / "home" / LEDGER_FILE)
    for number in range(MANY):
        answer_and_open(ledger, offer_of(number), queries(10 * number, 4))
        answer(ledger, offer_of(number), queries(10 * number + 3, 4))
        end(ledger, number)
    return ledger.path


def test_a_campaign_that_ended_is_refused_as_before(path: Path) -> None:
    ledger = PartyLedger(path)
    head = ledger.head
    first, other = offer_of(0).campaign, queries(3, 4)
    for hashes in (queries(0, 4), queries(3, 4), queries(7, 2)):
        with pytest.raises(RefusedError, match="has ended: no more votes"):
            answer(ledger, offer_of(0), hashes)
    with pytest.raises(RefusedError, match="has ended: none of its sums is unmasked"):
        ledger.open_batch(first, batch_of(other), other, SIX)
    ledger.open_batch(first, batch_of(queries(0, 4)), queries(0, 4), SIX)  # what it has already
    with pytest.raises(RefusedError, match="unmasked with other parties before"):
        ledger.open_batch(first, batch_of(queries(0, 4)), queries(0, 4), FIVE)
    with pytest.raises(RefusedError, match="changed its epsilon"):
        ledger.join(altered(offer_of(0), epsilon=9.0))
    assert ledger.head == head
    late = settled(campaign="ee" * 16)
    batch = answer(ledger, late, queries(2, 3))
    with pytest.raises(RefusedError, match=f"in campaign {first[:8]}, with other parties"):
        ledger.open_batch(late.campaign, batch, queries(2, 3), FIVE)
    ledger.open_batch(late.campaign, batch, queries(2, 3), FIVE, allow_other=True)


def test_a_query_that_another_campaign_did_not_open_may_be_opened_with_others(path: Path) -> None:
    """The earlier campaign opened its first batch; of its second only votes left."""
    ledger, late = PartyLedger(path), settled(campaign="ee" * 16)
    batch = answer(ledger, late, queries(5, 2))
    ledger.open_batch(late.campaign, batch, queries(5, 2), FIVE)


def test_campaigns_are_read_back_whole(path: Path) -> None:
    ledger = PartyLedger(path)
    for number, record in enumerate(ledger.campaigns()):
        assert (record.offer, record.queries, record.asked) == (
            replace(offer_of(number), queries=0), 7, 8,
        )  # fmt: skip
        assert [each.survivors for each in record.batches.values()] == [SIX, None]
        assert record.ending is not None
    assert ledger.totals() == tuple(each.totals for each in ledger.campaigns())
    assert ledger.totals() == PartyLedger(path, read_only=True).totals()


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_counts_and_openings_are_those_of_a_ledger_that_holds_everything(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    ledger = PartyLedger(tmp_path_factory.mktemp("ledger") / LEDGER_FILE)
    offers = [settled(), noisy(campaign="d2" * 16), *map(offer_of, range(2))]
    seen: dict[str, set[bytes]] = {}
    opened: dict[bytes, set[tuple[str, ...]]] = {}
    noisy_batches: dict[bytes, set[bytes]] = {}
    for _ in range(data.draw(st.integers(4, 12))):
        offer = data.draw(st.sampled_from(offers))
        hashes = queries(data.draw(st.integers(0, 5)), data.draw(st.integers(1, 4)))
        survivors = data.draw(st.sampled_from([SIX, SIX, FIVE]))
        view = ledger.view(replace(offer, queries=len(hashes)), batch_of(hashes), hashes)
        batch = answer(ledger, offer, hashes)
        seen.setdefault(offer.campaign, set()).update(hashes)
        assert view.of(offer.campaign).queries == len(seen[offer.campaign])
        try:
            ledger.open_batch(offer.campaign, batch, hashes, survivors)
        except RefusedError:
            continue
        for each in hashes:
            opened.setdefault(each, set()).add(survivors)
            if offer.announced.sums.distributed:
                noisy_batches.setdefault(each, set()).add(batch)
        if data.draw(st.integers(0, 3)) == 0:
            ledger = PartyLedger(ledger.path)
    assert {each.offer.campaign: each.queries for each in ledger.totals()} == {
        campaign: len(hashes) for campaign, hashes in seen.items()
    }
    assert all(len(each) == 1 for each in opened.values())
    assert all(len(each) == 1 for each in noisy_batches.values())
    assert PartyLedger(ledger.path).campaigns() == ledger.campaigns()


@pytest.mark.slow
def test_what_is_held_in_memory_does_not_grow_with_the_queries(tmp_path: Path) -> None:
    """A party that stays connected for years holds some kilobytes of each campaign, and no query."""
    held = {}
    for each in (5, 200):
        ledger = PartyLedger(tmp_path / str(each) / LEDGER_FILE)
        for number in range(12):
            for at in range(3):
                answer_and_open(ledger, offer_of(number), queries(3000 * number + at * each, each))
            end(ledger, number)
        path = ledger.path
        del ledger
        gc.collect()
        tracemalloc.start()
        again = PartyLedger(path)
        gc.collect()
        held[each] = tracemalloc.get_traced_memory()[0] / 12
        tracemalloc.stop()
        assert len(again.campaigns()) == 12
    assert held[200] < 1.2 * held[5]
    assert max(held.values()) < 12 * 1024, held


# --- the index -----------------------------------------------------------------------------------

_INDEX = "queries_by_query"


def unlocked(db: sqlite3.Connection) -> None:
    for table in ("entries", "queries", "tags", "units"):
        for verb in ("update", "delete"):
            db.execute(f"DROP TRIGGER {table}_no_{verb}")


def test_an_index_that_lacks_a_query_is_found(path: Path) -> None:
    """Else a query that is looked up there would count as one that was never opened."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        triggers = [each for each in SCHEMA if each.startswith("CREATE TRIGGER")]
        unlocked(db)
        row = db.execute("SELECT entry, position, query FROM queries LIMIT 1").fetchone()
        db.execute("DELETE FROM queries WHERE entry = ? AND position = ?", row[:2])
        db.execute("PRAGMA writable_schema = ON")
        held = db.execute("SELECT * FROM sqlite_master WHERE name = ?", (_INDEX,)).fetchone()
        db.execute("DELETE FROM sqlite_master WHERE name = ?", (_INDEX,))
        version = db.execute("PRAGMA schema_version").fetchone()[0]
        db.execute(f"PRAGMA schema_version = {version + 1}")
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("INSERT INTO queries VALUES (?, ?, ?)", row)  # and the index does not know of it
        db.execute("PRAGMA writable_schema = ON")
        db.execute("INSERT INTO sqlite_master VALUES (?, ?, ?, ?, ?)", held)
        db.execute(f"PRAGMA schema_version = {version + 2}")
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        for sql in triggers:
            db.execute(sql)
    with pytest.raises(LedgerError, match="index"):
        PartyLedger(path)
