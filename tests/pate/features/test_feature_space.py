"""Spaces of features: fixed, a record's own, the same on every processor, with progress."""

from __future__ import annotations

import itertools
import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from party.voting.neighbour import NeighbourVotes
from pate.data.embeddings import Embeddings
from pate.data.read import read_dataset
from pate.data.values import Dataset, Images, Table
from pate.errors import DataError, SchemaError, UsageError
from pate.features.neighbours import cast_votes, representatives
from pate.features.progress import Parts, telling, told
from pate.features.scattering import _morlet, _plan, _scatter_pixels, scatter, scattering_width
from pate.features.space import IMAGE_SPACES, ImageSpace, directions_over, space_over
from pate.features.tables import LikenessSpace
from tests.support.needs import others_slow

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


#: Of spaces over a public set, which are made of these.
PLAIN = [name for name in IMAGE_SPACES if not name.startswith(("diffusion", "steady"))]


@pytest.mark.parametrize(
    ("name", "channels"), [*itertools.product(IMAGE_SPACES, [1]), *itertools.product(PLAIN, [3])]
)
def test_each_point_is_made_from_its_own_image_alone(name: str, channels: int) -> None:
    images = Images(np.repeat(bars(500)[0].pixels, channels, axis=3))
    space = space_over(images, name)
    assert space.name == name
    images = images.take(range(120))
    points = space.embed(images)
    assert points.shape == (120, space.width)
    assert points.dtype == np.float32
    rows = np.random.default_rng(1).permutation(120)[:37]
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


@pytest.mark.parametrize("name", ["scattering", "gradients", "upright"])
def test_features_of_many_images_tell_how_far_they_are(name: str) -> None:
    images = Images(np.zeros((2000, 16, 16, 1), dtype=np.uint8))
    said: list[tuple[int, int]] = []
    space = ImageSpace(name, images.size)
    with telling(lambda done, total: said.append((done, total))):
        inside = space.embed(images)
    assert said[-1] == (100, 100)
    assert len(said) > 1
    before = len(said)
    np.testing.assert_array_equal(space.embed(images), inside)
    assert len(said) == before


def test_a_single_block_is_not_told() -> None:
    said: list[int] = []
    with telling(lambda done, _: said.append(done)):
        assert list(told(range(0, 10, 10))) == [0]
        assert list(told(range(0, 30, 10))) == [0, 10, 20]
    assert said == [33, 66, 100]


def test_several_parts_are_one_task_that_never_turns_back() -> None:
    """A part may have parts, and may report twice; without somebody to tell it is silent."""
    said: list[int] = []

    def work() -> None:
        parts = Parts(1, 3)
        with parts.next():
            for _ in range(2):
                list(told(range(0, 40, 10)))
        with parts.next():
            cuts = Parts(1, 1)
            with cuts.next():
                list(told(range(0, 20, 10)))
            with cuts.next():
                pass

    with telling(lambda done, total: said.append(100 * done // total)):
        work()
    work()
    assert said == [6, 12, 18, 25, 43, 62, 100]


def test_what_a_party_describes_for_one_vote_is_one_task() -> None:
    """Its public inputs, the queries and its records, in their proportion."""
    chance = np.random.default_rng(0)
    pixels = chance.integers(0, 256, (2400, 16, 16, 1)).astype(np.uint8)
    public, own = Images(pixels[:200]), Images(pixels[200:])
    records = Dataset(own, np.arange(len(own)) % 2, ("a", "b"))
    said: list[int] = []
    with telling(lambda done, _: said.append(done)):
        votes = NeighbourVotes(records, b"key")
        votes.vote(public, range(100), ("a", "b"), votes_per_patient=None, most_votes=4095)
    assert said == sorted(set(said))
    assert said[-1] == 100
    assert 8 in said  # 200 of 2,500
    assert 12 in said  # 300 of 2,500
    assert max(after - before for before, after in itertools.pairwise(said)) < 10


def noise(count: int, *size: int) -> Images:
    return Images(np.random.default_rng(5).integers(0, 256, (count, *size)).astype(np.uint8))


@pytest.mark.parametrize(
    ("size", "width"),
    [
        ((28, 28, 1), 81 * 49), ((8, 8, 1), 81 * 4), ((32, 32, 3), 83 * 64), ((1, 1, 1), 81),
        ((30, 17, 1), 81 * 8 * 5), ((64, 64, 1), 217 * 64), ((130, 90, 1), 217 * 64),
    ],
)  # fmt: skip
def test_unit_vectors_of_the_promised_width(size: tuple[int, int, int], width: int) -> None:
    features = scatter(noise(3, *size))
    assert features.shape == (3, width) == (3, scattering_width(*size))
    assert features.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(features, axis=1), 1, atol=1e-4)


def test_an_empty_image_and_no_image() -> None:
    assert not scatter(Images(np.zeros((2, 9, 9, 1), np.uint8))).any()
    assert scatter(noise(0, 28, 28, 1)).shape == (0, 3969)


def test_wavelets_have_no_mean_and_point_where_they_should() -> None:
    for factor in (1, 2):
        for angle in (0.0, np.pi / 4):
            spectrum = _morlet((36, 36), angle, factor)
            assert abs(spectrum[0, 0]) < 1e-12
            row, column = np.unravel_index(spectrum.argmax(), spectrum.shape)
            found = 2 * np.pi * np.hypot(row, column) / 36
            assert found == pytest.approx(3 * np.pi / 4 / factor, abs=0.2)
            assert np.arctan2(row, column) == pytest.approx(angle, abs=0.1)


def test_each_order_against_plain_convolution() -> None:
    """First and second order at one cell, from the definition on the full grid."""
    pixels = noise(1, 16, 16, 1).pixels
    maps = _scatter_pixels(pixels)[0]
    plan = _plan(16, 16)
    assert plan.padded == (24, 24)
    padded = np.pad(pixels[0, ..., 0] / 255.0, 4, mode="symmetric")

    def modulus(plane: np.ndarray, angle: int, factor: int) -> np.ndarray:
        wavelet = _morlet((24, 24), np.pi * angle / 8, factor)
        return np.abs(np.fft.ifft2(np.fft.fft2(plane) * wavelet))

    def averaged(plane: np.ndarray, step: int) -> np.ndarray:
        held = plane[::step, ::step]
        at = np.arange(0, 24, step)
        centres = (np.arange(4) + 1.5) * 4 - 0.5
        weights = np.exp(-0.5 * ((at[:, None] - centres) / 1.6) ** 2)
        weights /= weights.sum(axis=0)
        moduli: np.ndarray = weights.T @ held @ weights
        return moduli

    for angle in (0, 3):
        fine, coarse = modulus(padded, angle, 1), modulus(padded, angle, 2)
        np.testing.assert_allclose(maps[1 + angle], averaged(fine, 1), atol=1e-4)
        # The window cut from the spectrum holds all but a little of the coarser wavelet.
        expected = averaged(coarse, 2)
        second = 1 + 8 + angle * 8 + 5
        np.testing.assert_allclose(maps[81 - 8 + angle], expected, atol=0.05 * expected.max())
        expected = averaged(modulus(fine, 5, 2), 2)
        np.testing.assert_allclose(maps[second], expected, atol=0.05 * expected.max())


def test_a_shift_moves_features_less_than_pixels() -> None:
    pixels = np.zeros((2, 28, 28, 1), np.uint8)
    pixels[0, 8:20, 12:16] = 255
    pixels[1, 8:20, 13:17] = 255
    features = scatter(Images(pixels))
    flat = pixels.reshape(2, -1) / np.linalg.norm(pixels[0].astype(float))
    assert np.linalg.norm(features[0] - features[1]) < 0.5 * np.linalg.norm(flat[0] - flat[1])


SCRIPT = """
import numpy as np
from pate.data.values import Images
from pate.features.space import IMAGE_SPACES, space_over

draw = np.random.default_rng(5)

def drawn(count, size):
    # Strokes on an empty ground, so that they are set upright, and of several scales.
    images = np.zeros((count, *size, 1), dtype=np.uint8)
    for image in images:
        for _ in range(3):
            row, column = draw.integers(2, size[0] - 6), draw.integers(2, size[1] - 6)
            image[row : row + draw.integers(1, 6), column : column + 2] = draw.integers(120, 255)
    return Images(images)

for size, public in (((20, 20), 500), ((40, 64), 40)):
    seen, records = drawn(public, size), drawn(83, size)
    for name in IMAGE_SPACES:
        if name.startswith(("diffusion", "steady")) and public < 500:
            continue
        space = space_over(seen, name)
        whole = space.embed(records)
        less = space.embed(records.take(range(1, len(records))))
        assert np.array_equal(whole[1:], less), (name, size)
        alone = np.concatenate([space.embed(records.take([row])) for row in range(0, 83, 20)])
        assert np.array_equal(whole[::20], alone), (name, size)
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="kernels of another kind of processor")
@pytest.mark.parametrize(
    "kernels", others_slow(["Haswell", "Prescott"], lambda kernels: kernels == "Haswell")
)
def test_places_do_not_hang_on_other_records(kernels: str) -> None:
    surroundings = {**os.environ, "OPENBLAS_CORETYPE": kernels, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=surroundings,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
