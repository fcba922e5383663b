"""Histograms of oriented gradients: fixed features of images, fitted on no data.

Gradients at two scales, on two grids of overlapping cells, normalised by the energy around each
cell, and average colours where there are any. Nothing here is fitted.

Source: Dalal and Triggs, "Histograms of oriented gradients for human detection", CVPR 2005.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.data.values import Images
from pate.features.progress import told

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

#: Version: changes whenever the features do.
VERSION: Final = "1"

_ORIENTATIONS: Final = 8
_SCALES: Final = (0.0, 1.0)  # standard deviation of the blur before the gradient, in pixels
_GRIDS: Final = (7, 4)  # cells a side
_REACH: Final = 1.5  # half the width of a cell's window, in cells: neighbours overlap
_COLOUR_GRID: Final = 4
_FLOOR: Final = 0.02  # contrast below which a cell counts as empty
_LONGEST_SIDE: Final = 64  # larger images are averaged down first
_PIXELS_AT_ONCE: Final = 1 << 18


def gradients_width(height: int, width: int, channels: int) -> int:
    """Return the number of features: 1,040 for grey images of any ``height`` and ``width``."""
    del height, width
    cells = len(_SCALES) * sum(grid**2 for grid in _GRIDS)
    return cells * _ORIENTATIONS + (2 * _COLOUR_GRID**2 if channels == 3 else 0)


def gradients(images: Images) -> Floats:
    """Return (n, width) float32 features, rows of unit length."""
    count, (height, width, _) = len(images), images.size
    features = np.empty((count, gradients_width(*images.size)), dtype=np.float32)
    step = max(1, _PIXELS_AT_ONCE // (height * width))
    for start in told(range(0, count, step)):
        features[start : start + step] = _describe(images.pixels[start : start + step])
    return features


def _describe(pixels: NDArray[np.uint8]) -> Floats:
    """Return one unit vector per image: gradients, and colour where there is any."""
    planes: Floats = pixels.astype(np.float32) / np.float32(255)
    height, width = pixels.shape[1:3]
    rows = _windows(height, min(height, _LONGEST_SIDE), 1.0)
    columns = _windows(width, min(width, _LONGEST_SIDE), 1.0)
    # (n, channels, height, width), no side longer than the longest.
    planes = _both_ways(rows, planes.transpose(0, 3, 1, 2), columns)
    grey = planes.mean(axis=1)
    parts = [_cells(_oriented(grey, scale), grid) for scale in _SCALES for grid in _GRIDS]
    if planes.shape[1] == 3:
        parts.append(_pool((planes - grey[:, None])[:, ::2], _COLOUR_GRID).reshape(len(pixels), -1))
    described = np.concatenate(parts, axis=1)
    length = np.linalg.norm(described, axis=1, keepdims=True)
    unit: Floats = (described / (length + np.float32(1e-6))).astype(np.float32)
    return unit


def _oriented(grey: Floats, scale: float) -> Floats:
    """Return (n, orientations, height, width): gradient strength, shared by two orientations."""
    if scale:
        grey = _both_ways(_blur(grey.shape[1], scale), grey, _blur(grey.shape[2], scale))
    padded = np.pad(grey, ((0, 0), (1, 1), (1, 1)), mode="edge")
    down = (padded[:, 2:, 1:-1] - padded[:, :-2, 1:-1]) / 2
    right = (padded[:, 1:-1, 2:] - padded[:, 1:-1, :-2]) / 2
    strength = np.hypot(down, right)
    turn = np.arctan2(down, right) * np.float32(_ORIENTATIONS / (2 * np.pi))
    lower = np.floor(turn)
    share = turn - lower
    first = lower.astype(np.int64) % _ORIENTATIONS
    count, height, width = grey.shape
    maps = np.zeros((count, _ORIENTATIONS, height, width), dtype=np.float32)
    np.put_along_axis(maps, first[:, None], (strength * (1 - share))[:, None], axis=1)
    second = (first + 1) % _ORIENTATIONS
    np.put_along_axis(maps, second[:, None], (strength * share)[:, None], axis=1)
    return maps


def _cells(maps: Floats, grid: int) -> Floats:
    """Return each cell's histogram over the energy around it, square-rooted to tame peaks."""
    pooled = _pool(maps, grid)
    energy: Floats = np.square(pooled).sum(axis=1, keepdims=True, dtype=np.float32)
    apart = np.abs(np.subtract.outer(np.arange(grid), np.arange(grid)))
    around = np.clip(1 - apart / 2, 0, None).astype(np.float32)
    energy = _both_ways(around, energy, around)
    normal: Floats = np.sqrt(pooled / np.sqrt(energy + np.float32(_FLOOR**2))) / np.float32(grid)
    return normal.reshape(len(maps), -1)


def _pool(planes: Floats, grid: int) -> Floats:
    """Return (n, planes, grid, grid) averages over overlapping triangular windows."""
    height, width = planes.shape[2:]
    return _both_ways(_windows(height, grid, _REACH), planes, _windows(width, grid, _REACH))


def _both_ways(rows: Floats, planes: Floats, columns: Floats) -> Floats:
    """Return the planes with ``rows`` applied along their height and ``columns`` along their width."""
    applied: Floats = np.matmul(np.matmul(rows, planes), columns.T, dtype=np.float32)
    return applied


@functools.cache
def _windows(size: int, count: int, reach: float) -> Floats:
    """Return (count, size) weights: triangles at even distances, each row sums to 1."""
    if size == count and reach == 1.0:
        return np.eye(size, dtype=np.float32)
    centres = (np.arange(count) + 0.5) * size / count - 0.5
    half = max(size / count * reach, 1.0)  # narrower ones would fall between two pixels
    weights = np.clip(1 - np.abs(np.arange(size) - centres[:, None]) / half, 0, None)
    rows: Floats = (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)
    return rows


@functools.cache
def _blur(size: int, scale: float) -> Floats:
    apart = np.subtract.outer(np.arange(size), np.arange(size))
    weights = np.exp(-(apart**2) / (2 * scale**2))
    rows: Floats = (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)
    return rows


# Deskewed images: the drawing is centred, its slant removed, its size normalised.
#
# Each image is processed by itself, from the moments of its contrast against its own border. It helps
# for drawings on an empty ground (digits, glyphs), and harms where the position in the image matters
# (photographs, X-rays).
#
# Source: the moment-based removal of slant is that of LeCun, Bottou, Bengio and Haffner,
# "Gradient-based learning applied to document recognition", Proc. IEEE 86(11), 1998, section III.

#: Version: changes whenever the resulting images do.
UPRIGHT_VERSION: Final = "1"

_SPREAD: Final = (0.18, 0.145)  # standard deviations down and across, as shares of the sides
_ZOOM: Final = (0.7, 1.6)  # least and most change of size
_NARROWEST: Final = 0.6  # of a thin stroke: it is not made wider than its height allows
_STEEPEST: Final = 1.0  # most slant, in pixels across per pixel down
_SMALLEST_SIDE: Final = 4  # smaller images stay as they are
_UPRIGHT_AT_ONCE: Final = 1 << 16  # few enough to stay in the cache


def upright(images: Images) -> Images:
    """Return the images, each moved, sheared and stretched by its own moments."""
    height, width, _ = images.size
    if min(height, width) < _SMALLEST_SIDE:
        return images
    moved = np.empty_like(images.pixels)
    step = max(1, _UPRIGHT_AT_ONCE // (height * width))
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
    """Return (n, height * width, channels), interpolated at ``rows`` and each pixel's ``columns``."""
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
