"""Steady spaces: what distortions teach about features, without a label."""

from __future__ import annotations

import numpy as np
import pytest

from pate.data.values import Images, Table
from pate.errors import DataError, SchemaError
from pate.features.distortions import distorted, strokes
from pate.features.fitted import InvariantSpace
from pate.features.space import STEADY_FROM, ImageSpace, default_name

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
