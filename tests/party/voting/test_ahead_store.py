"""The file of a party's bundles and rounds: written once, secrets removed, nobody else's to read."""

from __future__ import annotations

import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from party.voting.ahead import AheadFile
from pate.errors import RefusedError, StateError
from pate.masking.ahead.store import Kind


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "bundles.db"


def test_entries_come_back_after_a_restart(path: Path) -> None:
    AheadFile(path).change({(Kind.BOUND, b"x1"): b"one", (Kind.BOUND, b"y"): b"two"})
    again = AheadFile(path)
    assert again.get(Kind.BOUND, b"x1") == b"one"
    assert again.get(Kind.NOTE, b"x1") is None
    assert again.find(Kind.BOUND, b"x") == {b"x1": b"one"}
    assert again.find(Kind.BOUND) == {b"x1": b"one", b"y": b"two"}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_an_entry_is_written_once_and_all_of_a_change_or_nothing(path: Path) -> None:
    file = AheadFile(path)
    file.change({(Kind.BOUND, b"x"): b"one"})
    file.change({(Kind.BOUND, b"x"): b"one", (Kind.NOTE, b"n"): b""})
    with pytest.raises(RefusedError, match="another entry"):
        file.change({(Kind.NOTE, b"m"): b"", (Kind.BOUND, b"x"): b"two"}, [(Kind.SHARES, b"s")])
    assert file.get(Kind.BOUND, b"x") == b"one"
    assert file.get(Kind.NOTE, b"m") is None
    assert file.get(Kind.NOTE, b"n") == b""


def test_secrets_are_removed_and_nothing_else_is(path: Path) -> None:
    file = AheadFile(path)
    file.change({(kind, b"k"): b"secret words" for kind in Kind})
    for kind in Kind:
        if kind in (Kind.UNUSED, Kind.SHARES, Kind.WAITING, Kind.MADE, Kind.ROSTER):
            file.change({}, [(kind, b"k")])
            assert file.get(kind, b"k") is None
            continue
        with pytest.raises(StateError):
            file.change({}, [(kind, b"k")])
        assert file.get(kind, b"k")
    with (
        closing(sqlite3.connect(path)) as db,
        db,
        pytest.raises(sqlite3.IntegrityError, match="kept"),
    ):
        db.execute("UPDATE entries SET value = x'00'")


def test_another_file_in_its_place(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"")
    with pytest.raises(StateError, match="damaged"):
        AheadFile(path)
    path.unlink()
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE entries (kind, key, value)")
    with pytest.raises(StateError, match="not a file of this kind"):
        AheadFile(path)
