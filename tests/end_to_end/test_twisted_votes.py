"""Invalid votes inside the masked sum, by an enrolled party: effects on sum, ledger and labels.

The fourth party keeps to the protocol but for what it masks. docs/threat-model.md, *Bad votes*, has what
is promised: nothing that it sends makes the others' records less private, costs more than was charged, or
comes out where a check must fail.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pytest

from aggregator_server.ledger.ledger import Ledger
from party.voting.voters import ReadyVoters
from pate.data.values import Images
from pate.errors import ProtocolError
from pate.masking import masks, party
from pate.masking.party import PartyMasking
from tests.support.world.commands import one_body
from tests.support.world.in_process import Unanimous, World
from tests.support.world.stand import Stand

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from party.voting.voter import Voter
    from pate.codes import Code
    from pate.data.values import Inputs
    from pate.votes import Counts

ROGUE: Final = "rogue"
HONEST: Final = ("north", "south", "west")
EVERYBODY: Final = ("north", ROGUE, "south", "west")
TEACHERS: Final = 3
QUERIES: Final = 20
CLASSES: Final = 10
CELLS: Final = QUERIES * CLASSES
PUBLIC: Final = Images(
    np.random.default_rng(6).integers(0, 255, (QUERIES, 4, 4, 1), dtype=np.uint8)
)
#: Terms by kind of campaign.
KINDS: Final[dict[str, dict[str, Any]]] = {
    "masked": {
        "aggregator": "confident-gnmax", "threshold": Fraction(5), "sigma1": Fraction(2),
        "sigma2": Fraction(1),
    },
    "noisy": {"aggregator": "gnmax", "sigma2": Fraction(1), "noise": "distributed"},
    "proved": {"aggregator": "gnmax", "sigma2": Fraction(1), "vote_proofs": True},
}  # fmt: skip
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
    """Masks other votes than those of its teachers, in whatever :data:`ROGUE` sends.

    Attributes:
        twist: of its votes.
        again: is sent instead, if there is any.
        sent: what it masked so far.
    """

    twist: Twist = honest
    again: bytes = b""
    sent: list[bytes] = field(default_factory=list)

    def install(self, patch: pytest.MonkeyPatch) -> None:
        hide, send = masks.hide, PartyMasking.mask

        def hidden(known: Any, name: str, secrets: Any, values: Any, *rest: Any) -> bytes:
            if name != ROGUE:
                return hide(known, name, secrets, values, *rest)
            values = values.copy()
            # What follows the votes, if they are proved, links them to their proof.
            self.twist(values.reshape(-1)[:CELLS].reshape(QUERIES, CLASSES))
            return hide(known, name, secrets, values, *rest)

        def whole(this: PartyMasking, boxes: Any, values: Any) -> bytes:
            if this.name != ROGUE:
                return send(this, boxes, values)
            self.sent.append(send(this, boxes, values))
            return self.again or self.sent[-1]

        patch.setattr(party, "hide", hidden)
        patch.setattr(PartyMasking, "mask", whole)


class Teachers(Unanimous):
    """Most of an honest party's teachers answer one class, by the query; the rogue's all the first."""

    def vote(
        self, public: Inputs, rows: Sequence[int], classes: Sequence[str], code: Code
    ) -> Counts:
        inputs = public.take(list(rows))
        votes = np.zeros((len(inputs), len(classes)), dtype=np.int64)
        most = np.array([each[0] % CLASSES for each in inputs.row_hashes()])
        votes[np.arange(len(inputs)), most] = TEACHERS - 1
        votes[np.arange(len(inputs)), (most + 1) % CLASSES] = 1
        return votes


class Table(World):
    """A campaign with the rogue at it; three in a sum are enough."""

    def __init__(self, root: Path, kind: str) -> None:
        super().__init__(root, EVERYBODY, PUBLIC)
        self.create(epsilon=1000.0, delta=1e-4, aggregation="masked", **KINDS[kind])
        for name in EVERYBODY:
            self.parties.start(name)

    def voter(self, name: str, **changes: Any) -> Voter:
        kind = Unanimous if name == ROGUE else Teachers
        return super().voter(
            name, voters=ReadyVoters(kind(TEACHERS, classes=tuple("0123456789"))), **changes
        )

    @property
    def stand(self) -> Stand:
        return Stand.of(self.place().parent)

    def refused(self, words: str) -> None:
        """Run the server, and check that no label left, nothing was charged, and all ledgers hold."""
        with pytest.raises(ProtocolError, match=words):
            self.serve()
        stand = self.stand
        assert not {"votes", "charge", "release"} & set(stand.kinds)
        assert stand.spent == 0
        assert not stand.labels
        self.check_parties()

    def finished(self, responders: tuple[str, ...]) -> None:
        """Run the server, and check that it ends in order, with these parties in the sum."""
        self.serve()
        assert self.body("votes")["responders"] == list(responders)
        stand = self.stand
        assert stand.phase == "finished"
        assert stand.kinds.count("charge") == stand.kinds.count("release") == 1
        assert len(stand.answers) == QUERIES
        assert stand.wasted == 0
        self.check_parties()

    def check_parties(self) -> None:
        for name in EVERYBODY:
            self.ledger(name).verify()

    def body(self, kind: str) -> dict[str, Any]:
        """The one entry of a kind in the server's ledger."""
        return one_body(self.place().parent, kind)

    def cost(self) -> str:
        """The cost reserved by the one charge."""
        return str(self.body("charge")["cost"])

    def sums(self) -> NDArray[np.int64]:
        """The sum of votes as the server has it, (queries, classes)."""
        with Ledger.open(self.place()) as ledger:
            return ledger.counts_of(range(QUERIES))


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
def before(tmp_path_factory: pytest.TempPathFactory) -> Before:
    table, seen = Table(tmp_path_factory.mktemp("before"), "masked"), Twisted()
    with pytest.MonkeyPatch.context() as patch:
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
    tmp_path: Path, twisted: Twisted, before: Before, twist: Twist
) -> None:
    """And once all send votes it is had, from the same parties: the others show nothing new."""
    twisted.twist = twist
    table = Table(tmp_path, "masked")
    table.refused(NO_VOTES)
    table.refused(NO_VOTES)
    twisted.twist = honest
    table.finished(EVERYBODY)
    np.testing.assert_array_equal(table.sums(), before.sums)
    assert table.cost() == before.cost


def test_what_an_earlier_campaign_masked_is_noise_in_this_one(
    tmp_path: Path, twisted: Twisted, before: Before
) -> None:
    twisted.again = before.sent
    table = Table(tmp_path, "masked")
    table.refused(NO_VOTES)


def test_votes_of_others_that_are_moved_harm_labels_and_nothing_else(
    tmp_path: Path, twisted: Twisted, before: Before
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
    table = Table(tmp_path, "masked")
    table.finished(EVERYBODY)
    np.testing.assert_array_equal(table.sums(), before.sums + change)
    assert table.cost() == before.cost


def test_in_a_noisy_sum_rows_that_keep_their_total_pass(tmp_path: Path, twisted: Twisted) -> None:
    """As in docs/threat-model.md: without limit. The charge is for the others' noise."""
    twisted.twist = negative
    table = Table(tmp_path, "noisy")
    table.finished(EVERYBODY)
    sums = table.sums()
    assert (sums[:, 1] > 60).all()
    assert (sums[:, -1] < -60).all()
    assert {label for _, label in table.stand.answers} == {1}
    assert table.stand.spent > 0


def test_a_noisy_sum_with_too_many_votes_is_refused(tmp_path: Path, twisted: Twisted) -> None:
    twisted.twist = huge
    table = Table(tmp_path, "noisy")
    table.refused(NO_VOTES)
    twisted.again, twisted.twist = twisted.sent[-1], honest
    table.refused(NO_VOTES)  # of an earlier attempt: noise


@pytest.mark.parametrize("twist", [moved, negative, huge])
def test_votes_that_are_not_those_that_were_proved_are_refused(
    tmp_path: Path, twisted: Twisted, twist: Twist
) -> None:
    twisted.twist = twist
    table = Table(tmp_path, "proved")
    table.refused("a party masked other votes than it proved, and cannot be identified")


def test_with_proofs_what_an_earlier_campaign_masked_names_its_sender(
    tmp_path: Path, twisted: Twisted
) -> None:
    table = Table(tmp_path / "first", "proved")
    table.finished(EVERYBODY)
    twisted.again = twisted.sent[0]
    table = Table(tmp_path / "second", "proved")
    table.finished(HONEST)
    assert f"the votes of {ROGUE} are not proved" in " ".join(table.lines.said)
