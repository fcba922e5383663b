"""One campaign of the real commands, its homes, and its invariants under any kill."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Final, Self

from aggregator_server.ledger.verify import read_campaign
from aggregator_server.results.report import LEDGER_FILE, verify
from benchmarks.soak.commands import Command
from pate.errors import StateError
from simulation.commands import Commands

if TYPE_CHECKING:
    from pathlib import Path

    from simulation.programs import Program

NAMES: Final = ("north", "south", "west")
#: Options of the server by kind of campaign.
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
    """The state of a verified server's ledger.

    Attributes:
        phase: of the campaign.
        kinds: of its entries, in order.
        digests: of its entries, in order.
        labels: by query.
        answers: queries and their labels in the order of release; None: no answer.
        vain: charges without a release.
        spent: of the budget.
        wasted: part of it for answers that were lost.
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
            PateError: if it does not verify.
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

    @classmethod
    def at(cls, place: Path) -> Self | None:
        """The same; None if there is no ledger yet."""
        try:
            return cls.of(place)
        except StateError:
            if (place / LEDGER_FILE).exists():
                raise
            return None

    def follows(self, earlier: Stand) -> None:
        """Check that this ledger extends the earlier one.

        Raises:
            AssertionError: if a durable entry is missing or changed.
        """
        assert self.digests[: len(earlier.digests)] == earlier.digests, "entries were lost"
        assert earlier.labels.items() <= self.labels.items(), "a label was lost or changed"
        assert self.spent >= earlier.spent, "a charge was lost"


@dataclass
class Play(Commands):
    """A campaign over the direct link, of forked commands.

    Attributes:
        public: the public set.
        kind: one of :data:`KINDS`.
    """

    public: Path = field(kw_only=True)
    kind: str = "masked"

    def _program(
        self, name: str, module: str, *arguments: object, failpoint: str | None
    ) -> Command:
        return Command(self.folder, name, module, *map(str, arguments), failpoint=failpoint)

    def serve(self, *options: object, failpoint: str | None = None) -> Program:
        """Start the campaign, or continue it if there is a ledger."""
        return self.run(
            "server", "aggregator_server", *self.arguments(), *options, failpoint=failpoint
        )

    def arguments(self) -> list[str]:
        """Return the server's command line."""
        doors = (
            "--port", self.port, "--student-port", self.student_port, "--home", self.home,
            "--linger", 30 if self.kind == "interactive" else 0, "--patience", 1, "--no-page",
            "--json",
        )  # fmt: skip
        return [
            "--public", str(self.public), "--parties", ",".join(NAMES),
            "--epsilon", "1000", "--delta", "1e-4", *map(str, doors), *KINDS[self.kind],
        ]  # fmt: skip

    def student(self) -> Program:
        """Start a student, see :mod:`benchmarks.soak.pupil`."""
        return self.run(
            "student", "student", f"127.0.0.1:{self.student_port}", self.public,
            self.folder / "labels.json", self.home / "student.token",
        )  # fmt: skip

    def stand(self) -> Stand | None:
        """Return what the server's ledger says; None if there is none yet."""
        return Stand.at(self.place)

    def check_parties(self) -> None:
        """Check the ledgers of all parties.

        In a separate process: a party's ledger grows with every campaign, and so does a reader's memory.

        Raises:
            ProcessError: if one does not verify.
        """
        ledgers = [self.sites.home(name) / "ledger.db" for name in NAMES]
        self.run("ledgers", "ledgers", *(path for path in ledgers if path.exists())).ends(0)
