"""Concurrent use of the ledger: a second server is refused, readers and backups are harmless."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
from typing import TYPE_CHECKING

import pytest

from aggregator_server.results.report import LEDGER_FILE
from pate.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.world.commands import Homes


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
