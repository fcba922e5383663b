"""Forgers who know the format: a chain that was recomputed after a change still breaks a rule."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from party.ledger.entries import CHAIN
from party.ledger.ledger import LEDGER_FILE, PartyLedger
from party.ledger.sent_votes import Answer
from pate.errors import LedgerError, ProtocolError, RefusedError
from pate.mechanisms import Neighbour
from pate.storage.hash_chain import Entry
from pate.storage.ledger import each_entry
from tests.support.party.offers import (
    SIX,
    altered,
    answer,
    answer_and_open,
    batch_of,
    joining,
    queries,
    settled,
    tags,
)
from tests.support.tampering import Body, forged, rewrite, tamper


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """1 and 2 offers, 3 and 4 answers, 5 another answer, 6 opening, 7 file, 8 ending."""
    ledger = PartyLedger(tmp_path_factory.mktemp("written") / LEDGER_FILE)
    ledger.join(joining())
    for first in (0, 0, 3):
        answer(ledger, settled(), queries(first, 3))
    ledger.open_batch("c1" * 16, batch_of(queries(0, 3)), queries(0, 3), SIX)
    ledger.send("c1" * 16, number=1, answers=bytes(32), digest=bytes(32), size=1)
    ledger.end("c1" * 16, queries_asked=3, labels_released=3, epsilon=1.0, delta=1e-5)
    return ledger.path


@pytest.fixture
def copy(written: Path, tmp_path: Path) -> Path:
    copy = tmp_path / LEDGER_FILE
    shutil.copy(written, copy)
    return copy


def entries_of(path: Path) -> list[Entry]:
    with closing(sqlite3.connect(path)) as db:
        return list(each_entry(db))


FORGERIES: dict[str, tuple[int, Callable[[Body], object]]] = {
    "other terms": (2, lambda b: b["offer"].update(epsilon=3.0)),
    "a field more in an offer": (2, lambda b: b.update(more=1)),
    "another number of queries": (3, lambda b: b.update(queries=2)),
    "other queries": (3, lambda b: b.update(queries_digest="ab" * 32)),
    "other votes": (3, lambda b: b.update(votes="ab" * 32)),
    "a first answer as another": (3, lambda b: b.update(again=True)),
    "a campaign that was not joined": (3, lambda b: b.update(campaign="d2" * 16)),
    "other votes on the same batch": (4, lambda b: b.update(votes="ab" * 32)),
    "other data in the campaign": (4, lambda b: b.update(source="ab" * 32)),
    "another answer as the first": (4, lambda b: b.update(again=False)),
    "a second text of a default": (5, lambda b: b.update(round=0)),
    "a batch that was not answered": (6, lambda b: b.update(batch="ab" * 32)),
    "a survivor twice": (6, lambda b: b.update(survivors=["a", "a"])),
    "no survivors": (6, lambda b: b.update(survivors=[])),
    "no number of an envelope": (7, lambda b: b.update(number=0)),
    "half a digest": (7, lambda b: b.update(file="ab" * 16)),
    "fewer than no queries": (8, lambda b: b.update(queries_asked=-1)),
    "a cost below zero": (8, lambda b: b.update(epsilon=-1.0)),
    "an unknown cause": (8, lambda b: b.update(cause="boredom")),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_chain_breaks_a_rule(copy: Path, name: str) -> None:
    seq, change = FORGERIES[name]
    rewrite(copy, forged(CHAIN, entries_of(copy), seq, change))
    with pytest.raises(LedgerError, match=rf"entry {seq} .*is invalid"):
        PartyLedger(copy, read_only=True)


def test_a_recomputed_chain_without_a_change_holds(copy: Path) -> None:
    """The control."""
    head = PartyLedger(copy, read_only=True).head
    rewrite(copy, forged(CHAIN, entries_of(copy), 1, lambda _: None))
    assert PartyLedger(copy, read_only=True).head == head


@pytest.mark.parametrize(
    "statement",
    ["UPDATE queries SET query = zeroblob(32) WHERE position = 1",
     "UPDATE tags SET tag = zeroblob(16) WHERE position = 1"],
)  # fmt: skip
def test_rows_of_a_single_answer_are_those_of_its_entry(path: Path, statement: str) -> None:
    answer(PartyLedger(path), settled(), queries(0, 3))
    tamper(path, statement)
    with pytest.raises(LedgerError, match="an answer that does not match"):
        PartyLedger(path, read_only=True)


def test_reports_and_files_that_cannot_be_are_refused(ledger: PartyLedger) -> None:
    ledger.join(joining())
    head = ledger.head
    for asked, epsilon in ((-1, 1.0), (1, -1.0)):
        with pytest.raises(ProtocolError, match="negative"):
            ledger.end(
                "c1" * 16, queries_asked=asked, labels_released=0, epsilon=epsilon, delta=1e-5
            )
    assert ledger.head == head
    ledger.send("c1" * 16, number=2, answers=bytes(32), digest=bytes(32), size=1)
    for number, file in ((2, b"o" * 32), (1, b"o" * 32), (3, bytes(32))):
        with pytest.raises(RefusedError, match="was answered before"):
            ledger.send("c1" * 16, number=number, answers=file, digest=b"d" * 32, size=1)


def test_exact_sums_of_records_are_unmasked_with_the_same_parties_in_every_campaign(
    ledger: PartyLedger,
) -> None:
    """Whatever the queries, and although the policy let the votes themselves leave."""
    mechanism = Neighbour(3, Fraction(40), 1)
    first = settled(aggregator="neighbour", mechanisms=(mechanism,))
    other = altered(first, id="d2" * 16)
    answer_and_open(ledger, first, queries(0, 3))
    hashes = queries(5, 3)
    given = Answer(batch_of(hashes), hashes, bytes(32), tags=tags(hashes))
    ledger.answer(replace(other, queries=3), given, allow_other=True)
    with pytest.raises(RefusedError, match="exact sums of records' votes"):
        ledger.open_batch(other.campaign, given.batch, hashes, SIX[:5])
    ledger.open_batch(other.campaign, given.batch, hashes, SIX)
