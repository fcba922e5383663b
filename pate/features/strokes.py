"""Synthetic stroke images with a fixed seed: a few random strokes each.

They replace drawings where no data may be used: the effect of rotation, bending and stroke width on
features can be learnt from any strokes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from pate.data.values import Images
from pate.features.distortions import draws

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Version: changes whenever the drawings do.
VERSION: Final = "1"

_MOST: Final = 4  # strokes an image
_POINTS: Final = 20  # along a stroke
_MARGIN: Final = 0.18  # of the side: strokes begin, end and turn within it
_WIDTH: Final = (0.025, 0.065)  # half the width of a stroke, as a share of the side
_SOFT: Final = 0.043  # width of its edge
_INK: Final = (15, 215)  # grey of paper and ink
_AT_ONCE: Final = 256


def strokes(count: int, size: tuple[int, int, int]) -> Images:
    """Return ``count`` drawings of one size: height, width, channels."""
    height, width, channels = size
    drawn = np.empty((count, height, width, channels), dtype=np.uint8)
    for start in range(0, count, _AT_ONCE):
        some = drawn[start : start + _AT_ONCE]
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
