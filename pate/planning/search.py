"""From a wanted epsilon to the settings of a mechanism that make the most of it.

Searching costs no privacy if the population is made of assumptions or of public votes. On private
votes the choice itself leaks, and no epsilon here covers that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Self

import numpy as np

from pate.accounting.composition import COMPOSITIONS
from pate.errors import UsageError
from pate.planning.chances import expected_asked
from pate.planning.survey import FINE, coarse_axes, fine_axes, steps_of, survey

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pate.accounting.arrays import Floats
    from pate.planning.population import Population
    from pate.planning.survey import Planned, Scene, Survey

#: Bounds are computed in floats, and must stay bounds.
_SLACK = 1.0 + 1e-9


@dataclass(frozen=True)
class Goal:
    """What the best settings are.

    Those that give the most right labels, if ``at_least`` is None; else those whose labels are
    most accurate while at least that many are given. The most right labels of all would be many
    labels of which most are wrong, for a guess costs nothing: so there is a floor.

    Attributes:
        at_least: labels that a plan must be expected to give, or None.
        least_accuracy: that the labels must be expected to have.

    Raises:
        UsageError: for numbers that make no sense.
    """

    at_least: float | None = None
    least_accuracy: float = 0.0

    def __post_init__(self) -> None:
        if self.at_least is not None and not 0.0 < self.at_least < math.inf:
            raise UsageError(f"a plan can give at least some labels, not {self.at_least}")
        if not 0.0 <= self.least_accuracy <= 1.0:
            raise UsageError(f"an accuracy lies from 0 to 1, got {self.least_accuracy}")


@dataclass(frozen=True)
class Choice:
    """Settings, and what a budget buys with them.

    Attributes:
        mechanism: the settings.
        asked: expected number of queries asked.
        answered: expected number of labels.
        right: expected number of right labels.
    """

    mechanism: Planned
    asked: float
    answered: float
    right: float

    @property
    def accuracy(self) -> float:
        """Expected share of right labels."""
        return self.right / self.answered


@dataclass(frozen=True, eq=False)
class Frontier:
    """The best choice for each of several budgets, or of several goals.

    Attributes:
        epsilons: (choices,) budget of each.
        asked: (choices,) expected number of queries asked.
        answered: (choices,) expected number of labels.
        right: (choices,) expected number of right labels.
        mechanisms: (choices,) the settings of each.
    """

    epsilons: Floats
    asked: Floats
    answered: Floats
    right: Floats
    mechanisms: tuple[Planned, ...]

    @property
    def accuracy(self) -> Floats:
        """(choices,) expected share of right labels."""
        return self.right / self.answered

    @classmethod
    def of(cls, choices: Sequence[tuple[float, Choice | None]]) -> Self:
        """Return a frontier of pairs of epsilon and choice; None is left out."""
        held = [(epsilon, each) for epsilon, each in choices if each is not None]
        return cls(
            np.array([epsilon for epsilon, _ in held], np.float64),
            np.array([each.asked for _, each in held], np.float64),
            np.array([each.answered for _, each in held], np.float64),
            np.array([each.right for _, each in held], np.float64),
            tuple(each.mechanism for _, each in held),
        )


class Search:
    """Settings of a campaign, looked at once, to be asked about any budget up to a largest one.

    Args:
        population: made of assumptions, or of votes on public queries.
        scene: the campaign.
        epsilon: around whose best settings a finer grid is laid.
        goal: that makes them the best.
        largest: largest epsilon that will be asked about; None for ``epsilon``.
        progress: called with steps done and steps in all.

    Raises:
        UsageError: for a budget that is not above 0, or settings that make no sense.
    """

    def __init__(
        self,
        population: Population,
        scene: Scene,
        epsilon: float,
        goal: Goal,
        *,
        largest: float | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self._scene = scene
        self._known: dict[float, Mapping[str, Fraction]] = {}
        most = self._limits(max(epsilon, largest or 0.0))["zcdp"]
        axes = coarse_axes(population.teachers, scene, float(most))
        steps, done = steps_of(axes) + FINE, 0

        def step() -> None:
            nonlocal done
            done += 1
            if progress is not None:
                progress(min(done, steps), steps)

        self._surveys = [survey(population, scene, axes, step)]
        if (place := self._find(self._limits(epsilon), goal)[1]) is not None:
            checks, labels = self._surveys[0].checks, self._surveys[0].labels
            point = {"label": labels[place[1]]}
            sigma1, threshold = checks[place[0]]
            if sigma1 is not None:
                point["sigma1"] = sigma1
            if threshold is not None:
                point["threshold"] = Fraction(threshold)
            self._surveys.append(survey(population, scene, fine_axes(axes, point), step))
        if progress is not None and done < steps:
            progress(steps, steps)

    def best(self, epsilon: float, goal: Goal) -> Choice | None:
        """Return the best settings for a budget, or None if none suits.

        Raises:
            UsageError: for a budget that is not above 0.
        """
        return self._find(self._limits(epsilon), goal)[0]

    def frontier(self, epsilons: Sequence[float], goal: Goal) -> Frontier:
        """Return the best settings for each of several budgets, left out where none suits."""
        return Frontier.of([(each, self.best(each, goal)) for each in sorted(set(epsilons))])

    def trade(self, epsilon: float, accuracies: Sequence[float]) -> Frontier:
        """Return what each least accuracy leaves of the labels that one budget buys."""
        goals = [Goal(least_accuracy=each) for each in sorted(set(accuracies))]
        return Frontier.of([(epsilon, self.best(epsilon, goal)) for goal in goals])

    def _limits(self, epsilon: float) -> Mapping[str, Fraction]:
        """Return what a budget is worth in each composition, the tightest first."""
        if not 0.0 < epsilon < math.inf:
            raise UsageError(f"an epsilon to plan for is above 0 and finite, got {epsilon}")
        if epsilon not in self._known:
            self._known[epsilon] = {
                each.name: each.budget(epsilon, self._scene.delta) for each in COMPOSITIONS
            }
        return self._known[epsilon]

    def _find(
        self, limits: Mapping[str, Fraction], goal: Goal
    ) -> tuple[Choice | None, tuple[int, int] | None]:
        """Return the best point of all grids, and its place in its grid.

        Points are looked at from the highest bound on their worth down, until no bound is above
        what was found.
        """
        best: Choice | None = None
        where: tuple[int, int] | None = None
        held = -math.inf
        for seen in self._surveys:
            rest = np.ones(seen.right.shape, bool)
            for name, budget in limits.items():
                bound = np.where(rest, self._bounds(seen, name, budget, goal), -math.inf)
                # A campaign counts in the tightest composition that has all of its costs.
                rest &= np.isnan(_worst(seen, name))
                for place in np.argsort(-bound, axis=None).tolist():
                    at = divmod(place, len(seen.labels))
                    if bound[at] <= held:
                        break
                    found = self._choice(seen, at, name, budget)
                    if found is None or found.answered < (goal.at_least or 0.0):
                        continue
                    worth = found.right if goal.at_least is None else found.accuracy
                    if worth > held:
                        best, where, held = found, at, worth
        return best, where

    def _bounds(self, seen: Survey, name: str, budget: Fraction, goal: Goal) -> Floats:
        """Return (checks, labels) upper bounds on the worth, -inf where it does not suit.

        A filter lets through at most ``limit / mean cost`` queries on average (Wald's identity).
        """
        scene = self._scene
        checks, labels = (_as_floats(costs) for costs in seen.costs[name])
        worst = checks[:, None] + labels
        limit = np.minimum(float(budget), scene.rounds * scene.queries * worst) * float(scene.part)
        mean = checks[:, None] + seen.paid * labels
        room = limit * _SLACK
        asked = np.minimum(scene.queries, room / np.maximum(mean, 1e-300))
        suits = (
            (worst <= room)
            & (seen.answer > 0.0)
            & (asked * seen.answer >= (goal.at_least or 0.0))
            & (seen.accuracy >= goal.least_accuracy)
        )
        worth = seen.accuracy if goal.at_least is not None else asked * seen.right
        return np.where(suits, worth * _SLACK, -math.inf)

    def _choice(
        self, seen: Survey, at: tuple[int, int], name: str, budget: Fraction
    ) -> Choice | None:
        """Return what a budget buys at one point of a grid, or None if it buys nothing."""
        scene = self._scene
        check, label = seen.costs[name][0][at[0]], seen.costs[name][1][at[1]]
        if check is None or label is None:
            return None
        most = scene.rounds * scene.queries * (check + label)
        answer, paid = float(seen.answer[at]), float(seen.paid[at])
        asked = expected_asked(scene.queries, paid, check, label, min(budget, most) * scene.part)
        if asked * answer <= 0.0:
            return None
        mechanism = scene.setting(seen.labels[at[1]], *seen.checks[at[0]])
        return Choice(mechanism, asked, asked * answer, asked * float(seen.right[at]))


def _worst(seen: Survey, name: str) -> Floats:
    """Return (checks, labels) worst costs; NaN where the composition has none."""
    checks, labels = (_as_floats(costs) for costs in seen.costs[name])
    return checks[:, None] + labels


def _as_floats(costs: Sequence[Fraction | None]) -> Floats:
    return np.array([math.nan if cost is None else float(cost) for cost in costs])
