"""The commands as real processes, for campaigns of the tests."""

from __future__ import annotations

import re
import signal
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from simulation.commands import Commands
from simulation.programs import STOP_S, Program

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def signals_restored() -> Iterator[None]:
    """Restore this process's handlers after a command's own ``main`` was called in it."""
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    yield
    for each, handler in before.items():
        signal.signal(each, handler)


def names_of(pid: int) -> bytes:
    """Return what a process is called: its command line, and the name that one that was forked took."""
    process = Path("/proc") / str(pid)
    return (process / "cmdline").read_bytes() + (process / "comm").read_bytes()


def stopped(program: Program, command: str, how: signal.Signals) -> None:
    """Stop it at work, and check that it ends soon, says so in one line, and leaves no process."""
    assert program.family(), f"{program.name} has no child to leave behind"
    before = len(program.lines)
    program.send(how)
    program.ends(130, deadline_s=STOP_S)
    program.leaves_nobody()
    assert re.fullmatch(rf"{command}( [\w.-]+)?: stopped", program.lines[-1])
    # What it said on the way, if anything, was progress: lines that begin with the time.
    assert all(line[:2].isdecimal() for line in program.lines[before:-1]), program.text


@dataclass
class Campaign(Commands):
    """A campaign that has budget enough for all of a small public set."""

    def serve(
        self, public: Path, *options: str, parties: str, failpoint: str | None = None
    ) -> Program:
        """Start the server."""
        return self.run(
            "server", "aggregator_server", "--public", public, "--parties", parties,
            "--epsilon", "1000", "--delta", "1e-4", *self._doors(), *options,
            failpoint=failpoint,
        )  # fmt: skip

    def resume(self, *options: str, failpoint: str | None = None) -> Program:
        """Start it again."""
        return self.run(
            "server", "aggregator_server", "resume", *self._doors(), *options, failpoint=failpoint
        )

    def verified(self) -> dict[str, object]:
        """What ``pate-server ledger verify`` says of a ledger that holds."""
        program = self.run(
            "verify", "aggregator_server", "ledger", "verify", "--home", self.home, "--json"
        )
        program.ends(0)
        return program.result()

    def _doors(self) -> tuple[object, ...]:
        # A server that has enrolled its parties knows its port.
        port = () if self.is_enrolled else ("--port", self.port)
        return (
            *port, "--student-port", self.student_port, "--home", self.home, "--linger", "0", "--json",
        )  # fmt: skip
