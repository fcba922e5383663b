"""What the results say: figures in words, distances between methods, goals reached and missed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from benchmarks.measure import ERRORS, PLAIN
from benchmarks.record import rounded
from benchmarks.rows import METHODS, ROWS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from benchmarks.record import Cell, Estimate, Result
    from benchmarks.rows import Goal

#: Seconds that one request to a party and its answer are taken to need on a network.
REQUEST_S: Final = 2.0
#: Means of binary numbers are off by less.
_HAIR: Final = 1e-9


class Gap(NamedTuple):
    """By how many points one method is ahead of another on a data set, with the sampling error."""

    data: str
    epsilon: float | None
    points: float
    error: float
    other: str

    @property
    def beyond(self) -> bool:
        """Whether the difference is larger than the sampling error of both."""
        return abs(self.points) > self.error


def short(name: str) -> str:
    """Return a data set's name without its encoder or label."""
    return ROWS[name].title.partition(",")[0]


def said(figure: str, value: float, digits: int = 1) -> str:
    """Return a figure as the page has it.

    >>> said("accuracy", 0.8567), said("auc", 0.8567)
    ('85.7', '0.857')
    """
    return (
        f"{value:.3f}"
        if figure.startswith("auc") or figure.endswith(PLAIN)
        else f"{100 * value:.{digits}f}"
    )


def ranged(cell: Cell | None, figure: str) -> str:
    """Return a figure with its 95 % interval; nothing if it was not measured."""
    if cell is None or figure not in cell.figures:
        return ""
    if cell.cost is not None and cell.epsilon is not None and not cell.cost.exchanges:
        return "no model"  # epsilon did not pay for one answer
    found = cell.figures[figure]
    mean = said(figure, found.mean)
    if found.low is None or found.high is None:
        return mean
    return f"{mean} ({said(figure, found.low)}–{said(figure, found.high)})"


def size(count: float) -> str:
    """Return bytes in words.

    >>> size(1_234_567), size(999), size(0)
    ('1.2 MB', '1 kB', '0')
    """
    if not count:
        return "0"
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{math.ceil(count / 1000)} kB"


def minutes(cell: Cell) -> float:
    """Return minutes that a party must be online."""
    assert cell.cost is not None
    waits = REQUEST_S * cell.cost.exchanges
    if METHODS[cell.method].curator:  # a party sends its records, and is done
        return waits / 60
    return (cell.cost.seconds + cell.cost.waiting + waits) / 60


def span(values: Iterable[float], say: Callable[[float], str]) -> str:
    """Return the least and the largest in words, once if they are the same.

    >>> span([3, 1, 2], "{:g}".format), span([2, 2], "{:g}".format)
    ('1 to 3', '2')
    """
    found = list(values)
    least, most = say(min(found)), say(max(found))
    return least if least == most else f"{least} to {most}"


def listed(parts: Iterable[str]) -> str:
    """Return words as a list.

    >>> listed(["a", "b", "c"]), listed([])
    ('a, b and c', 'no data set')
    """
    found = list(parts)
    return (
        " and ".join(each for each in (", ".join(found[:-1]), *found[-1:]) if each) or "no data set"
    )


def gap(result: Result, one: Cell, other: Cell) -> Gap:
    """Return the distance of two cells in the figure that chose the settings.

    The error is that of two measurements on test records of their own. These share them, so it is larger than
    need be, and some differences within it are real.
    """
    figure = ROWS[result.row].chooser
    here, there = one.figures[figure], other.figures[figure]
    error = math.hypot(_error(here), _error(there))
    points = 100 * (here.mean - there.mean)
    return Gap(short(result.row), one.epsilon, points, 100 * error, other.method)


def _error(found: Estimate) -> float:
    """Return the longer side of an interval; nothing without one."""
    ends = (found.low, found.high)
    return max((abs(end - found.mean) for end in ends if end is not None), default=0.0)


def rival(result: Result, epsilon: float) -> Cell | None:
    """Return the best private method of others that protects the same unit, by its test figure."""
    figure = ROWS[result.row].chooser
    others = [
        cell
        for cell in result.cells
        if cell.epsilon == epsilon
        and not METHODS[cell.method].ours
        and not METHODS[cell.method].whole
    ]
    return max(others, key=lambda cell: cell.figures[figure].mean, default=None)


def gaps(
    results: Iterable[Result], method: str, other: str, epsilons: Sequence[float | None]
) -> list[Gap]:
    """Return the distances of a method to another (``rival``: the best other) wherever both were run."""
    found = []
    for result in results:
        for epsilon in epsilons:
            one = result.cell(method, epsilon)
            if other == "rival":
                against = None if epsilon is None else rival(result, epsilon)
            else:
                against = result.cell(other, epsilon) or result.cell(other, None)
            if one is not None and against is not None:
                found.append(gap(result, one, against))
    return found


def with_both(results: Iterable[Result], method: str, other: str) -> str:
    """Return the data sets on which both methods were run."""
    ran = [(one.row, {cell.method for cell in one.cells}) for one in results]
    return listed(short(row) for row, methods in ran if {method, other} <= methods)


def counted(found: Sequence[Gap]) -> str:
    """Say in how many comparisons a method is ahead and behind, and in how many beyond the sampling error.

    >>> counted([Gap("A", 1.0, -1.2, 1, ""), Gap("A", 4.0, 0.5, 2, "")])
    'ahead in 1 and behind in 1 of 2 comparisons (1 beyond the sampling error)'
    """
    ahead = sum(each.points > 0 for each in found)
    return (
        f"ahead in {ahead} and behind in {len(found) - ahead} of {len(found)} comparisons "
        f"({sum(each.beyond for each in found)} beyond the sampling error)"
    )


def beyond(found: Sequence[Gap]) -> str:
    """Say where differences are beyond the sampling error.

    >>> beyond([Gap("A", 1.0, -1.2, 1, ""), Gap("A", 4.0, -3, 2, ""), Gap("B", 4.0, 1, 2, "")])
    'A at epsilon 1 and 4 (−3.0 to −1.2)'
    """
    where = []
    for data in dict.fromkeys(each.data for each in found if each.beyond):
        at = [each for each in found if each.beyond and each.data == data]
        places = listed(f"{each.epsilon:g}" for each in at)
        where.append(f"{data} at epsilon {places} ({span((each.points for each in at), _signed)})")
    return listed(where)


def each_data(found: Sequence[Gap]) -> str:
    """Say the distances of each data set, the least and the most.

    >>> each_data([Gap("A", 1.0, -1.23, 2, ""), Gap("A", 4.0, 0.5, 2, ""), Gap("B", 1.0, 3, 2, "")])
    'A −1.2 to +0.5 and B +3.0'
    """
    by_data: dict[str, list[float]] = {}
    for each in found:
        by_data.setdefault(each.data, []).append(each.points)
    return listed(f"{data} {span(points, _signed)}" for data, points in by_data.items())


def _signed(points: float) -> str:
    return f"{points:+.1f}".replace("-", "−")


def alone(results: Iterable[Result], most: float) -> str:
    """Say where a party's own model is better than every private one up to an epsilon."""
    better: list[str] = []
    for result in results:
        own = result.cell("alone", None)
        others = [
            each for each in result.cells if each.epsilon is not None and each.epsilon <= most
        ]
        if own is not None and others and all(gap(result, own, each).points > 0 for each in others):
            better.append(short(result.row))
    return listed(better)


def wanted(goal: Goal) -> str:
    """Return how good a figure was to be."""
    name = goal.figure.replace("_", " ").replace("auc", "AUC").replace("mae", "days of error")
    if goal.least is not None:
        return f"{name} at least {said(goal.figure, goal.least, 2)}"
    assert goal.within is not None
    share = (
        f"{goal.within:.0%}" if goal.figure.endswith(ERRORS) else said(goal.figure, goal.within, 2)
    )
    return f"{name} within {share} of no privacy"


def goal_in_words(goal: Goal) -> str:
    """Return what was asked for, with its epsilons."""
    limits = ", ".join(f"{most:g} ({basis})" for basis, most in goal.epsilon.items())
    delta = "" if goal.delta is None else f", delta {goal.delta:g}"
    return f"{wanted(goal)} at epsilon at most {limits}{delta}"


def shortfalls(result: Result, goal: Goal, *, beside: bool = False) -> list[str] | None:
    """Return the gaps to a goal in words; none if it is reached, None if it was not run.

    Args:
        result: of the row.
        goal: its goal.
        beside: relative to the best of the models without privacy that validation records did not choose.
    """
    cell, pooled = result.campaign, result.cell("pooled")
    if cell is None or goal.figure not in cell.figures:
        return None
    reached, wanted = cell.figures[goal.figure].mean, goal.least
    worse = goal.figure.endswith(ERRORS)
    if wanted is None:
        assert goal.within is not None
        assert pooled is not None
        known = pooled.beside[goal.figure] if beside else pooled.figures[goal.figure].mean
        wanted = known * (1 + goal.within) if worse else known - goal.within
    short = reached - wanted if worse else wanted - reached
    missing = []
    if short > _HAIR:
        missing.append(f"{said(goal.figure, short, 2)} {'too high' if worse else 'too low'}")
    for basis, most in goal.epsilon.items():
        epsilon = epsilon_by(cell, basis)
        if epsilon > most + _HAIR:
            missing.append(f"epsilon {rounded(epsilon)} by {basis} above {most:g}")
    if goal.delta is not None and (cell.delta or 0.0) > goal.delta:
        missing.append(f"delta {cell.delta:g} above {goal.delta:g}")
    return missing


def epsilon_by(cell: Cell, basis: str) -> float:
    """Return epsilon by a basis, of a paper by its conversion; the cap where there are no exact votes."""
    assert cell.epsilon is not None
    if basis == "cap":
        return cell.epsilon
    found = cell.mean(f"{'bounds' if basis == 'sharp' else 'classical'}.{basis}")
    return cell.epsilon if found is None else found


def verdict(result: Result, goal: Goal) -> str:
    """Return whether a goal was reached, or the gaps; also next to a better model that was not chosen."""

    def reached(missing: Sequence[str] | None) -> str:
        return "not run" if missing is None else ", ".join(missing) or "reached"

    told, pooled = reached(shortfalls(result, goal)), result.cell("pooled")
    other = None if pooled is None else pooled.beside.get(goal.figure)
    if goal.within is None or pooled is None or other is None:
        return told
    less = other - pooled.figures[goal.figure].mean
    if (less >= 0) if goal.figure.endswith(ERRORS) else (less <= 0):
        return told
    beside = reached(shortfalls(result, goal, beside=True))
    return f"{told}; next to a model that validation did not choose ({said(goal.figure, other)}): {beside}"
