from __future__ import annotations

import numpy as np
import pytest

from pate.data.values import Images
from pate.features.scattering import _morlet, _plan, _scatter_pixels, scatter, scattering_width


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
