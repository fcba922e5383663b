"""The audit of many runs: choose neighbours, learn an event, then bound what it gives away.

The runs that choose and learn are not among those that count, so that the bound is one for an event
that was fixed beforehand. Proof: docs/proofs/audits.md, sections 1 and 2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from pate.auditing.attack import Bet, Counts, Learn, learn
from pate.auditing.intervals import check_doubt, epsilon_lower_bound, mu_lower_bound
from pate.auditing.neighbours import Pair
from pate.auditing.result import Audit
from pate.errors import UsageError

if TYPE_CHECKING:
    from pate.auditing.result import Claim, Seen

#: Makes independent runs: of a pair, in world 0 (D) or 1 (D'), so many; (runs, kinds) counts.
Sample = Callable[[Pair, int, int], Counts]
Progress = Callable[[int, int], None]

#: With fewer runs than that there is nothing to learn an event from.
LEAST_RUNS = 20
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

    Half as many again are spent on learning, shared by the pairs. The pair that counts is the one
    that seems to come nearest to refuting the claim, in epsilon or in mu.

    Args:
        sample: makes the runs.
        pairs: neighbours to choose from.
        claim: its delta is that of the bound; where it has a mu, half the doubt is spent on mu.
        runs: that count, in each world.
        confidence: with which both lower bounds hold together.
        step: runs of one call of ``sample``.
        learner: finds what to bet on.
        progress: called with runs done and runs in all.

    Raises:
        UsageError: for too few runs, no pairs, or a confidence that is none.
        AccountingError: for counts that cannot be.
    """
    learning = -(-runs // (2 * max(1, len(pairs))))
    if not pairs or learning < LEAST_RUNS or step < 1:
        raise UsageError(
            f"{runs} runs are too few for {len(pairs)} pairs: take {2 * LEAST_RUNS} for each"
        )
    if not 0.5 <= confidence < 1.0:
        raise UsageError(f"the confidence lies between 0.5 and 1, got {confidence}")
    # 1 - confidence has rounding errors; they must not make the bounds bolder.
    doubt = check_doubt((1.0 - confidence) * (1.0 - 1e-9) / (1 if claim.mu is None else 2))
    total = 2 * (len(pairs) * learning + runs)
    done = 0

    def collect(pair: Pair, world: int, number: int) -> Counts:
        nonlocal done
        parts = []
        for start in range(0, number, step):
            parts.append(sample(pair, world, min(step, number - start)))
            done += len(parts[-1])
            progress(done, total)
        return np.concatenate(parts)

    by_epsilon = partial(epsilon_lower_bound, runs=runs, delta=claim.delta, doubt=doubt)
    by_mu = partial(mu_lower_bound, runs=runs, doubt=doubt)
    learned: list[tuple[float, Pair, Bet, Bet]] = []
    for pair in pairs:
        first, second = (collect(pair, world, learning) for world in (0, 1))
        worth, event = learner(first, second, runs, by_epsilon)
        mu_worth, mu_event = learner(first, second, runs, by_mu)
        near = worth / max(claim.epsilon, _LEAST)
        if claim.mu is not None:
            near = max(near, mu_worth / max(claim.mu, _LEAST))
        # Where no event says anything on epsilon yet, the better pair is that of the larger mu.
        learned.append((near + 1e-6 * mu_worth, pair, event, mu_event))
    _, pair, event, mu_event = max(learned, key=lambda each: each[0])
    first, second = (collect(pair, world, runs) for world in (0, 1))
    mu = None if claim.mu is None else float(by_mu(*mu_event.tally(first, second)))
    return Findings(float(by_epsilon(*event.tally(first, second))), mu, pair, total)
