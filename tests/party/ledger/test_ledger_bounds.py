"""A site's bound in its ledger, and a ledger of many campaigns."""

from __future__ import annotations

import gc
import hashlib
import json
import sqlite3
import tracemalloc
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from party.ledger.accountant import Bound, LedgerView, Totals, together
from party.ledger.file import SCHEMA
from party.ledger.ledger import LEDGER_FILE, PartyLedger
from party.ledger.sent_votes import Answer
from party.policy.operator import bind
from party.policy.policy import POLICY_FILE, Policy
from party.voting.site import Site
from pate.accounting.filters import Delta
from pate.campaign.offer import Offer
from pate.errors import LedgerError, PateError, ProtocolError, RefusedError
from pate.mechanisms import GNMax, Neighbour
from tests.party.test_cli_ledger import typed
from tests.support.party.offers import (
    SIX,
    altered,
    answer,
    answer_and_open,
    batch_of,
    gated,
    joining,
    noisy,
    queries,
    settled,
)

FREE = Policy.default(loopback=True)
FOUR = replace(FREE, largest_epsilon=4.0)


def kinds(ledger: PartyLedger) -> list[str]:
    with ledger._file.reading() as db:
        return [kind for (kind,) in db.execute("SELECT kind FROM entries ORDER BY seq")]


def test_it_is_recorded_before_anything_else_and_once(ledger: PartyLedger, path: Path) -> None:
    site = Site(FOUR, ledger)
    site.join(joining())
    hashes = queries(0, 2)
    source, tags = bytes(32), (bytes(16), bytes(16))
    answer = Answer(batch_of(hashes), hashes, source)
    site.admit(settled(), answer)
    site.answer(settled(), replace(answer, tags=tags))
    assert kinds(ledger) == ["bound", "offer", "offer", "answer"]
    again = PartyLedger(path)
    assert again.bounds() == (FOUR.bound,) == (Bound(4.0, Delta(1e-5)),)
    Site(FOUR, again).join(joining())
    assert again.head == ledger.head == again.verify()


def test_what_is_refused_records_nothing(ledger: PartyLedger) -> None:
    with pytest.raises(RefusedError):
        Site(replace(FREE, largest_epsilon=1.0), ledger).join(joining(epsilon=2.0))
    assert kinds(ledger) == []


def test_a_home_without_a_bound_has_no_entry_until_it_gets_one(ledger: PartyLedger) -> None:
    Site(FREE, ledger).join(joining())
    assert ledger.bounds() == ()
    assert bind(ledger, FREE) == ()
    assert len(bind(ledger, FOUR)) == 1
    assert bind(ledger, FOUR) == ()
    assert len(bind(ledger, FREE)) == 2
    assert [each.epsilon for each in ledger.bounds()] == [4.0, None]


def test_an_older_ledger_goes_on_and_is_counted_anew_aloud(ledger: PartyLedger) -> None:
    """Its entries have no bound: it is fixed at the next start, and what left before is in it."""
    answer(ledger, settled(), queries(0, 50))
    before = ledger.cumulative_epsilon(Delta(1e-5))
    first, counted = bind(ledger, FOUR)
    assert first == (
        "new bound of this party's accountant, recorded in its ledger: epsilon 4 at delta 1e-05, of "
        "which 1e-06 is for campaigns and releases that may fail outright; towards the public, of the "
        "unit and between the neighbours that each campaign states"
    )
    assert counted.endswith(f"by the rules of this version: {before.in_words}")
    tight = replace(FREE, largest_epsilon=0.5)
    *_, stopped = bind(ledger, tight)
    assert "that exceeds 0.5 (" in stopped
    assert "nothing more will leave" in stopped
    more = queries(50, 1)
    with pytest.raises(RefusedError, match=r"largest_epsilon is 0\.5"):
        Site(tight, ledger).admit(settled(queries=1), Answer(batch_of(more), more, bytes(32)))


def test_a_change_says_what_all_bounds_promise(ledger: PartyLedger) -> None:
    bind(ledger, FOUR)
    lines = bind(ledger, replace(FOUR, largest_epsilon=6.0))
    assert "together: epsilon 6 at delta 1e-05" in lines[1]  # only raised: no more delta
    lines = bind(ledger, replace(FOUR, delta=1e-6))
    assert "together: epsilon 6 at delta 1.1e-05" in lines[1]
    lines = bind(ledger, replace(FOUR, delta=1e-6, failing_share=Fraction(1, 2)))
    assert "together: epsilon 6 at delta 1.2e-05" in lines[1]
    assert "earlier bound: epsilon 4 at delta 1e-06" in lines[1]
    bind(ledger, FREE)
    assert together(ledger.bounds()) == "nothing, as there was no bound at one time"


def test_the_ledger_shows_them(ledger: PartyLedger, path: Path) -> None:
    answer(ledger, settled(), queries(0, 1))
    bind(ledger, FOUR)
    shown = typed("ledger", "--home", str(path.parent)).stdout
    assert "our own accountant keeps: epsilon 4 at delta 1e-05" in shown
    assert "bounds so far" not in shown
    bind(ledger, replace(FOUR, largest_epsilon=6.0))
    shown = typed("ledger", "--home", str(path.parent)).stdout
    assert "it kept 2 bounds so far; together they promise epsilon 6 at delta 1e-05" in shown
    made = json.loads(typed("ledger", "--home", str(path.parent), "--json").stdout)
    assert [each["epsilon"] for each in made["bounds"]] == ["4.0", "6.0"]


def test_neither_path_of_a_coordinator_who_looked_first_is_dearer(tmp_path: Path) -> None:
    """A matrix of neighbour votes, then by what it showed another, or a gated campaign.

    Both fitted a bound of 1 at 1e-5, and who chose between them got 1.8 times that delta.
    """
    policy = replace(FREE, largest_epsilon=1.0)

    def matrix(campaign: str) -> Totals:
        one = Neighbour(1000, Fraction(479, 64), 1)
        offer = settled(
            campaign=campaign, aggregator="neighbour", mechanisms=(one,), unit="patient",
            cap=Fraction(1), epsilon=3.0, delta=1e-5,
        )  # fmt: skip
        return Totals(offer, 100, 100)

    gate = gated(
        campaign="03" * 16, unit="patient", epsilon=0.18, delta=0.95e-5,
        mechanisms=(GNMax(Fraction(40), 1),),
    )  # fmt: skip
    for last in (matrix("02" * 16), Totals(gate, 100, 100)):
        view = LedgerView((matrix("01" * 16), last), (last.offer.campaign, 2))
        with pytest.raises(RefusedError, match="largest_epsilon is 1"):
            policy._check_epsilon(last.offer, view)


@pytest.mark.parametrize(
    "wrong",
    [
        {"epsilon": 4.0}, {"epsilon": "0"}, {"epsilon": "nan"}, {"epsilon": "4"}, {"delta": "1"},
        {"delta": "0.00001"}, {"failing": "2/20"}, {"failing": "3"}, {"failing": 0.1},
        {"rules": 0}, {"rules": "1"}, {"rules": True}, {"more": 1},
    ],
)  # fmt: skip
def test_what_no_ledger_has(wrong: dict[str, Any]) -> None:
    body = FOUR.bound.body()
    assert Bound.of_body(body) == FOUR.bound
    with pytest.raises(LedgerError, match="not a bound"):
        Bound.of_body(body | wrong)
    with pytest.raises(LedgerError, match="not a bound"):
        Bound.of_body({key: body[key] for key in list(body)[1:]})
    with pytest.raises(ProtocolError):
        Bound(-1.0, Delta(1e-5))


def test_an_entry_that_changes_nothing_is_none(ledger: PartyLedger) -> None:
    bind(ledger, FOUR)
    with pytest.raises(PateError, match="already in force"):
        ledger._log.append(FOUR.bound)


def test_a_policy_without_a_file_on_disk_is_bound_the_same(path: Path) -> None:
    """A whole number in the file is the same bound as the float."""
    path.parent.mkdir()
    (path.parent / POLICY_FILE).write_text("largest_epsilon = 4\nfailing_share = 0.1\n")
    from party.policy.file import policy_of

    assert policy_of(path.parent, loopback=False).bound == FOUR.bound
    assert replace(FREE, largest_epsilon=4).bound == FOUR.bound


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
def filled(tmp_path: Path) -> Path:
    """A ledger of some campaigns, each with an unmasked batch, another batch, and an end."""
    ledger = PartyLedger(tmp_path / "home" / LEDGER_FILE)
    for number in range(MANY):
        answer_and_open(ledger, offer_of(number), queries(10 * number, 4))
        answer(ledger, offer_of(number), queries(10 * number + 3, 4))
        end(ledger, number)
    return ledger.path


def test_a_campaign_that_ended_is_refused_as_before(filled: Path) -> None:
    ledger = PartyLedger(filled)
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


def test_a_query_that_another_campaign_did_not_open_may_be_opened_with_others(filled: Path) -> None:
    """The earlier campaign opened its first batch; of its second only votes left."""
    ledger, late = PartyLedger(filled), settled(campaign="ee" * 16)
    batch = answer(ledger, late, queries(5, 2))
    ledger.open_batch(late.campaign, batch, queries(5, 2), FIVE)


def test_campaigns_are_read_back_whole(filled: Path) -> None:
    ledger = PartyLedger(filled)
    for number, record in enumerate(ledger.campaigns()):
        assert (record.offer, record.queries, record.asked) == (
            replace(offer_of(number), queries=0), 7, 8,
        )  # fmt: skip
        assert [each.survivors for each in record.batches.values()] == [SIX, None]
        assert record.ending is not None
    assert ledger.totals() == tuple(each.totals for each in ledger.campaigns())
    assert ledger.totals() == PartyLedger(filled, read_only=True).totals()


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
        filled = ledger.path
        del ledger
        gc.collect()
        tracemalloc.start()
        again = PartyLedger(filled)
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


def test_an_index_that_lacks_a_query_is_found(filled: Path) -> None:
    """Else a query that is looked up there would count as one that was never opened."""
    with closing(sqlite3.connect(filled, isolation_level=None)) as db:
        triggers = [each for each in SCHEMA if each.startswith("CREATE TRIGGER")]
        unlocked(db)
        row = db.execute("SELECT entry, position, query FROM queries LIMIT 1").fetchone()
        db.execute("DELETE FROM queries WHERE entry = ? AND position = ?", row[:2])
        db.execute("PRAGMA writable_schema = ON")
        held = db.execute("SELECT * FROM sqlite_master WHERE name = ?", (_INDEX,)).fetchone()
        db.execute("DELETE FROM sqlite_master WHERE name = ?", (_INDEX,))
        version = db.execute("PRAGMA schema_version").fetchone()[0]
        db.execute(f"PRAGMA schema_version = {version + 1}")
    with closing(sqlite3.connect(filled, isolation_level=None)) as db:
        db.execute("INSERT INTO queries VALUES (?, ?, ?)", row)  # and the index does not know of it
        db.execute("PRAGMA writable_schema = ON")
        db.execute("INSERT INTO sqlite_master VALUES (?, ?, ?, ?, ?)", held)
        db.execute(f"PRAGMA schema_version = {version + 2}")
    with closing(sqlite3.connect(filled, isolation_level=None)) as db:
        for sql in triggers:
            db.execute(sql)
    with pytest.raises(LedgerError, match="index"):
        PartyLedger(filled)
