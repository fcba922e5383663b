"""Labels spread over a graph of nearest neighbours.

Source: Zhou et al., "Learning with local and global consistency", NIPS 2003; widths of the edges
from Zelnik-Manor and Perona, "Self-tuning spectral clustering", NIPS 2004.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy import sparse

    Floats = NDArray[np.float32]

_CHUNK_ENTRIES: Final = 1 << 23  # of a matrix of distances in memory: 32 MiB
_WIDTH_FROM: Final = 6  # the width of an edge is the distance of its ends to this neighbour
_ROUNDS: Final = 80  # at most; a label's remainder is then below 0.95^80, two per cent
_REMAINDER: Final = 1e-3  # below it no more rounds are made


def squared_distances(left: Floats, right: Floats) -> Floats:
    """Return (l, r) squared Euclidean distances of (l, d) and (r, d) points."""
    lengths = np.einsum("ij,ij->i", left, left)[:, None] + np.einsum("ij,ij->i", right, right)
    apart: Floats = np.maximum(lengths - 2 * (left @ right.T), 0)
    return apart


def neighbour_graph(points: Floats, neighbours: int) -> sparse.csr_array:
    """Return the (n, n) normalised adjacency of the graph of nearest neighbours.

    Two points are joined if one is among the other's nearest, the more strongly the closer; the
    weights are divided by the square roots of both degrees.

    Args:
        points: (n, d) float32, n at least 2.
        neighbours: edges from each point; n - 1 at most are drawn.
    """
    from scipy import sparse  # slow to import

    count = len(points)
    reach = min(neighbours, count - 1)
    found = np.empty((count, reach), dtype=np.int64)
    apart = np.empty((count, reach), dtype=np.float32)
    step = max(1, _CHUNK_ENTRIES // count)
    for start in range(0, count, step):
        some = squared_distances(points[start : start + step], points)
        some[np.arange(len(some)), np.arange(start, start + len(some))] = np.inf
        nearest = np.argpartition(some, reach - 1, axis=1)[:, :reach]
        distance = np.take_along_axis(some, nearest, axis=1)
        order = distance.argsort(axis=1)
        found[start : start + step] = np.take_along_axis(nearest, order, axis=1)
        apart[start : start + step] = np.take_along_axis(distance, order, axis=1)
    width = np.sqrt(apart[:, min(_WIDTH_FROM, reach - 1)]) + np.float32(1e-6)
    weights = np.exp(-apart / (width[:, None] * width[found])) + np.float32(1e-6)
    rows = np.repeat(np.arange(count), reach)
    one_way = sparse.coo_array((weights.ravel(), (rows, found.ravel())), shape=(count, count))
    both = (one_way + one_way.T).tocsr()
    scale = sparse.diags_array(1 / np.sqrt(both.sum(axis=1)))
    return (scale @ both @ scale).tocsr()


def averaged(
    graph: sparse.csr_array, values: NDArray[np.floating], memory: float
) -> NDArray[np.floating]:
    """Return (n, m) values averaged over each point's surroundings.

    Args:
        graph: from :func:`neighbour_graph`.
        values: (n, m), one row a point.
        memory: weight of a point's neighbours, from 0, where the values stay, to below 1.
    """
    rounds = math.ceil(math.log(_REMAINDER) / math.log(memory)) if memory else 0
    now = values
    for _ in range(min(rounds, _ROUNDS)):
        now = memory * (graph @ now) + (1 - memory) * values
    return now


def spread(graph: sparse.csr_array, evidence: NDArray[np.float64], memory: float) -> Floats:
    """Return (n, m) probabilities: each point's share of the evidence that flows to it.

    Args:
        graph: from :func:`neighbour_graph`.
        evidence: (n, m), not negative; rows of zeros where nothing is known.
        memory: weight of a point's neighbours, below 1. A label that its neighbours contradict is
            outvoted.
    """
    shares_now = averaged(graph, evidence, memory)
    # Where nothing arrived, the evidence's own shares of the classes.
    floor = 1e-6 * evidence.sum(axis=0) / len(evidence) + 1e-12
    shares_now = shares_now + floor
    shares: Floats = (shares_now / shares_now.sum(axis=1, keepdims=True)).astype(np.float32)
    return shares
