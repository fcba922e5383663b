"""What an audit is going to find, said before it runs: from exact laws, not from trials.

For a bug, a pair of neighbours and a number of runs: of all events that the attacker may bet on, the
best bound that the counts reach but with probability :data:`MISSED`. An attacker has to learn the
event first, so a fifth of the runs is left out of account.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy import stats

from pate.auditing.experiment import LEAST_RUNS
from pate.auditing.intervals import both_lower_bounds
from pate.auditing.result import Seen

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    events: Floats, runs: int, claim: Claim, confidence: float, together: int = 1
) -> tuple[Floats, Floats]:
    """Return (events,) bounds on epsilon and on mu that are reached, but with probability MISSED.

    Args:
        events: (events, 2) chances of hits and of false hits.
        runs: in each world.
        claim: its delta counts, and whether it has a mu.
        confidence: of the audit.
        together: how many runs come out alike, since they share their noise.
    """
    doubt = (1.0 - confidence) * (1.0 - 1e-9) / (1 if claim.mu is None else 2)
    lots = max(1, runs // together)
    whole = lots * together
    least = together * stats.binom.ppf(MISSED / 2, lots, events[:, 0])
    most = together * stats.binom.isf(MISSED / 2, lots, events[:, 1])
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
        events: by the name of the pair, (events, 2).
        claim: what the code claims, the bug in its accountant included.
        runs: of the audit at hand.
        confidence: of the audit.
        together: see :func:`reached`.
    """
    names = list(events)
    fewest = 2 * LEAST_RUNS * len(names)  # with fewer an attacker refuses to learn
    table = np.vstack([events[name] for name in names])
    owner = np.repeat(np.arange(len(names)), [len(events[name]) for name in names])

    def refuted(number: int) -> str | None:
        least = math.floor(_PART * number)
        epsilon, mu = reached(table, least, claim, confidence, together)
        over = epsilon - claim.epsilon
        if claim.mu is not None:
            over = np.maximum(over, mu - claim.mu)
        best = int(np.argmax(over))
        return names[int(owner[best])] if over[best] > 0.0 else None

    if not len(table):
        return Seen(bug, None, None, seen=False)
    low, high = -1, len(_RUNS) - 1
    name = refuted(_RUNS[-1])
    if name is None:
        return Seen(bug, None, None, seen=False)
    while high - low > 1:
        middle = (low + high) // 2
        found = refuted(_RUNS[middle])
        low, high, name = (middle, high, name) if found is None else (low, middle, found)
    needed = max(_RUNS[high], fewest)
    return Seen(bug, needed, name, seen=runs >= needed)
