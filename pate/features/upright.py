"""Deskewed images: the drawing is centred, its slant removed, its size normalised.

Each image is processed by itself, from the moments of its contrast against its own border. It helps
for drawings on an empty ground (digits, glyphs), and harms where the position in the image matters
(photographs, X-rays).

Source: the moment-based removal of slant is that of LeCun, Bottou, Bengio and Haffner,
"Gradient-based learning applied to document recognition", Proc. IEEE 86(11), 1998, section III.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from pate.data.values import Images
from pate.features.progress import told

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

#: Version: changes whenever the resulting images do.
VERSION: Final = "1"

_SPREAD: Final = (0.18, 0.145)  # standard deviations down and across, as shares of the sides
_ZOOM: Final = (0.7, 1.6)  # least and most change of size
_NARROWEST: Final = 0.6  # of a thin stroke: it is not made wider than its height allows
_STEEPEST: Final = 1.0  # most slant, in pixels across per pixel down
_SMALLEST_SIDE: Final = 4  # smaller images stay as they are
_PIXELS_AT_ONCE: Final = 1 << 16  # few enough to stay in the cache


def upright(images: Images) -> Images:
    """Return the images, each moved, sheared and stretched by its own moments."""
    height, width, _ = images.size
    if min(height, width) < _SMALLEST_SIDE:
        return images
    moved = np.empty_like(images.pixels)
    step = max(1, _PIXELS_AT_ONCE // (height * width))
    for start in told(range(0, len(images), step)):
        moved[start : start + step] = _move(images.pixels[start : start + step])
    return Images(moved)


def _move(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    count, height, width, _ = pixels.shape
    planes: Floats = pixels.astype(np.float32)
    down, across = np.arange(height, dtype=np.float32), np.arange(width, dtype=np.float32)
    mass = _contrast(planes.mean(axis=3))
    total = mass.sum(axis=(1, 2)) + np.float32(1e-3)
    by_row, by_column = mass.sum(axis=2), mass.sum(axis=1)
    # Not a product with a vector, whose rounding would depend on the number of images.
    middle_down = (by_row * down).sum(axis=1) / total
    middle_across = (by_column * across).sum(axis=1) / total
    off_down, off_across = down - middle_down[:, None], across - middle_across[:, None]
    spread_down = (by_row * off_down**2).sum(axis=1) / total + np.float32(1e-3)
    spread_across = (by_column * off_across**2).sum(axis=1) / total + np.float32(1e-3)
    both = np.einsum("nij,ni,nj->n", mass, off_down, off_across, optimize=True) / total

    slant = np.clip(both / spread_down, -_STEEPEST, _STEEPEST)
    # The remaining horizontal spread once the slant is removed.
    left = np.maximum(spread_across - 2 * slant * both + slant**2 * spread_down, 1e-3)
    tall = np.clip(np.sqrt(spread_down) / (_SPREAD[0] * height), *_ZOOM)
    wide = np.maximum(
        np.clip(np.sqrt(left) / (_SPREAD[1] * width), *_ZOOM), np.float32(_NARROWEST) * tall
    )
    empty = total < 1  # no contrast at all: its moments mean nothing
    slant, tall, wide = (np.where(empty, k, v) for k, v in ((0, slant), (1, tall), (1, wide)))

    # Where each pixel of the new image comes from.
    rows = (down - (height - 1) / 2) * tall[:, None]
    columns = (across - (width - 1) / 2) * wide[:, None]
    from_rows = np.clip(
        np.where(empty, (height - 1) / 2, middle_down)[:, None] + rows, 0, height - 1
    ).astype(np.float32)
    centre = np.where(empty, (width - 1) / 2, middle_across)[:, None]
    from_columns = np.clip(
        (centre + slant[:, None] * rows)[:, :, None] + columns[:, None, :], 0, width - 1
    ).astype(np.float32)
    return _sampled(planes, from_rows, from_columns).reshape(count, height, width, -1)


def _contrast(grey: Floats) -> Floats:
    """Return (n, height, width): how far each pixel is from the median of the image's border."""
    edges = (grey[:, 0], grey[:, -1], grey[:, :, 0], grey[:, :, -1])
    ground = np.median(np.concatenate(edges, axis=1), axis=1)
    contrast: Floats = np.abs(grey - ground[:, None, None])
    return contrast


def _sampled(planes: Floats, rows: Floats, columns: Floats) -> NDArray[np.uint8]:
    """Return (n, height * width, channels), by linear interpolation of (n, height, width, channels).

    ``rows`` (n, height) says where each row comes from, ``columns`` (n, height, width) each pixel of it.
    """
    count, height, width, channels = planes.shape
    top = np.minimum(rows.astype(np.int64), height - 2)
    left = np.minimum(columns.astype(np.int64), width - 2)
    lower = (rows - top).astype(np.float32)[:, :, None, None]
    right = (columns - left).astype(np.float32)[..., None]
    flat = planes.reshape(-1, channels)
    corner = (np.arange(count)[:, None] * height + top)[:, :, None] * width + left
    # Along each of the two rows first, then between them.
    upper_row = flat[corner] * (1 - right) + flat[corner + 1] * right
    corner += width
    lower_row = flat[corner] * (1 - right) + flat[corner + 1] * right
    mixed = upper_row + (lower_row - upper_row) * lower
    moved: NDArray[np.uint8] = np.rint(mixed).astype(np.uint8)
    return moved
