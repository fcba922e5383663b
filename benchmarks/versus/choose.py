"""The chooser of settings, the same for every method: validation records only, never test records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from benchmarks import measure

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.versus.method import Method, Setting
    from benchmarks.versus.problem import Problem

#: Numbers of the trials; no dealing that is reported has one of them.
_TRIALS: Final = (1_001, 1_002, 1_003)
#: Candidates that are tried again, with other noise.
_AGAIN: Final = 3


def choose(
    method: Method, problem: Problem, epsilon: float | None, say: Callable[[str], None]
) -> tuple[Setting, float]:
    """Return the best setting of a method at one epsilon, and its figure on validation records.

    All settings are tried once; the best few again, with other noise and dealings.

    Args:
        method: to tune.
        problem: the data set.
        epsilon: of the guarantee.
        say: gets a line for each stage.
    """
    place = problem.rehearsal() if method.rehearses else problem
    settings = method.settings(problem)
    if len(settings) == 1:
        return settings[0], float("nan")
    found = [[_score(method, place, setting, epsilon, _TRIALS[0])] for setting in settings]
    best = sorted(range(len(settings)), key=lambda at: -found[at][0])[:_AGAIN]
    say(f"{method.name}: best of {len(settings)} settings {found[best[0]][0]:.4f} on validation")
    if method.private and not method.rehearses:
        for at in best:
            found[at] += [_score(method, place, settings[at], epsilon, n) for n in _TRIALS[1:]]
    winner = max(best, key=lambda at: float(np.mean(found[at])))
    return settings[winner], float(np.mean(found[winner]))


def _score(
    method: Method, problem: Problem, setting: Setting, epsilon: float | None, number: int
) -> float:
    scores = method.fit(problem, setting, epsilon, number).validation
    figure = measure.auc if problem.goal == "auc" else measure.accuracy
    # A model whose weights overflowed is no candidate.
    return figure(scores, problem.validation.labels) if np.isfinite(scores).all() else 0.0
