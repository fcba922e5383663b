"""The harness of an audit: two worlds, one event learnt, counted, and turned into a lower bound.

A subject makes independent runs in world 0 (D) or in world 1 (D'). The event is chosen by learning runs,
which are not counted: that a weighted sum of a run's figures reaches a value, or stays below it, or
equals it. Of answers the weights are the estimated log likelihood ratios of the kinds of answers: for
equal queries that is the likelihood ratio, and any other score would be as valid and only weaker.
Proof: docs/proofs/audits.md, sections 1 and 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from pate.accounting.arrays import Floats
from pate.accounting.conversion import check_delta
from pate.auditing.intervals import both_lower_bounds, epsilon_lower_bound, mu_lower_bound
from pate.auditing.neighbours import Pair
from pate.errors import AccountingError, UsageError

if TYPE_CHECKING:
    from typing import Self

#: (runs, figures) int64: how often each kind of answer occurred in a run, then its other figures.
Runs = NDArray[np.int64]
#: Makes independent runs of a pair in world 0 or 1.
Sample = Callable[[Pair, int, int], Runs]
#: Value of an event from expected hits and false hits: any shape in, the same out.
Score = Callable[[Floats, Floats], Floats]
Progress = Callable[[int, int], None]
#: Lower bounds on epsilon and on mu, and the name of the pair.
_Bet = tuple[float, float, str]

#: Fewer runs do not suffice to learn an event.
LEAST_RUNS: Final = 20
#: Least number of calls for the runs. Otherwise noise that is shared within a call could be
#: mistaken for an effect of the votes.
CALLS = 64
#: Each other bet gets the first one's runs divided by this.
_FEWER: Final = 4
#: Part of the doubt for the first bet, if there are others.
_FIRST: Final = 0.9
#: Standard deviations by which counts are corrected for luck: in choosing a pair, and in choosing
#: an event. Rare events often seem best by luck.
CAREFUL, _LUCK = 4.0, 1.0
#: Smaller claims are replaced by it where they divide.
_LEAST: Final = 1e-9
#: Most values tried as the bound of an event.
_MOST_STEPS: Final = 4096


@dataclass(frozen=True)
class Claim:
    """The claim of an accountant: epsilon at delta, and mu if it counts in Gaussian DP, else None."""

    epsilon: float
    delta: float
    mu: float | None = None

    def __post_init__(self) -> None:
        check_delta(self.delta)
        if not self.epsilon >= 0.0 or (self.mu is not None and not self.mu >= 0.0):
            raise AccountingError(f"an accountant cannot claim {self.epsilon} or mu {self.mu}")


@dataclass(frozen=True, kw_only=True)
class Audit:
    """One audit. A lower bound above the claim refutes it; one below it proves nothing."""

    subject: str
    kind: str  # ``mechanism``, ``gated``, ``campaign`` or ``canary``
    claimed: float
    lower_bound: float  # on epsilon, by the attack; at least 0
    delta: float
    confidence: float  # with which both lower bounds hold together
    runs: int  # total independent runs, or canaries of the one run
    queries: int  # of each run, at most; each answered at full cost
    unit: str
    adjacency: str
    observer: str
    mu_claimed: float | None = None  # of Gaussian DP, or None if the claim does not use it
    mu_lower_bound: float | None = None
    pair: str | None = None  # the neighbours that the attack distinguished best; None for canaries

    def __post_init__(self) -> None:
        figures = (self.claimed, self.lower_bound, self.mu_claimed, self.mu_lower_bound)
        if any(each is not None and not each >= 0.0 for each in figures):
            raise AccountingError(f"an audit has a NaN or negative figure: {figures}")
        if math.isinf(self.lower_bound):
            raise AccountingError("no number of runs shows an infinite epsilon")

    @property
    def holds(self) -> bool:
        """Whether no lower bound is above the claim."""
        mu = self.mu_claimed is None or (self.mu_lower_bound or 0.0) <= self.mu_claimed
        return self.lower_bound <= self.claimed and mu

    def to_dict(self) -> dict[str, object]:
        """Return a JSON object."""
        return {**asdict(self), "holds": self.holds}


@dataclass(frozen=True, kw_only=True, eq=False)
class Subject:
    """What is audited. The other attributes are those of its :class:`Audit`."""

    name: str
    kind: str
    # of its accountant; its delta is that of the bound, and where it has a mu, half the doubt is
    # spent on mu
    claim: Claim
    pairs: Sequence[Pair]  # neighbours to choose from; the first is the one that shows small errors
    sample: Sample
    queries: int
    # number of last figures of a run that are no kinds of answers, each a score by itself; None for
    # all
    figures: int | None = 0
    step: int  # most runs of one call of ``sample``
    unit: str = "record"
    adjacency: str = ""
    observer: str = "public"


@dataclass(frozen=True, eq=False)
class Event:
    """A set of runs: those whose weighted sum of figures lies from ``least`` to ``most``."""

    weights: Floats  # (figures,) float64
    least: float
    most: float
    reverse: bool  # whether a hit speaks for the world D' rather than D

    def hits(self, runs: Runs) -> int:
        """Return how many of the runs lie in the set."""
        value = _scores(self.weights, runs)
        return int(((value >= self.least) & (value <= self.most)).sum())

    def count_hits(self, first: Runs, second: Runs) -> tuple[int, int]:
        """Return hits and false hits, given runs of D and of D'."""
        true, false = (second, first) if self.reverse else (first, second)
        return self.hits(true), self.hits(false)


def learn(
    first: Runs,  # runs of D to learn from
    second: Runs,  # as many runs of D'
    runs: int,
    score: Score,  # value to maximise, of expected hits and false hits in ``runs`` runs
    luck: float = 1.0,
    *,
    figures: int | None = 0,
) -> tuple[float, Event]:
    """Return the most promising event, in a figure's tails or a single value, and its estimated value."""
    if first.shape != second.shape or first.ndim != 2 or not len(first):
        raise AccountingError(f"runs of shapes {first.shape} and {second.shape} cannot be compared")
    width = first.shape[1]
    kinds = 0 if figures is None else width - figures
    ways = list(np.eye(width)[kinds:])
    if kinds:
        seen, other = (each[:, :kinds].sum(axis=0) + 0.5 for each in (first, second))
        ratio = np.log(seen / seen.sum()) - np.log(other / other.sum())
        ways.insert(0, np.append(ratio, np.zeros(width - kinds)))
    tried: list[tuple[Floats, Floats, Floats, bool]] = []
    counts: list[list[Floats]] = []
    for way in ways:
        worlds = [np.sort(_scores(way, each)) for each in (first, second)]
        steps = np.unique(np.concatenate(worlds))
        steps = steps[:: -(-len(steps) // _MOST_STEPS)]
        below, over = (
            [np.searchsorted(each, steps, side=side).astype(np.float64) for each in worlds]
            for side in ("left", "right")
        )
        for least, most, hits in (
            (steps, np.full(len(steps), np.inf), [len(first) - each for each in below]),
            (np.full(len(steps), -np.inf), steps, over),
            (steps, steps, [a - b for a, b in zip(over, below, strict=True)]),
        ):
            tried += [(way, least, most, False), (way, least, most, True)]
            counts += [hits, hits[::-1]]
    # All in one call: most of these events occurred as often as others did.
    true, false = np.concatenate(counts, axis=1)
    value = cautious_score(true, false, len(first), runs, score, luck)
    best = int(value.argmax())
    ends = np.cumsum([len(least) for _, least, *_ in tried])
    block = int(np.searchsorted(ends, best, side="right"))
    way, least, most, reverse = tried[block]
    at = best - int(ends[block])
    return float(value[best]), Event(way, float(least[at]), float(most[at]), reverse)


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


def _scores(weights: Floats, runs: Runs) -> Floats:
    # Rounded, so that the order of summation does not matter at a value that is met exactly.
    return np.round(runs @ weights, 9)


@dataclass(frozen=True)
class Plan:
    """How an audit divides its runs and its doubt."""

    learning: int  # learning runs of each pair and world
    counting: tuple[int, ...]  # counted runs in each world, of each bet
    doubts: tuple[float, ...]  # probabilities with which each bound of a bet may be wrong

    @classmethod
    def of(cls, runs: int, bets: Sequence[Sequence[int]], claim: Claim, confidence: float) -> Self:
        """Return the plan of an audit with ``runs`` counted runs of the first of its bets."""
        # 1 - confidence has rounding errors, which must not make the bounds too large.
        doubt = (1.0 - confidence) * (1.0 - 1e-9) / (1 if claim.mu is None else 2)
        others = len(bets) - 1
        first = _FIRST * doubt if others else doubt
        return cls(
            learning=-(-runs // (2 * max(1, sum(map(len, bets))))),
            counting=(runs, *[-(-runs // _FEWER)] * others),
            doubts=(first, *[(doubt - first) / max(1, others)] * others),
        )


def bets_of(apart: Sequence[bool]) -> list[list[int]]:
    """Return the pairs of each bet, of which it takes the one that seems best.

    The first pair is a bet by itself. Pairs whose runs are calls of their own are another: where runs of
    a call are alike, other pairs may seem better by luck.

    ``apart``: of each pair, as in :class:`~pate.auditing.neighbours.Pair`.
    """
    others = range(1, len(apart))
    found = [[0], *([at for at in others if apart[at] is kind] for kind in (False, True))]
    return [each for each in found if each]


def runs_together(runs: int, most: int) -> int:
    """Return how many of ``runs`` one call makes, at most ``most``."""
    return max(1, min(most, runs // CALLS))


def nearness(claim: Claim, runs: int, doubt: float) -> Score:
    """Return a valuation: how near an event comes to refuting a claim, which it does above 1."""

    def near(hits: Floats, false: Floats) -> Floats:
        epsilon, mu = both_lower_bounds(hits, false, runs, claim.delta, doubt)
        # While no event bounds epsilon, the better pair is that of the larger mu.
        nearer: Floats = _over(claim, epsilon, mu) + 1e-6 * mu
        return nearer

    return near


def _over(claim: Claim, epsilon: Floats, mu: Floats) -> Floats:
    """Return how near bounds come to refuting the claim, which they do above 1."""
    value = epsilon / max(claim.epsilon, _LEAST)
    return value if claim.mu is None else np.maximum(value, mu / max(claim.mu, _LEAST))


def audit(
    subject: Subject, *, runs: int, confidence: float, progress: Progress = lambda *_: None
) -> Audit:
    """Audit a subject with ``runs`` runs in each of two neighbouring worlds.

    Learning takes half as many again, shared by the pairs. Then an event is counted for each bet: one of
    the first pair, whatever was learned, and, with a quarter of the runs each, one of the other pair
    that seems to come nearest to refuting the claim, in epsilon or in mu, and one of such a pair among
    those whose runs are calls of their own. Small differences between pairs cannot be learned from so few
    runs; missing noise shows clearly, but in some pairs only.

    ``runs``: counted runs of the first pair, in each world; ``confidence``: with which all lower
    bounds hold together; ``progress``: called with runs done and total runs.
    """
    pairs, claim, step = subject.pairs, subject.claim, subject.step
    bets = bets_of([pair.apart for pair in pairs])
    plan = Plan.of(runs, bets, claim, confidence)
    if not pairs or plan.learning < LEAST_RUNS or step < 1:
        raise UsageError(
            f"{runs} runs are too few for {len(pairs)} pairs: take {2 * LEAST_RUNS} for each"
        )
    if not 0.5 <= confidence < 1.0:
        raise UsageError(f"the confidence must be between 0.5 and 1, got {confidence}")
    total = 2 * (len(pairs) * plan.learning + sum(plan.counting))
    done = 0

    def worlds(pair: Pair, number: int) -> tuple[Runs, Runs]:
        """Return that many runs of both worlds."""
        nonlocal done
        made: list[Runs] = []
        for world in (0, 1):
            parts = []
            for start in range(0, number, step):
                parts.append(subject.sample(pair, world, min(step, number - start)))
                done += len(parts[-1])
                progress(done, total)
            made.append(np.concatenate(parts))
        return made[0], made[1]

    def bet(pair: Pair, known: tuple[Runs, Runs], counting: int, doubt: float) -> _Bet:
        by_epsilon = partial(epsilon_lower_bound, runs=counting, delta=claim.delta, doubt=doubt)
        by_mu = partial(mu_lower_bound, runs=counting, doubt=doubt)
        (_, event), (_, mu_event) = (
            learn(*known, counting, score, _LUCK, figures=subject.figures)
            for score in (by_epsilon, by_mu)
        )
        counted = worlds(pair, counting)
        mu = 0.0 if claim.mu is None else float(by_mu(*mu_event.count_hits(*counted)))
        return float(by_epsilon(*event.count_hits(*counted))), mu, pair.name

    near = nearness(claim, plan.counting[-1], plan.doubts[-1])
    known = [worlds(pair, plan.learning) for pair in pairs]
    promises = [
        learn(*each, plan.counting[-1], near, CAREFUL, figures=subject.figures)[0] for each in known
    ]
    best = [max(among, key=lambda at: promises[at]) for among in bets]
    found = [
        bet(pairs[at], known[at], counting, doubt)
        for at, counting, doubt in zip(best, plan.counting, plan.doubts, strict=True)
    ]
    epsilons, mus, _ = zip(*found, strict=True)

    def near_of(each: _Bet) -> Floats:
        return _over(claim, np.array(each[0]), np.array(each[1]))

    return Audit(
        subject=subject.name,
        kind=subject.kind,
        claimed=claim.epsilon,
        lower_bound=max(epsilons),
        delta=claim.delta,
        mu_claimed=claim.mu,
        mu_lower_bound=None if claim.mu is None else max(mus),
        pair=max(found, key=lambda each: float(near_of(each)))[2],
        confidence=confidence,
        runs=total,
        queries=subject.queries,
        unit=subject.unit,
        adjacency=subject.adjacency,
        observer=subject.observer,
    )
