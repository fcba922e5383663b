"""One campaign over Flower with TLS: a server and enrolled parties as real processes, and their homes."""

from __future__ import annotations

import random
import shutil
import socket
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from aggregator_server.results.report import LEDGER_FILE
from pate.runtime.child import python
from tests.support.processes.programs import Program, Surroundings, until
from tests.support.world.commands import KINDS, Commands, Direct
from tests.support.world.sites import Sites, lenient

#: Of a campaign the first three or all four.
NAMES: Final = ("east", "north", "south", "west")
#: Ports below the ephemeral range, so that none is taken while its server is down.
_DOORS: Final = range(20_000, 32_000)


@dataclass(frozen=True)
class Mode:
    """A kind of campaign over Flower."""

    weight: int  # its relative frequency
    queries: int  # of its public set
    charges: int  # that it makes at least, if nothing is lost
    # of the server, in addition to those of the kind of the same name
    options: tuple[str, ...] = ("--epsilon", "1000")


#: By the kinds of :data:`tests.support.world.commands.KINDS`.
MODES: Final = {
    "noisy": Mode(8, 1000, 16),
    "proved": Mode(5, 320, 5, ("--epsilon", "1000", "--colluders", "0")),
    "interactive": Mode(5, 300, 7, ("--epsilon", "10000", "--colluders", "0", "--rounds", "3")),
    "neighbour": Mode(3, 200, 1, ("--epsilon", "1000", "--colluders", "0")),
    "masked": Mode(3, 1000, 16, ("--epsilon", "1000", "--colluders", "0")),
    "gated": Mode(1, 200, 1, ("--colluders", "0")),
}


def free_parties_port() -> int:
    """Return a free port of loopback."""
    while True:
        port = random.SystemRandom().choice(_DOORS)
        with socket.socket() as client:
            try:
                client.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


@dataclass(frozen=True)
class Base:
    """Parties enrolled with a server, copied for every campaign."""

    sites: Sites  # of the parties, whose teachers are trained
    server: Path  # the home of the server

    @classmethod
    def make(cls, folder: Path) -> Self:
        """Split the data, enrol the parties and train their teachers, by the real commands."""
        sites = Sites(folder, NAMES).deal()
        # Forked, for imports would take most of their time: no fault comes as they train.
        with Direct(folder / "enrolment", sites) as commands:
            commands.enrol(lenient(3, 3))
            commands.train()
        return cls(sites, commands.home)


@dataclass
class Stage(Commands):
    """One campaign: its homes, and the processes that run for it."""

    port: int = field(default_factory=free_parties_port)
    student_port: int = field(default_factory=free_parties_port)
    public: Path = field(kw_only=True)  # the public set
    mode: str = field(kw_only=True)  # one of :data:`MODES`
    patience: float = field(kw_only=True)  # of the server, seconds
    # draws what differs between two starts of the same command
    chance: random.Random = field(kw_only=True)
    server: Program = field(init=False)  # its present process
    parties: dict[str, Program] = field(default_factory=dict)  # their present processes, by name
    student: Program | None = None  # its present process; None: the campaign needs none

    @classmethod
    def of(
        cls,
        base: Base,
        folder: Path,
        names: tuple[str, ...],
        *,
        public: Path,
        mode: str,
        patience: float,
        chance: random.Random,
    ) -> Self:
        """Return a campaign of some of the parties, not started yet."""
        sites = base.sites.copy(folder, names)
        shutil.copytree(base.server, folder / "server")
        for part in ("log", "tmp", "elsewhere"):
            (folder / part).mkdir()
        return cls(folder, sites, public=public, mode=mode, patience=patience, chance=chance)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the parties."""
        return self.sites.names

    @property
    def temporary(self) -> Path:
        """The TMPDIR of only this campaign's processes."""
        return self.folder / "tmp"

    # --- starting ----------------------------------------------------------------------------

    def begin(self) -> None:
        """Start all processes."""
        self.serve()
        for name in self.names:
            self.start(name)
        if self.mode == "interactive":
            self.server.says("pate-student train")
            self.study()

    def serve(self) -> None:
        """Start the server, or continue the campaign: by ``resume``, or by the same command."""
        doors = (
            "--port", self.port, "--student-port", self.student_port, "--home", self.home,
            "--patience", self.patience, "--no-page", "--json",
            *(("--linger", 60) if self.mode == "interactive" else ("--linger", 0)),
        )  # fmt: skip
        if self.stand() and self.chance.random() < 0.5:
            command = ["resume", *doors]
        else:
            command = [
                "--public", self.public, "--parties", ",".join(self.names), "--min-parties", 3,
                "--delta", "1e-4", *doors, *KINDS[self.mode], *MODES[self.mode].options,
            ]  # fmt: skip
        self.server = self.run("server", "aggregator_server", *command)

    def start(self, name: str) -> None:
        """Start a party; the same command continues a killed one."""
        self.parties[name] = self.party(name)

    def study(self) -> None:
        """Start the student."""
        token = self.home / "student.token"  # of a server that knows its own student
        self.student = self.run(
            "student", "student", "train", "--server", f"127.0.0.1:{self.student_port}",
            "--public", self.public, "--out", self.folder / "student", "--steps", 3,
            "--max-wait", 120, "--json", *(("--token-file", token) if token.exists() else ()),
        )  # fmt: skip

    def _program(
        self, name: str, module: str, *arguments: object, failpoint: str | None
    ) -> Program:
        """Return a program with a different hash seed, folder and umask each time."""
        return Program(
            self.folder / "log",
            name,
            python(module, *arguments),
            failpoint=failpoint,
            around=Surroundings(
                {
                    "TMPDIR": str(self.temporary),
                    "PYTHONHASHSEED": str(self.chance.randrange(2**32)),
                },
                self.chance.choice([None, self.folder / "elsewhere", self.folder.parent]),
                self.chance.choice([0, 0o022, 0o027, 0o077]),
            ),
        )

    # --- looking -----------------------------------------------------------------------------

    def progress(self) -> tuple[bool, int]:
        """Return whether the unmasking of a sum has begun, and the number of durable charges.

        It looks at the ledger's file only, which takes about a millisecond; nothing is verified.
        """
        path = self.place / LEDGER_FILE
        if not path.exists():
            return False, 0
        count = (
            "SELECT count(*) FILTER (WHERE kind = ?), count(*) FILTER (WHERE kind = ?) FROM entries"
        )
        try:
            with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=1)) as link:
                openings, charges = link.execute(count, ("opening", "charge")).fetchone()
        except sqlite3.Error:
            return False, 0  # it is being made, or set right after a kill
        return openings > 0, int(charges)

    def processes(self) -> list[int]:
        """Return all processes of this campaign."""
        mark, found = f"TMPDIR={self.temporary}\0".encode(), list[int]()
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                try:
                    if mark in (entry / "environ").read_bytes() + b"\0":
                        found.append(int(entry.name))
                except OSError:
                    continue  # it has ended, or belongs to another user
        return found

    def all_gone(self) -> None:
        """Wait until no process of this campaign is left."""
        until(lambda: not self.processes(), f"processes of {self.folder.name} have ended", 60)

    def doors_closed(self) -> None:
        """Check that no process listens on the campaign's ports."""
        for port in (self.port, self.student_port):
            with socket.socket() as client:
                assert client.connect_ex(("127.0.0.1", port)) != 0, f"port {port} is open still"

    def drafts(self) -> list[str]:
        """Return the temporary files of killed processes."""
        left = [*self.home.rglob(".*"), *(self.folder / "homes").rglob(".*")]
        left += [each for each in self.temporary.iterdir() if "torchinductor" not in each.name]
        left += list((self.folder / "elsewhere").iterdir())
        return [str(each.relative_to(self.folder)) for each in left]
