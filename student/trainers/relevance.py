"""Weights of features in blocks, such as the columns of a table: each block has its own size of weights.

With one size for all, many columns that say nothing about the answer make the weights of the few that do
small as well. The sizes with which the released sums are most likely (automatic relevance determination)
are found by expectation and maximisation, which raises the evidence at each step.

Source: MacKay, "Bayesian non-linear modelling for the prediction competition", 1994; Tipping, "Sparse
Bayesian learning and the relevance vector machine", JMLR 1, 2001, section 2.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Indices = NDArray[np.int64]

_STEPS: Final = 100
#: Sizes that change by less than this factor, as a logarithm, are settled.
_SETTLED: Final = 0.02
#: Least variance of the weights of a block, relative to that at the start.
_SMALLEST: Final = 1e-6


def relevant_weights(
    adds: Floats, seen: Floats, noise: Floats, blocks: Indices, size: float
) -> Floats:
    """Return (f, c) weights of features, by sizes that are shared by all columns of the sums.

    Args:
        adds: (k, f) what a weight of 1 on each feature adds to each sum.
        seen: (k, c) the sums.
        noise: (k, c) their variances.
        blocks: (f,) the block of each feature, numbered from 0.
        size: standard deviation of the weights to start from.
    """
    columns = seen.shape[1]
    members = np.bincount(blocks)
    variances = np.full(len(members), size**2)
    made = np.zeros((adds.shape[1], columns))
    for _ in range(_STEPS):
        each = variances[blocks]
        scaled = adds * each
        squares = np.zeros(len(blocks))
        for column in range(columns):
            spread = scaled @ adds.T
            spread.flat[:: len(spread) + 1] += noise[:, column]
            solved = np.linalg.solve(spread, scaled)
            made[:, column] = solved.T @ seen[:, column]
            # The posterior variance is the prior's less what the sums say.
            squares += np.square(made[:, column]) + each - (scaled * solved).sum(axis=0)
        better = np.bincount(blocks, squares) / (members * columns)
        better = np.maximum(better, _SMALLEST * size**2)
        settled = np.abs(np.log(better / variances)).max() < _SETTLED
        variances = better
        if settled:
            break
    return made
