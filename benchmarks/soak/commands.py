"""Runs the commands as forked processes, which share slow imports."""

from __future__ import annotations

import multiprocessing
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from simulation.programs import Program

if TYPE_CHECKING:
    from collections.abc import Mapping
    from multiprocessing.context import ForkServerContext
    from multiprocessing.process import BaseProcess

#: Modules that the commands import.
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


def context() -> ForkServerContext:
    """Return the process context: forks of a process that has imported everything and done nothing else."""
    made = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload(list(_PRELOADED))
    return made


class Command(Program):
    """One command that runs in a forked process.

    Args:
        folder: for files with its output.
        name: in messages, and of those files.
        module: ``aggregator_server``, ``party``, ``student`` or ``ledgers``, see :func:`main`.
        arguments: its command line.
        failpoint: at which it is killed; None: none.
    """

    _process: BaseProcess  # type: ignore[assignment]

    def __init__(
        self, folder: Path, name: str, module: str, *arguments: str, failpoint: str | None = None
    ) -> None:
        self._named(folder, name)
        self.log.touch()
        environment = {} if failpoint is None else {"PATE_FAILPOINT": failpoint}
        self._process = context().Process(
            target=main,
            args=(module, list(arguments), environment, self._out, self.log),
            daemon=True,
        )
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def code(self) -> int | None:
        return self._process.exitcode

    def pause(self, seconds: float) -> None:
        self._process.join(seconds)

    def sweep(self) -> None:
        super().sweep()
        self._process.close()


def main(
    module: str, arguments: list[str], environment: Mapping[str, str], out: Path, err: Path
) -> None:
    """Run one command: the main function of the forked process."""
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
    sys.argv = [module, *arguments]
    try:
        if module == "aggregator_server":
            from aggregator_server.cli.main import main as serve

            serve()
        elif module == "party":
            from party.cli.main import main as take_part

            take_part()
        elif module == "ledgers":
            from party.ledger.ledger import PartyLedger

            for ledger in arguments:
                PartyLedger(Path(ledger), read_only=True).verify()
        else:
            from benchmarks.soak.pupil import study

            study(*arguments)
    finally:
        sys.stdout.flush()
