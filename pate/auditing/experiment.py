"""Many-run audit: choose neighbours, learn events, then bound epsilon.

Learning runs are not counted, so the event is fixed before the counted runs. Proof:
docs/proofs/audits.md, sections 1 and 2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.auditing.attack import Counts, Learn, Score, learn
from pate.auditing.intervals import (
    both_lower_bounds,
    epsilon_lower_bound,
    mu_lower_bound,
)
from pate.auditing.neighbours import Pair
from pate.auditing.result import Audit
from pate.errors import UsageError

if TYPE_CHECKING:
    from pate.accounting.arrays import Floats
    from pate.auditing.result import Claim, Seen

#: Makes independent runs of a pair in world 0 (D) or 1 (D'); returns (runs, kinds) counts.
Sample = Callable[[Pair, int, int], Counts]
Progress = Callable[[int, int], None]

#: Fewer runs do not suffice to learn an event.
LEAST_RUNS = 20
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
_LEAST = 1e-9


@dataclass(frozen=True, eq=False)
class Findings:
    """Result of an attack.

    Attributes:
        lower_bound: on epsilon.
        mu_lower_bound: on mu, or None if none is claimed.
        pair: the neighbours that were distinguished.
        runs: total of both worlds, learning runs included.
    """

    lower_bound: float
    mu_lower_bound: float | None
    pair: Pair
    runs: int

    def audit(
        self,
        claim: Claim,
        *,
        subject: str,
        kind: str,
        bugs: tuple[Seen, ...],
        confidence: float,
        queries: int,
        unit: str,
        adjacency: str,
        observer: str,
    ) -> Audit:
        """Return the audit of a claim with these findings; arguments are its attributes."""
        return Audit(
            subject=subject,
            kind=kind,
            claimed=claim.epsilon,
            lower_bound=self.lower_bound,
            delta=claim.delta,
            mu_claimed=claim.mu,
            mu_lower_bound=self.mu_lower_bound,
            pair=self.pair.name,
            bugs=bugs,
            confidence=confidence,
            runs=self.runs,
            queries=queries,
            unit=unit,
            adjacency=adjacency,
            observer=observer,
        )


@dataclass(frozen=True, eq=False)
class _Learned:
    """A pair and its learning runs in both worlds."""

    pair: Pair
    worlds: tuple[Counts, Counts]


@dataclass(frozen=True)
class Plan:
    """How an attack divides its runs and its doubt.

    Attributes:
        learning: learning runs of each pair and world.
        counting: counted runs in each world, of each bet.
        doubts: probabilities with which each bound of a bet may be wrong.
    """

    learning: int
    counting: tuple[int, ...]
    doubts: tuple[float, ...]

    @classmethod
    def of(cls, runs: int, bets: Sequence[Sequence[int]], claim: Claim, confidence: float) -> Plan:
        """Return the plan of an attack with ``runs`` counted runs of the first of its bets."""
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

    Args:
        apart: of each pair, as in :class:`~pate.auditing.neighbours.Pair`.
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
        value = epsilon / max(claim.epsilon, _LEAST)
        if claim.mu is not None:
            value = np.maximum(value, mu / max(claim.mu, _LEAST))
        # While no event bounds epsilon, the better pair is that of the larger mu.
        nearer: Floats = value + 1e-6 * mu
        return nearer

    return near


def attack(
    sample: Sample,
    pairs: Sequence[Pair],
    claim: Claim,
    *,
    runs: int,
    confidence: float,
    step: int,
    learner: Learn = learn,
    progress: Progress = lambda *_: None,
) -> Findings:
    """Attack a mechanism or a campaign with ``runs`` runs in each of two neighbouring worlds.

    Learning takes half as many again, shared by the pairs. Then an event is counted for each bet: one of
    the first pair, whatever was learned, and, with a quarter of the runs each, one of the other pair
    that seems to come nearest to refuting the claim, in epsilon or in mu, and one of such a pair among
    those whose runs are calls of their own. Small differences between pairs cannot be learned from so few
    runs; missing noise shows clearly, but in some pairs only.

    Args:
        sample: makes the runs.
        pairs: neighbours; the first is the one that shows small errors.
        claim: its delta is that of the bound; where it has a mu, half the doubt is spent on mu.
        runs: counted runs of the first pair, in each world.
        confidence: with which all lower bounds hold together.
        step: runs of one call of ``sample``.
        learner: chooses the event.
        progress: called with runs done and total runs.

    Raises:
        UsageError: for too few runs, no pairs, or an invalid confidence.
        AccountingError: for impossible counts.
    """
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

    def collect(pair: Pair, world: int, number: int) -> Counts:
        nonlocal done
        parts = []
        for start in range(0, number, step):
            parts.append(sample(pair, world, min(step, number - start)))
            done += len(parts[-1])
            progress(done, total)
        return np.concatenate(parts)

    def bet(known: _Learned, counting: int, doubt: float) -> Findings:
        by_epsilon = partial(epsilon_lower_bound, runs=counting, delta=claim.delta, doubt=doubt)
        by_mu = partial(mu_lower_bound, runs=counting, doubt=doubt)
        (_, event), (_, mu_event) = (
            learner(*known.worlds, counting, score, _LUCK) for score in (by_epsilon, by_mu)
        )
        first, second = (collect(known.pair, world, counting) for world in (0, 1))
        mu = None if claim.mu is None else float(by_mu(*mu_event.count_hits(first, second)))
        epsilon = float(by_epsilon(*event.count_hits(first, second)))
        return Findings(epsilon, mu, known.pair, total)

    near = nearness(claim, plan.counting[-1], plan.doubts[-1])
    number = plan.learning
    known = [_Learned(pair, (collect(pair, 0, number), collect(pair, 1, number))) for pair in pairs]
    promises = [learner(*each.worlds, plan.counting[-1], near, CAREFUL)[0] for each in known]
    best = [known[max(among, key=lambda at: promises[at])] for among in bets]
    found = [bet(*each) for each in zip(best, plan.counting, plan.doubts, strict=True)]
    return Findings(
        max(each.lower_bound for each in found),
        None if claim.mu is None else max(each.mu_lower_bound or 0.0 for each in found),
        max(found, key=lambda each: _over(each, claim)).pair,
        total,
    )


def _over(found: Findings, claim: Claim) -> float:
    """Return how near the findings come to refuting the claim; see :func:`nearness`."""
    mu = found.mu_lower_bound or 0.0
    return max(
        found.lower_bound / max(claim.epsilon, _LEAST),
        0.0 if claim.mu is None else mu / max(claim.mu, _LEAST),
    )
