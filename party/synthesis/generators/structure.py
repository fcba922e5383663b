"""Correlation-based feature selection as a structure learner: from correlations to a graph.

The merit of a set P of parents of i is the sum of SU(i, j) over P, divided by the root of |P| plus
the parents' correlations among themselves: parents should be informative about the child but not
about each other. Edges are added one by one, the one with the largest gain in merit first.

Nothing here sees data: correlations are computed from noisy entropies.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

#: A gain in merit below this adds no edge.
_LEAST_GAIN: Final = 1e-6


def correlations(
    single: NDArray[np.float64], coarse: NDArray[np.float64], joint: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return (m, m) symmetrical uncertainties SU(i, j) of attribute i and the buckets of j, in [0, 1].

    SU = 2 - 2 H(x_i, b_j) / (H(x_i) + H(b_j)), and 0 where the denominator is not above 0.

    Args:
        single: (m,) entropies of attributes, in bits.
        coarse: (m,) entropies of their buckets.
        joint: (m, m) entropies of attribute i together with the buckets of j.
    """
    total = single[:, None] + coarse[None, :]
    held = np.where(total > 0, 2 - 2 * joint / np.where(total > 0, total, 1.0), 0.0)
    made: NDArray[np.float64] = np.clip(held, 0.0, 1.0)
    np.fill_diagonal(made, 0.0)
    return made


def grow(
    su: NDArray[np.float64],
    buckets: Sequence[int],
    codes: Sequence[int],
    *,
    most_parents: int,
    most_configurations: int,
    most_cells: int,
) -> tuple[tuple[int, ...], ...]:
    """Return the parents of each attribute, without a cycle.

    Args:
        su: (m, m) correlations; row child, column parent.
        buckets: per attribute.
        codes: per attribute.
        most_parents: of one attribute.
        most_configurations: of one attribute's parents' buckets.
        most_cells: configurations times codes, of one attribute.
    """
    m = len(buckets)
    parents: list[list[int]] = [[] for _ in range(m)]
    #: above[i, j]: j is i, or comes before it.
    above = np.eye(m, dtype=np.bool_)
    gains = np.array([_gains(su, i, parents[i]) for i in range(m)])
    while True:
        # Where child is above parent the edge would close a circle.
        allowed = np.where(above.T, -np.inf, gains)
        child, parent = (int(at) for at in np.unravel_index(np.argmax(allowed), allowed.shape))
        if not allowed[child, parent] > _LEAST_GAIN:
            return tuple(tuple(sorted(found)) for found in parents)
        wider = math.prod(buckets[p] for p in (*parents[child], parent))
        if wider > most_configurations or wider * codes[child] > most_cells:
            gains[child, parent] = -np.inf  # and remains so: a table only grows
            continue
        parents[child].append(parent)
        above[above[:, child]] |= above[parent]
        full = len(parents[child]) >= most_parents
        fresh = np.full(m, -np.inf) if full else _gains(su, child, parents[child])
        gains[child] = np.where(np.isneginf(gains[child]), -np.inf, fresh)


def order(parents: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Return all attributes, parents first; among candidates the one with most descendants."""
    m = len(parents)
    below = [{i} for i in range(m)]
    for _ in range(m):  # one round per level at most
        for child, found in enumerate(parents):
            for parent in found:
                below[parent] |= below[child]
    placed: list[int] = []
    while len(placed) < m:
        ready = [i for i in range(m) if i not in placed and set(parents[i]) <= set(placed)]
        placed.append(max(ready, key=lambda i: (len(below[i]), -i)))
    return tuple(placed)


def _gains(su: NDArray[np.float64], child: int, parents: list[int]) -> NDArray[np.float64]:
    """Return (m,) gain in merit of each further parent."""
    m = len(su)
    now = _merit(su, child, parents)
    found = np.full(m, -np.inf)
    for parent in range(m):
        if parent != child and parent not in parents:
            found[parent] = _merit(su, child, [*parents, parent]) - now
    return found


def _merit(su: NDArray[np.float64], child: int, parents: list[int]) -> float:
    if not parents:
        return 0.0
    # Both orders of a pair count, so the mean of SU(j, l) and SU(l, j) counts twice.
    among = float(su[np.ix_(parents, parents)].sum())
    return float(su[child, parents].sum()) / math.sqrt(len(parents) + among)
