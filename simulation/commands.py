"""A campaign of the real commands on this machine: the parties' data and homes, and its processes."""

from __future__ import annotations

import contextlib
import io
import shutil
import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self

import numpy as np

from pate.errors import ProcessError
from pate.runtime.child import free_port, python
from simulation.datasets import digits, write_inputs, write_labelled
from simulation.programs import Program

if TYPE_CHECKING:
    from pathlib import Path

    import typer

    from pate.data.values import Dataset

#: Of each party.
RECORDS: Final = 120
TEACHERS: Final = 3


@dataclass(frozen=True)
class Sites:
    """Parties with disjoint parts of scikit-learn's digits.

    Attributes:
        folder: with ``data/NAME`` and ``homes/NAME`` of each party.
        names: of the parties.
        seed: of the order of the records.
    """

    folder: Path
    names: tuple[str, ...] = ("north", "south", "west")
    seed: int = 0

    def data(self, name: str) -> Path:
        """Return the folder with a party's records."""
        return self.folder / "data" / name

    def home(self, name: str) -> Path:
        """Return the home of a party."""
        return self.folder / "homes" / name

    def deal(self) -> Self:
        """Write each party's records."""
        records = self._records()
        for at, name in enumerate(self.names):
            self.data(name).mkdir(parents=True)
            rows = range(at * RECORDS, (at + 1) * RECORDS)
            write_labelled(self.data(name) / "records.npz", records.take(rows))
        return self

    def left(self) -> Dataset:
        """Return the records that no party has, for public sets."""
        records = self._records()
        return records.take(range(len(self.names) * RECORDS, len(records)))

    def public(self, first: int, count: int) -> Path:
        """Write a public set; each number gives a set that no party has votes for yet."""
        inputs = self.left().take(range(first, first + count)).inputs
        return write_inputs(self.folder / f"public-{first}-{count}", inputs)

    def copy(self, folder: Path, names: tuple[str, ...] | None = None) -> Sites:
        """Return these sites, or some of them, with separate homes and the same data."""
        made = Sites(folder, names or self.names, self.seed)
        (folder / "homes").mkdir(parents=True)
        (folder / "data").symlink_to((self.folder / "data").resolve())
        for name in made.names:
            shutil.copytree(self.home(name), made.home(name))
        return made

    def _records(self) -> Dataset:
        records = digits()
        return records.take(np.random.default_rng(self.seed).permutation(len(records)))


def lenient(roster: int, survivors: int) -> str:
    """Return the policy of an enrolled party that accepts a large epsilon.

    Args:
        roster: least number of parties.
        survivors: least number of those whose votes are summed.
    """
    return (
        'campaigns = "enrolled"\nlargest_epsilon = "none"\naggregation = ["masked"]\n'
        f"least_roster = {roster}\nleast_survivors = {survivors}\nleast_colluders = 0\n"
    )


def _do(app: typer.Typer, *arguments: object) -> None:
    with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.redirect_stderr(said):
        code = app(list(map(str, arguments)), standalone_mode=False)
    if code:
        raise ProcessError(f"{arguments[0]} ended with {code}: {said.getvalue()}")


@dataclass
class Commands:
    """One server, its parties, and their processes, all of which are ended.

    Attributes:
        folder: of the programs' output.
        sites: the parties.
        prefix: of every command, to run it elsewhere.
        port: of the server, for parties.
        student_port: of the server, for students.
        programs: in the order of their starts.
        is_enrolled: whether the server and its parties know each other.
    """

    folder: Path
    sites: Sites
    prefix: tuple[str, ...] = ()
    port: int = field(default_factory=free_port)
    student_port: int = field(default_factory=free_port)
    programs: list[Program] = field(default_factory=list)
    is_enrolled: bool = False

    @property
    def home(self) -> Path:
        """The server's home."""
        return self.folder / "server"

    @property
    def place(self) -> Path:
        """The campaign's folder in the server's home."""
        return self.home / "campaign"

    def __enter__(self) -> Self:
        """Make the folder."""
        self.folder.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        """End all running processes."""
        for program in self.programs:
            program.sweep()

    def enrol(self, policy: str, *hosts: str) -> None:
        """Make the server's identities and enrol each party with it, by the commands of both roles.

        They run in this process, since imports would take each of them seconds.

        Args:
            policy: of each party, TOML.
            hosts: under which the server is reached; none: loopback.

        Raises:
            PateError: if one of the commands fails.
        """
        from aggregator_server.cli.main import app as server
        from party.cli.main import app as party

        at = ("--home", self.home)
        named = [part for host in hosts for part in ("--host", host)]
        _do(server, "init", *named, "--port", self.port, *at)
        for name in self.sites.names:
            bundle, answer = self.folder / f"{name}.json", self.folder / f"{name}.answer"
            home = self.sites.home(name)
            _do(server, "enroll", name, "--out", bundle, *at)
            _do(party, "enroll", bundle, "--answer", answer, "--home", home)
            _do(server, "admit", answer, *at)
            (home / "policy.toml").write_text(policy, encoding="utf-8")
        self.is_enrolled = True

    def train(self) -> None:
        """Train the teachers of all parties concurrently.

        Raises:
            ProcessError: if one does not end as after a regular stop.
        """
        # There is no server yet: they train, and are stopped when they wait for it.
        for party in [self.party(name) for name in self.sites.names]:
            party.says("teachers are ready")
            party.send(signal.SIGTERM)
            party.ends(130)

    def run(
        self, name: str, module: str, *arguments: object, failpoint: str | None = None
    ) -> Program:
        """Start ``python -m module arguments``."""
        program = self._program(name, module, *arguments, failpoint=failpoint)
        self.programs.append(program)
        return program

    def _program(
        self, name: str, module: str, *arguments: object, failpoint: str | None
    ) -> Program:
        """Return the program of :meth:`run`; a kind of campaign may override it."""
        command = [*self.prefix, *python(module, *arguments)]
        return Program(self.folder, name, command, failpoint=failpoint)

    def party(self, name: str, *options: object, failpoint: str | None = None) -> Program:
        """Start a party; an enrolled one knows its server's address."""
        server = () if self.is_enrolled else ("--server", f"127.0.0.1:{self.port}")
        return self.run(
            name, "party", "start", "--data", self.sites.data(name), "--model", "linear",
            *server, "--teachers", TEACHERS, "--home", self.sites.home(name), "--json", *options,
            failpoint=failpoint,
        )  # fmt: skip
