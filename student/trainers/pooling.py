"""Weights for several answers that are like each other, as whether a number lies below each of some points.

In each direction the weights of all answers are drawn together, with one covariance C for all
directions. What is said of one answer then tells of the others, as far as their weights go together. The C
with which the released sums are most likely is found by expectation and maximisation.

Source: Dempster, Laird and Rubin, "Maximum likelihood from incomplete data via the EM algorithm", JRSS B 39,
1977; Efron and Morris, "Empirical Bayes on vector observations", Biometrika 59(2), 1972.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_STEPS: Final = 100
#: The variance of weights to start from.
_START: Final = 1e-2
#: Keeps noises apart that are almost one, relative to the largest.
_LEAST: Final = 1e-9


def pooled_weights(size: Floats, seen: Floats, noise: Floats, drawn: Floats) -> Floats:
    """Return (k, c) weights.

    Args:
        size: (k,) what a weight of 1 adds to the sum in each direction, positive.
        seen: (k, c) the sums of c answers.
        noise: (c, c) covariance of their noise, the same in each direction.
        drawn: (c, c) what the draw of records adds to it, relative to ``size``.
    """
    count = seen.shape[1]
    noise = noise + _LEAST * np.diag(noise).max() * np.eye(count)
    errors = noise + size[:, None, None] * drawn
    covariance = _START * np.eye(count)
    made = np.zeros_like(seen)
    for _ in range(_STEPS):
        spread = np.square(size)[:, None, None] * covariance + errors
        # C h S^-1: the transpose of what solves S x = h C, as both are symmetric.
        gain = np.linalg.solve(spread, size[:, None, None] * covariance).transpose(0, 2, 1)
        made = (gain @ seen[:, :, None])[:, :, 0]
        left = covariance - size[:, None, None] * (gain @ covariance)
        covariance = (made.T @ made + left.sum(axis=0)) / len(size)
    return made
