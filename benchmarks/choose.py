"""The chooser of settings, the same for every method: no test record, and no label of one, is looked at.

It tries the settings that a method begins with. Then it goes on from the best one: each of its numbers
that may change is multiplied and divided, each of its words replaced by the others, until none of
these is better. So the best setting never lies at the edge of what was tried, up to the limits below.

Records' votes are tried on the public part: half of it votes at the other half, whose labels judge. Noise
is smaller by as much as voters are fewer than in the row, so that votes stand to it as they do there. The
candidates of the other methods learn from the private records, and validation records judge them; no
epsilon covers that choice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from benchmarks import measure
from benchmarks.methods.method import FIRST_TRIAL, Fitted, Method, Setting
from benchmarks.problem import Problem

#: Candidates that are tried again, with other noise.
_AGAIN: Final = 3
#: Times that the search goes on from a better setting.
_MOVES: Final = 8
#: Steps of gradients, of which time allows no more.
MOST_STEPS: Final = 320


@dataclass(frozen=True, eq=False)
class Choice:
    """What was chosen.

    Attributes:
        setting: the best one.
        figure: on validation records, or in trials; None where there was no choice.
        tried: number of settings that were tried.
        words: what the choice rests on.
        first: the first training of each setting, the chosen one's at the beginning.
    """

    setting: Setting
    figure: float | None = None
    tried: int = 1
    words: str = ""
    first: tuple[Fitted, ...] = ()


def choose(
    method: Method, problem: Problem, epsilon: float | None, say: Callable[[str], None]
) -> Choice:
    """Return the best setting of a method at one epsilon; ``say`` gets a line."""
    settings = method.settings(problem)
    if len(settings) == 1 and not beside(settings, 0, method) and not method.once:
        return Choice(settings[0])
    found: dict[int, list[float]] = {}
    first: dict[int, Fitted] = {}
    trials, again = method.trials

    def score(at: int, number: int) -> float:
        place = problem.trial(number) if method.rehearses else problem
        fitted = method.fit(place, settings[at], epsilon, FIRST_TRIAL + number)
        first.setdefault(at, fitted)
        if not np.isfinite(fitted.validation).all():  # weights that overflowed are no candidate
            return -np.inf
        figure = measure.figures_of(place.validation)[problem.chooser]
        value = figure(fitted.validation, measure.truth_of(place.validation))
        return -value if problem.chooser in measure.ERRORS else value

    def tried(at: int) -> float:
        found[at] = [score(at, number) for number in range(trials)]
        return float(np.mean(found[at]))

    best = max(range(len(settings)), key=tried)
    for _ in range(_MOVES if method.widens else 0):
        new = [one for one in beside(settings, best, method) if one not in settings]
        begun, settings = len(settings), [*settings, *new]
        better = max(range(begun, len(settings)), key=tried, default=best)
        if np.mean(found[better]) <= np.mean(found[best]):
            break
        best = better
    order = sorted(found, key=lambda at: -np.mean(found[at]))[:_AGAIN]
    if method.private:
        for at in order:
            found[at] += [score(at, trials + number) for number in range(again)]
    winner = max(order, key=lambda at: float(np.mean(found[at])))
    sign = -1 if problem.chooser in measure.ERRORS else 1
    name = problem.chooser.replace("_", " ")
    told = {at: sign * float(np.mean(each)) for at, each in found.items()}
    how = (
        f"{name} in {trials} trials each, half of the public part voting at the other half"
        if method.rehearses
        else f"{name} on {len(problem.validation):,} validation records"
    )
    words = f"{how}: " + "; ".join(f"{_told(settings, at)} {told[at]:.4f}" for at in found)
    say(f"{method.name}: {words if len(found) < _MOVES else how}: best {told[winner]:.4f}")
    return Choice(
        settings[winner],
        told[winner],
        len(settings),
        # A search is too long to tell.
        words if not method.widens else "",
        (first[winner], *(each for at, each in first.items() if at != winner)),
    )


def beside(settings: list[Setting], at: int, method: Method) -> list[Setting]:
    """Return the settings next to one: another value of one of its numbers or words each.

    Args:
        settings: whose words are known.
        at: index of the one.
        method: whose numbers are multiplied and divided by what it widens them by; without, there are none.
    """
    one = settings[at]
    made: list[Setting] = []
    for name, value in one.items() if method.widens else ():
        if isinstance(value, str):
            # A word of a setting that has the same names: a network has other numbers than a line.
            same = [each for each in settings if each.keys() == one.keys()]
            if name != "model":
                near = {each[name] for each in same if each.get("model") == one.get("model")}
                made += [{**one, name: word} for word in sorted(map(str, near - {value}))]
        elif name in method.widens:
            factor = method.widens[name]
            for other in (value / factor, value * factor):
                number = round(other) if isinstance(value, int) else float(f"{other:.3g}")
                steps = int(one.get("rounds", 1)) * number
                if number != value and (name != "steps" or 1 <= steps <= MOST_STEPS):
                    made.append({**one, name: number})
    return made


def _told(settings: list[Setting], at: int) -> str:
    """Return what a setting has and not all the others have, in words."""
    return ", ".join(
        f"{name} {value}" if name != "model" else str(value)
        for name, value in settings[at].items()
        if any(other.get(name) != value for other in settings)
    )
