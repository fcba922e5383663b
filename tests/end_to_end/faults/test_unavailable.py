"""A full disk and a locked ledger: one line and its own exit code, and no harm."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import sqlite3
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from aggregator_server.results.report import LEDGER_FILE
from pate.errors import DiskError, StateError, UnreachableError
from tests.support.needs import others_slow, require
from tests.support.processes.programs import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.world.commands import Homes, Play
    from tests.support.world.stand import Stand


_QUERIES = 100


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a megabyte and a half."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = os.geteuid() == 0 and not subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1536k", "pate-test", str(place)],
        check=False, capture_output=True,
    ).returncode  # fmt: skip
    require(mounted, "a file system of its own (root, and leave to mount)")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(disk: Path, leave: int) -> Path:
    """Fill a disk with a file, but for ``leave`` bytes."""
    ballast = disk / "ballast"
    while True:
        free = os.statvfs(disk)
        try:
            ballast.write_bytes(b"\0" * max(0, free.f_bavail * free.f_frsize - leave))
        except OSError as error:  # who is watched has written since, and less is free
            if error.errno != errno.ENOSPC:
                raise
            ballast.unlink()
        else:
            return ballast


@pytest.mark.parametrize(
    "leave", others_slow([0, 40, 120], lambda leave: leave == 40), ids="{} KiB left".format
)
def test_a_server_whose_disk_is_full(
    homes: Homes, tmp_path: Path, small_disk: Path, leave: int
) -> None:
    with homes.play(tmp_path / "campaign") as play:
        play.home.symlink_to(small_disk)
        ballast = fill(small_disk, leave * 1024)
        parties = [play.party(name) for name in homes.names]
        server = play.serve()
        server.ends(DiskError.exit_code)
        _says_it_in_one_line(server.lines)
        ballast.unlink()  # SQLite reads a log of writes with a file beside it
        before = play.stand()
        play.serve().ends(0)
        for party in parties:
            party.ends(0)
        _holds(play, before)


@pytest.mark.parametrize(
    ("words", "leave"),
    others_slow(
        [
            ("", 0), ("", 24), ("teachers are ready", 0), ("joined campaign", 20),
            ("received the public set", 0), ("voting on", 0),
        ],
        [("", 24), ("voting on", 0)].__contains__,
    ),
)  # fmt: skip
def test_a_party_whose_disk_is_full(
    homes: Homes, tmp_path: Path, small_disk: Path, words: str, leave: int
) -> None:
    """From the start, or from what it says on: every write is complete or absent, and it continues there."""
    with homes.play(tmp_path / "campaign", "noisy") as play:
        home = play.sites.home("west")
        subprocess.run(["cp", "-a", f"{home}/.", str(small_disk)], check=True)
        home.rename(play.sites.home("west.moved"))
        home.symlink_to(small_disk)
        ballast = None if words else fill(small_disk, leave * 1024)
        server = play.serve()
        others = [play.party(name) for name in homes.names if name != "west"]
        west = play.party("west")
        if words:
            west.says(words)
        ballast = ballast or fill(small_disk, leave * 1024)
        # It ends, or was through before anything more had to be written.
        until(lambda: west.code is not None or server.code is not None, "west or the server ends")
        may = (0, DiskError.exit_code, UnreachableError.exit_code)
        stuck = west.ends(*(may if words else may[1:2]))
        if stuck == DiskError.exit_code:
            _says_it_in_one_line(west.lines)
        ballast.unlink()
        again = [play.party("west", "--max-wait", "60")] if stuck == DiskError.exit_code else []
        # All three are needed, and the server waits for the one that has to make room.
        server.ends(0)
        for party in again:
            party.ends(0, UnreachableError.exit_code)
        for party in others:
            party.ends(0)
        _holds(play, None)
        assert not [draft for draft in small_disk.iterdir() if draft.name.startswith(".")]


def _says_it_in_one_line(lines: list[str]) -> None:
    """All but the last are progress, which begins with the time of day."""
    *progress, last = lines
    assert re.match(r"pate-(server|party( [a-z_]+)?): ", last)
    assert all(line[:2].isdecimal() for line in progress), lines


def _holds(play: Play, before: Stand | None) -> None:
    end = play.stand()
    assert end is not None
    assert end.phase == "finished"
    assert len(end.labels) > 10
    assert end.vain <= 1
    if before is not None:
        end.follows(before)
    play.check_parties()


@contextlib.contextmanager
def held(path: Path) -> Iterator[sqlite3.Connection]:
    """Hold the write lock of a SQLite file, as some backup programs do."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as link:
        link.execute("BEGIN IMMEDIATE")
        yield link
        link.execute("ROLLBACK")


def test_a_second_server_is_refused_and_a_reader_is_not(homes: Homes, tmp_path: Path) -> None:
    with homes.play(tmp_path / "campaign") as play:
        server = play.serve()
        server.says("waiting for parties")
        began = time.monotonic()
        second = play.serve("--port", "0")
        second.ends(StateError.exit_code)
        assert "in use by another server" in second.lines[-1]
        # At once: the lock of the file is not waited for, as a busy database would be.
        assert time.monotonic() - began < 60
        for reading in (("status",), ("ledger", "verify")):
            shown = play.does(
                "server", "aggregator_server", *reading, "--json", "--home", play.home
            )
            assert json.loads(shown.output)["phase"] == "gathering"
        parties = [play.party(name) for name in homes.names]
        for command in (server, *parties):
            command.ends(0)


@pytest.mark.slow
def test_a_lock_that_is_held_for_a_while_is_waited_for(homes: Homes, tmp_path: Path) -> None:
    with homes.play(tmp_path / "campaign") as play:
        server = play.serve()
        server.says("waiting for parties")
        with held(play.place / LEDGER_FILE):
            parties = [play.party(name) for name in homes.names]
            for name in homes.names:
                server.says(f"{name} joined")
            # The roster is to be written now, and cannot be.
            status = play.does(
                "server", "aggregator_server", "status", "--json", "--home", play.home
            )
            assert json.loads(status.output)["phase"] == "gathering"
            assert "roster is complete" not in server.text
        for command in (server, *parties):
            command.ends(0)
        end = play.stand()
        assert end is not None
        assert end.vain == 0


def test_a_lock_that_stays_ends_the_server_in_one_line(homes: Homes, tmp_path: Path) -> None:
    with homes.play(tmp_path / "campaign") as play:
        server = play.serve()
        server.says("waiting for parties")
        with held(play.place / LEDGER_FILE):
            parties = [play.party(name) for name in homes.names]
            server.ends(StateError.exit_code)
        *progress, last = server.lines
        assert last.startswith("pate-server: ")
        assert "in use by another process" in last
        assert all(line[:2].isdecimal() for line in progress)
        for command in (play.serve(), *parties):
            command.ends(0)


@pytest.mark.slow
def test_a_partys_ledger_that_is_held_for_a_while(homes: Homes, tmp_path: Path) -> None:
    with homes.play(tmp_path / "campaign") as play:
        server = play.serve()
        server.says("waiting for parties")
        others = [play.party(name) for name in homes.names if name != "west"]
        west = play.party("west")
        server.says("west joined")
        path = play.sites.home("west") / "ledger.db"
        with held(path):
            # Another reads it meanwhile, as `pate-party ledger` does.
            play.does("party", "party", "ledger", "--json", "--home", path.parent)
        for command in (server, west, *others):
            command.ends(0)
        play.check_parties()
