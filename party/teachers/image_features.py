"""Fixed features of images, fitted on no data.

A view describes an image by a unit vector: histograms of oriented gradients of the image as it is,
or of the deskewed image, or wavelet scattering. Random Fourier features of that vector make a
linear model on them act like a Gaussian-kernel one. Nothing here is fitted, so all teachers of all
parties may share it, and caching it leaks nothing.

Source: Rahimi and Recht, "Random features for large-scale kernel machines", NIPS 2007.
"""

from __future__ import annotations

import functools
import hashlib
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import numpy as np

from pate.features.gradients import VERSION as GRADIENTS_VERSION
from pate.features.gradients import gradients
from pate.features.scattering import VERSION as SCATTERING_VERSION
from pate.features.scattering import scatter
from pate.features.upright import VERSION as UPRIGHT_VERSION
from pate.features.upright import upright

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pate.data.values import Images

    Floats = NDArray[np.float32]

#: Version: changes whenever the features do.
VERSION: Final = (
    f"2, gradients {GRADIENTS_VERSION}, upright {UPRIGHT_VERSION}, scattering {SCATTERING_VERSION}"
)
#: Number of features, whatever the size of the images.
WIDTH: Final = 2048

#: Views of an image.
View: TypeAlias = Literal["gradients", "upright", "scattering"]
VIEWS: Final[tuple[View, ...]] = ("gradients", "upright", "scattering")

_BANDWIDTH: Final = 1.0  # of the kernel exp(-|x - y|^2) on unit vectors
_ROWS_AT_ONCE: Final = 1024
_DIRECTIONS_AT_ONCE: Final = 64


@functools.lru_cache(maxsize=len(VIEWS))  # teachers read the same batch one after the other
def image_features(images: Images, view: View) -> Floats:
    """Return (n, WIDTH) float32 features."""
    features = describe(images, view)
    features.setflags(write=False)
    return features


def describe(images: Images, view: View) -> Floats:
    """Return (n, WIDTH) float32 features, uncached."""
    described = _described(images, view)
    directions, phases = _projection(described.shape[1])
    features = np.empty((len(images), WIDTH), dtype=np.float32)
    for start in range(0, len(images), _ROWS_AT_ONCE):
        piece = features[start : start + _ROWS_AT_ONCE]
        np.matmul(described[start : start + _ROWS_AT_ONCE], directions, out=piece)
        piece += phases
        np.cos(piece, out=piece)
        piece *= np.float32(np.sqrt(2 / WIDTH))
    return features


def _described(images: Images, view: View) -> Floats:
    if view == "scattering":
        return scatter(images)
    return gradients(upright(images) if view == "upright" else images)


@functools.lru_cache(maxsize=2)
def _projection(inputs: int) -> tuple[Floats, Floats]:
    """Return the random directions, (inputs, WIDTH), and phases, (WIDTH,).

    They come from SHAKE-256 of a fixed text by the Box-Muller transform rather than from a
    generator of numpy, whose streams may change between versions: stored teachers rely on them.
    """
    directions = np.empty((inputs, WIDTH), dtype=np.float32)
    for start in range(0, inputs, _DIRECTIONS_AT_ONCE):
        piece = directions[start : start + _DIRECTIONS_AT_ONCE]
        first, second = _uniform(f"directions {start}", 2, piece.size // 2)
        radius, angle = np.sqrt(-2 * np.log(first)), 2 * np.pi * second
        normal = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])
        piece[:] = normal.reshape(piece.shape) * np.sqrt(2 * _BANDWIDTH)
    phases = 2 * np.pi * _uniform("phases", 1, WIDTH)[0]
    return directions, phases.astype(np.float32)


def _uniform(purpose: str, rows: int, columns: int) -> NDArray[np.float64]:
    """Return (rows, columns) numbers, the middles of 2^32 cells of (0, 1): no logarithm of 0."""
    stream = hashlib.shake_256(f"pate random Fourier features 2 {purpose}".encode())
    drawn = np.frombuffer(stream.digest(4 * rows * columns), dtype="<u4")
    spread: NDArray[np.float64] = (drawn.reshape(rows, columns) + 0.5) / 2.0**32
    return spread
