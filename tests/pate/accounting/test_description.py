"""What may be published of a run: the height on public rungs, and how often it is too low."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from pate.accounting.bounds.laws import DiscreteGaussian, Gaussian
from pate.accounting.conversion import epsilon_from_rdp
from pate.accounting.publishing.description import (
    Description,
    DescriptionParameters,
    rungs_of_public_proxy,
)
from pate.accounting.units import Neighbours
from pate.errors import AccountingError, UsageError
from pate.simulated_noise import SimulatedNoise
from tests.pate.accounting.small_worlds import World, joint_bound, label_bound


def worlds() -> list[World]:
    neighbours, made = Neighbours(), []
    for law in (Gaussian(2.0), DiscreteGaussian(2.0)):
        for teachers, classes in ((14, 2), (9, 3)):
            label = label_bound(law, neighbours, 2.0)
            made.append(World(teachers, classes, law, neighbours, label, 2.0, checked=False))
            both = joint_bound(law, Gaussian(2.0), 0.6 * teachers, neighbours, 2.0)
            made.append(World(teachers, classes, law, neighbours, both, 2.0, checked=True))
    return made


def parameters(rungs: tuple[float, ...], failure: float = 1e-3) -> DescriptionParameters:
    return DescriptionParameters(order=2.0, sigma=Fraction(3), failure=failure, rungs=rungs)


def test_one_unit_moves_the_height_by_at_most_one_and_costs_lie_below() -> None:
    seen: set[int] = set()
    for world in worlds():
        best = world.batch(int(np.argmin(world.costs)))
        for rungs in (
            rungs_of_public_proxy(best, 2.0, above=12, below=4),
            rungs_of_public_proxy(best, 2.0, above=3, below=0),
            tuple(1e-3 * 1.7**step for step in range(14)),
            (0.02, 0.02, 0.02, 0.1, 0.1, 0.3),
        ):
            rule = parameters(rungs)
            heights = np.array([rule.height(world.batch(r)) for r in range(len(world.costs))])
            assert heights.min() >= 0
            assert heights.max() <= len(rungs)
            near = world.distances <= 1
            assert np.abs(heights[:, None] - heights[None, :])[near].max() <= 1
            upper = np.append(rungs, math.inf)[heights]
            assert (world.costs <= upper).all()
            seen |= set(heights.tolist())
    assert len(seen) > 8


def test_the_proxy_stands_where_it_should() -> None:
    world = worlds()[0]
    batch = world.batch(int(np.argmin(world.costs)))
    rungs = rungs_of_public_proxy(batch, 2.0, above=6, below=3)
    assert len(rungs) == 9
    assert parameters(rungs).height(batch) == 3
    assert rungs[3] == batch.worst(0)[0]
    assert rungs[8] == batch.worst(5)[0]
    assert list(rungs) == sorted(rungs)


def test_the_upper_bound_is_too_low_as_rarely_as_it_says() -> None:
    # 1500 runs at a failure of 2 %: more than 64 misses have a chance below 1e-7.
    world = worlds()[0]
    batch = world.batch(int(np.argmin(world.costs)))
    rungs = rungs_of_public_proxy(batch, 2.0, above=40, below=30)
    rule, noise, missed = parameters(rungs, failure=0.02), SimulatedNoise(3), 0
    for _ in range(1500):
        found = rule.describe(batch, noise)
        missed += found.upper < world.costs.min()
        if found.noisy_height + rule.margin < 0:
            assert found.upper == rungs[0]
    assert 0 < missed <= 64


def test_margin_is_the_least() -> None:
    for sigma, failure in ((3, 0.02), (3, 1e-5), (Fraction(1, 2), 1e-3), (100, 1e-6)):
        rule = DescriptionParameters(
            order=2.0, sigma=Fraction(sigma), failure=failure, rungs=(1.0,)
        )
        law = DiscreteGaussian(float(sigma))
        tails = np.exp(law.log_survival([rule.margin, rule.margin + 1]))
        assert tails[1] <= failure < tails[0]


def test_cost_and_figure() -> None:
    rule = parameters((0.1, 0.2))
    assert rule.rho == Fraction(1, 18)
    found = Description(4, 2.0, 0.2, 1e-3)
    assert found.epsilon(1e-5) == epsilon_from_rdp([2.0], [0.2], 1e-5)
    # Rungs that end too low say nothing, rather than something wrong.
    assert Description(9, 2.0, math.inf, 1e-3).epsilon(1e-5) == math.inf


def test_what_cannot_be_is_refused() -> None:
    for rungs in ((), (0.2, 0.1), (-0.1, 0.2), (0.1, math.nan), (0.1, math.inf)):
        with pytest.raises(AccountingError, match="rungs"):
            parameters(rungs)
    with pytest.raises(AccountingError, match="delta"):
        parameters((0.1,), failure=0.0)
    with pytest.raises(UsageError, match="sigma"):
        DescriptionParameters(order=2.0, sigma=Fraction(0), failure=0.1, rungs=(0.1,))
    with pytest.raises(AccountingError, match="order"):
        DescriptionParameters(order=1.0, sigma=Fraction(1), failure=0.1, rungs=(0.1,))
    batch = worlds()[0].batch(0)
    with pytest.raises(AccountingError, match="rungs"):
        rungs_of_public_proxy(batch, 2.0, above=1, below=0)
    with pytest.raises(AccountingError, match="order"):
        rungs_of_public_proxy(batch, 3.0, above=3, below=0)
