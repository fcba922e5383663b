"""Processes that live as long as the soak, in which leaks accumulate.

The commands end with their campaign. A host is a process that runs the same code again and again: one is a
party in every campaign, with one voter and one ledger; the other is the server of the campaigns in which no
server is killed.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from typing import TYPE_CHECKING

from tests.support.world import direct
from tests.support.world.forked import context

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess
    from pathlib import Path


class Host:
    """A process that runs one task after another, each given by a list of arguments."""

    def __init__(self, kind: str, log: Path) -> None:
        self.kind = kind
        self._link, theirs = context().Pipe()
        self._process: BaseProcess = context().Process(
            target=_live, args=(kind, theirs, log), daemon=True
        )
        self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def begin(self, arguments: list[str]) -> None:
        """Start its next task."""
        self._link.send_bytes("\0".join(arguments).encode())

    def done(self, within: float) -> str:
        """Wait until the task has ended; return an empty text, or the failure.

        Raises:
            TimeoutError: if it has not.
        """
        if not self._link.poll(within):
            raise TimeoutError(f"the {self.kind} host still works after {within:.0f} s")
        return self._link.recv_bytes().decode()

    def end(self) -> None:
        self._link.close()
        self._process.join(20)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _live(kind: str, link: Connection, log: Path) -> None:
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for fd in (1, 2):
        os.dup2(handle, fd)
    sys.stdout = sys.stderr = os.fdopen(1, "w", encoding="utf-8", closefd=False, buffering=1)
    direct.install()
    task = _Server() if kind == "server" else _Party()
    while True:
        try:
            arguments = link.recv_bytes().decode().split("\0")
        except EOFError:
            return
        wrong = ""
        try:
            task.run(arguments)
        except Exception as error:  # noqa: BLE001 - the harness is told, and goes on
            wrong = f"{type(error).__name__}: {error}"
        gc.collect()
        # Logs are truncated: their thousand lines per campaign are not to be measured.
        os.ftruncate(handle, 0)
        os.lseek(handle, 0, os.SEEK_SET)
        link.send_bytes(wrong.encode())


class _Server:
    """Runs ``pate-server`` again and again."""

    def run(self, arguments: list[str]) -> None:
        from aggregator_server.cli.main import app

        with contextlib.suppress(SystemExit):
            app(arguments, prog_name="pate-server", standalone_mode=False)


class _Party:
    """Takes part with one voter in campaign after campaign: ``data home teachers server``."""

    def __init__(self) -> None:
        self._voter: object = None

    def run(self, arguments: list[str]) -> None:
        from pathlib import Path

        from party.flower.connection import Timeouts
        from party.flower.supernode import Server
        from party.voting.voter import Voter
        from pate.data.read import read_dataset
        from simulation.party import open_ensemble, open_voter

        data, place, teachers, server = arguments
        home = Path(place)
        if self._voter is None:
            records = read_dataset(Path(data))
            ensemble = open_ensemble(home, records, int(teachers), model="linear")
            self._voter = open_voter(home, ensemble)
        voter = self._voter
        assert isinstance(voter, Voter)
        voter.ending = voter.refusal = None
        connection = direct.DirectConnection(
            Server(server), voter.handle, home, timeouts=Timeouts(server=600)
        )
        connection.run(lambda: voter.ending is not None or voter.refusal is not None)
        if voter.refusal is not None:
            raise voter.refusal
