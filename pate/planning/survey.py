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
from pate.accounting.events import GaussianMax, GaussianThreshold, LaplaceMax, NoisyHistogram
from pate.errors import UsageError
from pate.mechanisms import ConfidentGNMax, DistributedMechanism, GNMax, LNMax, over_noisy_sums
from pate.noise_shares import share_sigma, total_sigma
from pate.planning.chances import (
    MOST_SCALE,
    chance_of_label,
    chance_passed,
    chances_of_one_view,
    gaussian_law,
    laplace_law,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pate.accounting.arrays import Floats
    from pate.accounting.composition import Composition
    from pate.accounting.events import Event
    from pate.planning.chances import NoiseLaw
    from pate.planning.plans import Survivors
    from pate.planning.population import Population

Planned = LNMax | GNMax | ConfidentGNMax | DistributedMechanism
Kind = Literal["lnmax", "gnmax", "confident-gnmax"]
KINDS: Final = ("lnmax", "gnmax", "confident-gnmax")

#: Queries of a population that are looked at, by the price of one look.
LOOK: Final[Mapping[str, int]] = {"lnmax": 500, "gnmax": 2000, "confident-gnmax": 2000}
#: Points of the first grid, per axis, and of a finer one.
_COARSE: Final[Mapping[str, int]] = {"label": 32, "sigma1": 12, "threshold": 16}
FINE: Final = 7

#: A grid's axes by name: ``label``, and for a check ``threshold``, and ``sigma1`` if it has noise of
#: its own.
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
        honest: with noise shares, the parties in every sum whose noise nobody else knows.
        survivors: with noise shares, whose noise is in the sums; labels are looked at with most.

    Raises:
        UsageError: for numbers that make no sense, or noise shares of Laplace noise.
    """

    kind: Kind
    queries: int
    delta: float
    votes_per_unit: int = 1
    rounds: int = 1
    share: Fraction = Fraction(1)
    honest: int | None = None
    survivors: Survivors | None = None

    def __post_init__(self) -> None:
        if (self.honest is None) != (self.survivors is None):
            raise UsageError("with noise shares both the honest parties and the survivors count")
        if self.honest is not None and self.kind == "lnmax":
            raise UsageError(
                "noise shares do not suit lnmax: sums of Laplace noise are not Laplace"
            )
        if self.kind not in KINDS:
            raise UsageError(f"mechanism is {self.kind!r}, possible are {', '.join(KINDS)}")
        if self.queries < 1 or self.rounds < 1 or not 0 < self.share <= 1:
            raise UsageError("a plan needs a query, a round, and a share of the budget up to 1")

    @property
    def part(self) -> Fraction:
        """Share of the budget that the round planned may spend."""
        return self.share if self.rounds > 1 else Fraction(1)

    def setting(self, label: Fraction, sigma1: Fraction | None, threshold: int | None) -> Planned:
        """Return the mechanism of one point of a grid."""
        if self.kind == "lnmax":
            return LNMax(label, self.votes_per_unit)
        plain: GNMax | ConfidentGNMax = GNMax(label, self.votes_per_unit)
        if threshold is not None:
            plain = ConfidentGNMax(threshold, sigma1 or label, label, self.votes_per_unit)
        return plain if self.honest is None else over_noisy_sums(plain, self.honest)

    def label_event(self, label: Fraction) -> Event:
        """Return what a label costs, or with noise shares a query."""
        if self.kind == "lnmax":
            return LaplaceMax(label, self.votes_per_unit)
        if self.honest is None:
            return GaussianMax(label, self.votes_per_unit)
        share = share_sigma(label, self.honest)
        return NoisyHistogram(share, self.honest, self.votes_per_unit)

    def label_law(self, label: Fraction) -> NoiseLaw:
        """Return the law of the noise that a label suffers."""
        if self.kind == "lnmax":
            return laplace_law(label)
        if self.honest is None or self.survivors is None:
            return gaussian_law(label)
        return gaussian_law(total_sigma(share_sigma(label, self.honest), self.survivors.most))


def steps_of(axes: Axes) -> int:
    """Return how often a survey of these axes calls ``step``."""
    return len(axes["label"])


@dataclass(frozen=True, eq=False)
class Survey:
    """Settings, and what they give: a grid of checks times labels.

    Attributes:
        labels: (labels,) scale or sigma2 of each label setting.
        checks: (checks,) sigma1 and threshold of each check, or (None, None) where there is none;
            sigma1 is None where the check reads the noisy votes of the label.
        answer: (checks, labels) P[answer] of a query of the population.
        paid: (checks, labels) P[the cost of a label is paid].
        right: (checks, labels) P[answer, and it is right].
        costs: by composition, (checks,) and (labels,) exact costs; None where it has none.
    """

    labels: tuple[Fraction, ...]
    checks: tuple[tuple[Fraction | None, int | None], ...]
    answer: Floats
    paid: Floats
    right: Floats
    costs: Mapping[str, tuple[tuple[Fraction | None, ...], tuple[Fraction | None, ...]]]

    @property
    def accuracy(self) -> Floats:
        """(checks, labels) share of right labels; 0 where nothing is answered."""
        return np.where(self.answer > 0.0, self.right / np.maximum(self.answer, 1e-300), 0.0)


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
    laws = [scene.label_law(scale) for scale in axes["label"]]
    if scene.honest is not None and scene.kind == "confident-gnmax":
        checks, answer, right = _one_view(seen, axes, laws, step)
    else:
        checks, answer, right = _apart(seen, scene, axes, laws, step)
    k = scene.votes_per_unit
    checked = [None if s is None else GaussianThreshold(s, k) for s, _ in checks]
    labelled = [scene.label_event(scale) for scale in axes["label"]]
    return Survey(
        axes["label"],
        tuple(checks),
        np.minimum(answer, 1.0),
        np.ones_like(answer) if scene.honest is not None else np.minimum(answer, 1.0),
        right,
        {
            each.name: (
                tuple(_cost(each, event) for event in checked),
                tuple(_cost(each, event) for event in labelled),
            )
            for each in COMPOSITIONS
        },
    )


_Checks = list[tuple[Fraction | None, int | None]]


def _apart(
    seen: Population,
    scene: Scene,
    axes: Axes,
    laws: list[NoiseLaw],
    step: Callable[[], None],
) -> tuple[_Checks, Floats, Floats]:
    """Return checks, answer and right where a check, if there is one, has noise of its own."""
    votes = seen.votes
    label_given = np.empty((len(laws), len(seen)))
    for row, law in zip(label_given, laws, strict=True):
        row[:] = chance_of_label(votes, seen.labels, law)
        step()
    checks: _Checks = [(None, None)]
    passed = np.ones((1, len(seen)))
    if scene.kind == "confident-gnmax":
        known = [(sigma1, gaussian_law(sigma1)) for sigma1 in axes["sigma1"]]
        both = [(s, law, int(threshold)) for s, law in known for threshold in axes["threshold"]]
        checks = [(sigma1, threshold) for sigma1, _, threshold in both]
        passed = np.array([chance_passed(votes, threshold, law) for _, law, threshold in both])
    answer = np.repeat(passed.mean(axis=1)[:, None], len(laws), axis=1)
    return checks, answer, passed @ label_given.T / len(seen)


def _one_view(
    seen: Population, axes: Axes, laws: list[NoiseLaw], step: Callable[[], None]
) -> tuple[_Checks, Floats, Floats]:
    """Return checks, answer and right where the check reads the noisy votes of the label."""
    thresholds = np.array([int(each) for each in axes["threshold"]])
    answer = np.empty((len(thresholds), len(laws)))
    right = np.empty_like(answer)
    for at, law in enumerate(laws):
        passed, chosen = chances_of_one_view(seen.votes, seen.labels, thresholds, law)
        answer[:, at], right[:, at] = passed.mean(axis=1), chosen.mean(axis=1)
        step()
    return [(None, int(each)) for each in thresholds], answer, right


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
        if scene.honest is None:
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
