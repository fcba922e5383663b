"""The commands as real processes, for campaigns of the tests."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np

from benchmarks.soak.processes import DEADLINE_S, STOP_S, Program, children, is_alive, until
from pate.runtime.child import free_port
from simulation.datasets import digits, write_inputs, write_labelled

if TYPE_CHECKING:
    from pate.data.values import Dataset

__all__ = [
    "DEADLINE_S",
    "RECORDS",
    "STOP_S",
    "TEACHERS",
    "Campaign",
    "Program",
    "Sites",
    "children",
    "is_alive",
    "names_of",
    "until",
]

RECORDS = 120
TEACHERS = 3


def names_of(pid: int) -> bytes:
    """Return what a process is called: its command line, and the name that one that was forked took."""
    process = Path("/proc") / str(pid)
    return (process / "cmdline").read_bytes() + (process / "comm").read_bytes()


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
    #: Whether the server knows its port from `pate-server init`.
    is_enrolled: bool = False

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
            *(() if self.is_enrolled else ("--port", str(self.port))),
            "--student-port", str(self.student_port),
            "--home", str(self.home), "--linger", "0", "--json",
        )  # fmt: skip
