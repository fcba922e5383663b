"""Rows of features, each worked on by itself: to the last bit, whatever rows stand beside it.

A record's place must depend on that record alone. How a product of matrices rounds a row depends, on
some processors, on where the row stands among the others; so what places records goes through here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

_BLOCK: Final = 512  # rows multiplied at once
_TINY: Final = 1e-12  # shorter rows are not stretched to length one


def blocks(points: Floats) -> Iterator[tuple[int, Floats]]:
    """Yield the first row's number and the rows of each block, which bounds memory."""
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
