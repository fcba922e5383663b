"""A missing or older ledger: no party continues with it unless told to explicitly."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from party.backup import back_up, forget, restore
from party.cli.main import app
from party.ledger.ledger import LEDGER_FILE, PartyLedger
from pate.errors import DiskError, LedgerError, StateError, UsageError
from pate.runtime.home import locked
from tests.support.party.offers import answer_and_open, joining, queries, settled

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
