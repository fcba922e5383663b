"""Neighbouring votes that are hard to hide: near a tie, and near the threshold of a check.

What is public of a query, the student's expected votes, is the same for both neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pate.errors import UsageError
from pate.mechanisms import ConfidentGNMax, GNMax, InteractiveGNMax, LNMax

if TYPE_CHECKING:
    from pate.mechanisms import Mechanism
    from pate.mechanisms.contract import Votes


@dataclass(frozen=True, eq=False)
class Pair:
    """The votes of one query in two neighbouring worlds.

    Attributes:
        votes: (classes,) int64, in the world D.
        neighbour: (classes,) int64, in the world D': some votes are cast otherwise.
        prediction: (classes,) int64, the student's expected votes in both, or None.

    Raises:
        UsageError: if the numbers of votes differ.
    """

    votes: Votes
    neighbour: Votes
    prediction: Votes | None = None

    def __post_init__(self) -> None:
        rows = [self.votes, self.neighbour, *([] if self.prediction is None else [self.prediction])]
        if len({(row.shape, int(row.sum())) for row in rows}) != 1:
            raise UsageError("neighbours have the same classes and the same number of votes")

    @property
    def moved(self) -> int:
        """How many votes are cast otherwise."""
        return int(np.abs(self.votes - self.neighbour).sum()) // 2

    def row(self, world: int) -> Votes:
        """Return the votes of world 0, which is D, or 1, which is D'."""
        return self.neighbour if world else self.votes


#: Gaps between the two classes, after the votes moved, in standard deviations of the noise on it.
_GAPS = (0.0, 0.7, 1.4, 2.1, 2.8)
#: By how many standard deviations of its noise the check passes or not; and the gap of the label.
_CHECKS = ((0.5, 0.0), (-0.5, 0.0), (-1.3, 0.0), (-1.3, 1.4), (-2.0, 0.7))


def telling_pairs(mechanism: Mechanism, votes: int) -> tuple[Pair, ...]:
    """Return pairs among which an attacker finds a good one.

    There are two classes, and ``votes`` votes go from the first to the second: more classes or
    other moves make the displacement of the histogram no larger. Which gap tells most depends on
    delta and on the number of queries, so an audit tries several.

    Args:
        mechanism: the one under audit.
        votes: k, how many votes of each query one unit reaches. It is what the world is like, and
            may be another number than ``mechanism`` was told.

    Raises:
        UsageError: for a mechanism that this does not know, or a number of votes below 1.
    """
    if votes < 1:
        raise UsageError(f"a unit reaches at least one vote, got {votes}")
    if isinstance(mechanism, LNMax):  # the difference of two Laplace noises: 4 scale^2
        return tuple(_pair(votes, gap, float(2 * mechanism.scale), 0, None) for gap in _GAPS)
    if isinstance(mechanism, GNMax):
        spread = float(mechanism.sigma) * 2**0.5
        return tuple(_pair(votes, gap, spread, 0, None) for gap in _GAPS)
    if isinstance(mechanism, ConfidentGNMax | InteractiveGNMax):
        spread = float(mechanism.sigma2) * 2**0.5
        interactive = isinstance(mechanism, InteractiveGNMax)
        return tuple(
            _pair(
                votes,
                # A tie before or behind the move would leave the larger count where it is.
                gap if interactive else max(gap, votes / spread),
                spread,
                0
                if interactive
                else mechanism.threshold + votes + round(at * float(mechanism.sigma1)),
                mechanism.threshold + votes + round(at * float(mechanism.sigma1))
                if interactive
                else None,
            )
            for at, gap in _CHECKS
        )
    raise UsageError(f"no neighbours are known that tell on {mechanism}")


def _pair(votes: int, gap: float, spread: float, top: int, margin: int | None) -> Pair:
    """Return a pair whose gap goes from g + k to g - k, with g = gap * spread.

    Args:
        votes: k.
        gap: see above, in ``spread``.
        spread: standard deviation of the noise on the gap.
        top: votes of the first class in D, or more if counts would be negative otherwise.
        margin: by which the first class exceeds the student's expectation in D, or None without.
    """
    between = round(gap * spread) + votes
    first = max(top, between + votes, 2 * votes, margin or 0)
    given = np.array([first, first - between], np.int64)
    other = given + np.array([-votes, votes])
    if margin is None:
        return Pair(given, other)
    expected = given + max(margin, 0) * np.array([-1, 1])
    return Pair(given, other, expected)
