"""The audit of many runs: choose neighbours, learn events, then bound what they give away.

The runs that choose and learn are not among those that count, so that the bound is one for an event
that was fixed beforehand. Proof: docs/proofs/audits.md, sections 1 and 2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.auditing.attack import Counts, Learn, Worth, learn
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

#: Makes independent runs: of a pair, in world 0 (D) or 1 (D'), so many; (runs, kinds) counts.
Sample = Callable[[Pair, int, int], Counts]
Progress = Callable[[int, int], None]

#: With fewer runs than that there is nothing to learn an event from.
LEAST_RUNS = 20
#: The least number of calls for so many runs. What noise has in common within a call would otherwise
#: be taken for what the votes have in common.
CALLS = 64
#: The best of the other pairs gets the runs of the first one, divided by this.
_FEWER: Final = 4
#: Part of the doubt that is spent on the first pair, if there are others.
_FIRST: Final = 0.9
#: Standard deviations by which counts are taken to have been luck: where a pair is chosen, and where
#: it is learned what to bet on in it. Rare events seem best by luck, so pairs are chosen with care.
CAREFUL, _LUCK = 4.0, 1.0
#: Claims below it are taken for it, where one is divided by them.
_LEAST = 1e-9


@dataclass(frozen=True, eq=False)
class Findings:
    """What an attack found.

    Attributes:
        lower_bound: on epsilon.
        mu_lower_bound: on mu, or None where none is claimed.
        pair: the neighbours that were told apart.
        runs: in all, of both worlds, those to learn from included.
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
        """Return the audit of a claim that this ends; arguments are its attributes."""
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
    """A pair, and the runs of it in both worlds that are learned from."""

    pair: Pair
    worlds: tuple[Counts, Counts]


@dataclass(frozen=True)
class Plan:
    """Which runs an attack spends on what, and which doubt.

    Attributes:
        learning: runs to learn from, of each pair and world.
        counting: runs that count, in each world: of the first pair, and of the best of the others.
        doubts: probabilities with which each bound of the two may be wrong.
    """

    learning: int
    counting: tuple[int, int]
    doubts: tuple[float, float]

    @classmethod
    def of(cls, runs: int, pairs: int, claim: Claim, confidence: float) -> Plan:
        """Return the plan of an attack with ``runs`` runs that count of the first pair."""
        # 1 - confidence has rounding errors; they must not make the bounds bolder.
        doubt = (1.0 - confidence) * (1.0 - 1e-9) / (1 if claim.mu is None else 2)
        first = doubt if pairs == 1 else _FIRST * doubt
        return cls(
            learning=-(-runs // (2 * max(1, pairs))),
            counting=(runs, -(-runs // _FEWER)),
            doubts=(first, (1.0 - _FIRST) * doubt),
        )


def runs_together(runs: int, most: int) -> int:
    """Return how many of some runs are made with one call, which is at most ``most``."""
    return max(1, min(most, runs // CALLS))


def nearness(claim: Claim, runs: int, doubt: float) -> Worth:
    """Return a worth: how near an event comes to refuting a claim, which it does above 1."""

    def near(hits: Floats, false: Floats) -> Floats:
        epsilon, mu = both_lower_bounds(hits, false, runs, claim.delta, doubt)
        value = epsilon / max(claim.epsilon, _LEAST)
        if claim.mu is not None:
            value = np.maximum(value, mu / max(claim.mu, _LEAST))
        # Where no event says anything on epsilon yet, the better pair is that of the larger mu.
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

    Half as many again are spent on learning, shared by the pairs. Then there are two bets: one on the
    first pair, whatever was learned, and one, with a quarter of the runs, on that of the others which
    seems to come nearest to refuting the claim, in epsilon or in mu. Which of two pairs is a little
    better cannot be learned from so few runs; noise that is missing shows in some pairs only, and
    plainly.

    Args:
        sample: makes the runs.
        pairs: neighbours; the first is the one that tells on small errors.
        claim: its delta is that of the bound; where it has a mu, half the doubt is spent on mu.
        runs: that count, of the first pair, in each world.
        confidence: with which all lower bounds hold together.
        step: runs of one call of ``sample``.
        learner: finds what to bet on.
        progress: called with runs done and runs in all.

    Raises:
        UsageError: for too few runs, no pairs, or a confidence that is none.
        AccountingError: for counts that cannot be.
    """
    plan = Plan.of(runs, len(pairs), claim, confidence)
    if not pairs or plan.learning < LEAST_RUNS or step < 1:
        raise UsageError(
            f"{runs} runs are too few for {len(pairs)} pairs: take {2 * LEAST_RUNS} for each"
        )
    if not 0.5 <= confidence < 1.0:
        raise UsageError(f"the confidence lies between 0.5 and 1, got {confidence}")
    total = 2 * (len(pairs) * plan.learning + sum(plan.counting[: len(pairs)]))
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
            learner(*known.worlds, counting, worth, _LUCK) for worth in (by_epsilon, by_mu)
        )
        first, second = (collect(known.pair, world, counting) for world in (0, 1))
        mu = None if claim.mu is None else float(by_mu(*mu_event.tally(first, second)))
        epsilon = float(by_epsilon(*event.tally(first, second)))
        return Findings(epsilon, mu, known.pair, total)

    near = nearness(claim, plan.counting[1], plan.doubts[1])
    number = plan.learning
    known = [_Learned(pair, (collect(pair, 0, number), collect(pair, 1, number))) for pair in pairs]
    bets = known[:1]
    if len(pairs) > 1:
        promises = [learner(*each.worlds, plan.counting[1], near, CAREFUL)[0] for each in known[1:]]
        bets.append(known[1 + int(np.argmax(promises))])
    found = [bet(*each) for each in zip(bets, plan.counting, plan.doubts, strict=False)]
    return Findings(
        max(each.lower_bound for each in found),
        None if claim.mu is None else max(each.mu_lower_bound or 0.0 for each in found),
        max(found, key=lambda each: _over(each, claim)).pair,
        total,
    )


def _over(found: Findings, claim: Claim) -> float:
    """Return how near what was found comes to refuting the claim, by the rule of :func:`nearness`."""
    mu = found.mu_lower_bound or 0.0
    return max(
        found.lower_bound / max(claim.epsilon, _LEAST),
        0.0 if claim.mu is None else mu / max(claim.mu, _LEAST),
    )
