"""Neighbouring votes that are easy to distinguish: on both sides of every decision, and near it.

A mechanism makes at most two decisions: whether a count or margin reaches a threshold, and which
class has most votes. Missing noise shows only where the neighbours are on *different* sides of such
a decision; too little noise shows most at some distance from it. So there are pairs of both kinds
for each decision, and of all classes between which it may lie. The public part of a query, the
student's expected votes, is the same for both neighbours. Where noisy counts are seen, votes move from one
cell of a small matrix to another.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
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
    """The votes of a run in two neighbouring worlds. Queries take the rows in turn."""

    votes: Votes  # (rows, classes) int64, in the world D; (classes,) stands for one row
    neighbour: Votes  # (rows, classes) int64, in the world D': some votes changed
    # (rows, classes) int64, the student's expected votes in both, or None
    prediction: Votes | None = None
    name: str = ""  # the decision that separates the two
    # whether records vote: the two are whole matrices, whose sums may differ
    of_records: bool = False
    # whether each run is a call of its own, so that runs are independent even if a call draws noise
    # only once for all of its queries
    apart: bool = False

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
#: All couples of classes, two by two.
_COUPLES = ((0, 1, 2, 3), (0, 2, 1, 3), (0, 3, 1, 2))
#: Distances below the threshold, in standard deviations of its noise, where only the test decides.
_BELOW = (0.7, 1.4)
#: Distance from the threshold, in standard deviations of its noise; and the gap of the label.
_NEAR = ((0.5, 0.0), (-0.5, 0.0), (-1.3, 0.0), (-1.3, 1.4), (-2.0, 0.7))


def distinguishing_pairs(mechanism: Mechanism, votes: int, queries: int) -> tuple[Pair, ...]:
    """Return candidate pairs for an attack.

    The first shows small errors: charges that are too low, noise that is too small. Alternating
    both directions, it also shows noise shared by queries. Laplace noise shows most where a tie is
    lost.

    ``votes`` votes go from one class to another: other moves make the displacement of the histogram
    no larger. Each of the six couples of classes is the two leading ones of some query, by turns. In
    some pairs only one of two queries changes, or two queries change to the same: what they share
    shows there.

    ``votes``: k, how many votes of each query one unit reaches. It is the true number, and may
    differ from the mechanism's own; ``queries``: of a run. Of fewer than two, each takes a pair of
    its own.
    """
    if votes < 1:
        raise UsageError(f"a unit reaches at least one vote, got {votes}")
    pairs: tuple[Pair, ...]
    if isinstance(mechanism, LNMax):  # the difference of two Laplace noises: 4 scale^2
        spread, floor = 2 * float(mechanism.scale), round(70 * mechanism.scale)
        winners = _winners(votes, floor, None, queries)
        pairs = (*_ties(votes, floor, None), *winners, *_leads(votes, spread, floor))
    elif isinstance(mechanism, GNMax):
        spread, floor = float(mechanism.sigma) * 2**0.5, round(12 * mechanism.sigma)
        pairs = (*_labels(votes, floor, None, queries), *_leads(votes, spread, floor))
    elif isinstance(mechanism, ConfidentGNMax | InteractiveGNMax):
        pairs = _checked(mechanism, votes, queries)
    else:
        raise UsageError(f"no distinguishing neighbours are known for {mechanism}")
    # The parts of two pairs by turns may be the same, where each is a pair of its own.
    return tuple({pair.name: pair for pair in pairs}.values())


def _by_turns(queries: int, name: str, *parts: Pair, apart: bool = False) -> tuple[Pair, ...]:
    """Return one pair whose queries take the parts in turn, or the parts if there are too few."""
    if queries < len(parts) or len(parts) < 2:
        return parts
    most = max(int(part.votes.sum()) for part in parts)

    def rows(field: str) -> Votes:
        made = np.concatenate([getattr(part, field) for part in parts])
        # All queries have the votes of as many teachers; the last class is far from leading.
        made[:, -1] += [most - int(part.votes.sum()) for part in parts]
        return made

    prediction = None if parts[0].prediction is None else rows("prediction")
    return (Pair(rows("votes"), rows("neighbour"), prediction, name, apart=apart),)


def _back(pair: Pair) -> Pair:
    return replace(
        pair, votes=pair.neighbour, neighbour=pair.votes, name=f"{pair.name}, the other way"
    )


def _still(pair: Pair) -> Pair:
    """Return a query that does not change."""
    return replace(pair, neighbour=pair.votes)


def _move(first: int, second: int, high: int, lead: int, votes: int) -> tuple[Votes, Votes]:
    """Return votes of which ``votes`` go from the first class to the second, and votes after that."""
    given = np.zeros(CLASSES, np.int64)
    given[first], given[second] = high + lead, high
    other = given.copy()
    other[first] -= votes
    other[second] += votes
    return given, other


def _labels(votes: int, floor: int, margin: int | None, queries: int) -> tuple[Pair, ...]:
    """Return pairs across the decision of the class with most votes; see :func:`_winners`."""
    ties = _by_turns(queries, "ties are lost and made", *_ties(votes, floor, margin))
    return (*_winners(votes, floor, margin, queries), *ties)


def _winners(votes: int, floor: int, margin: int | None, queries: int) -> tuple[Pair, ...]:
    """Return pairs in which another class wins.

    ``floor``: votes by which the two classes lead the others; ``margin``: by which the largest
    count exceeds the student's expectation, or None without.
    """

    def change(one: int, two: int) -> Pair:
        given, other = _move(one, two, floor + 2 * votes, votes, votes)
        name = f"winner changes, classes {one} and {two}"
        return Pair(given, other, _expectation(given, margin), name)

    there = change(0, 1)
    pairs = [*_by_turns(queries, "winners change both ways by turns", there, _back(there))]
    for one, two, three, four in _COUPLES:
        name = f"winners change, classes {one} and {two}, then {three} and {four}"
        pairs += _by_turns(queries, name, change(one, two), change(three, four))
    if queries > 1:
        name = "the winner of one of two queries changes"
        pairs += _by_turns(queries, name, there, _still(there), apart=True)
    return tuple(pairs)


def _ties(votes: int, floor: int, margin: int | None) -> tuple[Pair, Pair]:
    """Return pairs at ties. They go to the lowest class, which loses or gains the label."""
    high = floor + 2 * votes
    lost, made = _move(0, 1, high, 0, votes), _move(1, 0, high, 2 * votes, votes)
    return (
        Pair(*lost, _expectation(lost[0], margin), "a tie is lost"),
        Pair(*made, _expectation(made[0], margin), "a lead becomes a tie"),
    )


def _leads(votes: int, spread: float, floor: int) -> tuple[Pair, ...]:
    """Return pairs in which the winner keeps a lead of a few ``spread``."""
    return tuple(
        Pair(
            *_move(0, 1, floor + 2 * votes, round(gap * spread) + votes, votes),
            None,
            f"a lead of {gap:g} sigma",
        )
        for gap in _GAPS
    )


def _checked(
    mechanism: ConfidentGNMax | InteractiveGNMax, votes: int, queries: int
) -> tuple[Pair, ...]:
    """Return pairs across the threshold, across the label, and near both."""
    interactive = isinstance(mechanism, InteractiveGNMax)
    sigma1, threshold = float(mechanism.sigma1), mechanism.threshold
    spread = float(mechanism.sigma2) * 2**0.5
    passes = threshold + votes + round(12 * sigma1)
    floor = max(round(12 * mechanism.sigma2), passes)
    pairs = [*_labels(votes, floor, passes if interactive else None, queries)]

    def test(top: int, name: str) -> tuple[Pair, ...]:
        """Return a pair whose label is certain, and whose largest count or margin was ``top``."""
        lead = max(round(12 * spread) + 2 * votes, top) + votes if interactive else top
        if lead < 2 * votes:  # moving k votes needs a largest count of at least k
            return ()
        given, other = _move(0, 1, 0, lead, votes)
        return (Pair(given, other, _expectation(given, top if interactive else None), name),)

    across = test(threshold, "threshold reached or missed")
    below = [
        pair
        for at in _BELOW
        for pair in test(threshold - round(at * sigma1), f"{at:g} sigma1 below the threshold")
    ]
    name = " and ".join(f"{at:g}" for at in _BELOW) + " sigma1 below the threshold, by turns"
    pairs += [*across, *_by_turns(queries, name, *below)]
    if across and queries > 1:
        (reached,) = across
        (above,) = test(threshold + votes, "threshold passed")
        name = "one of two queries misses the threshold"
        pairs += _by_turns(queries, name, reached, _still(reached))
        name = "two queries meet at the threshold"
        pairs += _by_turns(queries, name, above, _back(reached), apart=True)
    for at, gap in _NEAR:
        top = threshold + votes + round(at * sigma1)
        # A tie before or after the move would leave the largest count unchanged.
        gap_votes = round(gap * spread) if interactive else max(round(gap * spread), votes)
        lead = gap_votes + votes
        first = max(0 if interactive else top, lead + votes, 2 * votes, top if interactive else 0)
        given, other = _move(0, 1, first - lead, lead, votes)
        margin = top if interactive else None
        name = f"threshold {at:+g} sigma1, lead {gap:g} sigma"
        pairs.append(Pair(given, other, _expectation(given, margin), name))
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


#: Rows and classes of the matrix: the smallest in which both can be equal, or differ.
_SHAPE: Final = (2, 2)
#: Source and destination of votes: (row, class).
_MOVES: Final = (
    ("within a query, class 0 to 1", (0, 0), (0, 1)),
    ("within a query, class 1 to 0", (1, 1), (1, 0)),
    ("to another query", (0, 0), (1, 0)),
    ("to another query and class", (0, 1), (1, 0)),
)


def cell_pairs(votes: int) -> tuple[Pair, ...]:
    """Return neighbours that differ by ``votes`` votes, or one of them, in two cells of a matrix."""
    moves = [(f"votes go {name}", start, end, votes) for name, start, end in _MOVES]
    if votes > 1:  # an even number of votes leaves all parities as they are
        moves.append((f"one of {votes} votes goes {_MOVES[0][0]}", *_MOVES[0][1:], 1))
    pairs = []
    for name, start, end, moved in moves:
        given = np.full(_SHAPE, 4 * votes, np.int64)
        other = given.copy()
        other[start] -= moved
        other[end] += moved
        pairs.append(Pair(given, other, None, name))
    return tuple(pairs)
