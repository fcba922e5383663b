"""What a mechanism gives at each of many settings: the ground that a search for a plan walks over.

Settings lie on a grid of noise of the label, noise of the check, and threshold. What each gives on
a population is computed once; what a budget then buys is arithmetic, so one survey serves any
number of budgets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from pate.accounting.composition import COMPOSITIONS
from pate.accounting.events import GaussianMax, GaussianThreshold, LaplaceMax
from pate.errors import UsageError
from pate.planning.chances import (
    MOST_SCALE,
    chance_of_label,
    chance_passed,
    gaussian_law,
    laplace_law,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pate.accounting.arrays import Floats
    from pate.accounting.composition import Composition
    from pate.accounting.events import Event
    from pate.planning.population import Population

Kind = Literal["lnmax", "gnmax", "confident-gnmax"]
KINDS: Final = ("lnmax", "gnmax", "confident-gnmax")

#: Queries of a population that are looked at, by the price of one look.
LOOK: Final[Mapping[str, int]] = {"lnmax": 500, "gnmax": 2000, "confident-gnmax": 2000}
#: Points of the first grid, per axis, and of a finer one.
_COARSE: Final[Mapping[str, int]] = {"label": 32, "sigma1": 12, "threshold": 16}
FINE: Final = 7

#: A grid's axes by name: ``label``, and for a check ``sigma1`` and ``threshold``.
Axes = dict[str, tuple[Fraction, ...]]


@dataclass(frozen=True, kw_only=True)
class Scene:
    """What is known of a campaign, but for its settings.

    Attributes:
        kind: of the mechanism.
        queries: unlabelled queries that there are.
        delta: at which each epsilon holds.
        votes_per_unit: k.
        rounds: of the campaign; the settings are those of the first.
        share: of the budget that the first of several rounds may spend.

    Raises:
        UsageError: for numbers that make no sense.
    """

    kind: Kind
    queries: int
    delta: float
    votes_per_unit: int = 1
    rounds: int = 1
    share: Fraction = Fraction(1)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UsageError(f"mechanism is {self.kind!r}, possible are {', '.join(KINDS)}")
        if self.queries < 1 or self.rounds < 1 or not 0 < self.share <= 1:
            raise UsageError("a plan needs a query, a round, and a share of the budget up to 1")

    @property
    def part(self) -> Fraction:
        """Share of the budget that the round planned may spend."""
        return self.share if self.rounds > 1 else Fraction(1)


def steps_of(axes: Axes) -> int:
    """Return how often a survey of these axes calls ``step``."""
    return len(axes["label"])


@dataclass(frozen=True, eq=False)
class Survey:
    """Settings, and what they give: a grid of checks times labels.

    Attributes:
        labels: (labels,) scale or sigma2 of each label setting.
        checks: (checks,) sigma1 and threshold of each check, or (None, None) where there is none.
        answer: (checks,) P[answer] of a query of the population.
        right: (checks, labels) P[answer, and it is right].
        costs: by composition, (checks,) and (labels,) exact costs; None where it has none.
    """

    labels: tuple[Fraction, ...]
    checks: tuple[tuple[Fraction | None, int | None], ...]
    answer: Floats
    right: Floats
    costs: Mapping[str, tuple[tuple[Fraction | None, ...], tuple[Fraction | None, ...]]]

    @property
    def accuracy(self) -> Floats:
        """(checks, labels) share of right labels; 0 where nothing is answered."""
        answer = self.answer[:, None]
        return np.where(answer > 0.0, self.right / np.maximum(answer, 1e-300), 0.0)


def survey(
    population: Population, scene: Scene, axes: Axes, step: Callable[[], None] = lambda: None
) -> Survey:
    """Return what each setting of a grid gives.

    Of a large population some queries are looked at, evenly spaced.

    Args:
        population: made of assumptions, or of votes on public queries.
        scene: the campaign.
        axes: of the grid.
        step: called after each setting of the label.
    """
    seen = population.thinned(LOOK[scene.kind])
    votes, k = seen.votes, scene.votes_per_unit
    laplace = scene.kind == "lnmax"
    label_given = np.empty((len(axes["label"]), len(seen)))
    for row, scale in zip(label_given, axes["label"], strict=True):
        law = laplace_law(scale) if laplace else gaussian_law(scale)
        row[:] = chance_of_label(votes, seen.labels, law)
        step()
    checks: list[tuple[Fraction | None, int | None]] = [(None, None)]
    passed = np.ones((1, len(seen)))
    if scene.kind == "confident-gnmax":
        laws = [(sigma1, gaussian_law(sigma1)) for sigma1 in axes["sigma1"]]
        both = [(s, law, int(threshold)) for s, law in laws for threshold in axes["threshold"]]
        checks = [(sigma1, threshold) for sigma1, _, threshold in both]
        passed = np.array([chance_passed(votes, threshold, law) for _, law, threshold in both])
    checked = [None if s is None else GaussianThreshold(s, k) for s, _ in checks]
    labelled = [LaplaceMax(s, k) if laplace else GaussianMax(s, k) for s in axes["label"]]
    return Survey(
        axes["label"],
        tuple(checks),
        np.minimum(passed.mean(axis=1), 1.0),
        passed @ label_given.T / len(seen),
        {
            each.name: (
                tuple(_cost(each, event) for event in checked),
                tuple(_cost(each, event) for event in labelled),
            )
            for each in COMPOSITIONS
        },
    )


def _cost(composition: Composition, event: Event | None) -> Fraction | None:
    if event is None:
        return Fraction(0)
    return composition.cost(event) if composition.supports(event) else None


def coarse_axes(teachers: int, scene: Scene, rho: float) -> Axes:
    """Return axes from the least noise that a budget allows to noise that drowns the votes.

    Args:
        teachers: M.
        scene: the campaign.
        rho: the largest budget that will be asked about, in zCDP.
    """
    least = scene.votes_per_unit / math.sqrt(max(rho * float(scene.part), 1e-9))

    def scales(low: float, high: float, points: int) -> tuple[Fraction, ...]:
        return _typed(np.geomspace(low, max(high, 4.0 * low), points))

    axes = {"label": scales(max(least, teachers / 100), teachers, _COARSE["label"])}
    if scene.kind == "confident-gnmax":
        axes["sigma1"] = scales(max(least, teachers / 50), 2.0 * teachers, _COARSE["sigma1"])
        axes["threshold"] = _whole(np.linspace(0.25, 1.6, _COARSE["threshold"]) * teachers)
    return axes


def fine_axes(axes: Axes, point: Mapping[str, Fraction]) -> Axes:
    """Return axes between the neighbours of a point of the grid."""
    made: Axes = {}
    for name, axis in axes.items():
        at = axis.index(point[name])
        low, high = float(axis[max(0, at - 1)]), float(axis[min(len(axis) - 1, at + 1)])
        if len(axis) == 1:
            made[name] = axis
        elif name == "threshold":
            made[name] = _whole(np.linspace(low, high, FINE))
        else:
            made[name] = _typed(np.geomspace(low, high, FINE))
    return made


def _typed(values: Floats) -> tuple[Fraction, ...]:
    """Return whole votes, and quarters of a vote below 20: what people type."""
    made = set()
    for value in np.minimum(values, MOST_SCALE).tolist():
        parts = 1 if value >= 20.0 else 4
        made.add(Fraction(max(1, round(value * parts)), parts))
    return tuple(sorted(made))


def _whole(values: Floats) -> tuple[Fraction, ...]:
    return tuple(sorted({Fraction(max(1, round(value))) for value in values.tolist()}))
