"""Class-preserving distortions of images, and synthetic strokes, of which both are made without data.

Distortions are rotation, scaling, shear, bending and stroke width. Synthetic images of a few random strokes
each replace drawings where no data may be used: the effect of distortions on features can be learnt from any
strokes. Both are determined by the index in the set, so every party computes the same.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.data.values import Images

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

#: Version: changes whenever the resulting images do.
VERSION: Final = "1"

#: Likewise, of synthetic strokes whenever the drawings do.
STROKES_VERSION: Final = "1"

#: Largest changes, either way. Shifts and bends are shares of the sides.
_TURN: Final = 0.1  # radians
_SCALE: Final = 0.2
_LEAN: Final = 0.12
_SHIFT: Final = 0.08
_BEND: Final = 0.03
_CONTRAST: Final = 0.1
_GRAIN: Final = 0.05  # as a share of the grey range
_KNOTS: Final = 4  # a side, of the net that bends the image
_PIXELS_AT_ONCE: Final = 1 << 20

_MOST: Final = 4  # strokes an image
_POINTS: Final = 20  # along a stroke
_MARGIN: Final = 0.18  # of the side: strokes begin, end and turn within it
_WIDTH: Final = (0.025, 0.065)  # half the width of a stroke, as a share of the side
_SOFT: Final = 0.043  # width of its edge
_INK: Final = (15, 215)  # grey of paper and ink
_DRAWN_AT_ONCE: Final = 256


def distorted(images: Images) -> Images:
    """Return the distorted images."""
    moved = np.empty_like(images.pixels)
    height, width, _ = images.size
    step = max(1, _PIXELS_AT_ONCE // (height * width))
    for start in range(0, len(images), step):
        moved[start : start + step] = _distort(images.pixels[start : start + step], start)
    return Images(moved)


def _distort(pixels: NDArray[np.uint8], first: int) -> NDArray[np.uint8]:
    """Return distorted images, the first of which has the index ``first`` in the set."""
    count, height, width, _ = pixels.shape
    drawn = draws(first, count, 8 + 2 * _KNOTS**2, "shape")
    turn, grow, stretch, lean, down, right, contrast, weight = drawn[:, :8].T[..., None, None]
    y = (np.arange(height, dtype=np.float32) - (height - 1) / 2)[None, :, None]
    x = (np.arange(width, dtype=np.float32) - (width - 1) / 2)[None, None, :]
    cos, sin = np.cos(_TURN * turn), np.sin(_TURN * turn)
    tall = np.exp(_SCALE * (grow - stretch / 2))
    wide = np.exp(_SCALE * (grow + stretch / 2))
    net = drawn[:, 8:].reshape(count, 2, _KNOTS, _KNOTS) * np.float32(np.sqrt(3))
    bent = _between(height) @ net @ _between(width).T
    rows = tall * (cos * y - sin * x) + height * (_BEND * bent[:, 0] + _SHIFT * down)
    columns = wide * (sin * y + cos * x + _LEAN * lean * y)
    columns = columns + width * (_BEND * bent[:, 1] + _SHIFT * right)
    planes = _heavier(pixels.astype(np.float32), weight[..., None])
    seen = _sampled(planes, rows + (height - 1) / 2, columns + (width - 1) / 2)
    grain = draws(first, count, height * width, "grain").reshape(count, height, width, 1)
    middle = seen.mean(axis=(1, 2), keepdims=True)
    grey = middle + (seen - middle) * np.exp(_CONTRAST * contrast)[..., None]
    made: NDArray[np.uint8] = np.rint(np.clip(grey + 255 * _GRAIN * grain, 0, 255)).astype(np.uint8)
    return made


def draws(first: int, count: int, each: int, purpose: str) -> Floats:
    """Return (count, each) numbers from -1 to 1, determined by purpose and index in the set."""
    drawn = np.empty((count, each), dtype=np.float32)
    for at in range(count):
        stream = hashlib.shake_256(f"pate distortions 1 {purpose} {first + at}".encode())
        drawn[at] = np.frombuffer(stream.digest(2 * each), dtype="<u2") / np.float32(2**15) - 1
    return drawn


def _between(side: int) -> Floats:
    """Return (side, knots) weights that draw a net of knots out to all pixels."""
    at = np.linspace(0, _KNOTS - 1, side)[:, None]
    weights: Floats = np.clip(1 - np.abs(at - np.arange(_KNOTS)), 0, None).astype(np.float32)
    return weights


def _heavier(planes: Floats, weight: Floats) -> Floats:
    """Return planes with strokes thickened or thinned: a step towards the neighbours' extremes."""
    height, width = planes.shape[1:3]
    edged = np.pad(planes, ((0, 0), (1, 1), (1, 1), (0, 0)), mode="edge")
    around = [
        edged[:, down : down + height, right : right + width]
        for down, right in ((0, 1), (1, 0), (1, 2), (2, 1))
    ]
    most, least = np.maximum.reduce([planes, *around]), np.minimum.reduce([planes, *around])
    half = np.float32(0.5) * np.abs(weight)
    aim = np.where(weight > 0, most, least)
    heavier: Floats = planes + half * (aim - planes)
    return heavier


def _sampled(planes: Floats, rows: Floats, columns: Floats) -> Floats:
    """Return (n, height, width, channels) values at (n, height, width) rows and columns."""
    count, height, width, channels = planes.shape
    rows, columns = np.clip(rows, 0, height - 1), np.clip(columns, 0, width - 1)
    top = np.minimum(rows.astype(np.int64), max(height - 2, 0))
    left = np.minimum(columns.astype(np.int64), max(width - 2, 0))
    low, far = (rows - top)[..., None], (columns - left)[..., None]
    flat = planes.reshape(-1, channels)
    corner = (np.arange(count)[:, None, None] * height + top) * width + left
    under, beside = width * (height > 1), int(width > 1)
    upper = flat[corner] * (1 - far) + flat[corner + beside] * far
    lower = flat[corner + under] * (1 - far) + flat[corner + under + beside] * far
    mixed: Floats = (upper + (lower - upper) * low).astype(np.float32)
    return mixed


def strokes(count: int, size: tuple[int, int, int]) -> Images:
    """Return ``count`` drawings of one size: height, width, channels."""
    height, width, channels = size
    drawn = np.empty((count, height, width, channels), dtype=np.uint8)
    for start in range(0, count, _DRAWN_AT_ONCE):
        some = drawn[start : start + _DRAWN_AT_ONCE]
        some[:] = _draw(start, len(some), height, width)[..., None]
    return Images(drawn)


def _draw(first: int, count: int, height: int, width: int) -> NDArray[np.uint8]:
    """Return (count, height, width) grey values."""
    drawn = (draws(first, count, 2 + 7 * _MOST, "strokes") + 1) / 2
    many, thick = 1 + np.floor(drawn[:, 0] * (_MOST - 1e-3)), drawn[:, 1, None, None]
    kinds = drawn[:, 2 : 2 + _MOST] < 0.5
    ends = _MARGIN + (1 - 2 * _MARGIN) * drawn[:, 2 + _MOST :].reshape(count, _MOST, 3, 2)
    y = ((np.arange(height, dtype=np.float32) + 0.5) / height)[None, :, None]
    x = ((np.arange(width, dtype=np.float32) + 0.5) / width)[None, None, :]
    away = np.full((count, height, width), np.inf, dtype=np.float32)
    for number in range(_MOST):
        begin, turn, end = ends[:, number].transpose(1, 0, 2)
        # Half of them are straight.
        turn = np.where(kinds[:, number, None], (begin + end) / 2, turn)
        there = np.where(number < many, 0, np.inf).astype(np.float32)[:, None, None]
        for along in np.linspace(0, 1, _POINTS, dtype=np.float32):
            at = (1 - along) ** 2 * begin + 2 * along * (1 - along) * turn + along**2 * end
            apart = np.square(y - at[:, 0, None, None]) + np.square(x - at[:, 1, None, None])
            np.minimum(away, apart + there, out=away)
    half = _WIDTH[0] + (_WIDTH[1] - _WIDTH[0]) * thick
    ink = np.clip(0.5 + (half - np.sqrt(away)) / _SOFT, 0, 1)
    grey: NDArray[np.uint8] = np.rint(_INK[0] + (_INK[1] - _INK[0]) * ink).astype(np.uint8)
    return grey
