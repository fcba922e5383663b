"""Commands as real processes: started, read, killed, and always cleaned up."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from pate.errors import ProcessError
from pate.foreign import json_value
from pate.runtime.child import python, python_environment
from pate.runtime.log import LOG
from pate.runtime.screen import EVERY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pate.runtime.screen import Roles, Screen

#: Deadline for ending on request: children have 8 seconds to end by themselves.
STOP_S: Final = 20.0
_POLL_S: Final = 0.05
_HERE: Final = "127.0.0.1"
#: A progress line, as printed by :meth:`pate.runtime.screen.Screen.bar`.
_PROGRESS: Final = re.compile(r"(.+): (\d+) (?:of (\d+)|%)(, about .+ left)?")
_STAMP: Final = re.compile(r"^\d\d:\d\d:\d\d [\w-]+(?: [\w.-]+)?: ")


def is_alive(pid: int) -> bool:
    """Return whether a process runs; an unreaped process that has ended does not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] not in "ZX"


def children(pid: int) -> list[int]:
    """Return the processes below ``pid``, at any depth."""
    below: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                status = (entry / "stat").read_text(encoding="utf-8")
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
    """One running command; ``name`` is in messages, and of the files with its output."""

    _process: subprocess.Popen[bytes]

    def __init__(
        self,
        folder: Path,  # for its output, in files named after it
        name: str,
        command: Sequence[str],
        variables: Mapping[str, str],  # of its environment, besides those of this process
        **surroundings: Any,  # as of Popen
    ) -> None:
        """Start it, without this process's own settings (PATE_...)."""
        self._named(folder, name)
        environment = python_environment()
        environment = {k: v for k, v in environment.items() if not k.startswith("PATE_")}
        # All share this machine: contending threads would slow down everything.
        environment |= {"OMP_NUM_THREADS": "1", **variables}
        with self.log.open("wb") as errors, self._out.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                env=environment,
                **surroundings,
            )

    def _named(self, folder: Path, name: str) -> None:
        """Choose the files of its output."""
        self.name, self.log = name, folder / f"{name}.log"
        self._out = self.log.with_suffix(".out")
        self._family: set[int] = set()

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    @property
    def code(self) -> int | None:
        """How it ended, negative for a signal; None while it runs."""
        return self._process.poll()

    @property
    def text(self) -> str:
        """Its standard error so far."""
        return _read(self.log)

    @property
    def lines(self) -> list[str]:
        """The same, by line."""
        return self.text.splitlines()

    @property
    def output(self) -> str:
        """Its standard output so far."""
        return _read(self._out)

    def result(self) -> dict[str, object]:
        """Return the one JSON object that it printed; empty if it printed nothing."""
        try:
            found = json_value(self.output or "{}")
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise ProcessError(
                f"{self.name} printed something that is not its result (see {self.log})"
            )
        return found

    def family(self) -> set[int]:
        """Return its children so far, including those that have ended."""
        if self.code is None:
            self._family |= set(children(self.pid))
        return self._family

    def pause(self, seconds: float) -> None:
        """Wait until it ends, at most this many seconds."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)

    def send(self, number: signal.Signals) -> None:
        """Send it a signal if it still runs."""
        self.family()
        if self.code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL only to the process itself, as the kernel does when out of memory."""
        self.send(signal.SIGKILL)
        while self.code is None:
            self.pause(1.0)

    def sweep(self) -> None:
        """Stop it and its children, in any state."""
        self.kill()
        for pid in filter(is_alive, self._family):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


class Programs:
    """The programs of a demonstration, started together, shown line by line, stopped together.

    Standard error goes to the screen, on a terminal a live line each but for ``tellers``, and to ``logs``;
    standard output is one JSON object. When one fails all are stopped. Use it as a context manager.
    """

    def __init__(self, screen: Screen, logs: Path, *, tellers: Sequence[str] = ()) -> None:
        self._screen, self._logs, self._tellers = screen, logs, tellers
        self._roles: dict[str, Program] = {}
        self._shown: dict[str, int] = {}
        self._display = contextlib.ExitStack()
        self._lines: Roles | None = None

    def __enter__(self) -> Self:
        """Show the programs' progress."""
        self._lines = self._display.enter_context(self._screen.roles())
        return self

    def __exit__(self, *_: object) -> None:
        """Stop them all."""
        try:
            for role in self._roles.values():
                role.send(signal.SIGTERM)
            deadline = time.monotonic() + STOP_S
            for role in self._roles.values():
                role.pause(max(0.0, deadline - time.monotonic()))
                role.sweep()
                self._show(role)
        finally:
            self._display.close()

    def start(self, name: str, module: str, *arguments: object) -> None:
        """Start ``python -m module arguments`` under a name."""
        # Their output is parsed here as text lines, and printed again in the requested format.
        variables = {LOG: "lines"} | ({EVERY: "1"} if self._lines else {})
        self._roles[name] = Program(self._logs, name, python(module, *arguments), variables)
        self._shown[name] = 0
        if self._lines:
            self._lines.say(name, "starting")

    def wait(self, *names: str) -> dict[str, dict[str, object]]:
        """Wait until these roles have ended successfully, and return their results by name."""
        while any(self._roles[name].code is None for name in names):
            self._require_well()
            time.sleep(_POLL_S)
        self._require_well()
        return {name: self._roles[name].result() for name in names}

    def wait_for_port(self, port: int) -> None:
        """Wait until one of the roles listens on a port of this machine."""
        while True:
            with contextlib.suppress(OSError), socket.create_connection((_HERE, port), _POLL_S):
                return
            self._require_well()
            time.sleep(_POLL_S)

    def _require_well(self) -> None:
        for role in self._roles.values():
            code = role.code
            self._show(role)
            if code:
                said = [_STAMP.sub("", line) for line in role.lines if line.strip()]
                last = said[-1] if said else "it said nothing"
                raise ProcessError(
                    f"{role.name} ended with exit code {code}: {last} (see {role.log})"
                )

    def _show(self, role: Program) -> None:
        """Show the new lines of a role's output."""
        with role.log.open("rb") as log:
            log.seek(self._shown[role.name])
            whole, end, _ = log.read().rpartition(b"\n")
        self._shown[role.name] += len(whole + end)
        for line in whole.decode("utf-8", "replace").splitlines():
            text = _STAMP.sub("", line.rstrip())
            done = _PROGRESS.fullmatch(text)
            if done and self._lines:
                of, timed = int(done[3] or 100), done[4] is not None
                self._lines.move(role.name, done[1], int(done[2]), of, timed=timed)
                continue
            if text and self._lines:
                self._lines.say(role.name, text)
            if text and (not self._lines or role.name in self._tellers):
                self._screen.say(f"{role.name:<11} {text}")
