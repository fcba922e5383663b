"""The attacker: chooses an event from learning runs of both worlds, before the counted runs.

A run with labels is summarised by how often each kind of answer occurred. Its score is the sum over
its answers of the estimated log likelihood ratio of the two worlds: for equal queries that is the
likelihood ratio, and any other score would be as valid and only weaker. The event is that the score
reaches a threshold. What answers show only together, whether two of them differ, is a score by itself.
A run with noisy counts is summarised by a few statistics, and the event is that one of them is in a
range. Whatever is tried, it is chosen by runs that do not count.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pate.accounting.arrays import Floats
from pate.errors import AccountingError

#: (runs, kinds) int64: how often each kind of answer occurred in each run.
Counts = NDArray[np.int64]
#: (runs, views) int64: statistics of the noisy counts of each run.
Readings = NDArray[np.int64]
#: Value of an event from expected hits and false hits: any shape in, the same out.
Score = Callable[[Floats, Floats], Floats]

#: Number of thresholds tried.
_MOST_THRESHOLDS = 4096


class Bet(Protocol):
    """A set of runs, the attacker's event."""

    def count_hits(self, first: Counts, second: Counts) -> tuple[int, int]:
        """Return hits and false hits, given runs of D and of D'."""


#: Chooses the best event and its value from runs of D and of D', for a number of counted runs and a
#: luck.
Learn = Callable[[Counts, Counts, int, Score, float], tuple[float, Bet]]


@dataclass(frozen=True, eq=False)
class Event:
    """A set of runs, by the answers in them.

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

    def count_hits(self, first: Counts, second: Counts) -> tuple[int, int]:
        """Return hits and false hits, given runs of D and of D'."""
        true, false = (second, first) if self.reverse else (first, second)
        return self.hits(true), self.hits(false)


def learn(
    first: Counts,
    second: Counts,
    runs: int,
    score: Score,
    luck: float = 1.0,
    *,
    apart: int = 0,
) -> tuple[float, Event]:
    """Return the most promising event and its estimated value.

    Args:
        first: runs of D to learn from.
        second: as many runs of D'.
        runs: number of counted runs.
        score: value to maximise, of expected hits and false hits in ``runs`` runs.
        luck: see :func:`cautious_score`.
        apart: number of last columns that are no kinds of answers: each is a score by itself.

    Raises:
        AccountingError: if the two differ in shape or there are none.
    """
    _check(first, second)
    answers = first.shape[1] - apart
    seen, other = (each[:, :answers].sum(axis=0) + 0.5 for each in (first, second))
    towards = np.zeros(answers + apart)
    towards[:answers] = np.log(seen / seen.sum()) - np.log(other / other.sum())
    columns = np.eye(answers + apart)[answers:]
    found: list[tuple[float, Event]] = []
    for reverse, way in itertools.product((False, True), (towards, *columns, *-columns)):
        weights = -way if reverse else way
        scores, others = _scores(weights, first), _scores(weights, second)
        if reverse:
            scores, others = others, scores
        steps = np.unique(np.concatenate([scores, others]))
        steps = steps[:: -(-len(steps) // _MOST_THRESHOLDS)]
        hits, false = _reaching(scores, steps), _reaching(others, steps)
        value = cautious_score(hits, false, len(first), runs, score, luck)
        best = int(np.argmax(value))
        found.append((float(value[best]), Event(weights, float(steps[best]), reverse)))
    return max(found, key=lambda each: each[0])


#: Learns from answers, of which the last column says how many couples of a run's queries differ.
learn_answers = partial(learn, apart=1)


@dataclass(frozen=True)
class Range:
    """A set of runs, by one statistic.

    Attributes:
        view: index of the statistic.
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

    def count_hits(self, first: Readings, second: Readings) -> tuple[int, int]:
        """Return hits and false hits, given runs of D and of D'."""
        true, false = (second, first) if self.reverse else (first, second)
        return self.hits(true), self.hits(false)


def learn_range(
    first: Readings, second: Readings, runs: int, score: Score, luck: float = 1.0
) -> tuple[float, Range]:
    """Return the most promising range and its estimated value; see :func:`learn`.

    For each statistic, events are that it is at least, at most, or exactly a value: too little
    noise shows in the tails, missing noise in single values.

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
                value = cautious_score(true, false, len(first), runs, score, luck)
                best = int(np.argmax(value))
                made = Range(view, float(least[best]), float(most[best]), reverse)
                found.append((float(value[best]), made))
    return max(found, key=lambda each: each[0])


def cautious_score(
    hits: Floats, false: Floats, seen: int, runs: int, score: Score, luck: float
) -> Floats:
    """Return the value of events, given in how many of ``seen`` runs of each world they occurred.

    Each count is corrected by ``luck`` standard deviations and one more run, so that events seen
    never or always do not get probability 0 or 1. A negative luck raises the value instead.
    """
    share, one = runs / seen, np.copysign(1.0, luck)
    true = hits - one - luck * np.sqrt(hits * (1.0 - hits / seen))
    other = false + one + luck * np.sqrt(false * (1.0 - false / seen))
    return score(*(np.minimum(share * np.clip(each, 0.0, seen), runs) for each in (true, other)))


def _check(first: Counts, second: Counts) -> None:
    if first.shape != second.shape or first.ndim != 2 or not len(first):
        raise AccountingError(f"runs of shapes {first.shape} and {second.shape} cannot be compared")


def _scores(weights: Floats, counts: Counts) -> Floats:
    # Rounded, so that the order of summation does not matter at a threshold that is met exactly.
    return np.round(counts @ weights, 9)


def _reaching(scores: Floats, steps: Floats) -> Floats:
    """Return (steps,) how many of the scores are at least each step."""
    return (len(scores) - np.searchsorted(np.sort(scores), steps, side="left")).astype(np.float64)
