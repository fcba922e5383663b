"""Sentences of the page of the comparison that the results decide, so that none outlives its figures."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from benchmarks.versus.method import EPSILONS
from benchmarks.versus.pictures import SHOWN, goal_of
from benchmarks.versus.record import TITLES
from benchmarks.versus.words import WORDS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from benchmarks.versus.record import Cell, Result

OURS: Final = "ours"
TEACHERS: Final = "teachers"
#: The epsilons at which what a party has alone is of interest.
_SMALL: Final = EPSILONS[:2]


def difference(result: Result, one: Cell, other: Cell) -> tuple[float, bool]:
    """Return by how many points of the goal one is ahead, and whether beyond the sampling error of both.

    The error is that of two measurements on test records of their own. These share them, so it is larger
    than need be, and some differences within it are real.
    """
    mean, low, high = goal_of(result, one)
    another, least, most = goal_of(result, other)
    error = math.hypot(max(high - mean, mean - low), max(most - another, another - least))
    return 100 * (mean - another), abs(mean - another) > error


def rivals(result: Result, epsilon: float) -> list[Cell]:
    """Return the private methods of others at an epsilon that protect the same unit, best first."""
    found = [
        cell
        for cell in result.cells
        if cell.epsilon == epsilon
        and cell.method not in (OURS, TEACHERS)
        and not WORDS[cell.method].whole
    ]
    return sorted(found, key=lambda cell: -goal_of(result, cell)[0])


def ahead(shown: list[Result], epsilon: float) -> str:
    """Say where records' votes are ahead of the best other at an epsilon."""
    found = [
        (result, *difference(result, ours, others[0]))
        for result in shown
        if (ours := result.cell(OURS, epsilon)) and (others := rivals(result, epsilon))
    ]
    better = [(result, beyond) for result, points, beyond in found if points > 0]
    where = _names(result for result, _ in better)
    return f"at epsilon {epsilon:g} it is ahead on {where}, {_beyond(better)}"


def behind(shown: list[Result]) -> str:
    """Say at how many epsilons teachers are behind records' votes, over the data sets."""
    found = [
        (result, *difference(result, taught, ours))
        for result in shown
        for epsilon in EPSILONS
        if (taught := result.cell(TEACHERS, epsilon)) and (ours := result.cell(OURS, epsilon))
    ]
    number = sum(points < 0 for _, points, _ in found)
    better = [(result, beyond) for result, points, beyond in found if points >= 0]
    rest = f", and level or ahead in the rest, {_beyond(better)}" if better else ""
    return f"teachers are behind them in {number} of {len(found)} comparisons{rest}"


def federated(shown: list[Result]) -> str:
    """Say where federated averaging with Opacus is ahead of records' votes, and where behind."""
    found = [
        (result, *difference(result, theirs, ours))
        for result in shown
        if (theirs := result.cell("fedavg-opacus", SHOWN)) and (ours := result.cell(OURS, SHOWN))
    ]
    better = [(result, beyond) for result, points, beyond in found if points > 0]
    worse = [(result, beyond) for result, points, beyond in found if points <= 0]
    return (
        f"it is ahead of this project on {_names(result for result, _ in better)}, {_beyond(better)}, "
        f"and behind on {_names(result for result, _ in worse)}, {_beyond(worse)}"
    )


def alone(shown: list[Result]) -> str:
    """Say where a party's own model is better than every private one at small epsilons."""
    better = []
    for result in shown:
        own = result.cell("alone", None)
        others = [each for each in result.cells if each.epsilon in _SMALL]
        if own is None or not others:
            continue
        found = [difference(result, own, each) for each in others]
        if all(points > 0 for points, _ in found):
            better.append((result, all(beyond for _, beyond in found)))
    return (
        f"on {_names(result for result, _ in better)} a party's own model, without privacy, is better in "
        f"the mean than every private model at epsilon {_SMALL[-1]:g} or less, {_beyond(better)}"
    )


def _names(results: Iterable[Result]) -> str:
    """Return the data sets' short names in the page's order."""
    there = {result.name for result in results}
    names = [title.partition(",")[0] for name, title in TITLES.items() if name in there]
    return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part) or "none"


def _beyond(found: list[tuple[Result, bool]]) -> str:
    """Say where differences are beyond the sampling error."""
    if not any(beyond for _, beyond in found):
        return "nowhere beyond the sampling error"
    if all(beyond for _, beyond in found):
        return "everywhere beyond the sampling error"
    return f"beyond the sampling error on {_names(result for result, beyond in found if beyond)}"
