"""Wavelet scattering: fixed features of images, fitted on no data.

An image is filtered with Morlet wavelets of L orientations at J scales, the modulus is taken, and
the result is averaged over windows of 2^J pixels (first order); before the averaging it is filtered
once more with the wavelets of every coarser scale, and the modulus taken again (second order). The
features hardly change when the image is shifted or bent a little, so a linear model on them needs
few examples. Nothing here is fitted, so all teachers of all parties may share it.

Every convolution is computed in the Fourier domain, where a wavelet of scale j fills only a window
of 1/2^j of either axis. The window is cut out around the wavelet's own centre frequency and
transformed back on that coarser grid: this shifts the spectrum, which multiplies the signal by a
wave of modulus one, which does not change the modulus. So nothing is computed on a finer grid than
necessary.

Source: Bruna and Mallat, "Invariant scattering convolution networks", IEEE PAMI 35(8), 2013;
Oyallon and Mallat, "Deep roto-translation scattering for object classification", CVPR 2015.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from pate.features.progress import told

if TYPE_CHECKING:
    from pate.data.values import Images

Floats = NDArray[np.float32]

#: Version: changes whenever the features do.
VERSION: Final = "1"

_ORIENTATIONS: Final = 8  # L, over half a turn
_SLANT: Final = 4 / _ORIENTATIONS  # of the envelope: narrower along the wave than across it
_WIDTH: Final = 0.8  # standard deviation of the finest envelope along its wave, in pixels
_CENTRE: Final = 3 * np.pi / 4  # frequency of the finest wave, in radians a pixel
_LONGEST_SIDE: Final = 64  # larger images are averaged down first
_FEW_SCALES: Final = 40  # up to this side J = 2, above it J = 3, so that the width stays bounded
_PIXELS_AT_ONCE: Final = 1 << 15  # few enough to stay in the cache


@dataclass(frozen=True)
class _Plan:
    """The decomposition of images of one size."""

    size: tuple[int, int]  # height and width after averaging down
    scales: int  # J
    padded: tuple[int, int]  # height and width with mirrored margins, multiples of 2^J
    cells: tuple[int, int]  # rows and columns of the grid that everything is averaged onto

    @property
    def maps(self) -> int:
        """Return the number of maps of one image plane: 1 + J L + J (J - 1) / 2 L^2."""
        pairs = self.scales * (self.scales - 1) // 2
        return 1 + self.scales * _ORIENTATIONS + pairs * _ORIENTATIONS**2


@functools.lru_cache(maxsize=8)
def _plan(height: int, width: int) -> _Plan:
    high, wide = min(height, _LONGEST_SIDE), min(width, _LONGEST_SIDE)
    scales = 2 if max(high, wide) <= _FEW_SCALES else 3
    step = 2**scales
    cells = (-(-high // step), -(-wide // step))
    # One cell of margin on every side, so that opposite edges do not meet.
    padded = ((cells[0] + 2) * step, (cells[1] + 2) * step)
    return _Plan((high, wide), scales, padded, cells)


def scattering_width(height: int, width: int, channels: int) -> int:
    """Return the number of features of an image of that size: 3,969 for 28 by 28 by 1."""
    plan = _plan(height, width)
    cells = plan.cells[0] * plan.cells[1]
    return cells * (plan.maps + (2 if channels == 3 else 0))


def scatter(images: Images) -> Floats:
    """Return (n, width) float32 features, rows of unit length.

    Of colour images the brightness is scattered, and two colour differences are averaged per cell. A side
    longer than 64 pixels is averaged down to 64.
    """
    height, width, _ = images.size
    features = np.empty((len(images), scattering_width(*images.size)), dtype=np.float32)
    step = max(1, _PIXELS_AT_ONCE // (min(height, _LONGEST_SIDE) * min(width, _LONGEST_SIDE)))

    for start in told(range(0, len(images), step)):
        maps = _scatter_pixels(images.pixels[start : start + step])
        features[start : start + step] = _normalised(maps)
    return features


def _normalised(maps: Floats) -> Floats:
    """Return one unit vector per image, of cube roots, which tame peaks."""
    flat = np.cbrt(maps).reshape(len(maps), -1)
    length = np.linalg.norm(flat, axis=1, keepdims=True)
    unit: Floats = flat / (length + np.float32(1e-6))
    return unit


def _scatter_pixels(pixels: NDArray[np.uint8]) -> Floats:
    """Return (n, maps, rows, columns): averages of the image, of its first and second order."""
    from scipy import fft  # slow to import

    count, height, width, channels = pixels.shape
    plan = _plan(height, width)
    planes: Floats = pixels.transpose(0, 3, 1, 2).astype(np.float32) / np.float32(255)
    if (height, width) != plan.size:
        rows, columns = _shrink(height, plan.size[0]), _shrink(width, plan.size[1])
        planes = np.matmul(np.matmul(rows, planes), columns.T)
    planes = _mirrored(planes, plan)
    grey = planes.mean(axis=1)
    maps = np.empty((count, plan.maps + (2 if channels == 3 else 0), *plan.cells), np.float32)
    maps[:, 0] = _averaged(grey[:, None], plan, 0)[:, 0]
    filled = 1
    spectrum = fft.fft2(grey)[:, None]
    for scale in range(plan.scales):
        first = _moduli(spectrum, plan, 0, scale)
        filled = _put(maps, filled, _averaged(first, plan, scale))
        if scale + 1 < plan.scales:
            again = fft.fft2(first)
            for coarser in range(scale + 1, plan.scales):
                second = _moduli(again, plan, scale, coarser)
                filled = _put(maps, filled, _averaged(second, plan, coarser))
    if channels == 3:
        apart = planes[:, ::2] - grey[:, None]
        _put(maps, filled, _averaged(apart, plan, 0))
    return maps


def _put(maps: Floats, at: int, new: Floats) -> int:
    stop = at + int(new.shape[1])
    maps[:, at:stop] = new
    return stop


def _moduli(spectra: NDArray[np.complex64], plan: _Plan, from_scale: int, to_scale: int) -> Floats:
    """Return the moduli of all orientations of one scale: (n, p L, height, width) on its coarser grid.

    Spectra are (n, p, height, width) on a grid that has every 2^from_scale-th pixel.
    """
    from scipy import fft

    bank = _wavelets(plan.padded, from_scale, to_scale)
    count, planes = spectra.shape[:2]
    flat = spectra.reshape(count, planes, -1)
    filtered = np.empty((count, planes, len(bank), *bank[0].values.shape), dtype=np.complex64)
    for at, wavelet in enumerate(bank):
        window = flat if wavelet.window is None else np.take(flat, wavelet.window, axis=2)
        shaped = window.reshape(count, planes, *wavelet.values.shape)
        np.multiply(shaped, wavelet.values, out=filtered[:, :, at])
    moduli: Floats = np.abs(fft.ifft2(filtered, overwrite_x=True))
    return moduli.reshape(count, planes * len(bank), *moduli.shape[3:])


@dataclass(frozen=True, eq=False)
class _Wavelet:
    """A wavelet's spectrum on the window of frequencies that it fills."""

    # (h * w,) int64, which entries of the finer grid's flattened spectrum make the window, in FFT order;
    # None for all of them as they are
    window: NDArray[np.int64] | None
    values: Floats  # (h, w) float32, the wavelet's spectrum there, scaled for the coarser grid


@functools.lru_cache(maxsize=32)
def _wavelets(padded: tuple[int, int], from_scale: int, to_scale: int) -> tuple[_Wavelet, ...]:
    """Return the L wavelets of ``to_scale`` for spectra on the grid of ``from_scale``."""
    fine = tuple(side >> from_scale for side in padded)
    coarse = tuple(side >> to_scale for side in padded)
    factor = 2 ** (to_scale - from_scale)
    made = []
    for orientation in range(_ORIENTATIONS):
        angle = np.pi * orientation / _ORIENTATIONS
        full = _morlet(fine, angle, factor)
        if factor == 1:
            made.append(_Wavelet(None, full.astype(np.float32)))
            continue
        rows, columns = (
            _around(side, kept, _CENTRE / factor * wave)
            for side, kept, wave in zip(fine, coarse, (np.sin(angle), np.cos(angle)), strict=True)
        )
        # The inverse transform divides by the number of points of its own, smaller grid.
        values = full[rows[:, None], columns] / factor**2
        window = (rows[:, None] * fine[1] + columns).ravel()
        made.append(_Wavelet(window, values.astype(np.float32)))
    return tuple(made)


def _around(side: int, kept: int, centre: float) -> NDArray[np.int64]:
    """Return which ``kept`` of ``side`` frequencies lie around ``centre``, that one first."""
    middle = round(centre * side / (2 * np.pi))
    offsets = np.rint(np.fft.fftfreq(kept, 1 / kept)).astype(np.int64)
    picked: NDArray[np.int64] = (middle + offsets) % side
    return picked


def _morlet(shape: tuple[int, ...], angle: float, factor: int) -> NDArray[np.float64]:
    """Return the spectrum of a Morlet wavelet: a Gaussian off zero, less one at zero.

    The second is weighted so that the sum is exactly 0 at frequency 0: the wavelet has no mean.
    """
    width = _WIDTH * factor
    centre = _CENTRE / factor
    down, right = (2 * np.pi * np.fft.fftfreq(side) for side in shape)
    wave, envelope = np.zeros(shape), np.zeros(shape)
    for up in (-1, 0, 1):  # frequencies repeat every 2 pi
        for left in (-1, 0, 1):
            y, x = (down + 2 * np.pi * up)[:, None], (right + 2 * np.pi * left)[None, :]
            along = x * np.cos(angle) + y * np.sin(angle)
            across = (y * np.cos(angle) - x * np.sin(angle)) / _SLANT
            wave += np.exp(-0.5 * width**2 * ((along - centre) ** 2 + across**2))
            envelope += np.exp(-0.5 * width**2 * (along**2 + across**2))
    morlet: NDArray[np.float64] = wave - envelope * (wave[0, 0] / envelope[0, 0])
    return morlet


def _averaged(planes: Floats, plan: _Plan, scale: int) -> Floats:
    """Return (n, p, rows, columns): averages under a Gaussian window around each cell's centre."""
    weights = _low_pass(plan, scale)
    count, many = planes.shape[:2]
    # One product per image: rounding in a larger one depends on the number of images, and one
    # record more or less must not change the votes of others.
    averages: Floats = np.matmul(planes.reshape(count, many, -1), weights)
    return averages.reshape(count, many, *plan.cells)


@functools.lru_cache(maxsize=32)
def _low_pass(plan: _Plan, scale: int) -> Floats:
    """Return (pixels, cells) weights that average planes of the grid of ``scale``."""
    step = 2**plan.scales
    both = []
    for side, cells in zip(plan.padded, plan.cells, strict=True):
        places = np.arange(side >> scale) * 2.0**scale
        centres = (np.arange(cells) + 1.5) * step - 0.5
        apart = (places[:, None] - centres) / (_WIDTH * 2 ** (plan.scales - 1))
        weights = np.exp(-0.5 * apart**2)
        both.append(weights / weights.sum(axis=0))
    return np.kron(*both).astype(np.float32)


def _mirrored(planes: Floats, plan: _Plan) -> Floats:
    """Return the planes with margins that mirror them, of the padded size."""
    before = 2**plan.scales
    margins = [
        (before, whole - side - before)
        for side, whole in zip(planes.shape[2:], plan.padded, strict=True)
    ]
    padded: Floats = np.pad(planes, ((0, 0), (0, 0), *margins), mode="symmetric")
    return padded


@functools.lru_cache(maxsize=8)
def _shrink(size: int, count: int) -> Floats:
    """Return (count, size) weights that average neighbouring pixels; each row sums to 1."""
    edges = np.linspace(0, size, count + 1)
    at = np.arange(size)
    shared = np.minimum(at + 1, edges[1:, None]) - np.maximum(at, edges[:-1, None])
    weights: Floats = (np.clip(shared, 0, None) * (count / size)).astype(np.float32)
    return weights
