"""The worst cost within a distance, of any histogram and of the gate's batch of two classes."""

from __future__ import annotations

import numpy as np
import pytest

from pate.accounting import Adjacency
from pate.accounting.arrays import Floats
from pate.accounting.bounds.laws import DiscreteGaussian, Gaussian, Law
from pate.accounting.bounds.sharp import GaussianSetting
from pate.accounting.nearby import Batch, TwoClasses, batch_of
from pate.accounting.units import Neighbours
from pate.errors import AccountingError
from tests.support.accounting import exact
from tests.support.accounting.small_worlds import LAWS, Kind, label_bound, worlds


@pytest.mark.parametrize("adjacency", ["change", "remove"])
@pytest.mark.parametrize("law", LAWS, ids=str)
def test_no_votes_within_a_distance_cost_more(law: Law, adjacency: Kind) -> None:
    tightest = []
    for world in worlds(law, adjacency):
        for distance in range(5):
            truth = world.within(distance, world.costs)
            got = world.worst(distance)
            assert (got >= truth).all()
            tightest.append((got / truth).min())
    # It is not simply large: somewhere it is what it must be.
    assert min(tightest) < 1.01


@pytest.mark.parametrize("adjacency", ["change", "remove"])
def test_of_neighbours_it_is_one_unit_further(adjacency: Kind) -> None:
    for world in worlds(DiscreteGaussian(2.0), adjacency):
        worst = np.stack([world.worst(distance) for distance in range(7)], axis=1)
        assert (np.diff(worst, axis=1) >= 0).all()
        near = world.distances <= 1
        for distance in range(6):
            ahead = worst[:, None, distance + 1] - worst[None, :, distance]
            assert (ahead[near] >= 0).all()
        # Distances to a target, also to targets that are costs themselves: of a histogram and its
        # neighbours, and of some others.
        rows = np.union1d(
            near[len(near) // 2].nonzero(), np.arange(0, len(near), 1 + len(near) // 20)
        )
        worst, near, batches = worst[rows], near[np.ix_(rows, rows)], [*map(world.batch, rows)]
        for target in np.unique(worst)[:: max(1, worst.size // 10)]:
            reached = np.array([each.distance_to(target, world.order, 6) for each in batches])
            assert reached.min() >= -1
            assert np.abs(reached[:, None] - reached[None, :])[near].max() <= 1
            expected = np.where(worst <= target, np.arange(7), -1).max(axis=1)
            assert (reached == expected).all()


def test_queries_add_up_and_like_ones_are_counted() -> None:
    world = worlds(Gaussian(2.5), "change")[3]
    parts = [world.batch(row) for row in (0, 3, 11)]
    whole = world.batch(0, 3, 11, 3, 3)
    assert whole.queries == 5
    assert len(whole.top) == 3
    times = np.array([1, 3, 1])
    for distance in range(4):
        each = np.array([part.worst(distance)[0] for part in parts])
        assert whole.worst(distance)[0] == pytest.approx(times @ each, rel=1e-12)
    assert whole.cost()[0] == pytest.approx(whole.worst(0)[0], rel=1e-7)


@pytest.mark.parametrize("law", [Gaussian(1.0), Gaussian(5000.0), DiscreteGaussian(40.0)], ids=str)
def test_extremes_stay_numbers(law: Law) -> None:
    neighbours = Neighbours()
    for classes in (2, 1000):
        votes = np.zeros((3, classes))
        votes[0, 0] = 5000
        votes[1, :2] = 2500
        votes[2] = 5000 // classes
        for order in (1.01, 512.0):
            batch = Batch.of(
                votes, law, neighbours, label_bound(law, neighbours, order), orders=[order],
                checked=False,
            )  # fmt: skip
            worst = [batch.worst(distance)[0] for distance in (0, 1, 30, 2500)]
            assert np.isfinite(worst).all()
            assert (np.diff(worst) >= 0).all()
            cap = 3 * order / law.sigma**2
            assert worst[-1] == pytest.approx(cap, rel=1e-6, abs=1e-8)


def test_what_cannot_be_is_refused() -> None:
    law, neighbours = Gaussian(2.0), Neighbours()
    bound = label_bound(law, neighbours, 2.0)

    def of(votes: object, bound: object = bound, **more: object) -> Batch:
        given = {"orders": [2.0], "checked": False, **more}
        return Batch.of(votes, law, neighbours, bound, **given)  # type: ignore[arg-type]

    for votes in ([], [[1.5, 2.0]], [[1.0]], [[-1, 2]], [[np.nan, 1]], [1, 2]):
        with pytest.raises(AccountingError):
            of(votes)
    with pytest.raises(AccountingError, match="distance"):
        of([[3, 1]]).worst(-1)
    with pytest.raises(AccountingError, match="target"):
        of([[3, 1]]).distance_to(np.nan, 2.0, 3)
    with pytest.raises(AccountingError, match="order 3"):
        of([[3, 1]]).distance_to(1.0, 3.0, 3)
    for bad in (-1.0, np.nan):
        with pytest.raises(AccountingError, match="NaN or negative"):
            of([[3, 1]], bound=lambda top, log_q: 0 * log_q[:, None] + bad).cost()  # noqa: ARG005, B023
    with pytest.raises(AccountingError, match="shape"):
        of([[3, 1]], bound=lambda top, log_q: log_q**2).cost()  # noqa: ARG005


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
