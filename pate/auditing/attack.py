"""The attacker: learns from runs of both worlds what to bet on, before the runs that count.

A run is told by how often each kind of answer came about in it. The score of a run is the sum, over
its answers, of the logarithm of how much likelier such an answer is in one world than in the other,
as far as the runs that it learns from tell: for equal queries that is the likelihood ratio, and any
other score would be as valid and only weaker. The event is that the score reaches a threshold.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pate.accounting.arrays import Floats
from pate.errors import AccountingError

#: (runs, kinds) int64: how often each kind of answer came about in each run.
Counts = NDArray[np.int64]
#: What an event is worth, from expected hits and false hits: any shape in, the same out.
Worth = Callable[[Floats, Floats], Floats]

#: Thresholds that are tried.
_MOST_THRESHOLDS = 4096


@dataclass(frozen=True, eq=False)
class Event:
    """A set of runs to bet on.

    Attributes:
        weights: (kinds,) float64, score of one answer of each kind.
        threshold: least score of a run in the set.
        reverse: whether a hit speaks for the world D' rather than D.
    """

    weights: Floats
    threshold: float
    reverse: bool

    def hits(self, counts: Counts) -> int:
        """Return how many of the runs lie in the set."""
        return int((_scores(self.weights, counts) >= self.threshold).sum())

    def tally(self, first: Counts, second: Counts) -> tuple[int, int]:
        """Return hits and false hits, given runs of D and of D'."""
        true, false = (second, first) if self.reverse else (first, second)
        return self.hits(true), self.hits(false)


def learn(first: Counts, second: Counts, runs: int, worth: Worth) -> tuple[float, Event]:
    """Return the most promising event and what it seems to be worth.

    Args:
        first: runs of D to learn from.
        second: as many runs of D'.
        runs: how many there will be that count.
        worth: what to make large, of expected hits and false hits in ``runs`` runs.

    Raises:
        AccountingError: if the two differ in shape or there are none.
    """
    if first.shape != second.shape or first.ndim != 2 or not len(first):
        raise AccountingError(f"runs of shapes {first.shape} and {second.shape} cannot be compared")
    seen, other = first.sum(axis=0) + 0.5, second.sum(axis=0) + 0.5
    towards = np.log(seen / seen.sum()) - np.log(other / other.sum())
    found: list[tuple[float, Event]] = []
    for reverse in (False, True):
        weights = -towards if reverse else towards
        scores, others = _scores(weights, first), _scores(weights, second)
        if reverse:
            scores, others = others, scores
        steps = np.unique(np.concatenate([scores, others]))
        steps = steps[:: -(-len(steps) // _MOST_THRESHOLDS)]
        # One false hit more than was seen: an event that was never seen is not one of no chance.
        share = runs / len(first)
        expected = np.minimum(share * _reaching(scores, steps), runs)
        false = np.minimum(share * (_reaching(others, steps) + 1.0), runs)
        value = worth(expected, false)
        best = int(np.argmax(value))
        found.append((float(value[best]), Event(weights, float(steps[best]), reverse)))
    return max(found, key=lambda each: each[0])


def _scores(weights: Floats, counts: Counts) -> Floats:
    # Rounded, so that the order of a sum does not decide about a threshold that is met exactly.
    return np.round(counts @ weights, 9)


def _reaching(scores: Floats, steps: Floats) -> Floats:
    """Return (steps,) how many of the scores are at least each step."""
    return (len(scores) - np.searchsorted(np.sort(scores), steps, side="left")).astype(np.float64)
