"""Directions of likeness: exact, the record's own, and able to learn what is not linear in columns."""

from __future__ import annotations

import numpy as np
import pytest

from pate.codes import GRID
from pate.data.values import Table
from pate.errors import DataError
from pate.features.dense import Directions, dense_votes, looked_at
from pate.features.neighbours import representatives
from pate.features.space import directions_over, space_over
from pate.features.tables import LikenessSpace
from pate.formats.noisy_counts import NoisyVotes
from student.chances.sums import linear_chances


def rows_of(count: int, seed: int) -> Table:
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(2, count))
    return Table(("x", "y", "ward"), (x, y, rng.choice(["a", "b", "c"], count)))


def test_features_are_the_records_own_to_the_last_bit() -> None:
    public, private = rows_of(1500, 0), rows_of(5000, 1)
    space = directions_over(public)
    assert isinstance(space, LikenessSpace)
    assert space.width == 1024
    whole = space.embed(private)
    assert whole.shape == (5000, 1024)
    order = np.random.default_rng(2).permutation(5000)
    assert np.array_equal(space.embed(private.take(order)), whole[order])
    for at in (0, 7, 4999):
        assert np.array_equal(space.embed(private.take([at]))[0], whole[at])
    # What they are multiplied with is as small as the argument needs it.
    assert np.abs(space.landmarks).max() <= 2**17
    assert np.abs(space.turn).max() < 2**20
    assert (space.turn == np.trunc(space.turn)).all()


def test_inner_products_are_likenesses() -> None:
    public = rows_of(800, 0)
    space = LikenessSpace.fit(space_over(public), public)
    some = rows_of(60, 5)
    points = space_over(public).embed(public).astype(np.float64)
    usual = np.square(points - points.mean(axis=0)).sum(axis=1).mean()
    at = space_over(public).embed(some).astype(np.float64)
    apart = np.square(at[:, None] - at[None]).sum(axis=2) / usual
    features = space.embed(some).astype(np.float64)
    found, wanted = features @ features.T, 1 / (1 + apart / 2)
    assert np.abs(found - wanted).mean() < 0.01
    # None is longer than a record is like itself, but for rounding.
    assert (np.diag(found) < 1 + 1e-3).all()


def test_far_or_equal_rows() -> None:
    values = np.array([0.0, 1.0, 2.0, 3.0])
    public = Table(("x",), (np.repeat(values, 3),))
    space = LikenessSpace.fit(space_over(public), public)
    assert space.width == 4
    far = space.embed(Table(("x",), (np.array([1e300, -1e300, np.nan]),)))
    assert np.isfinite(far).all()
    with pytest.raises(DataError, match="all in one place"):
        LikenessSpace.fit(space_over(public), public.take([0, 1, 2]))


def test_it_learns_what_is_not_linear_in_columns() -> None:
    """Whether two numbers have one sign: directions of the columns themselves know nothing of it."""
    public, private = rows_of(1500, 0), rows_of(8000, 1)
    truth = [
        np.sign(each.columns[0].astype(float) * each.columns[1].astype(float)) > 0
        for each in (public, private)
    ]
    space = directions_over(public)
    points, places = space.embed(public), space_over(public).embed(public)
    chosen = representatives(places, 64)
    directions = Directions.fit(points[chosen], points[looked_at(len(points))])
    sums = dense_votes(directions, space.embed(private), truth[1].astype(np.int64), 2)
    noise = np.rint(5 * GRID * np.random.default_rng(4).normal(size=sums.shape))
    noisy = NoisyVotes(chosen, sums + noise.astype(np.int64), 5.0 * GRID, "dense-64")
    chances = linear_chances(public, noisy)
    assert chances is not None
    assert float(((chances[:, 1] > 0.5) == truth[0]).mean()) > 0.85
