"""The interface of feature spaces, and row-wise operations whose results do not depend on the other rows.

A record's place must depend on only that record. On some processors a matrix product rounds a row
differently depending on its position among the others; so all placing of records uses these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from pate.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from pate.data.values import Inputs

    Floats = NDArray[np.float32]


class FeatureSpace(Protocol):
    """A map from inputs to points."""

    @property
    def name(self) -> str:
        """Return the name of the space on the command line."""

    @property
    def width(self) -> int:
        """Return the number of coordinates of a point."""

    def embed(self, inputs: Inputs) -> Floats:
        """Return (n, width) float32, one point per input, each computed from only that input."""


_BLOCK: Final = 512  # rows multiplied at once
_TINY: Final = 1e-12  # shorter rows are not stretched to length one


def blocks(points: Floats) -> Iterator[tuple[int, Floats]]:
    """Yield the first row's index and the rows of each block, which bounds memory."""
    for start in range(0, len(points), _BLOCK):
        yield start, points[start : start + _BLOCK]


def each_by(rows: Floats, matrix: Floats) -> Floats:
    """Return (n, k) ``rows @ matrix``, a product for each row by itself."""
    made: Floats = np.matmul(rows[:, None, :], matrix)[:, 0]
    return made


def unit(points: NDArray[np.floating[Any]]) -> Floats:
    """Return (n, k) rows of length one."""
    lengths = np.linalg.norm(points, axis=1, keepdims=True)
    made: Floats = (points / np.maximum(lengths, _TINY)).astype(np.float32)
    return made


def check_points(points: Floats, what: str) -> None:
    """Check that there is a row of finite float32 numbers for each of ``what``."""
    if points.ndim != 2 or points.dtype != np.float32:
        raise DataError(f"{what}: features are {points.dtype} of shape {points.shape}")
    if not np.isfinite(points).all():
        raise DataError(f"{what}: a feature is not finite")
