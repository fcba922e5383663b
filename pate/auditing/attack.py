"""The attacker: learns from runs of both worlds what to bet on, before the runs that count.

A run with labels is told by how often each kind of answer came about in it. The score of a run is
the sum, over its answers, of the logarithm of how much likelier such an answer is in one world than
in the other, as far as the runs that it learns from tell: for equal queries that is the likelihood
ratio, and any other score would be as valid and only weaker. The event is that the score reaches a
threshold. A run with noisy counts is told by a few numbers made of them, and the event is that one
of these lies in a range.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pate.accounting.arrays import Floats
from pate.errors import AccountingError

#: (runs, kinds) int64: how often each kind of answer came about in each run.
Counts = NDArray[np.int64]
#: (runs, views) int64: numbers that were made of the noisy counts of each run.
Readings = NDArray[np.int64]
#: What an event is worth, from expected hits and false hits: any shape in, the same out.
Worth = Callable[[Floats, Floats], Floats]

#: Thresholds that are tried.
_MOST_THRESHOLDS = 4096


class Bet(Protocol):
    """A set of runs to bet on."""

    def tally(self, first: Counts, second: Counts) -> tuple[int, int]:
        """Return hits and false hits, given runs of D and of D'."""


#: Learns, from runs of D and as many of D', for so many runs and by so much luck, the best bet and
#: its worth.
Learn = Callable[[Counts, Counts, int, Worth, float], tuple[float, Bet]]


@dataclass(frozen=True, eq=False)
class Event:
    """A set of runs to bet on, by the answers in them.

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


def learn(
    first: Counts, second: Counts, runs: int, worth: Worth, luck: float = 1.0
) -> tuple[float, Event]:
    """Return the most promising event and what it seems to be worth.

    Args:
        first: runs of D to learn from.
        second: as many runs of D'.
        runs: how many there will be that count.
        worth: what to make large, of expected hits and false hits in ``runs`` runs.
        luck: see :func:`promised`.

    Raises:
        AccountingError: if the two differ in shape or there are none.
    """
    _check(first, second)
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
        hits, false = _reaching(scores, steps), _reaching(others, steps)
        value = promised(hits, false, len(first), runs, worth, luck)
        best = int(np.argmax(value))
        found.append((float(value[best]), Event(weights, float(steps[best]), reverse)))
    return max(found, key=lambda each: each[0])


@dataclass(frozen=True)
class Range:
    """A set of runs to bet on, by one of their numbers.

    Attributes:
        view: which number.
        least: least value in the set.
        most: largest value in the set.
        reverse: whether a hit speaks for the world D' rather than D.
    """

    view: int
    least: float
    most: float
    reverse: bool

    def hits(self, readings: Readings) -> int:
        """Return how many of the runs lie in the set."""
        value = readings[:, self.view]
        return int(((value >= self.least) & (value <= self.most)).sum())

    def tally(self, first: Readings, second: Readings) -> tuple[int, int]:
        """Return hits and false hits, given runs of D and of D'."""
        true, false = (second, first) if self.reverse else (first, second)
        return self.hits(true), self.hits(false)


def learn_range(
    first: Readings, second: Readings, runs: int, worth: Worth, luck: float = 1.0
) -> tuple[float, Range]:
    """Return the most promising range and what it seems to be worth; see :func:`learn`.

    Tried are, for each number, its being at least, at most, and exactly a value: noise that is too
    small shows in the tails, noise that is missing in single values.

    Raises:
        AccountingError: if the two differ in shape or there are none.
    """
    _check(first, second)
    found: list[tuple[float, Range]] = []
    for view in range(first.shape[1]):
        worlds = first[:, view], second[:, view]
        steps = np.unique(np.concatenate(worlds)).astype(np.float64)
        steps = steps[:: -(-len(steps) // _MOST_THRESHOLDS)]
        above = [_reaching(each.astype(np.float64), steps) for each in worlds]
        over = [_reaching(each.astype(np.float64), steps + 0.5) for each in worlds]
        for least, most, hits in (
            (steps, np.full(len(steps), np.inf), above),
            (np.full(len(steps), -np.inf), steps, [len(first) - each for each in over]),
            (steps, steps, [a - b for a, b in zip(above, over, strict=True)]),
        ):
            for reverse in (False, True):
                true, false = (hits[1], hits[0]) if reverse else (hits[0], hits[1])
                value = promised(true, false, len(first), runs, worth, luck)
                best = int(np.argmax(value))
                made = Range(view, float(least[best]), float(most[best]), reverse)
                found.append((float(value[best]), made))
    return max(found, key=lambda each: each[0])


def promised(
    hits: Floats, false: Floats, seen: int, runs: int, worth: Worth, luck: float
) -> Floats:
    """Return what events are worth, given in how many of ``seen`` runs of each world they came about.

    Each count may have been luck, by ``luck`` standard deviations and one more; an event that was
    never seen is not one of no chance, nor one that was seen always a sure one. Luck below 0 is bad
    luck: then the event is worth more than it seems.
    """
    share, one = runs / seen, np.copysign(1.0, luck)
    true = hits - one - luck * np.sqrt(hits * (1.0 - hits / seen))
    other = false + one + luck * np.sqrt(false * (1.0 - false / seen))
    return worth(*(np.minimum(share * np.clip(each, 0.0, seen), runs) for each in (true, other)))


def _check(first: Counts, second: Counts) -> None:
    if first.shape != second.shape or first.ndim != 2 or not len(first):
        raise AccountingError(f"runs of shapes {first.shape} and {second.shape} cannot be compared")


def _scores(weights: Floats, counts: Counts) -> Floats:
    # Rounded, so that the order of a sum does not decide about a threshold that is met exactly.
    return np.round(counts @ weights, 9)


def _reaching(scores: Floats, steps: Floats) -> Floats:
    """Return (steps,) how many of the scores are at least each step."""
    return (len(scores) - np.searchsorted(np.sort(scores), steps, side="left")).astype(np.float64)
