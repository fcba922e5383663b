"""Chooses a row's settings by trials among public records, before the row's own campaign.

In a trial half of the public part votes at the other half. Noise is smaller by as much as voters are fewer
than in the row, so that votes stand to it as they do there. The labels of the public part are spent by
this; no private and no test record is looked at.
"""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING, Final

from benchmarks import measure
from benchmarks.papers import reference
from benchmarks.papers.campaign import lesson, run_campaign
from benchmarks.papers.split import deal, units_in
from pate.accounting.gdp import epsilon_from_delta, mu_squared_from_epsilon
from pate.codes import DENSE, NEAREST, code_of
from pate.errors import UsageError
from student.trainers.base import Effort
from student.trainers.choose import train

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from benchmarks.papers.row import Options, Row
    from benchmarks.papers.split import Split
    from pate.runtime.screen import Screen

#: Options that say where a record votes.
_CODE: Final = ("representatives", "code")
#: So often each is tried, with other halves and parties dealt anew.
TRIALS: Final = 5


def choose(
    row: Row, split: Split, *, work: Path, screen: Screen, trials: int = TRIALS
) -> tuple[Options, str]:
    """Return the best of the row's tries, and a line that says what the choice rests on.

    Args:
        row: with ``tries``; the figure of :attr:`Row.chooser` is compared.
        split: of the row, of which only the public part is looked at.
        work: folder for the trials.
        screen: for lines.
        trials: of each try, each with other halves.

    Raises:
        PateError: if the public part does not allow a trial.
    """
    found: dict[int, float] = {}
    for at, options in enumerate(row.tries):
        figures = [
            _trial(row, split, options, number, work / f"trials-{row.name}-{at}-{number}", screen)
            for number in range(trials)
        ]
        found[at] = fmean(each[row.chooser] for each in figures)
        screen.say(f"{row.name}: {row.chooser} {found[at]:.4f} in trials of {_words(row, options)}")
    best = best_of(found, error=row.chooser in measure.ERRORS)
    told = "; ".join(f"{_words(row, row.tries[at])} {value:.4f}" for at, value in found.items())
    words = (
        f"{row.chooser.replace('_', ' ')} in {trials} trials each, half of the public part voting at the "
        f"other half: {told}"
    )
    return row.tries[best], words


def best_of(found: Mapping[int, float], *, error: bool) -> int:
    """Return the place with the best figure, on a tie the first; of an error less is better.

    >>> best_of({0: 0.5, 1: 0.7, 2: 0.7}, error=False), best_of({0: 0.5, 1: 0.7}, error=True)
    (1, 0)
    """
    return max(found, key=lambda at: -found[at] if error else found[at])


def trial_options(options: Options, *, private: int, voters: int) -> Options:
    """Return the options with an epsilon at which noise is less by as much as voters are fewer.

    Epsilon times the standard deviation is a constant only as long as both laws' epsilon is small.

    >>> from benchmarks.papers.encoded_rows import RECORDS
    >>> round(trial_options(RECORDS, private=8_000, voters=1_000).epsilon, 3)
    5.812

    Args:
        options: of the row: nearest votes with geometric noise, or others with Gaussian noise, as dense ones
            have without a stated law.
        private: records, or patients, that vote in the row.
        voters: in the trial.
    """
    ratio = private / voters
    if options.noise_law == "geometric":
        # A scale of two-sided geometric noise has the variance 2 a / (1 - a)^2, a = exp(-epsilon / 2).
        halves = options.epsilon / 2
        root = math.exp(-halves / 2) / (1 - math.exp(-halves)) / ratio
        return replace(options, epsilon=4 * math.asinh(1 / (2 * root)))
    if options.noise_law is None and code_of(options.code or NEAREST).name != DENSE:
        raise UsageError("a trial needs options that name the law of the noise")
    mu = math.sqrt(mu_squared_from_epsilon(options.epsilon, options.delta))
    return replace(options, epsilon=epsilon_from_delta(ratio * mu, options.delta))


def _trial(
    row: Row, split: Split, options: Options, seed: int, place: Path, screen: Screen
) -> Mapping[str, float]:
    voters, asked = deal(split.public, 2, seed)
    asked_at = trial_options(options, private=units_in(split.private), voters=units_in(voters))
    outcome = run_campaign(
        deal(voters, row.parties, seed), asked.inputs, asked_at, place=place, screen=screen
    )
    student = train(
        lesson(outcome.labels, asked.inputs),
        model=row.student,
        seed=seed,
        effort=Effort(row.steps),
        progress=lambda _step, _total, _loss: None,
    )
    return reference.judge(student, asked)


def _words(row: Row, options: Options) -> str:
    """Return what a try has and the row's own options have not, in words; its code in any case."""
    usual = {name: value for name, value in row.options.told().items() if name not in _CODE}
    told = [f"{name} {value}" for name, value in options.told().items() if usual.get(name) != value]
    return ", ".join(told)
