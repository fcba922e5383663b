"""The chooser of settings, the same for every method: validation records only, never test records.

It tries the settings that a method begins with. Then it goes on from the best one: each of its numbers
that may change is multiplied and divided, each of its words replaced by the others, until none of
these is better. So the best setting never lies at the edge of what was tried, up to the limits below.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from benchmarks import measure
from benchmarks.versus.method import TRIALS

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.versus.method import Method, Setting
    from benchmarks.versus.problem import Problem

#: Candidates that are tried again, with other noise.
_AGAIN: Final = 3
#: Times that the search goes on from a better setting.
_MOVES: Final = 8
#: Steps of gradients, of which time allows no more.
MOST_STEPS: Final = 320


@dataclass(frozen=True)
class Choice:
    """What was chosen.

    Attributes:
        setting: the best one.
        figure: on validation records; NaN where there was no choice.
        tried: number of settings that were tried.
    """

    setting: Setting
    figure: float
    tried: int


def choose(
    method: Method, problem: Problem, epsilon: float | None, say: Callable[[str], None]
) -> Choice:
    """Return the best setting of a method at one epsilon.

    Every setting is tried once; the best few again, with other noise and dealings.

    Args:
        method: to tune.
        problem: the data set.
        epsilon: of the guarantee.
        say: gets a line for each stage.
    """
    place = problem.rehearsal() if method.rehearses else problem
    settings = method.settings(problem)
    if len(settings) == 1 and not beside(settings, 0, method):
        return Choice(settings[0], float("nan"), 1)
    found: dict[int, list[float]] = {}

    def tried(at: int) -> float:
        found[at] = [_score(method, place, settings[at], epsilon, TRIALS[0])]
        return found[at][0]

    best = max(range(len(settings)), key=tried)
    for _ in range(_MOVES if method.widens else 0):
        new = [one for one in beside(settings, best, method) if one not in settings]
        first, settings = len(settings), [*settings, *new]
        better = max(range(first, len(settings)), key=tried, default=best)
        if found[better][0] <= found[best][0]:
            break
        best = better
    order = sorted(found, key=lambda at: -found[at][0])[:_AGAIN]
    say(f"{method.name}: best of {len(settings)} settings {found[best][0]:.4f} on validation")
    if method.private and not method.rehearses:
        for at in order:
            found[at] += [_score(method, place, settings[at], epsilon, n) for n in TRIALS[1:]]
    winner = max(order, key=lambda at: float(np.mean(found[at])))
    return Choice(settings[winner], float(np.mean(found[winner])), len(settings))


def beside(settings: list[Setting], at: int, method: Method) -> list[Setting]:
    """Return the settings next to one: another value of one of its numbers or words each.

    Args:
        settings: whose words are known.
        at: index of the one.
        method: whose numbers are multiplied and divided by what it widens them by.
    """
    one = settings[at]
    made: list[Setting] = []
    for name, value in one.items():
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


def _score(
    method: Method, problem: Problem, setting: Setting, epsilon: float | None, number: int
) -> float:
    scores = method.fit(problem, setting, epsilon, number).validation
    figure = measure.auc if problem.goal == "auc" else measure.accuracy
    # A model whose weights overflowed is no candidate.
    return figure(scores, problem.validation.labels) if np.isfinite(scores).all() else 0.0
