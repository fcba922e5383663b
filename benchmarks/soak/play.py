"""One campaign of the real commands, its homes, and what must hold of it whatever was killed."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Final, Self

from aggregator_server.ledger.verify import read_campaign
from aggregator_server.results.report import LEDGER_FILE, verify
from benchmarks.soak.commands import Command
from pate.errors import StateError
from pate.runtime.child import free_port

if TYPE_CHECKING:
    from pathlib import Path

NAMES: Final = ("north", "south", "west")
TEACHERS: Final = 3
#: Options of the server by what a campaign is like.
KINDS: Final[dict[str, tuple[str, ...]]] = {
    "masked": ("--aggregator", "confident-gnmax", "--threshold", "5", "--sigma1", "2", "--sigma2", "1"),
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


@dataclass(frozen=True)
class Stand:
    """What a server's ledger says, after it was verified.

    Attributes:
        phase: of the campaign.
        kinds: of its entries, in order.
        digests: of its entries, in order.
        labels: by query.
        answers: queries and their labels in the order of release; None: it was given none.
        vain: charges without a release.
        spent: of the budget.
        wasted: of that, for answers that never came.
    """

    phase: str
    kinds: tuple[str, ...]
    digests: tuple[bytes, ...]
    labels: dict[int, int]
    answers: tuple[tuple[int, int | None], ...]
    vain: int
    spent: Fraction
    wasted: Fraction

    @classmethod
    def of(cls, place: Path) -> Self:
        """Verify a ledger and read it.

        Raises:
            AssertionError: if a charge was released twice, or a label was changed.
            PateError: if it does not hold.
        """
        told = verify(place, None)
        state, held = read_campaign(place / LEDGER_FILE)
        charges, labels = set[int](), dict[int, int]()
        answers = list[tuple[int, int | None]]()
        for entry in held:
            body = json.loads(entry.body)
            if entry.kind == "charge":
                charges.add(entry.seq)
            elif entry.kind == "release":
                assert body["charge"] in charges, "a release without a charge, or its second one"
                charges.remove(body["charge"])
                answers += [(query, label) for query, label, *_ in body.get("answers", ())]
        for query, label in state.labels.items():
            assert query not in labels, f"query {query} has two labels"
            labels[query] = label.label
        return cls(
            state.phase,
            tuple(entry.kind for entry in held),
            tuple(entry.digest for entry in held),
            labels,
            tuple(answers),
            len(charges),
            Fraction(str(told["spent"])),
            Fraction(str(told["wasted"])),
        )

    def follows(self, earlier: Stand) -> None:
        """Check that this ledger is the earlier one and maybe more.

        Raises:
            AssertionError: if anything that was durable is not there, or is another.
        """
        assert self.digests[: len(earlier.digests)] == earlier.digests, "entries were lost"
        assert earlier.labels.items() <= self.labels.items(), "a label was lost or changed"
        assert self.spent >= earlier.spent, "a charge was lost"


@dataclass
class Play:
    """A campaign: where it lies, and the commands that run for it.

    Attributes:
        folder: of the logs and the server's home.
        homes: a folder with the data and the home of each party.
        public: the public set.
        kind: one of :data:`KINDS`.
    """

    folder: Path
    homes: Path
    public: Path
    kind: str = "masked"
    port: int = field(default_factory=free_port)
    student_port: int = field(default_factory=free_port)
    commands: list[Command] = field(default_factory=list)

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
        for command in self.commands:
            command.sweep()

    def run(self, program: str, *arguments: str | Path, failpoint: str | None = None) -> Command:
        """Start a command."""
        log = self.folder / f"{program}-{len(self.commands)}"
        command = Command(log, program, *arguments, failpoint=failpoint)
        self.commands.append(command)
        return command

    def serve(self, *options: str | Path, failpoint: str | None = None) -> Command:
        """Start the campaign, or go on with it if there is a ledger."""
        program, *arguments = self.arguments()
        return self.run(program, *arguments, *options, failpoint=failpoint)

    def arguments(self) -> list[str]:
        """Return the server's command line."""
        if (self.place / LEDGER_FILE).exists():
            return ["pate-server", "resume", *self._doors()]
        return [
            "pate-server", "--public", str(self.public), "--parties", ",".join(NAMES),
            "--epsilon", "1000", "--delta", "1e-4", *self._doors(), *KINDS[self.kind],
        ]  # fmt: skip

    def party(self, name: str, *options: str | Path, failpoint: str | None = None) -> Command:
        """Start a party."""
        return self.run(
            "pate-party", "start", "--data", self.homes / "data" / name, "--model", "linear",
            "--server", f"127.0.0.1:{self.port}", "--teachers", str(TEACHERS),
            "--home", self.homes / name, "--json", *options, failpoint=failpoint,
        )  # fmt: skip

    def student(self) -> Command:
        """Start a student, see :mod:`benchmarks.soak.pupil`."""
        address = f"127.0.0.1:{self.student_port}"
        return self.run(
            "student",
            address,
            self.public,
            self.folder / "labels.json",
            self.home / "student.token",
        )

    def stand(self) -> Stand | None:
        """Return what the server's ledger says; None if there is none yet."""
        try:
            return Stand.of(self.place)
        except StateError:
            if (self.place / LEDGER_FILE).exists():
                raise
            return None

    def check_parties(self) -> None:
        """Check the ledgers of all parties.

        In a process of its own: the books grow with every campaign of a party, and whoever reads
        them grows with them.

        Raises:
            AssertionError: if one does not hold.
        """
        books = [self.homes / name / "ledger.db" for name in NAMES]
        self.run("books", *(path for path in books if path.exists())).ends(0)

    def _doors(self) -> tuple[str, ...]:
        return (
            "--port", str(self.port), "--student-port", str(self.student_port),
            "--home", str(self.home), "--linger", "30" if self.kind == "interactive" else "0",
            "--patience", "1", "--no-page", "--json",
        )  # fmt: skip
