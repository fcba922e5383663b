"""What an audit is going to find, said before it runs: from exact laws, not from trials.

For a bug, a pair of neighbours and a number of runs: of all events that the attacker may bet on, the
best bound that the counts reach but with probability :data:`MISSED`. The first pair is bet on always;
of the others one that is learned, so a bug that the first does not show counts as seen only if all
of those show it that may be chosen. An attacker has to learn the event, too, so a fifth of the runs is
left out of account; that this is enough is measured, not proved: docs/proofs/audits.md, section 3.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy import stats

from pate.auditing.attack import promised
from pate.auditing.experiment import CAREFUL, LEAST_RUNS, Plan, nearness, runs_together
from pate.auditing.intervals import both_lower_bounds
from pate.auditing.result import Seen

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pate.accounting.arrays import Floats
    from pate.auditing.result import Claim

#: With which probability a bug that counts as seen is missed nevertheless.
MISSED: Final = 1e-6
#: Part of the runs that is reckoned with.
_PART: Final = 0.8
#: Numbers of runs that are tried.
_RUNS: Final = tuple(
    round(first * 10**power) for power in range(2, 8) for first in (1, 1.5, 2, 3, 4, 5, 6, 8)
)
#: Events of one pair and direction that are tried.
_EVENTS: Final = 64


def events_of(outcomes: Floats) -> Floats:
    """Return (events, 2): chances of a hit and of a false hit of the best events.

    Args:
        outcomes: (outcomes, 2) chances in the two worlds. An event is a set of those that speak
            most for one world; it may be either.
    """
    order = np.argsort((outcomes[:, 1] + 1e-300) / (outcomes[:, 0] + 1e-300), kind="stable")
    table = outcomes[order]
    forward = table.cumsum(axis=0)
    backward = table[::-1, ::-1].cumsum(axis=0)
    return np.vstack([_few(forward), _few(backward)])


def level_events(laws: tuple[Floats, Floats]) -> Floats:
    """Return (events, 2) for an integer: that it is a value, or at least, or at most that value.

    Args:
        laws: of the integer in the two worlds, (values,) each, of the same values.
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
    # Evenly by the logarithm of the odds: rare events are as interesting as frequent ones.
    hit = np.clip(events[:, 0], 1e-12, 1 - 1e-12)
    odds = np.log(hit / (1 - hit))
    steps = np.linspace(odds.min(), odds.max(), _EVENTS)
    chosen = np.unique([int(np.abs(odds - step).argmin()) for step in steps])
    few: Floats = events[chosen]
    return few


def reached(
    events: Floats,
    runs: int,
    claim: Claim,
    doubt: float,
    together: int = 1,
    missed: float = MISSED,
) -> tuple[Floats, Floats]:
    """Return (events,) bounds on epsilon and on mu that are reached, but with probability ``missed``.

    Args:
        events: (events, 2) chances of hits and of false hits.
        runs: in each world.
        claim: its delta counts.
        doubt: of each of the two bounds.
        together: how many runs come out alike, since they share their noise.
        missed: probability with which the counts of an event are worse.
    """
    lots = max(1, runs // together)
    whole = lots * together
    least = together * stats.binom.ppf(missed / 2, lots, events[:, 0])
    most = together * stats.binom.isf(missed / 2, lots, events[:, 1])
    most = np.clip(most, 0, whole)
    return both_lower_bounds(np.clip(least, 0, whole), most, whole, claim.delta, doubt)


def seen_from(
    bug: str,
    events: Mapping[str, Floats],
    claim: Claim,
    *,
    runs: int,
    confidence: float,
    together: int = 1,
) -> Seen:
    """Return from how many runs on a bug is seen, and by which pair.

    Args:
        bug: its name.
        events: by the name of the pair, in the order of the attack, (events, 2).
        claim: what the code claims, the bug in its accountant included.
        runs: of the audit at hand.
        confidence: of the audit.
        together: see :func:`reached`.
    """
    names, tables = list(events), list(events.values())
    fewest = 2 * LEAST_RUNS * len(names)  # with fewer an attacker refuses to learn

    def over(place: int, counting: int, doubt: float, missed: float) -> float:
        """Return by how much the bound of a pair exceeds the claim."""
        part = math.floor(_PART * counting)
        alike = runs_together(counting, together)
        epsilon, mu = reached(tables[place], part, claim, doubt, alike, missed)
        by = epsilon - claim.epsilon
        if claim.mu is not None:
            by = np.maximum(by, mu - claim.mu)
        return float(by.max(initial=-1.0))

    def refuted(number: int) -> str | None:
        """Return the first pair if it refutes the claim, or the best other one if all do that may."""
        plan = Plan.of(number, len(names), claim, confidence)
        if over(0, plan.counting[0], plan.doubts[0], MISSED) > 0.0:
            return names[0]
        others = {
            place: over(place, plan.counting[1], plan.doubts[1], MISSED / 2)
            for place in may_be_chosen(tables, plan, claim, together)
        }
        if not others or min(others.values()) <= 0.0:
            return None
        return names[max(others, key=lambda place: others[place])]

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


def may_be_chosen(tables: Sequence[Floats], plan: Plan, claim: Claim, together: int) -> list[int]:
    """Return the places of the pairs besides the first that an attack may bet on.

    Another one is bet on with probability MISSED / 2 at most.

    Args:
        tables: of each pair, (events, 2) chances of hits and of false hits.
        plan: of the attack.
        claim: what the code claims.
        together: how many runs of a call come out alike.
    """
    learning, counting = plan.learning, plan.counting[1]
    alike = runs_together(learning, together)
    lots = learning // alike
    near = nearness(claim, counting, plan.doubts[1])
    others = [place for place in range(1, len(tables)) if len(tables[place])]

    def seems(hits: Floats, false: Floats) -> float:
        true, other = (np.clip(each * (learning / lots), 0, learning) for each in (hits, false))
        return float(promised(true, other, learning, counting, near, CAREFUL).max())

    def at_least(place: int, tail: float) -> float:
        hit, false = tables[place].T
        return seems(stats.binom.ppf(tail, lots, hit), stats.binom.isf(tail, lots, false))

    def at_most(place: int, tail: float) -> float:
        hit, false = tables[place].T
        return seems(stats.binom.isf(tail, lots, hit), stats.binom.ppf(tail, lots, false))

    # It is enough that one event of one pair comes out no worse, and none of the others better.
    number = sum(len(tables[place]) for place in others)
    least = max((at_least(place, MISSED / 8) for place in others), default=0.0)
    return [place for place in others if at_most(place, MISSED / (8 * number)) >= least]
