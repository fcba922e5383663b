"""The commands as forked processes, which share slow imports, and a student that does not train."""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import subprocess
import sys
from dataclasses import dataclass
from multiprocessing.connection import wait as wait_for
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import numpy as np

from pate.runtime import child, forked
from tests.support.processes.programs import Program

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from multiprocessing.connection import Connection
    from multiprocessing.context import ForkServerContext
    from multiprocessing.process import BaseProcess

    from numpy.typing import NDArray

    from pate.data.values import Inputs
    from student.lesson import Lesson, Student
    from student.session import Trainer

#: The command of each role.
_ROLES: Final = {
    "aggregator_server": "aggregator_server.cli.main",
    "party": "party.cli.main",
    "student": "student.cli",
    "simulation": "simulation.cli",
}


def context() -> ForkServerContext:
    """Return the process context: forks of a process that has imported everything and done nothing else."""
    made = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload(["__main__", "tests.support.world.preloaded"])
    return made


class Command(Program):
    """One command that runs in a forked process.

    ``arguments``: its command line.
    """

    _process: BaseProcess  # type: ignore[assignment]
    _ended: int | None = None

    def __init__(
        self,
        folder: Path,  # for files with its output
        name: str,  # in messages, and of those files
        module: str,  # a role's package, or ``study`` or ``ledgers``, see :func:`main`
        *arguments: str,
        failpoint: str | None = None,  # at which it is killed; None: none
        flower: bool = False,  # whether it connects over Flower; else over the direct link
    ) -> None:
        self._named(folder, name)
        self.log.touch()
        environment = {} if failpoint is None else {"PATE_FAILPOINT": failpoint}
        self._process = context().Process(
            target=main,
            args=(module, list(arguments), environment, self._out, self.log, flower),
            daemon=True,
        )
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def code(self) -> int | None:
        return self._process.exitcode if self._ended is None else self._ended

    def pause(self, seconds: float) -> None:
        self._process.join(seconds)

    def sweep(self) -> None:
        super().sweep()
        if self._ended is None:
            self._ended = self.code
            self._process.close()


def main(
    module: str,
    arguments: list[str],
    environment: Mapping[str, str],
    out: Path,
    err: Path,
    flower: bool,
) -> None:
    """Run one command: the main function of the forked process."""
    for fd, path in ((1, out), (2, err)):
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(handle, fd)
        os.close(handle)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False, buffering=1)
    for name in [name for name in os.environ if name.startswith("PATE_")]:
        del os.environ[name]
    os.environ.update(environment)
    sys.argv = [module, *arguments]
    sys.path.insert(0, "")  # as of any program: its own children leave out this entry
    if not flower:
        from tests.support.world import direct

        direct.install()
    try:
        if module == "study":
            study(*arguments)
        elif module == "ledgers":
            from party.ledger.ledger import PartyLedger

            for ledger in arguments:
                PartyLedger(Path(ledger), read_only=True).verify()
        else:
            importlib.import_module(_ROLES[module]).main()
    finally:
        sys.stdout.flush()


class ForkedElsewhere(forked.Forked):
    """A child of this process that the fork server forks: this process has threads, and may not."""

    def __init__(self, target: str) -> None:
        theirs, ours = multiprocessing.Pipe(duplex=False)
        self._process = context().Process(target=_become, args=(theirs, target), daemon=True)
        self._process.start()
        assert self._process.pid is not None
        with theirs, ours:
            super().__init__(self._process.pid, os.fdopen(os.dup(ours.fileno()), "wb", buffering=0))

    def poll(self) -> int | None:
        with self._lock:
            return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        wait_for([self._process.sentinel], timeout)
        if (code := self.poll()) is None:
            raise subprocess.TimeoutExpired([str(self.pid)], timeout or 0.0)
        return code


def _become(pipe: Connection, target: str) -> None:
    """Run a child of Flower: the main function of the forked process."""
    module, _, function = target.partition(":")
    run = getattr(importlib.import_module(module), function)
    sys.path.insert(0, "")  # as of any program

    def become_and_run() -> None:
        forked._become(pipe.fileno(), child._first_line)
        run()

    forked.through(become_and_run)


@contextlib.contextmanager
def children_forked() -> Iterator[None]:
    """Have the fork server fork the SuperLinks and SuperNodes of this process, which import for seconds."""
    true = forked.forked_ahead
    vars(forked)["forked_ahead"] = ForkedElsewhere
    try:
        yield
    finally:
        vars(forked)["forked_ahead"] = true


@dataclass(frozen=True)
class _Guess:
    """Predicts nearly uniform classes, varied slightly by the query's index."""

    classes: int

    def predict_probabilities(self, inputs: Inputs) -> NDArray[np.float32]:
        made = np.full((len(inputs), self.classes), 1.0, dtype=np.float64)
        made[np.arange(len(inputs)), np.arange(len(inputs)) % self.classes] += 0.5
        shares: NDArray[np.float32] = (made / made.sum(axis=1, keepdims=True)).astype(np.float32)
        return shares


def _train(lesson: Lesson, _number: int) -> Student:
    return cast("Student", _Guess(len(lesson.classes)))


def study(address: str, public: str, out: str, token: str) -> None:
    """Follow the campaign at ``address`` to its end, and write its labels to ``out``.

    ``address``: of the student's service; ``public``: path of the public set; ``out``: path of the
    labels; ``token``: path of the student's token, which exists once the server answers.
    """
    from pate.data.read import read_inputs
    from pate.runtime.home import read_token
    from student.client import StudentClient
    from student.session import follow, identify

    inputs = read_inputs(Path(public))
    trainer: Trainer = _train
    with StudentClient(address, identify(inputs), max_wait=600) as client:
        client.campaign()
        client.token = read_token(Path(token))
        labels = follow(client, inputs, trainer, say=lambda _: None)
    Path(out).write_text(labels.to_json(), encoding="utf-8")
