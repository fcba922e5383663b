"""Invalid votes inside the masked sum, by an enrolled party: effects on sum, ledger and labels.

The three others and the server are real processes. The fourth party keeps to the protocol but for
what it masks. docs/threat-model.md, *Bad votes*, has what is promised: nothing that it sends makes
the others' records less private, costs more than was charged, or comes out where a check must fail.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pytest

from aggregator_server.ledger.ledger import Ledger
from aggregator_server.results.report import LEDGER_FILE, entries
from pate.errors import ProtocolError
from pate.masking.party import PartyMasking
from simulation.commands import TEACHERS
from tests.end_to_end.test_misbehaving_party import QUERIES, Rogue
from tests.support.processes.homes import Homes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from benchmarks.soak.play import Play, Stand
    from simulation.programs import Program

ROGUE: Final = "rogue"
CLASSES: Final = 10
CELLS: Final = QUERIES * CLASSES
EVERYBODY: Final = ("north", ROGUE, "south", "west")
NO_VOTES: Final = "One of them sent invalid votes, and no label is released"
#: Rows of votes, (queries, classes), to be changed in place.
Twist: TypeAlias = Callable[["NDArray[np.int64]"], None]


def moved(votes: NDArray[np.int64]) -> None:
    """One vote of each row from the first class, which has those of the rogue, to the second."""
    votes[:, 1] += 1
    votes[:, 0] -= 1


def negative(votes: NDArray[np.int64]) -> None:
    """A row's total is as it should be, and no count of it."""
    votes[:, 1] += 100
    votes[:, -1] -= 100


def huge(votes: NDArray[np.int64]) -> None:
    """As many votes as a party could have if it had a million teachers."""
    votes[:, 1] += 1_000_000


def honest(votes: NDArray[np.int64]) -> None:
    """As its teachers voted."""


@dataclass
class Twisted:
    """Masks other votes than those of its teachers, in whatever :data:`ROGUE` sends of this process.

    Attributes:
        twist: of its votes.
        again: is sent instead, if there is any.
        sent: what it masked so far.
    """

    twist: Twist = honest
    again: bytes = b""
    sent: list[bytes] = field(default_factory=list)

    def install(self, patch: pytest.MonkeyPatch) -> None:
        mask, send = PartyMasking._masked, PartyMasking.mask

        def masked(this: PartyMasking, announced: Any, peers: Any, values: Any) -> bytes:
            assert this.name == ROGUE
            values = values.copy()
            # What follows the votes, if they are proved, links them to their proof.
            self.twist(values.reshape(-1)[:CELLS].reshape(QUERIES, CLASSES))
            return mask(this, announced, peers, values)

        def whole(this: PartyMasking, boxes: Any, values: Any) -> bytes:
            self.sent.append(send(this, boxes, values))
            return self.again or self.sent[-1]

        patch.setattr(PartyMasking, "_masked", masked)
        patch.setattr(PartyMasking, "mask", whole)


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Homes:
    return Homes.make(tmp_path_factory.mktemp("dealt"), QUERIES)


@dataclass
class Table:
    """A campaign with the rogue at it; ``options`` are those of its command."""

    play: Play
    options: tuple[str, ...]
    server: Program
    parties: list[Program]
    rogue: Rogue

    def again(self) -> None:
        """Continue the campaign by the same command."""
        self.server = self.play.serve(*self.options)

    @property
    def stand(self) -> Stand:
        found = self.play.stand()
        assert found is not None
        return found

    def refused(self, words: str) -> None:
        """Check that no label left, nothing was charged, and all ledgers hold."""
        self.server.ends(ProtocolError.exit_code)
        assert words in self.server.lines[-1], self.server.text
        assert "Traceback" not in self.server.text
        stand = self.stand
        assert not {"votes", "charge", "release"} & set(stand.kinds)
        assert stand.spent == 0
        assert not stand.labels
        self.play.check_parties()

    def finished(self, responders: tuple[str, ...]) -> None:
        """Check that the campaign ended in order, with these parties in the sum."""
        for program in (self.server, *self.parties):
            program.ends(0)
        (votes,) = (each["body"] for each in entries(self.play.place) if each["kind"] == "votes")
        assert isinstance(votes, dict)
        assert tuple(votes["responders"]) == responders
        stand = self.stand
        assert stand.phase == "finished"
        assert stand.kinds.count("charge") == stand.kinds.count("release") == 1
        assert len(stand.answers) == QUERIES
        assert stand.wasted == 0
        self.play.check_parties()

    def cost(self) -> str:
        """The cost reserved by the one charge."""
        (charge,) = (each["body"] for each in entries(self.play.place) if each["kind"] == "charge")
        assert isinstance(charge, dict)
        return str(charge["cost"])

    def sums(self) -> NDArray[np.int64]:
        """The sum of votes as the server has it, (queries, classes)."""
        with Ledger.open(self.play.place / LEDGER_FILE) as ledger:
            return ledger.counts_of(range(QUERIES))


@contextmanager
def campaign(homes: Homes, folder: Path, kind: str) -> Iterator[Table]:
    """A campaign of a kind with the rogue as the fourth party; three in a sum are enough."""
    with homes.play(folder / "campaign", kind) as play:
        names = ",".join((*homes.names, ROGUE))
        options = ("--parties", names, "--min-parties", "3", "--colluders", "0")
        server = play.serve(*options)
        parties = [play.party(name) for name in homes.names]
        address = f"127.0.0.1:{play.port}"
        rogue = Rogue(ROGUE, folder / ROGUE, address, lambda _, reply: reply, flower=False)
        try:
            yield Table(play, options, server, parties, rogue)
        finally:
            rogue.stop()


@dataclass(frozen=True)
class Before:
    """The campaign in which the rogue was honest.

    Attributes:
        sums: (queries, classes).
        sent: what the rogue masked, as it left.
        cost: of the one charge, for the answers that cost most.
    """

    sums: NDArray[np.int64]
    sent: bytes
    cost: str


@pytest.fixture(scope="module")
def before(homes: Homes, tmp_path_factory: pytest.TempPathFactory) -> Before:
    folder = tmp_path_factory.mktemp("before")
    with pytest.MonkeyPatch.context() as patch, campaign(homes, folder, "masked") as table:
        seen = Twisted()
        seen.install(patch)
        table.finished(EVERYBODY)
        return Before(table.sums(), seen.sent[0], table.cost())


@pytest.fixture
def twisted(monkeypatch: pytest.MonkeyPatch) -> Twisted:
    made = Twisted()
    made.install(monkeypatch)
    return made


@pytest.mark.parametrize("twist", [negative, huge])
def test_an_exact_sum_with_what_are_no_votes_is_refused(
    homes: Homes, tmp_path: Path, twisted: Twisted, before: Before, twist: Twist
) -> None:
    """And once all send votes it is had, from the same parties: the others show nothing new."""
    twisted.twist = twist
    with campaign(homes, tmp_path, "masked") as table:
        table.refused(NO_VOTES)
        table.again()
        table.refused(NO_VOTES)
        twisted.twist = honest
        table.again()
        table.finished(EVERYBODY)
        np.testing.assert_array_equal(table.sums(), before.sums)
        assert table.cost() == before.cost


def test_what_an_earlier_campaign_masked_is_noise_in_this_one(
    homes: Homes, tmp_path: Path, twisted: Twisted, before: Before
) -> None:
    twisted.again = before.sent
    with campaign(homes, tmp_path, "masked") as table:
        table.refused(NO_VOTES)


def test_votes_of_others_that_are_moved_harm_labels_and_nothing_else(
    homes: Homes, tmp_path: Path, twisted: Twisted, before: Before
) -> None:
    """Counts stay within what teachers can vote, so it cannot be detected; the cost is the same."""
    change = np.zeros_like(before.sums)
    rows, most = np.arange(QUERIES), before.sums.argmax(axis=1)
    change[rows, most] -= before.sums[rows, most]
    change[rows, (most + 1) % CLASSES] += before.sums[rows, most]
    assert (before.sums.sum(axis=1) == 4 * TEACHERS).all()

    def move(votes: NDArray[np.int64]) -> None:
        votes += change

    twisted.twist = move
    with campaign(homes, tmp_path, "masked") as table:
        table.finished(EVERYBODY)
        np.testing.assert_array_equal(table.sums(), before.sums + change)
        assert table.cost() == before.cost


def test_in_a_noisy_sum_rows_that_keep_their_total_pass(
    homes: Homes, tmp_path: Path, twisted: Twisted
) -> None:
    """As in docs/threat-model.md: without limit. The charge is for the others' noise."""
    twisted.twist = negative
    with campaign(homes, tmp_path, "noisy") as table:
        table.finished(EVERYBODY)
        sums = table.sums()
        assert (sums[:, 1] > 60).all()
        assert (sums[:, -1] < -60).all()
        assert {label for _, label in table.stand.answers} == {1}
        assert table.stand.spent > 0


def test_a_noisy_sum_with_too_many_votes_is_refused(
    homes: Homes, tmp_path: Path, twisted: Twisted
) -> None:
    twisted.twist = huge
    with campaign(homes, tmp_path, "noisy") as table:
        table.refused(NO_VOTES)
        twisted.again, twisted.twist = twisted.sent[-1], honest
        table.again()
        table.refused(NO_VOTES)  # of an earlier attempt: noise


@pytest.mark.parametrize("twist", [moved, negative, huge])
def test_votes_that_are_not_those_that_were_proved_are_refused(
    homes: Homes, tmp_path: Path, twisted: Twisted, twist: Twist
) -> None:
    twisted.twist = twist
    with campaign(homes, tmp_path, "proved") as table:
        table.refused("a party masked other votes than it proved, and cannot be identified")


def test_with_proofs_what_an_earlier_campaign_masked_names_its_sender(
    homes: Homes, tmp_path: Path, twisted: Twisted
) -> None:
    with campaign(homes, tmp_path / "first", "proved") as table:
        table.finished(EVERYBODY)
    twisted.again = twisted.sent[0]
    with campaign(homes, tmp_path / "second", "proved") as table:
        table.finished(tuple(homes.names))
        assert f"the votes of {ROGUE} are not proved" in table.server.text
