"""Local sensitivities against every histogram of small worlds, and smooth ones against theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from pate.accounting.bounds.laws import DiscreteGaussian, Gaussian
from pate.accounting.publishing.nearby import Batch
from pate.accounting.publishing.smooth_sensitivity import _Table, smooth_sensitivity
from pate.accounting.units import Neighbours
from pate.errors import AccountingError
from tests.support.accounting.small_worlds import LAWS, Kind, joint_bound, label_bound, worlds

if TYPE_CHECKING:
    from collections.abc import Callable

    from pate.accounting.arrays import Floats
    from pate.accounting.bounds.laws import Law


def local_sensitivities(
    batch: Batch, teachers: int, order: float, distances: int, cells_per_vote: int = 8
) -> Floats:
    """(kinds of queries, distances) bounds, none left out."""
    table = _Table(batch, teachers, order, cells_per_vote)
    made = [table.at_votes()]
    for _ in range(1, distances):
        table.widen()
        made.append(table.at_votes())
    return np.stack(made, axis=1)


@pytest.mark.parametrize("adjacency", ["change", "remove"])
@pytest.mark.parametrize("law", LAWS, ids=str)
def test_no_histogram_within_a_distance_is_more_sensitive(law: Law, adjacency: Kind) -> None:
    ratios = []
    for world in worlds(law, adjacency):
        every = world.batch(*range(len(world.histograms)))
        got = local_sensitivities(every, world.teachers, world.order, 6, cells_per_vote=4)
        assert (np.diff(got, axis=1) >= 0).all()
        for distance in range(6):
            truth = world.within(distance, world.local)
            here = got[world.kinds, distance]
            assert (here >= truth).all()
            if truth.max() > 0:
                ratios.append(here.max() / truth.max())
    # Cells and relaxed moves cost something, and not much where it is largest.
    assert len(ratios) > 60
    assert np.median(ratios) < 2.0


@pytest.mark.parametrize("law", [Gaussian(2.5), DiscreteGaussian(2.0)], ids=str)
def test_smooth_sensitivity_is_above_the_true_one_and_smooth(law: Law) -> None:
    for world in worlds(law, "change"):
        for beta in (0.05, 0.4):
            found = np.array(
                [
                    smooth_sensitivity(world.batch(row), world.teachers, world.order, beta).value
                    for row in range(0, len(world.histograms), 3)
                ]
            )
            discount = np.exp(-beta * np.arange(world.teachers + 1))
            truth = np.max(
                [part * world.within(d, world.local) for d, part in enumerate(discount)], axis=0
            )
            assert (found >= truth[::3]).all()
            apart = np.exp(beta * world.distances[::3, ::3]) * (1 + 1e-9)
            assert (found[:, None] <= apart * found[None, :]).all()


def test_a_batch_is_the_sum_of_its_queries() -> None:
    world = worlds(Gaussian(2.5), "change")[3]
    rows = (0, 3, 11)
    each = [
        local_sensitivities(world.batch(row), world.teachers, world.order, 9)[0] for row in rows
    ]
    whole = smooth_sensitivity(world.batch(*rows, 3), world.teachers, world.order, 0.01)
    total = each[0] + 2 * each[1] + each[2]
    assert whole.local == pytest.approx(total[: len(whole.local)], rel=1e-9)
    assert whole.value == pytest.approx((total * np.exp(-0.01 * np.arange(9))).max(), rel=1e-9)


def test_distances_are_left_out_only_where_they_cannot_matter() -> None:
    for world in worlds(Gaussian(2.5), "change")[:4]:
        for beta in (0.02, 0.3, 2.0):
            batch = world.batch(1)
            full = local_sensitivities(batch, world.teachers, world.order, world.teachers + 1)[0]
            want = (full * np.exp(-beta * np.arange(len(full)))).max()
            found = smooth_sensitivity(batch, world.teachers, world.order, beta)
            assert found.value == want
            assert found.local.tolist() == full[: len(found.local)].tolist()


def test_finer_cells_are_tighter() -> None:
    for world in worlds(Gaussian(2.5), "change")[:4]:
        batch = world.batch(*range(0, len(world.histograms), 2))
        values = [
            smooth_sensitivity(batch, world.teachers, world.order, 0.1, cells).value
            for cells in (1, 4, 16, 64)
        ]
        assert (np.diff(values) <= 1e-12).all()
        assert values[-1] < values[0]


def test_many_teachers_and_extremes() -> None:
    neighbours = Neighbours()
    for sigma in (1.0, 40.0, 5000.0):
        law = Gaussian(sigma)
        few = np.array([[5000.0, 0.0], [2500.0, 2500.0], [3000.0, 2000.0]])
        many = np.zeros((2, 1000))
        many[:, 0], many[1, 1:] = (5000.0, 4001.0), 1.0
        for votes, order in ((few, 1.01), (few, 512.0), (many, 14.0)):
            batch = Batch.of(
                votes, law, neighbours, label_bound(law, neighbours, order), orders=[order],
                checked=False,
            )  # fmt: skip
            found = smooth_sensitivity(batch, 5000, order, 0.05, 1)
            assert 0.0 <= found.value <= 3 * order / sigma**2 * (1 + 1e-9)


def test_what_cannot_be_is_refused() -> None:
    world = worlds(Gaussian(2.5), "change")[3]
    batch, order = world.batch(0, 1), world.order
    calls: tuple[Callable[[], object], ...] = (
        lambda: smooth_sensitivity(batch, world.teachers, order, 0.0),
        lambda: smooth_sensitivity(batch, world.teachers, order, np.nan),
        lambda: smooth_sensitivity(batch, world.teachers, order + 1, 0.1),
        lambda: smooth_sensitivity(batch, world.teachers - 1, order, 0.1),
        lambda: smooth_sensitivity(batch, 0, order, 0.1),
        lambda: smooth_sensitivity(batch, world.teachers, order, 0.1, 0),
        lambda: smooth_sensitivity(batch, 100_000, order, 0.1),
    )
    for call in calls:
        with pytest.raises(AccountingError):
            call()
    law = Gaussian(2.0)
    bound = joint_bound(law, law, 3.0, Neighbours(), 2.0)
    other = Batch.of([[5, 1]], law, Neighbours(), bound, orders=[2.0], checked=True, margins=[2.0])
    with pytest.raises(AccountingError, match="largest count"):
        smooth_sensitivity(other, 6, 2.0, 0.1)
