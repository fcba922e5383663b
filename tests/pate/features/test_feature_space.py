from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pate.data.embeddings import Embeddings
from pate.data.read import read_dataset
from pate.data.values import Images, Table
from pate.errors import DataError, SchemaError, UsageError
from pate.features.neighbours import cast_votes, representatives
from pate.features.space import IMAGE_SPACES, directions_over, space_over
from pate.features.tables import LikenessSpace

SIDE = 12


def bars(count: int, seed: int = 0) -> tuple[Images, np.ndarray]:
    """Photograph-like pictures of a bar that lies or stands, somewhere."""
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, 2, count)
    pixels = rng.integers(90, 110, (count, SIDE, SIDE, 1))
    for picture, kind in zip(pixels, kinds, strict=True):
        at = rng.integers(2, SIDE - 3)
        (picture if kind else picture.transpose(1, 0, 2))[at : at + 2, 1:-1] += 90
    return Images(pixels.astype(np.uint8)), kinds.astype(np.int64)


@pytest.mark.parametrize("name", IMAGE_SPACES)
@pytest.mark.parametrize("channels", [1, 3])
def test_each_point_is_made_from_its_own_image_alone(name: str, channels: int) -> None:
    images = Images(np.repeat(bars(600)[0].pixels, channels, axis=3))
    space = space_over(images, name)
    assert space.name == name
    points = space.embed(images)
    assert points.shape == (600, space.width)
    assert points.dtype == np.float32
    rows = np.random.default_rng(1).permutation(600)[:37]
    assert np.array_equal(space.embed(images.take(rows)), points[rows])
    assert np.array_equal(space.embed(images.take([5])), points[[5]])
    assert space.embed(images.take(np.arange(0))).shape == (0, space.width)
    with pytest.raises(SchemaError, match="the feature space is for"):
        space.embed(Images(np.zeros((1, 9, 9, channels), np.uint8)))


def test_the_choice_looks_at_the_public_set_alone() -> None:
    photographs, _ = bars(600)
    drawn = np.zeros((600, 20, 20, 1), np.uint8)
    drawn[:, 5:9, 3:15] = np.random.default_rng(1).integers(200, 256, (600, 4, 12, 1))
    assert space_over(photographs).name == "diffusion-scattering"
    assert space_over(photographs.take(np.arange(99))).name == "scattering"
    assert space_over(Images(drawn)).name == "diffusion-upright"
    assert space_over(Images(drawn[:, ::2, ::2])).name == "diffusion-gradients"
    with pytest.raises(DataError, match="99 public inputs; a diffusion space needs 500"):
        space_over(photographs.take(np.arange(99)), "diffusion-scattering")
    with pytest.raises(UsageError, match="no feature space 'table'"):
        space_over(photographs, "table")
    with pytest.raises(DataError, match="have the same features"):
        space_over(Images(np.zeros((500, 8, 8, 1), np.uint8)))


def test_diffusion_survives_duplicates() -> None:
    images, _ = bars(60)
    points = space_over(Images(np.repeat(images.pixels, 20, axis=0)), "diffusion-scattering").embed(
        images
    )
    assert np.isfinite(points).all()
    np.testing.assert_allclose(np.linalg.norm(points, axis=1), 1, atol=1e-4)


@pytest.mark.slow
def test_neighbours_of_digits_are_purer_along_the_public_set(test_data: Path) -> None:
    held = read_dataset(test_data / "mnist").take(np.arange(4000))
    public, private = held.take(np.arange(2000)), held.take(np.arange(2000, 4000))
    right = {}
    for name in ("auto", "gradients"):
        space = space_over(public.inputs, name)
        points = space.embed(public.inputs)
        queries = points[representatives(points, 50)]
        votes = cast_votes(queries, space.embed(private.inputs), private.labels, 10)
        right[name] = votes.max(axis=1).sum() / len(private)
    # 0.95 and 0.90 when this was written.
    assert right["auto"] > 0.93
    assert right["auto"] > right["gradients"] + 0.02


def table() -> Table:
    numbers = np.array([*range(1000), np.nan], dtype=np.float64)
    kinds = np.array(["a", "b"] * 500 + ["rare"])
    return Table(("number", "kind"), (numbers, kinds))


def test_a_mismatch_counts_a_little_more_than_one_spread() -> None:
    space = space_over(table())
    assert space.name == "table"
    rows = Table(
        ("number", "kind"),
        (np.array([500.0, 500.0, 500 + 288.7, np.nan, 500.0]), np.array([*"abaa", "new"])),
    )
    points = space.embed(rows)
    assert points.shape == (5, space.width)
    apart = np.linalg.norm(points - points[0], axis=1)
    np.testing.assert_allclose(apart, [0, 1.2, 1, 1, 1.2], atol=0.01)
    # What the public set holds once or never is one category.
    both = space.embed(Table(("number", "kind"), (np.zeros(2), np.array(["rare", "new"]))))
    assert np.array_equal(both[0], both[1])


def test_wild_cells_stay_within_bounds() -> None:
    space = space_over(table())
    wild = Table(("number", "kind"), (np.array([1e300, -1e300]), np.array(["a", "a"])))
    assert np.abs(space.embed(wild)).max() == 4
    # Neither do public ones stretch the scale of all others.
    numbers = np.arange(5000, dtype=np.float64)
    numbers[[7, 4000]] = 1.7e308, -1.7e308
    stretched = space_over(Table(("number",), (numbers,)))
    assert np.ptp(stretched.embed(Table(("number",), (np.arange(5000.0),)))[:, 0]) > 3.4
    tiny = space_over(Table(("number",), (numbers * 1e-300 * 1e-10,)))
    assert np.isfinite(tiny.embed(Table(("number",), (numbers,)))).all()
    with pytest.raises(SchemaError, match="rows of a table"):
        space.embed(bars(1)[0])
    with pytest.raises(DataError, match="no rows"):
        space_over(table().take(np.arange(0)))
    with pytest.raises(UsageError, match="there is table"):
        space_over(table(), "scattering")


def test_directions_of_tables_and_embeddings_are_those_of_kernel_features() -> None:
    rows = np.random.default_rng(3).integers(-300, 300, (90, 24)).astype(np.int16)
    for public in (table(), Embeddings(rows, "texts", "a" * 64)):
        assert isinstance(directions_over(public), LikenessSpace)
    images = bars(30)[0]
    assert directions_over(images).name == space_over(images).name != LikenessSpace.name
    with pytest.raises(DataError, match="no rows"):
        directions_over(table().take(np.arange(0)))
