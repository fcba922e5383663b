"""Commands as real processes: started, listened to, killed, and never left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

#: For whatever takes seconds on an idle machine.
DEADLINE_S: Final = 120.0
#: For ending on request: its children have 8 seconds to end by themselves.
STOP_S: Final = 20.0


@dataclass(frozen=True)
class Surroundings:
    """What may differ between two starts of the same command.

    Attributes:
        variables: of the environment, beside those of this process.
        folder: where it works; None: here.
        umask: of it; -1: that of this process.
    """

    variables: Mapping[str, str] = field(default_factory=dict)
    folder: Path | None = None
    umask: int = -1


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
    """One command that runs.

    Args:
        folder: gets what it prints, in files named after it.
        name: in messages, and of those files.
        command: its command line.
        failpoint: at which it dies; None: at none.
        around: what it finds when it starts.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        command: Sequence[str],
        *,
        failpoint: str | None = None,
        around: Surroundings | None = None,
    ) -> None:
        around = around or Surroundings()
        self.name = name
        number = len(list(folder.glob(f"{name}.*.err")))
        self._errors = folder / f"{name}.{number}.err"
        self._output = folder / f"{name}.{number}.out"
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PATE_")}
        environment["OMP_NUM_THREADS"] = "1"  # tiny data: threads would only wait for each other
        if failpoint is not None:
            environment["PATE_FAILPOINT"] = failpoint
        environment.update(around.variables)
        with self._errors.open("wb") as errors, self._output.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                env=environment,
                cwd=around.folder,
                umask=around.umask,
            )
        self._family: set[int] = set()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def code(self) -> int | None:
        """How it ended, negative for a signal; None while it runs."""
        return self._process.poll()

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
