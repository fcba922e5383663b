"""The commands as real processes: started, listened to, killed, and never left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np

from pate.commands.deal import digits, write_inputs, write_labelled
from pate.runtime.lifeline import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pate.data.values import Dataset

#: For whatever takes seconds on an idle machine.
DEADLINE_S = 120.0
#: For ending on request: its children have 8 seconds to end by themselves.
STOP_S = 20.0
RECORDS = 120
TEACHERS = 3


def until(condition: Callable[[], bool], what: str, deadline_s: float = DEADLINE_S) -> None:
    """Wait for a condition; what is waited for is part of the failure."""
    deadline = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < deadline, f"after {deadline_s:.0f} s still not: {what}"
        time.sleep(0.05)


def is_alive(pid: int) -> bool:
    """A process that has ended but was not reaped by its new parent counts as ended."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] not in "ZX"


def children(pid: int) -> list[int]:
    """Processes below ``pid``, at any depth."""
    below: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                status = (entry / "stat").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
            parent = int(status.rpartition(")")[2].split()[1])
            below.setdefault(parent, []).append(int(entry.name))
    found: list[int] = []
    waiting = [pid]
    while waiting:
        found += (direct := below.get(waiting.pop(), []))
        waiting += direct
    return found


class Program:
    """One command that runs: ``python -m module arguments``."""

    def __init__(
        self, folder: Path, name: str, command: Sequence[str], *, failpoint: str | None = None
    ) -> None:
        self.name = name
        number = len(list(folder.glob(f"{name}.*.err")))
        self._errors = folder / f"{name}.{number}.err"
        self._output = folder / f"{name}.{number}.out"
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PATE_")}
        environment["OMP_NUM_THREADS"] = "1"  # tiny data: threads would only wait for each other
        if failpoint is not None:
            environment["PATE_FAILPOINT"] = failpoint
        with self._errors.open("wb") as errors, self._output.open("wb") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, env=environment
            )
        self._family: set[int] = set()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def text(self) -> str:
        """What it has said on its standard error so far."""
        return self._errors.read_text(encoding="utf-8", errors="replace")

    @property
    def output(self) -> str:
        """What it has printed on its standard output so far."""
        return self._output.read_text(encoding="utf-8", errors="replace")

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    def family(self) -> set[int]:
        """Its children so far, those that have ended since included."""
        if self._process.poll() is None:
            self._family |= set(children(self.pid))
        return self._family

    def says(self, words: str, times: int = 1) -> None:
        """Wait until it has said these words."""

        def said() -> bool:
            if self.text.count(words) >= times:
                return True
            ended = self._process.poll()
            assert ended is None, (
                f"{self.name} ended ({ended}) and never said {words!r}:\n{self.text}"
            )
            return False

        until(said, f"{self.name} says {words!r}; it said:\n{self.text}")

    def ends(self, code: int, deadline_s: float = DEADLINE_S) -> None:
        """Wait until it ends by itself, with this exit code (of a signal: negative)."""
        deadline = time.monotonic() + deadline_s
        while (found := self._process.poll()) is None:
            self.family()  # whom it starts must be known before it ends
            assert time.monotonic() < deadline, f"{self.name} still runs:\n{self.text}"
            time.sleep(0.1)
        assert found == code, f"{self.name} ended with {found}, not {code}:\n{self.text}"

    def result(self) -> dict[str, object]:
        """The one JSON object that it printed."""
        found = json.loads(self._output.read_text())
        assert isinstance(found, dict)
        return found

    def send(self, number: signal.Signals) -> None:
        self.family()
        self._process.send_signal(number)

    def kill(self) -> None:
        """As ``kill -9``; only the process itself, as a kernel short of memory would."""
        self.send(signal.SIGKILL)
        self._process.wait()

    def stopped(self, command: str, how: signal.Signals) -> None:
        """Stop it at work, and check that it ends soon, says so in one line, and leaves nobody."""
        assert self.family(), f"{self.name} has no child to leave behind"
        before = len(self.lines)
        self.send(how)
        self.ends(130, STOP_S)
        self.leaves_nobody()
        assert self.lines[-1] == f"{command}: stopped"
        # What it said on the way, if anything, was progress: lines that begin with the time.
        assert all(line[:2].isdecimal() for line in self.lines[before:-1]), self.text

    def leaves_nobody(self) -> None:
        """Wait until none of its children runs."""
        family = self.family()
        until(lambda: not any(map(is_alive, family)), f"{self.name}'s children have ended")

    def sweep(self) -> None:
        """End it and all that it started, whatever state a failed test left it in."""
        family = self.family()
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        for pid in filter(is_alive, family):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


@dataclass
class Sites:
    """Data of parties, and homes in which their teachers lie once they are trained."""

    folder: Path
    records: Dataset
    names: tuple[str, ...] = ("north", "south", "west")

    @classmethod
    def make(cls, folder: Path, names: tuple[str, ...] = names) -> Self:
        """Deal disjoint records to the parties; what is left over is for public sets."""
        records = digits()
        order = np.random.default_rng(0).permutation(len(records))
        sites = cls(folder, records.take(order), names)
        for at, name in enumerate(sites.names):
            (folder / name).mkdir()
            rows = range(at * RECORDS, (at + 1) * RECORDS)
            write_labelled(folder / name / "records.npz", sites.records.take(rows))
        return sites

    def public(self, first: int, count: int) -> Path:
        """A public set; different numbers give sets that no party has votes for yet."""
        start = len(self.names) * RECORDS + first
        assert start + count <= len(self.records)
        rows = self.records.take(range(start, start + count))
        return write_inputs(self.folder / f"public-{first}-{count}", rows.inputs)

    def home(self, name: str) -> Path:
        return self.folder / "homes" / name


@dataclass
class Campaign:
    """One server, its parties, and the commands that started them."""

    folder: Path
    sites: Sites
    #: Goes before every command, to run it elsewhere.
    prefix: tuple[str, ...] = ()
    port: int = field(default_factory=free_port)
    student_port: int = field(default_factory=free_port)
    programs: list[Program] = field(default_factory=list)

    @property
    def home(self) -> Path:
        return self.folder / "server"

    @property
    def place(self) -> Path:
        """The campaign's folder in the server's home."""
        return self.home / "campaign"

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        for program in self.programs:
            program.sweep()

    def run(
        self, name: str, module: str, *arguments: str | Path, failpoint: str | None = None
    ) -> Program:
        """Start ``python -m module arguments``."""
        command = [*self.prefix, sys.executable, "-m", module, *map(str, arguments)]
        program = Program(self.folder, name, command, failpoint=failpoint)
        self.programs.append(program)
        return program

    def serve(
        self, public: Path, *options: str, parties: str, failpoint: str | None = None
    ) -> Program:
        """Start a campaign that has budget enough for all of a small public set."""
        return self.run(
            "server", "aggregator_server", "--public", public, "--parties", parties,
            "--epsilon", "1000", "--delta", "1e-4", *self._doors(), *options,
            failpoint=failpoint,
        )  # fmt: skip

    def resume(self, *options: str, failpoint: str | None = None) -> Program:
        return self.run(
            "server", "aggregator_server", "resume", *self._doors(), *options, failpoint=failpoint
        )

    def party(self, name: str, *options: str | Path, failpoint: str | None = None) -> Program:
        """Start one of the sites' parties."""
        return self.run(
            name, "party", "start", "--data", self.sites.folder / name, "--model", "linear",
            "--server", f"127.0.0.1:{self.port}", "--teachers", str(TEACHERS),
            "--home", self.sites.home(name), "--json", *options, failpoint=failpoint,
        )  # fmt: skip

    def enrolled_party(self, name: str, *, failpoint: str | None = None) -> Program:
        """Start a party that knows its server by its enrolment."""
        return self.run(
            name, "party", "start", "--data", self.sites.folder / name, "--model", "linear",
            "--teachers", str(TEACHERS), "--home", self.sites.home(name), "--json",
            failpoint=failpoint,
        )  # fmt: skip

    def verified(self) -> dict[str, object]:
        """What ``pate-server ledger verify`` says of a ledger that holds."""
        program = self.run(
            "verify", "aggregator_server", "ledger", "verify", "--home", self.home, "--json"
        )
        program.ends(0)
        return program.result()

    def _doors(self) -> tuple[str, ...]:
        return (
            "--port", str(self.port), "--student-port", str(self.student_port),
            "--home", str(self.home), "--linger", "0", "--json",
        )  # fmt: skip
