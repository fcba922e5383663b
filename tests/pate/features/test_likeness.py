"""Directions of likeness, and steady spaces, learnt without a label."""

from __future__ import annotations

import numpy as np
import pytest

from pate.codes import GRID
from pate.data.values import Images, Table
from pate.errors import DataError, SchemaError
from pate.features.dense import Directions, dense_votes, looked_at
from pate.features.distortions import distorted, strokes
from pate.features.fitted import InvariantSpace
from pate.features.neighbours import representatives
from pate.features.space import STEADY_FROM, ImageSpace, default_name, directions_over, space_over
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
    public, private = rows_of(1500, 0), rows_of(4000, 1)
    truth = [
        np.sign(each.columns[0].astype(float) * each.columns[1].astype(float)) > 0
        for each in (public, private)
    ]
    space = directions_over(public)
    points, places = space.embed(public), space_over(public).embed(public)
    chosen = representatives(places, 64)
    directions = Directions.fit(points[chosen], points[looked_at(len(points))])
    sums = dense_votes(directions, space.embed(private), truth[1].astype(np.int64), 2)
    noise = np.rint(2.5 * GRID * np.random.default_rng(4).normal(size=sums.shape))
    noisy = NoisyVotes(chosen, sums + noise.astype(np.int64), 2.5 * GRID, "dense-64")
    chances = linear_chances(public, noisy)
    assert chances is not None
    assert float(((chances[:, 1] > 0.5) == truth[0]).mean()) > 0.85


SIZE = (20, 20, 1)
BASE = ImageSpace("gradients", SIZE)


def test_distortions_hang_on_the_place_in_the_set_alone() -> None:
    images = strokes(30, SIZE)
    made = distorted(images)
    assert made.size == images.size
    assert np.array_equal(distorted(images.take(np.arange(7))).pixels, made.pixels[:7])
    alike = Images(np.repeat(images.pixels[:1], 5, axis=0))
    assert len(np.unique(distorted(alike).pixels, axis=0)) == 5
    # Moved, and still nearer to what it was than others are.
    apart = np.abs(made.pixels[:, None].astype(float) - images.pixels[None]).mean(axis=(2, 3, 4))
    assert (np.diag(apart) > 0).all()
    assert np.diag(apart).mean() < 0.8 * apart.mean()


def test_distortions_take_images_of_any_size() -> None:
    for size in ((1, 1, 1), (1, 9, 3), (40, 6, 3)):
        pixels = np.random.default_rng(0).integers(0, 256, (3, *size)).astype(np.uint8)
        assert distorted(Images(pixels)).pixels.shape == (3, *size)
    assert not len(distorted(Images(np.zeros((0, 5, 5, 1), np.uint8))))


def test_strokes_are_the_same_however_many() -> None:
    few, many = strokes(5, (12, 30, 3)), strokes(300, (12, 30, 3))
    assert np.array_equal(few.pixels, many.pixels[:5])
    assert len(np.unique(many.pixels, axis=0)) == 300
    assert (many.pixels[..., 0] == many.pixels[..., 2]).all()
    # Ink on paper, not too much of it.
    assert 0.02 < (many.pixels > 128).mean() < 0.4


def test_other_distortions_of_strangers_are_recognised() -> None:
    images = strokes(1_000, SIZE)
    space = InvariantSpace.fit(BASE, images.take(np.arange(600)))
    # Others than the space was fitted on, and distorted otherwise than their place there was.
    strangers = images.take(np.arange(600, 1_000))
    copies = distorted(distorted(strangers))

    def known(places: np.ndarray, moved: np.ndarray) -> float:
        return float(((moved @ places.T).argmax(axis=1) == np.arange(len(places))).mean())

    steady = known(space.embed(strangers), space.embed(copies))
    plain = known(BASE.embed(strangers), BASE.embed(copies))
    assert steady > plain + 0.05, (steady, plain)


def test_too_few_or_no_images_are_refused() -> None:
    with pytest.raises(DataError, match="499 public inputs; a steady feature space needs 500"):
        InvariantSpace.fit(BASE, strokes(499, SIZE))
    with pytest.raises(DataError, match="have the same features"):
        InvariantSpace.fit(BASE, Images(np.zeros((500, *SIZE), np.uint8)))
    with pytest.raises(SchemaError, match="for images"):
        InvariantSpace.fit(BASE, Table(("a",), (np.arange(600.0),)))


def test_large_sets_of_drawn_shapes_are_told_by_a_steady_space() -> None:
    one = np.zeros((1, *SIZE), np.uint8)
    one[:, 5:9, 3:15] = 255
    assert default_name(Images(np.repeat(one, STEADY_FROM, axis=0))) == "steady-upright"
    assert default_name(Images(np.repeat(one, STEADY_FROM - 1, axis=0))) == "diffusion-upright"
    grey = np.full((STEADY_FROM, 6, 6, 1), 100, np.uint8)
    assert default_name(Images(grey)) == "diffusion-scattering"
