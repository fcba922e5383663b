"""Child processes of a demonstration: started together, heard line by line, stopped together."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from pate.errors import ProcessError
from pate.runtime.log import LOG
from pate.runtime.screen import EVERY

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pate.runtime.screen import Screen

_PROGRESS = re.compile(r"(.+): (\d+) of (\d+)")
_STAMP = re.compile(r"^\d\d:\d\d:\d\d [\w-]+: ")
_STOP_S = 10.0
_POLL_S = 0.1
_HERE = "127.0.0.1"


@dataclass
class _Role:
    name: str
    process: subprocess.Popen[str]
    log: Path
    lines: list[str] = field(default_factory=list)
    output: list[str] = field(default_factory=list)
    readers: list[threading.Thread] = field(default_factory=list)


class Cast:
    """The processes of one demonstration.

    Each role's standard error goes to the screen under its name and to a log file; its standard
    output is its result, one JSON object. When one fails all are stopped.
    """

    def __init__(self, screen: Screen, logs: Path) -> None:
        self._screen = screen
        self._logs = logs
        self._roles: dict[str, _Role] = {}
        self._shown = contextlib.ExitStack()
        self._move: Callable[[str, int, int], None] | None = None

    def __enter__(self) -> Self:
        self._move = self._shown.enter_context(self._screen.bars())
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._stop()
        finally:
            self._shown.close()

    def _stop(self) -> None:
        running = [role for role in self._roles.values() if role.process.poll() is None]
        for role in running:
            role.process.terminate()
        deadline = time.monotonic() + _STOP_S
        for role in running:
            try:
                role.process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                role.process.kill()
                role.process.wait()

    def start(self, name: str, module: str, *arguments: str) -> None:
        """Start ``python -m module arguments`` under a name.

        Mathematical libraries get one thread each: the roles share this machine, and threads
        that wait for one another on busy cores make everything slower.
        """
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # What they say is read here as lines, in whichever form it is then said again.
            env={**os.environ, LOG: "lines", "OMP_NUM_THREADS": "1"}
            | ({EVERY: "0.3"} if self._move else {}),
        )
        role = _Role(name, process, self._logs / f"{name}.log")
        self._roles[name] = role
        for read in (self._hear, self._collect):
            reader = threading.Thread(target=read, args=(role,), daemon=True)
            reader.start()
            role.readers.append(reader)

    def wait(self, *names: str) -> dict[str, dict[str, object]]:
        """Wait until these roles have ended well, and return their results by name.

        Raises:
            ProcessError: as soon as any role has failed.
        """
        while any(self._roles[name].process.poll() is None for name in names):
            self._require_well()
            time.sleep(_POLL_S)
        self._require_well()
        return {name: self._result(self._roles[name]) for name in names}

    def wait_for_door(self, port: int) -> None:
        """Wait until one of the roles listens on a port of this machine.

        Raises:
            ProcessError: as soon as any role has failed.
        """
        while True:
            with contextlib.suppress(OSError), socket.create_connection((_HERE, port), _POLL_S):
                return
            self._require_well()
            time.sleep(_POLL_S)

    def _require_well(self) -> None:
        for role in self._roles.values():
            code = role.process.poll()
            if code:
                for reader in role.readers:
                    reader.join()
                last = role.lines[-1] if role.lines else "it said nothing"
                raise ProcessError(
                    f"{role.name} ended with exit code {code}: {last} (see {role.log})"
                )

    def _result(self, role: _Role) -> dict[str, object]:
        for reader in role.readers:
            reader.join()
        text = "".join(role.output)
        if not text.strip():
            return {}
        found = json.loads(text)
        if not isinstance(found, dict):
            raise ProcessError(
                f"{role.name} printed something that is not its result (see {role.log})"
            )
        return found

    def _hear(self, role: _Role) -> None:
        assert role.process.stderr is not None  # noqa: S101 - asked for with PIPE
        with role.log.open("w", encoding="utf-8") as log:
            for line in role.process.stderr:
                log.write(line)
                log.flush()
                text = _STAMP.sub("", line.rstrip())
                done = _PROGRESS.fullmatch(text)
                if done and self._move:
                    self._move(f"{role.name:<11} {done[1]}", int(done[2]), int(done[3]))
                elif text:
                    role.lines.append(text)
                    self._screen.say(f"{role.name:<11} {text}")

    def _collect(self, role: _Role) -> None:
        assert role.process.stdout is not None  # noqa: S101 - asked for with PIPE
        role.output.extend(role.process.stdout)
