"""The power of an audit, predicted before it runs, from exact laws instead of trials.

For a bug, a pair of neighbours and a number of runs: over all events that the attacker may choose,
the best bound that the counts reach except with probability :data:`MISSED`. The first pair is
always used, and a learned pair for each other bet, so a bug that the first does not show counts as
seen only if all pairs that a bet may choose show it. The attacker has to learn the event, too, so a
fifth of the runs is not counted; that this suffices is measured, not proved: docs/proofs/audits.md,
section 3.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from pate.accounting.arrays import Floats
from pate.auditing.harness import (
    CAREFUL,
    LEAST_RUNS,
    Claim,
    Plan,
    bets_of,
    cautious_score,
    nearness,
    runs_together,
)
from pate.auditing.intervals import both_lower_bounds

#: Probability with which a bug that counts as seen is missed.
MISSED: Final = 1e-6
#: Part of the runs that is counted.
_PART: Final = 0.8
#: Numbers of runs tried.
_RUNS: Final = tuple(
    round(first * 10**power) for power in range(2, 8) for first in (1, 1.5, 2, 3, 4, 5, 6, 8)
)
#: Events tried for one pair and direction.
_EVENTS: Final = 64


@dataclass(frozen=True)
class Seen:
    """Whether an audit sees a bug."""

    bug: str  # its name
    # least number of runs in each world, as in ``--runs``; None if ten million do not suffice, or
    # it costs no privacy
    runs: int | None
    pair: str | None  # the neighbours that show it, if any do
    seen: bool  # whether this audit has that many


def events_of(outcomes: Floats) -> Floats:
    """Return (events, 2): probabilities of a hit and of a false hit of the best events.

    ``outcomes``: (outcomes, 2) probabilities in the two worlds. An event is a set of the outcomes
    that favour one world most.
    """
    order = np.argsort((outcomes[:, 1] + 1e-300) / (outcomes[:, 0] + 1e-300), kind="stable")
    table = outcomes[order]
    forward = table.cumsum(axis=0)
    backward = table[::-1, ::-1].cumsum(axis=0)
    return np.vstack([_few(forward), _few(backward)])


def level_events(laws: tuple[Floats, Floats]) -> Floats:
    """Return (events, 2) for an integer: that it equals, is at least, or is at most a value.

    ``laws``: of the integer in the two worlds, (values,) each, of the same values.
    """
    table = np.stack(laws, axis=1)
    most, least = table.cumsum(axis=0), table[::-1].cumsum(axis=0)
    apart = np.abs(table[:, 0] - table[:, 1])
    single = table[np.argsort(-apart, kind="stable")[:8]]
    found = []
    for events in (most, least, single):
        found += [_few(events), _few(events[:, ::-1])]
    return np.vstack(found)


def _few(events: Floats) -> Floats:
    events = np.clip(events, 0.0, 1.0)
    events = events[events[:, 0] > events[:, 1]]
    if len(events) <= _EVENTS:
        return events
    # Evenly spaced in log odds: rare events matter as much as frequent ones.
    hit = np.clip(events[:, 0], 1e-12, 1 - 1e-12)
    odds = np.log(hit / (1 - hit))
    steps = np.linspace(odds.min(), odds.max(), _EVENTS)
    chosen = np.unique([int(np.abs(odds - step).argmin()) for step in steps])
    few: Floats = events[chosen]
    return few


def reached(
    events: Floats,  # (events, 2) probabilities of hits and of false hits
    runs: int,  # in each world
    claim: Claim,  # only its delta is used
    doubt: float,  # of each of the two bounds
    together: int = 1,  # number of runs that share their noise and so agree
    missed: float = MISSED,  # probability of worse counts
) -> tuple[Floats, Floats]:
    """Return (events,) bounds on epsilon and mu, reached except with probability ``missed``."""
    from scipy import stats  # slow to import

    lots = max(1, runs // together)
    whole = lots * together
    least = together * stats.binom.ppf(missed / 2, lots, events[:, 0])
    most = together * stats.binom.isf(missed / 2, lots, events[:, 1])
    most = np.clip(most, 0, whole)
    return both_lower_bounds(np.clip(least, 0, whole), most, whole, claim.delta, doubt)


def seen_from(
    bug: str,  # its name
    # by the name of the pair, in the order of the attack, (events, 2)
    events: Mapping[str, Floats],
    claim: Claim,  # of the code, the bug in its accountant included
    *,
    runs: int,  # of the audit
    confidence: float,  # of the audit
    # of each pair, see :func:`~pate.auditing.harness.bets_of`; None: none is
    apart: Sequence[bool] | None = None,
    together: int = 1,  # of the other pairs, see :func:`reached`
) -> Seen:
    """Return the least number of runs at which a bug is seen, and the pair that shows it."""
    names, tables = list(events), list(events.values())
    apart = [False] * len(names) if apart is None else apart
    bets = bets_of(apart)
    agreeing = [1 if each else together for each in apart]
    fewest = 2 * LEAST_RUNS * len(names)  # fewer do not suffice to learn

    def over(place: int, counting: int, doubt: float, missed: float) -> float:
        """Return the excess of a pair's bound over the claim."""
        part = math.floor(_PART * counting)
        alike = runs_together(counting, agreeing[place])
        epsilon, mu = reached(tables[place], part, claim, doubt, alike, missed)
        by = epsilon - claim.epsilon
        if claim.mu is not None:
            by = np.maximum(by, mu - claim.mu)
        return float(by.max(initial=-1.0))

    def refuted(number: int) -> str | None:
        """Return the first pair if it refutes the claim, else the best other if all may."""
        plan = Plan.of(number, bets, claim, confidence)
        if over(0, plan.counting[0], plan.doubts[0], MISSED) > 0.0:
            return names[0]
        for among in bets[1:]:
            others = {
                place: over(place, plan.counting[-1], plan.doubts[-1], MISSED / 2)
                for place in may_be_chosen(tables, among, plan, claim, agreeing)
            }
            if others and min(others.values()) > 0.0:
                return names[max(others, key=lambda place: others[place])]
        return None

    tried = [fewest, *(number for number in _RUNS if number > fewest)]
    low, high = -1, len(tried) - 1
    name = refuted(tried[-1])
    if name is None:
        return Seen(bug, None, None, seen=False)
    while high - low > 1:
        middle = (low + high) // 2
        found = refuted(tried[middle])
        low, high, name = (middle, high, name) if found is None else (low, middle, found)
    return Seen(bug, tried[high], name, seen=runs >= tried[high])


def may_be_chosen(
    tables: Sequence[Floats],  # for each pair, (events, 2) probabilities of hits and of false hits
    among: Sequence[int],  # indices of the pairs of the bet; not the first
    plan: Plan,  # of the attack
    claim: Claim,  # of the code
    together: Sequence[int],  # of each pair, number of runs of a call that agree
) -> list[int]:
    """Return the indices of the pairs that a bet may choose.

    Any other one is chosen with probability MISSED / 2 at most.
    """
    from scipy import stats

    learning, counting = plan.learning, plan.counting[-1]
    lots = [learning // runs_together(learning, number) for number in together]
    near = nearness(claim, counting, plan.doubts[-1])
    others = [place for place in among if len(tables[place])]

    def seems(place: int, hits: Floats, false: Floats) -> float:
        many = learning / lots[place]
        true, other = (np.clip(each * many, 0, learning) for each in (hits, false))
        return float(cautious_score(true, other, learning, counting, near, CAREFUL).max())

    def at_least(place: int, tail: float) -> float:
        hit, false = tables[place].T
        number = lots[place]
        return seems(
            place, stats.binom.ppf(tail, number, hit), stats.binom.isf(tail, number, false)
        )

    def at_most(place: int, tail: float) -> float:
        hit, false = tables[place].T
        number = lots[place]
        return seems(
            place, stats.binom.isf(tail, number, hit), stats.binom.ppf(tail, number, false)
        )

    # It suffices that one event of one pair is no worse, and none of the others is better.
    number = sum(len(tables[place]) for place in others)
    least = max((at_least(place, MISSED / 8) for place in others), default=0.0)
    return [place for place in others if at_most(place, MISSED / (8 * number)) >= least]
