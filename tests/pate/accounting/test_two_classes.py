"""The gate's batch of two classes: the exact cost within a distance, and one unit further for neighbours."""

from __future__ import annotations

import numpy as np
import pytest

from pate.accounting import Adjacency
from pate.accounting.arrays import Floats
from pate.accounting.bounds.laws import DiscreteGaussian, Law
from pate.accounting.bounds.sharp import GaussianSetting
from pate.accounting.nearby import Batch, TwoClasses, batch_of
from pate.accounting.units import Neighbours
from tests.support.accounting import exact
from tests.support.accounting.small_worlds import label_bound

TEACHERS = 40
LAW = DiscreteGaussian(8.0)
CHECKED = GaussianSetting(label=LAW, check=DiscreteGaussian(12.0), threshold=30.0)
ALL = np.array([[first, TEACHERS - first] for first in range(TEACHERS + 1)])


def batch(votes: object, setting: GaussianSetting, unit: Neighbours | None = None) -> Batch:
    unit = unit or Neighbours()
    bound = label_bound(setting.label, unit, 6.0)
    return batch_of(votes, setting, unit, bound, [6.0])  # type: ignore[arg-type]


def divergences(setting: GaussianSetting) -> Floats:
    """Return the exact cost of each number of votes for the first class."""
    log_p = exact.log_labels(ALL, exact.Lattice("gaussian", setting.label.sigma))
    if setting.check is not None:
        noise, top = exact.Lattice("gaussian", setting.check.sigma), ALL.max(axis=1).astype(float)
        passes = noise.log_upto(top - setting.threshold)
        log_p = np.column_stack([noise.log_below(setting.threshold - top), passes[:, None] + log_p])
    made = []
    for at in range(len(ALL)):
        near = [other for other in (at - 1, at + 1) if 0 <= other <= TEACHERS]
        made.append(exact.divergences(log_p[at], log_p[near], [6.0]).max())
    return np.array(made)


@pytest.mark.parametrize("setting", [GaussianSetting(label=LAW), CHECKED])
def test_it_is_the_largest_cost_within_a_distance(setting: GaussianSetting) -> None:
    costs, every = divergences(setting), batch(ALL, setting)
    assert isinstance(every, TwoClasses)
    worst = np.stack([every.worst_of_each(distance)[:, 0] for distance in range(9)])
    for distance in range(9):
        truth = np.array(
            [costs[max(0, at - distance) : at + distance + 1].max() for at in range(TEACHERS + 1)]
        )
        assert (worst[distance] >= truth).all()
        np.testing.assert_allclose(worst[distance], truth, rtol=1e-6, atol=1e-10)
    # Of neighbours it is one unit further, to the last bit.
    assert (worst[:-1, 1:] <= worst[1:, :-1]).all()
    assert (worst[:-1, :-1] <= worst[1:, 1:]).all()


def test_distances_of_neighbours_differ_by_one_at_most() -> None:
    rows = np.array([[31, 9], [12, 28], [40, 0], [31, 9]])
    every = batch(rows, CHECKED)
    assert every.cost() == pytest.approx(every.worst(0), rel=1e-9)
    for target in (0.02, 0.05, 0.1):
        reached = every.distance_to(target, 6.0, 40)
        for move in (-1, 1):
            near = np.clip(rows[:, 0] + move, 0, TEACHERS)
            other = batch(np.column_stack([near, TEACHERS - near]), CHECKED)
            assert abs(other.distance_to(target, 6.0, 40) - reached) <= 1


def test_no_distance_is_too_far() -> None:
    """Beyond the number of teachers there are no more counts, and no work."""
    every = batch([[31, 9]], CHECKED)
    assert every.distance_to(1e9, 6.0, 10**12) == 10**12


def test_it_is_below_the_bound_that_it_replaces() -> None:
    rows = np.array([[60, 140], [190, 10]])
    setting, unit = GaussianSetting(label=DiscreteGaussian(20.0)), Neighbours()
    bound = label_bound(setting.label, unit, 6.0)
    usual = Batch.of(rows, setting.label, unit, bound, orders=[6.0], checked=False)
    for distance in (0, 3, 20):
        assert batch(rows, setting).worst(distance) < 0.9 * usual.worst(distance)


@pytest.mark.parametrize(
    ("votes", "law", "k", "adjacency"),
    [
        ([[30, 5, 5]], LAW, 1, "change"),
        ([[30, 10]], LAW, 2, "change"),
        ([[30, 10]], LAW, 1, "remove"),
        ([[30, 10]], DiscreteGaussian(7.0), 1, "change"),
        ([[30, 10], [30, 9]], LAW, 1, "change"),
    ],
)
def test_otherwise_the_bound_remains(
    votes: list[list[int]], law: Law, k: int, adjacency: Adjacency
) -> None:
    made = batch(votes, GaussianSetting(label=law), Neighbours(k, adjacency))
    assert type(made) is Batch
    assert made.law == law
