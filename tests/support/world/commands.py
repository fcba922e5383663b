"""Campaigns of the real commands: over Flower, or as forked processes over the direct link."""

from __future__ import annotations

import contextlib
import io
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from aggregator_server.results.report import entries
from pate.errors import ProcessError
from pate.formats.labels import LabelSet
from pate.runtime.child import free_port, python
from tests.support.processes.programs import Program
from tests.support.world.forked import Command
from tests.support.world.sites import NAMES, TEACHERS, Sites
from tests.support.world.stand import Stand

if TYPE_CHECKING:
    from collections.abc import Iterator

    import typer

#: Options of the server by kind of campaign.
KINDS: Final[dict[str, tuple[str, ...]]] = {
    "masked": ("--aggregator", "confident-gnmax", "--threshold", "5", "--sigma1", "2", "--sigma2", "1"),
    "answered": ("--aggregator", "gnmax", "--sigma2", "1"),
    "plain": ("--aggregator", "gnmax", "--sigma2", "1", "--aggregation", "plain"),
    "proved": ("--aggregator", "gnmax", "--sigma2", "1", "--vote-proofs"),
    "noisy": ("--aggregator", "gnmax", "--sigma2", "1", "--noise", "distributed", "--colluders", "0"),
    "gated": (
        "--aggregator", "gnmax", "--sigma2", "2", "--publish", "gated", "--max-queries", "40",
        "--epsilon", "8",
    ),
    "neighbour": ("--aggregator", "neighbour", "--representatives", "4"),
    "interactive": (
        "--aggregator", "interactive-gnmax", "--threshold", "4", "--sigma1", "1", "--sigma2", "1/2",
        "--interactive-threshold", "3",
    ),
}  # fmt: skip


def _do(app: typer.Typer, *arguments: object) -> None:
    with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.redirect_stderr(said):
        code = app(list(map(str, arguments)), standalone_mode=False)
    if code:
        raise ProcessError(f"{arguments[0]} ended with {code}: {said.getvalue()}")


@dataclass
class Commands:
    """One server, its parties, and their processes, all of which are ended."""

    folder: Path  # of the programs' output
    sites: Sites  # the parties
    prefix: tuple[str, ...] = ()  # of every command, to run it elsewhere
    port: int = field(default_factory=free_port)  # of the server, for parties
    student_port: int = field(default_factory=free_port)  # of the server, for students
    programs: list[Program] = field(default_factory=list)  # in the order of their starts
    is_enrolled: bool = False  # whether the server and its parties know each other

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

        ``policy``: of each party, TOML; ``hosts``: under which the server is reached; none:
        loopback.
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
        """Train the teachers of all parties concurrently."""
        # There is no server yet: they train, and are stopped when they wait for it.
        for party in [self.party(name) for name in self.sites.names]:
            party.says("teachers are ready")
            party.send(signal.SIGTERM)
            party.ends(130)

    def stand(self) -> Stand | None:
        """Return what the server's ledger says; None if there is none yet."""
        return Stand.at(self.place)

    def run(
        self, name: str, module: str, *arguments: object, failpoint: str | None = None
    ) -> Program:
        """Start ``python -m module arguments``."""
        program = self._program(name, module, *arguments, failpoint=failpoint)
        self.programs.append(program)
        return program

    def does(self, name: str, module: str, *arguments: object) -> Program:
        """Run a command to its good end."""
        program = self.run(name, module, *arguments)
        program.ends(0)
        return program

    def body(self, kind: str) -> dict[str, Any]:
        """Return the one entry of a kind in the server's ledger."""
        return one_body(self.place, kind)

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


@dataclass
class Campaign(Commands):
    """A campaign over Flower that has budget enough for all of a small public set.

    Its commands are forked, as imports would take most of their time. With a prefix each is a new process.
    """

    def _program(
        self, name: str, module: str, *arguments: object, failpoint: str | None
    ) -> Program:
        if self.prefix:
            return super()._program(name, module, *arguments, failpoint=failpoint)
        words = map(str, arguments)
        return Command(self.folder, name, module, *words, failpoint=failpoint, flower=True)

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
        return self.does(
            "verify", "aggregator_server", "ledger", "verify", "--home", self.home, "--json"
        ).result()

    def exported(self) -> LabelSet:
        """Return the labels that a student receives."""
        file = self.folder / "labels.json"
        self.does("export", "aggregator_server", "export", "--out", file, "--home", self.home)
        return LabelSet.from_json(file.read_text())

    def verify_at(self, name: str, statement: str, code: int = 0) -> None:
        """Have a party compare a privacy statement with its own ledger; 22: it differs."""
        file = self.folder / "privacy.json"
        file.write_text(statement)
        home = self.sites.home(name)
        self.run("compares", "party", "verify", file, "--home", home).ends(code)

    def _doors(self) -> tuple[object, ...]:
        # A server that has enrolled its parties knows its port.
        port = () if self.is_enrolled else ("--port", self.port)
        return (
            *port, "--student-port", self.student_port, "--home", self.home, "--linger", "0", "--json",
        )  # fmt: skip


class Direct(Commands):
    """Over the direct link, of forked commands."""

    def _program(
        self, name: str, module: str, *arguments: object, failpoint: str | None
    ) -> Command:
        return Command(self.folder, name, module, *map(str, arguments), failpoint=failpoint)


class DirectCampaign(Direct, Campaign):
    """The same of a campaign with any options."""


@dataclass
class Play(Direct):
    """A campaign over the direct link."""

    public: Path = field(kw_only=True)  # the public set
    kind: str = "masked"  # one of :data:`KINDS`

    def serve(self, *options: object, failpoint: str | None = None) -> Program:
        """Start the campaign, or continue it if there is a ledger."""
        return self.run(
            "server", "aggregator_server", *self.arguments(), *options, failpoint=failpoint
        )

    def arguments(self) -> list[str]:
        """Return the server's command line."""
        linger = 30 if self.kind == "interactive" else 0
        stated = (
            "--public", self.public, "--parties", ",".join(NAMES), "--epsilon", 1000, "--delta", "1e-4",
            "--port", self.port, "--student-port", self.student_port, "--home", self.home,
            "--linger", linger, "--patience", 1, "--no-page", "--json", *KINDS[self.kind],
        )  # fmt: skip
        return list(map(str, stated))

    def student(self) -> Program:
        """Start a student, see :func:`tests.support.world.forked.study`."""
        return self.run(
            "student", "study", f"127.0.0.1:{self.student_port}", self.public,
            self.folder / "labels.json", self.home / "student.token",
        )  # fmt: skip

    def check_parties(self) -> None:
        """Check the ledgers of all parties.

        In a separate process: a party's ledger grows with every campaign, and so does a reader's memory.
        """
        ledgers = [self.sites.home(name) / "ledger.db" for name in NAMES]
        self.run("ledgers", "ledgers", *(path for path in ledgers if path.exists())).ends(0)


@dataclass(frozen=True)
class Homes:
    """Parties with trained teachers, which no campaign has seen: what campaigns start from."""

    sites: Sites
    names = NAMES

    @classmethod
    def make(cls, folder: Path) -> Self:
        """Deal the data and train the teachers."""
        sites = Sites(folder, NAMES).deal()
        with Play(folder / "training", sites, public=folder) as play:
            play.train()
        return cls(sites)

    def play(self, folder: Path, kind: str = "masked", queries: int = 100) -> Play:
        """Return a campaign that is still to be started, with homes of its own, and more than one charge."""
        sites = self.sites.copy(folder.parent / f"{folder.name}-sites")
        return Play(folder, sites, public=sites.public(0, queries), kind=kind)


def one_body(place: Path, kind: str) -> dict[str, Any]:
    """Return the one entry of a kind in the ledger of a campaign's folder."""
    (body,) = (each["body"] for each in entries(place) if each["kind"] == kind)
    assert isinstance(body, dict)
    return body


@contextlib.contextmanager
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
