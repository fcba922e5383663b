"""Search for the optimal settings of a mechanism at a given epsilon.

Settings form a grid of noise on the counts, noise of the threshold test, and threshold. A finer grid
then covers the bracket between the neighbours of the coarse grid's best point. The outcome of each
setting on a population is computed once, and the result for a budget and a goal is arithmetic.

Searching costs no privacy if the population is made of assumptions or of public votes. On private
votes the choice itself leaks, and no epsilon here covers that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pate.accounting.composition import COMPOSITIONS
from pate.errors import UsageError
from pate.mechanisms import ConfidentGNMax, DistributedConfidentGNMax, DistributedTeachers, LNMax
from pate.noise.shares import share_sigma
from pate.planning.chances import MOST_SCALE, chances, expected_asked
from pate.planning.plans import costs_of, laws_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pate.accounting.arrays import Floats
    from pate.accounting.composition import Composition
    from pate.planning.plans import Campaign, Planned
    from pate.planning.population import Population

#: Most queries of a population that are evaluated: Laplace noise takes longer.
_LOOK: Final = 2000
_LOOK_LAPLACE: Final = 500
#: Points of the first grid, per axis, and of the finer one.
_COARSE: Final[Mapping[str, int]] = {"noise": 32, "sigma1": 12, "threshold": 16}
_FINE: Final = 7
#: The grid has noise that suits so many times the wanted budget.
_MOST_TIMES: Final = 4.0
#: Margin for the rounding of bounds in floats.
_SLACK: Final = 1.0 + 1e-9

#: A grid's axes by name: ``noise`` on the counts, for a check ``threshold``, and ``sigma1`` if the
#: check has noise of its own. For noise shares, the noise of the honest ones is searched.
Axes = dict[str, tuple[Fraction, ...]]


@dataclass(frozen=True)
class Goal:
    """The criterion for the best settings.

    Maximising only the number of right labels would give many labels, most of them wrong, since a guess
    costs nothing; hence the floor.
    """

    least_accuracy: float = 0.0  # the floor: expected share of right labels
    # None to maximise the number of right labels; else the least expected number of labels, whose
    # accuracy is maximised
    at_least: float | None = None

    def __post_init__(self) -> None:
        if self.at_least is not None and not 0.0 < self.at_least < math.inf:
            raise UsageError(f"a plan can give at least some labels, not {self.at_least}")
        if not 0.0 <= self.least_accuracy <= 1.0:
            raise UsageError(f"an accuracy lies from 0 to 1, got {self.least_accuracy}")

    def __str__(self) -> str:
        floor = f"at an accuracy of {100 * self.least_accuracy:.1f} % or more"
        if self.at_least is None:
            return f"the most right labels {floor}"
        words = f"the most accurate labels, {self.at_least:g} of them or more"
        return f"{words}, {floor}" if self.least_accuracy else words


@dataclass(frozen=True)
class Setting:
    """A mechanism at one point of a grid, its outcome probabilities, and its costs by :func:`costs_of`."""

    mechanism: Planned
    point: Mapping[str, Fraction]
    answer: float  # P[answer] of a query of the population
    right: float  # P[answer, and it is right]
    composition: Composition
    check: Fraction
    label: Fraction

    @property
    def paid(self) -> float:
        """P[the cost of a label is charged]; 1 for a noisy sum."""
        return 1.0 if self.mechanism.noise_inside else self.answer


@dataclass(frozen=True)
class Choice:
    """The result of a budget at a setting; ``asked`` is the expected number of queries asked."""

    epsilon: float
    at: Setting
    asked: float

    @property
    def answered(self) -> float:
        """Expected number of labels."""
        return self.asked * self.at.answer

    @property
    def right(self) -> float:
        """Expected number of right labels."""
        return self.asked * self.at.right

    @property
    def accuracy(self) -> float:
        """Expected share of right labels."""
        return self.right / self.answered


class Search:
    """Evaluated settings of a campaign, for any budget up to four times the wanted one."""

    def __init__(
        self,
        like: Planned,  # the mechanism whose noise and threshold are searched
        population: Population,  # made of assumptions, or of votes on public queries
        campaign: Campaign,
        epsilon: float,  # wanted; the finer grid is laid around its best settings
        goal: Goal,
        # called with steps done and steps in all
        progress: Callable[[int, int], None] = lambda *_: None,
    ) -> None:
        self.epsilon, self.goal = epsilon, goal
        self._campaign = campaign
        self._worth = cache(self._budgets)
        seen = population.thinned(_LOOK_LAPLACE if isinstance(like, LNMax) else _LOOK)
        self.looked_at = len(seen)
        largest = self._worth(_MOST_TIMES * epsilon)["zcdp"] * campaign.part
        axes = coarse_axes(like, population.teachers, float(largest))
        steps = len(axes["noise"]) + 1  # the finer grid is one step
        self.settings: list[Setting] = []
        for step, some in enumerate(survey(like, seen, campaign, axes), 1):
            self.settings += some
            progress(step, steps)
        self._index()
        if (found := self.best(epsilon, goal)) is not None:
            for some in survey(like, seen, campaign, fine_axes(axes, found.at.point)):
                self.settings += some
            self._index()
        progress(steps, steps)

    def _index(self) -> None:
        figures = [(s.answer, s.right, s.paid, s.check, s.label) for s in self.settings]
        self._figures = np.array(figures, np.float64).T

    def _budgets(self, epsilon: float) -> Mapping[str, Fraction]:
        if not 0.0 < epsilon < math.inf:
            raise UsageError(f"an epsilon to plan for is above 0 and finite, got {epsilon}")
        return {each.name: each.budget(epsilon, self._campaign.delta) for each in COMPOSITIONS}

    def best(self, epsilon: float, goal: Goal) -> Choice | None:
        """Return the best settings for a budget, or None if none suits.

        Settings are evaluated in descending order of their upper bounds, until no bound exceeds the
        best value found.
        """
        bound = self._bounds(epsilon, goal)
        best, held = None, -math.inf
        for place in np.argsort(-bound, kind="stable").tolist():
            if bound[place] <= held:
                break
            found = self._choice(self.settings[place], epsilon)
            if found.answered > 0.0 and found.answered >= (goal.at_least or 0.0):
                worth = found.right if goal.at_least is None else found.accuracy
                if worth > held:
                    best, held = found, worth
        return best

    def _bounds(self, epsilon: float, goal: Goal) -> Floats:
        """Return (settings,) upper bounds on the goal, -inf if unsuitable, by Wald's identity."""
        answer, right, paid, check, label = self._figures
        names = {name: float(budget) for name, budget in self._worth(epsilon).items()}
        caps = np.array([names[each.composition.name] for each in self.settings])
        campaign = self._campaign
        most = campaign.rounds * campaign.queries * (check + label)
        room = np.minimum(caps, most) * float(campaign.part) * _SLACK
        asked = np.minimum(campaign.queries, room / np.maximum(check + paid * label, 1e-300))
        accuracy = np.where(answer > 0.0, right / np.maximum(answer, 1e-300), 0.0)
        suits = (
            (check + label <= room)
            & (answer > 0.0)
            & (asked * answer >= (goal.at_least or 0.0))
            & (accuracy >= goal.least_accuracy)
        )
        worth = asked * right if goal.at_least is None else accuracy
        return np.where(suits, worth * _SLACK, -math.inf)

    def _choice(self, at: Setting, epsilon: float) -> Choice:
        """Return the result of a budget at one setting."""
        cap = self._worth(epsilon)[at.composition.name]
        limit = self._campaign.limits(at.check + at.label, cap)[1]
        asked = expected_asked(self._campaign.queries, at.paid, at.check, at.label, limit)
        return Choice(epsilon, at, asked)


def survey(
    like: Planned, population: Population, campaign: Campaign, axes: Axes
) -> Iterator[list[Setting]]:
    """Yield the settings of a grid with their outcomes, one list per noise of the counts."""
    for noise in axes["noise"]:
        some = axes | {"noise": (noise,)}
        grid = [dict(zip(some, each, strict=True)) for each in product(*some.values())]
        made = [_at(like, point) for point in grid]
        laws = [laws_of(mechanism, campaign.most) for mechanism in made]
        law, checks = laws[0][0], [check for _, check in laws]
        answered, right = chances(population.votes, population.labels, law, checks)
        given = np.minimum(answered.mean(axis=1), 1.0).tolist(), right.mean(axis=1).tolist()
        yield [
            Setting(each, point, answer, good, *costs_of(each))
            for each, point, answer, good in zip(made, grid, *given, strict=True)
        ]


def _at(like: Planned, point: Mapping[str, Fraction]) -> Planned:
    """Return the mechanism at one point of a grid."""
    noise = point["noise"]
    given: dict[str, Any] = {name: value for name, value in point.items() if name == "sigma1"}
    if "threshold" in point:
        given["threshold"] = int(point["threshold"])
    if isinstance(like, DistributedTeachers):
        given["share"] = share_sigma(noise, like.honest)
    else:
        given[{"lnmax": "scale", "gnmax": "sigma"}.get(like.name, "sigma2")] = noise
    return replace(like, **given)


def coarse_axes(like: Planned, teachers: int, rho: float) -> Axes:
    """Return axes from the least noise that ``rho``, in zCDP, allows to noise that dominates the votes."""
    least = like.votes_per_unit / math.sqrt(max(rho, 1e-9))

    def scales(name: str, low: float, high: float) -> tuple[Fraction, ...]:
        return _typed(np.geomspace(low, max(high, 4.0 * low), _COARSE[name]))

    axes = {"noise": scales("noise", max(least, teachers / 100), teachers)}
    if isinstance(like, ConfidentGNMax):
        axes["sigma1"] = scales("sigma1", max(least, teachers / 50), 2.0 * teachers)
    if isinstance(like, ConfidentGNMax | DistributedConfidentGNMax):
        values = np.linspace(0.25, 1.6, _COARSE["threshold"]) * teachers
        axes["threshold"] = _typed(values, whole=True)
    return axes


def fine_axes(axes: Axes, point: Mapping[str, Fraction]) -> Axes:
    """Return axes between the neighbours of a point of the grid."""
    made: Axes = {}
    for name, axis in axes.items():
        place, whole = axis.index(point[name]), name == "threshold"
        low, high = float(axis[max(0, place - 1)]), float(axis[min(len(axis) - 1, place + 1)])
        values = (np.linspace if whole else np.geomspace)(low, high, _FINE)
        made[name] = axis if len(axis) == 1 else _typed(values, whole=whole)
    return made


def _typed(values: Floats, *, whole: bool = False) -> tuple[Fraction, ...]:
    """Return a number rounded for people: to whole votes, and to quarters of a vote for noise below 20."""
    made = set()
    for value in values.tolist():
        parts = 1 if whole or value >= 20.0 else 4
        noise = value if whole else min(value, MOST_SCALE)
        made.add(Fraction(max(1, round(noise * parts)), parts))
    return tuple(sorted(made))
