"""A number's distribution over the points of its range, and what is read from it.

A record's vote for its number z is divided between the two points next to it, in proportion to how near
they are. So the expected share of the points up to the j-th is the mean of P(z <= t) over t from that point
to the next: about P(z <= t) halfway between them. The median is where it crosses a half, by straight
lines. If the points are whole numbers that follow each other, so is the number taken to be: P(z <= t) has
steps at the points, and the median is one of them.

The median has the least mean absolute error, the mean the least squared error. With the two ends of a range
only the mean is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_HALF: Final = 0.5


def shares_below(values: Floats) -> Floats:
    """Return (n, m) the shares of m points from (n, m - 1) rough sums of the first 1, 2, ... of them.

    Sums are cut to [0, 1] and made to ascend: halfway between the closest ascending sums above and below.
    """
    cut = np.clip(values, 0.0, 1.0)
    above = np.maximum.accumulate(cut, axis=1)
    below = np.minimum.accumulate(cut[:, ::-1], axis=1)[:, ::-1]
    made: Floats = np.diff((above + below) / 2, axis=1, prepend=0.0, append=1.0)
    return made


def means(shares: Floats, points: Sequence[float]) -> Floats:
    """Return (n,) the mean numbers of (n, m) shares of m points.

    Args:
        shares: none negative, each row with sum 1.
        points: ascending.
    """
    low, high = points[0], points[-1]
    # Of two ends it is low + share * (high - low), without another rounding.
    made: Floats = low + shares @ ((np.array(points) - low) / (high - low)) * (high - low)
    return made


def medians(shares: Floats, points: Sequence[float]) -> Floats:
    """Return (n,) the median numbers of (n, m) shares of m points; arguments as above."""
    at = np.array(points)
    below = shares.cumsum(axis=1)[:, :-1]
    after = (below < _HALF).sum(axis=1)
    if (np.diff(at) == 1).all() and at[0] == np.trunc(at[0]):
        whole: Floats = at[after]
        return whole
    ends = np.concatenate([at[:1], (at[1:] + at[:-1]) / 2, at[-1:]])
    sums = np.pad(below, ((0, 0), (1, 1)), constant_values=(0.0, 1.0))
    # The sums to either side of where a row crosses a half.
    rows = np.arange(len(shares))
    least, most = sums[rows, after], sums[rows, after + 1]
    share = np.clip((_HALF - least) / np.maximum(most - least, 1e-12), 0, 1)
    made: Floats = ends[after] + share * (ends[after + 1] - ends[after])
    return made
