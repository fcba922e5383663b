"""A party's ledger that is missing, older or forged: nothing continues with it."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from typer.testing import CliRunner

from party.backup import back_up, forget, restore
from party.cli.main import app
from party.ledger.entries import CHAIN
from party.ledger.ledger import LEDGER_FILE, PartyLedger
from party.ledger.sent_votes import Answer
from pate.errors import DiskError, LedgerError, ProtocolError, RefusedError, StateError, UsageError
from pate.mechanisms import Neighbour
from pate.runtime.home import locked
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

MARK = "ledger.head"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A party's home, with a backup and a plain copy of its ledger from before its last batch."""
    home = tmp_path / "home"
    ledger = PartyLedger(home / LEDGER_FILE)
    ledger.join(joining())
    answer_and_open(ledger, settled(), queries(0, 2))
    back_up(home, tmp_path / "backup")
    shutil.copy(home / LEDGER_FILE, tmp_path / "older.db")
    answer_and_open(ledger, settled(), queries(2, 2))
    return home


def remove(home: Path) -> None:
    for path in home.glob(f"{LEDGER_FILE}*"):
        path.unlink()


def test_a_ledger_that_is_gone_is_missed(home: Path) -> None:
    remove(home)
    for _ in range(2):  # the refusal makes none
        with pytest.raises(
            LedgerError, match=r"is missing.*ledger.head exists.*pate-party restore"
        ):
            PartyLedger(home / LEDGER_FILE)


@pytest.mark.parametrize("sign", ["noise.db", "votes.db"])
def test_so_is_that_of_a_home_from_before_there_was_a_mark(home: Path, sign: str) -> None:
    remove(home)
    (home / MARK).unlink()
    (home / sign).write_bytes(b"what a party makes once it has a ledger")
    with pytest.raises(LedgerError, match=f"is missing.*{sign} exists"):
        PartyLedger(home / LEDGER_FILE)


def test_a_home_that_never_had_a_ledger_begins_one(tmp_path: Path) -> None:
    for name in ("enrolment.json", "identity.key", "shard.key", "policy.toml"):
        (tmp_path / name).write_bytes(b"what is there before the first start")
    assert PartyLedger(tmp_path / LEDGER_FILE).head.startswith("0:")


def test_an_older_copy_is_refused_and_the_right_one_taken(home: Path, tmp_path: Path) -> None:
    newest = PartyLedger(home / LEDGER_FILE).head
    shutil.copy(home / LEDGER_FILE, tmp_path / "newest.db")
    remove(home)
    shutil.copy(tmp_path / "older.db", home / LEDGER_FILE)
    with pytest.raises(LedgerError, match=r"older copy.*lacks entry 6"):
        PartyLedger(home / LEDGER_FILE)
    assert PartyLedger(home / LEDGER_FILE, read_only=True).campaigns()  # reading is harmless
    shutil.copy(tmp_path / "newest.db", home / LEDGER_FILE)
    assert PartyLedger(home / LEDGER_FILE).head == newest


def test_another_ledger_that_is_as_long_is_refused(home: Path, tmp_path: Path) -> None:
    other = PartyLedger(tmp_path / "other" / LEDGER_FILE)
    for number in range(9):
        other.join(joining(campaign=f"{number:032x}"))
    remove(home)
    shutil.copy(other.path, home / LEDGER_FILE)
    with pytest.raises(LedgerError, match="or another ledger"):
        PartyLedger(home / LEDGER_FILE)


@pytest.mark.parametrize("content", [None, b"", b"nonsense" * 30])
def test_a_mark_that_lags_or_was_lost_refuses_nothing_and_is_made_anew(
    home: Path, content: bytes | None
) -> None:
    mark = home / MARK
    if content is None:
        mark.unlink()
    else:
        mark.write_bytes(content)
    head = PartyLedger(home / LEDGER_FILE).head
    number, digest = head.split(":")
    assert mark.read_text() == f"{int(number):020}:{digest}\n"
    assert mark.stat().st_mode & 0o777 == 0o600


def test_a_mark_that_names_an_entry_no_ledger_has_is_refused_in_a_line(home: Path) -> None:
    (home / MARK).write_text(f"{'9' * 20}:{'0' * 64}\n")
    for look in (PartyLedger, PartyLedger.newest):
        with pytest.raises(LedgerError, match=r"ledger.head is damaged.*forget --entries-lost"):
            look(home / LEDGER_FILE)
    head = forget(home)
    assert PartyLedger(home / LEDGER_FILE).head == head


def test_an_older_copy_is_not_taken_for_the_newest_by_who_only_looks(
    home: Path, tmp_path: Path
) -> None:
    assert PartyLedger.newest(tmp_path / "nobody" / LEDGER_FILE) is None
    ledger = PartyLedger.newest(home / LEDGER_FILE)
    assert ledger is not None
    assert ledger.head == PartyLedger(home / LEDGER_FILE).head
    back_up(home, tmp_path / "new")
    remove(home)
    with pytest.raises(LedgerError, match="is missing"):
        PartyLedger.newest(home / LEDGER_FILE)
    with pytest.raises(LedgerError, match="is missing"):
        back_up(home, tmp_path / "stale")
    shutil.copy(tmp_path / "older.db", home / LEDGER_FILE)
    mark = (home / MARK).read_bytes()
    with pytest.raises(LedgerError, match=r"older copy.*lacks entry 6"):
        PartyLedger.newest(home / LEDGER_FILE)
    with pytest.raises(LedgerError, match=r"home/ledger.db is an older copy"):
        back_up(home, tmp_path / "stale")
    assert not (tmp_path / "stale").exists()
    assert (home / MARK).read_bytes() == mark
    forget(home)
    back_up(home, tmp_path / "stale")


def test_a_restore_that_fails_lowers_no_mark(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the plain restore of an old copy would pass after it, with nothing said to be lost."""
    remove(home)
    mark, head = (home / MARK).read_bytes(), PartyLedger(tmp_path / "older.db").head
    real = os.link

    def full(source: Path, target: Path) -> None:
        if target == home / LEDGER_FILE:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(os, "link", full)
        with pytest.raises(DiskError):
            restore(tmp_path / "backup", home, head=None, entries_lost=True)
    assert (home / MARK).read_bytes() == mark
    with pytest.raises(LedgerError, match="entry 6 was in this ledger and is missing"):
        restore(tmp_path / "backup", home, head=head)
    restore(tmp_path / "backup", home, head=None, entries_lost=True)
    assert PartyLedger(home / LEDGER_FILE).head == head


def test_every_entry_moves_the_mark(home: Path) -> None:
    ledger = PartyLedger(home / LEDGER_FILE)
    ledger.join(joining(campaign="ee" * 16))
    assert (home / MARK).read_text().endswith(f":{ledger.head.partition(':')[2]}\n")


def test_restore_wants_the_entry_of_the_mark_in_the_copy(home: Path, tmp_path: Path) -> None:
    newest, head = PartyLedger(home / LEDGER_FILE).head, PartyLedger(tmp_path / "older.db").head
    remove(home)
    with pytest.raises(UsageError, match=f"the last that was noted in .* is {newest}"):
        restore(tmp_path / "backup", home, head=None)
    with pytest.raises(LedgerError, match="entry 6 was in this ledger and is missing"):
        restore(tmp_path / "backup", home, head=head)
    restore(tmp_path / "backup", home, head=None, entries_lost=True)
    assert PartyLedger(home / LEDGER_FILE).totals()[0].queries == 2
    back_up(home, tmp_path / "elsewhere" / "later")
    remove(home)
    restored = restore(tmp_path / "elsewhere" / "later", home, head=head)
    assert restored["head"] == PartyLedger(home / LEDGER_FILE).head


def test_forget_goes_on_with_nothing_or_with_less(home: Path, tmp_path: Path) -> None:
    remove(home)
    shutil.copy(tmp_path / "older.db", home / LEDGER_FILE)
    with pytest.raises(UsageError, match="--entries-lost"):
        CliRunner().invoke(
            app, ["forget", "--home", str(home)], catch_exceptions=False, standalone_mode=False
        )
    told = CliRunner().invoke(app, ["forget", "--home", str(home), "--entries-lost", "--json"])
    assert told.exit_code == 0, told.output
    ledger = PartyLedger(home / LEDGER_FILE)
    assert ledger.totals()[0].queries == 2
    assert ledger.head in told.stdout
    remove(home)
    (home / "noise.db").write_bytes(b"of what is forgotten")
    forget(home)
    assert PartyLedger(home / LEDGER_FILE).totals() == ()
    with locked(home / "lock", "a pate-party"), pytest.raises(StateError, match="in use"):
        forget(home)
    with pytest.raises(StateError, match="there is no party"):
        forget(tmp_path / "nowhere")


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
