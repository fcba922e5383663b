"""Neighbouring votes that are easy to distinguish: on both sides of every decision, and near it.

A mechanism makes at most two decisions: whether a count or margin reaches a threshold, and which
class has most votes. Missing noise shows only where the neighbours are on *different* sides of such
a decision; too little noise shows most at some distance from it. So there are pairs of both kinds
for each decision. The public part of a query, the student's expected votes, is the same for both
neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.errors import UsageError
from pate.mechanisms import ConfidentGNMax, GNMax, InteractiveGNMax, LNMax

if TYPE_CHECKING:
    from pate.mechanisms import Mechanism
    from pate.mechanisms.contract import Votes

#: Four, so that votes can move between adjacent classes and across another one.
CLASSES: Final = 4


@dataclass(frozen=True, eq=False)
class Pair:
    """The votes of a run in two neighbouring worlds. Queries take the rows in turn.

    Attributes:
        votes: (rows, classes) int64, in the world D; (classes,) stands for one row.
        neighbour: (rows, classes) int64, in the world D': some votes changed.
        prediction: (rows, classes) int64, the student's expected votes in both, or None.
        name: the decision that separates the two.
        of_records: whether records vote: the two are whole matrices, whose sums may differ.

    Raises:
        UsageError: if the shapes differ, or of teachers the numbers of votes.
    """

    votes: Votes
    neighbour: Votes
    prediction: Votes | None = None
    name: str = ""
    of_records: bool = False

    def __post_init__(self) -> None:
        for field in ("votes", "neighbour", "prediction"):
            if (given := getattr(self, field)) is not None:
                object.__setattr__(self, field, np.atleast_2d(given))
        rows = [self.votes, self.neighbour, *([] if self.prediction is None else [self.prediction])]
        sums = {(row.shape, 0 if self.of_records else int(row.sum())) for row in rows}
        if len(sums) != 1:
            raise UsageError("neighbours have the same classes and the same number of votes")

    @property
    def moved(self) -> int:
        """Most votes of a row that differ."""
        apart = np.abs(self.votes - self.neighbour).sum(axis=1)
        # A move between rows changes one cell of each row; a move within a row two.
        same = np.array_equal(self.votes.sum(axis=1), self.neighbour.sum(axis=1))
        return int(apart.max()) // (2 if same else 1)

    def rows(self, world: int, queries: int) -> Votes:
        """Return (queries, classes) votes of world 0, which is D, or 1, which is D'."""
        return in_turn(self.neighbour if world else self.votes, queries)

    def expected(self, queries: int) -> Votes | None:
        """Return (queries, classes) expected votes, or None."""
        return None if self.prediction is None else in_turn(self.prediction, queries)


def in_turn(rows: Votes, queries: int) -> Votes:
    """Return (queries, classes): the rows in cyclic order."""
    return rows[np.arange(queries) % len(rows)]


#: Gaps between two classes after the move, in standard deviations of their noise.
_GAPS = (0.7, 1.4, 2.1, 2.8)
#: Distance from the threshold, in standard deviations of its noise; and the gap of the label.
_NEAR = ((0.5, 0.0), (-0.5, 0.0), (-1.3, 0.0), (-1.3, 1.4), (-2.0, 0.7))


def distinguishing_pairs(mechanism: Mechanism, votes: int) -> tuple[Pair, ...]:
    """Return candidate pairs for an attack.

    The first shows small errors: charges that are too low, noise that is too small. Alternating
    both directions, it also shows noise shared by queries. Laplace noise shows most where a tie is
    lost.

    ``votes`` votes go from one class to another: other moves make the displacement of the histogram
    no larger. The classes and their distance differ from pair to pair.

    Args:
        mechanism: the one under audit.
        votes: k, how many votes of each query one unit reaches. It is the true number, and may
            differ from the mechanism's own.

    Raises:
        UsageError: for an unknown mechanism, or a number of votes below 1.
    """
    if votes < 1:
        raise UsageError(f"a unit reaches at least one vote, got {votes}")
    if isinstance(mechanism, LNMax):  # the difference of two Laplace noises: 4 scale^2
        spread, floor = 2 * float(mechanism.scale), round(70 * mechanism.scale)
        *others, tie, lead = _labels(votes, floor, None)
        return (tie, lead, *others, *_leads(votes, spread, floor))
    if isinstance(mechanism, GNMax):
        spread, floor = float(mechanism.sigma) * 2**0.5, round(12 * mechanism.sigma)
        return (*_labels(votes, floor, None), *_leads(votes, spread, floor))
    if isinstance(mechanism, ConfidentGNMax | InteractiveGNMax):
        return _checked(mechanism, votes)
    raise UsageError(f"no distinguishing neighbours are known for {mechanism}")


def _labels(votes: int, floor: int, margin: int | None) -> tuple[Pair, ...]:
    """Return pairs across the decision of the class with most votes.

    Args:
        votes: k.
        floor: votes by which the two classes lead the others.
        margin: by which the largest count exceeds the student's expectation, or None without.
    """
    high = floor + 2 * votes

    def pair(name: str, first: int, second: int, lead: int) -> Pair:
        given = np.zeros(CLASSES, np.int64)
        given[first], given[second] = high + lead, high
        other = given.copy()
        other[first] -= votes
        other[second] += votes
        return Pair(given, other, _expectation(given, margin), name)

    changes = [
        pair(f"winner changes, classes {one} and {two}", one, two, votes)
        for one, two in ((0, 1), (0, 2), (1, 3))
    ]
    there = changes[0]
    turned = Pair(
        np.concatenate([there.votes, there.neighbour]),
        np.concatenate([there.neighbour, there.votes]),
        None if there.prediction is None else np.concatenate([there.prediction] * 2),
        "winners change both ways by turns",
    )
    return (
        turned,
        *changes,
        # Ties go to the lowest class, which loses or gains the label.
        pair("a tie is lost", 0, 1, 0),
        pair("a lead becomes a tie", 1, 0, 2 * votes),
    )


def _leads(votes: int, spread: float, floor: int) -> tuple[Pair, ...]:
    """Return pairs in which the winner keeps a lead of a few ``spread``."""
    pairs = []
    for gap in _GAPS:
        lead = round(gap * spread) + votes
        given = np.array([floor + 2 * votes + lead, floor + 2 * votes, 0, 0], np.int64)
        move = np.array([-votes, votes, 0, 0], np.int64)
        pairs.append(Pair(given, given + move, None, f"a lead of {gap:g} sigma"))
    return tuple(pairs)


def _checked(mechanism: ConfidentGNMax | InteractiveGNMax, votes: int) -> tuple[Pair, ...]:
    """Return pairs across the threshold, across the label, and near both."""
    interactive = isinstance(mechanism, InteractiveGNMax)
    sigma1, threshold = float(mechanism.sigma1), mechanism.threshold
    spread = float(mechanism.sigma2) * 2**0.5
    passes = threshold + votes + round(12 * sigma1)
    floor = max(round(12 * mechanism.sigma2), passes)
    pairs = [*_labels(votes, floor, passes if interactive else None)]
    # Only the test: the label is certain, and the largest count is at or below the threshold.
    for at in (0.0, -0.7, -1.4):
        top = threshold + round(at * sigma1)
        name = "threshold reached or missed" if at == 0.0 else f"{-at:g} sigma1 below the threshold"
        if interactive:
            lead = round(12 * spread) + 2 * votes
            given = np.array([max(lead, top) + votes, 0, 0, 0], np.int64)
        elif top < 2 * votes:  # moving k votes needs a largest count of at least k
            continue
        else:
            given = np.array([top, 0, 0, 0], np.int64)
        move = np.array([-votes, votes, 0, 0], np.int64)
        margin = top if interactive else None
        pairs.append(Pair(given, given + move, _expectation(given, margin), name))
    for at, gap in _NEAR:
        top = threshold + votes + round(at * sigma1)
        # A tie before or after the move would leave the largest count unchanged.
        gap_votes = round(gap * spread) if interactive else max(round(gap * spread), votes)
        lead = gap_votes + votes
        first = max(0 if interactive else top, lead + votes, 2 * votes, top if interactive else 0)
        given = np.array([first, first - lead, 0, 0], np.int64)
        move = np.array([-votes, votes, 0, 0], np.int64)
        pairs.append(
            Pair(
                given,
                given + move,
                _expectation(given, top if interactive else None),
                f"threshold {at:+g} sigma1, lead {gap:g} sigma",
            )
        )
    return tuple(pairs)


def _expectation(given: Votes, margin: int | None) -> Votes | None:
    """Return expected votes that the first world's largest count exceeds by ``margin``."""
    if margin is None:
        return None
    expected = given.copy()
    winner = int(given.argmax())
    over = min(max(margin, 0), int(given[winner]))
    expected[winner] -= over
    # For another class, whose votes then stay far below their expectation.
    expected[0 if winner else 1] += over
    return expected
