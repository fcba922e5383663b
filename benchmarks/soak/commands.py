"""The commands as forked processes: what takes seconds to import is imported once."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Mapping
    from multiprocessing.context import ForkServerContext
    from multiprocessing.process import BaseProcess

#: What the commands import sooner or later.
_PRELOADED: Final = (
    "__main__",
    "benchmarks.soak.direct",
    "benchmarks.soak.commands",
    "aggregator_server.cli.main",
    "aggregator_server.session",
    "party.cli.main",
    "party.session",
    "party.teachers.training",
    "party.teachers.linear",
    "pate.features.scattering",
    "student.session",
    "sklearn.linear_model",
)
DEADLINE_S: Final = 300.0
_POLL_S: Final = 0.02


def context() -> ForkServerContext:
    """Return how processes are made here: forked of one that has imported all and done nothing."""
    made = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload(list(_PRELOADED))
    return made


def until(condition: Callable[[], bool], what: str, deadline_s: float = DEADLINE_S) -> None:
    """Wait for a condition.

    Raises:
        TimeoutError: saying what was waited for.
    """
    deadline = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"after {deadline_s:.0f} s still not: {what}")
        time.sleep(_POLL_S)


class Command:
    """One command that runs in a process of its own.

    Args:
        log: gets what it prints: ``.out`` and ``.err`` are appended to the name.
        program: ``pate-server``, ``pate-party``, ``student`` or ``books``, see :func:`main`.
        arguments: its command line.
        failpoint: at which it dies; None: at none.
    """

    def __init__(
        self, log: Path, program: str, *arguments: str | Path, failpoint: str | None = None
    ) -> None:
        self.program = program
        self._out, self._err = log.with_suffix(".out"), log.with_suffix(".err")
        environment = {} if failpoint is None else {"PATE_FAILPOINT": failpoint}
        self.process: BaseProcess = context().Process(
            target=main,
            args=(program, list(map(str, arguments)), environment, self._out, self._err),
            daemon=True,
        )
        self.process.start()

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    @property
    def text(self) -> str:
        """What it has said so far on its standard error."""
        return self._err.read_text("utf-8", "replace") if self._err.exists() else ""

    @property
    def output(self) -> str:
        """What it has printed so far."""
        return self._out.read_text("utf-8", "replace") if self._out.exists() else ""

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @property
    def code(self) -> int | None:
        """How it ended, negative for a signal; None while it runs."""
        return self.process.exitcode

    def says(self, words: str, times: int = 1) -> None:
        """Wait until it has said these words."""

        def said() -> bool:
            if self.text.count(words) >= times:
                return True
            if self.code is not None and self.text.count(words) < times:
                raise AssertionError(f"{self.program} ended ({self.code}): {self.text}")
            return False

        until(said, f"{self.program} says {words!r}")

    def ends(self, *codes: int, deadline_s: float = DEADLINE_S) -> int:
        """Wait until it ends, and check how."""
        self.process.join(deadline_s)
        found = self.code
        if found is None:
            raise AssertionError(f"{self.program} still runs; it said:\n{self.text}")
        if found not in codes:
            raise AssertionError(f"{self.program} ended with {found}, not {codes}:\n{self.text}")
        return found

    def send(self, what: signal.Signals) -> None:
        """Send it a signal, if it runs still."""
        if self.code is None:
            os.kill(self.pid, what)

    def sweep(self) -> None:
        """End it, whatever state it is in."""
        if self.code is None:
            self.process.kill()
        self.process.join()
        self.process.close()


def main(
    program: str, arguments: list[str], environment: Mapping[str, str], out: Path, err: Path
) -> None:
    """Be one command: the main function of the forked process."""
    for fd, path in ((1, out), (2, err)):
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(handle, fd)
        os.close(handle)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False, buffering=1)
    for name in [name for name in os.environ if name == "PATE_FAILPOINT"]:
        del os.environ[name]
    os.environ.update(environment)
    from benchmarks.soak import direct

    direct.install()
    sys.argv = [program, *arguments]
    try:
        if program == "pate-server":
            from aggregator_server.cli.main import main as serve

            serve()
        elif program == "pate-party":
            from party.cli.main import main as take_part

            take_part()
        elif program == "books":
            from party.ledger.ledger import PartyLedger

            for book in arguments:
                PartyLedger(Path(book), read_only=True).verify()
        else:
            from benchmarks.soak.pupil import study

            study(*arguments)
    finally:
        sys.stdout.flush()
