"""Smoothing: Gaussian-process regression on noisy cell counts.

The probability of a class is modelled as a smooth function over the public set, a Gaussian process
whose mean over the public rows of each cell was observed, with the noise of the counts and of
sampling the voters. A cell with few votes is then inferred from its neighbours, and a mixed cell is
split along the difference to its neighbours. Width, strength and residual maximise the likelihood
of the released counts (the evidence, in closed form): no label or count is held out, and only the
counts and the public set are used.

Source: Rasmussen and Williams, "Gaussian processes for machine learning", 2006, sections 2.2 and 5.4;
of aggregates: Law et al., "Variational learning on aggregate outputs with Gaussian processes", NeurIPS
2018, of which this is the conjugate case.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from student.trainers.graph import squared_distances

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from student.trainers.counts import Cells

    Floats = NDArray[np.float32]
    Wide = NDArray[np.float64]

#: Least probability, divided by the number of classes.
DOUBT: Final = 0.05
#: Of kernels exp(-width |x - y|^2) over points of mean squared length one.
WIDTHS: Final = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
#: Variance of the function, and of a record's residual, both relative to p (1 - p).
_STRENGTHS: Final = tuple(4.0**power for power in range(-4, 3))
_RESIDUALS: Final = (1 / 16, 1 / 4, 1.0)
_LANDMARKS: Final = 2000
_JITTER: Final = 1e-4  # on the landmarks' kernel, so that it has a root


@dataclass(frozen=True, eq=False)
class _Fit:
    """One choice of the parameters: its evidence, and its predictions."""

    evidence: float
    moves: Wide


def smooth(
    views: Sequence[Floats],
    cells: Cells,
    *,
    seed: int,
    step: Callable[[], None] = lambda: None,
) -> Floats:
    """Return (n, m) class probabilities for each public row.

    Args:
        views: (n, d) float32 each, the public rows as points of mean squared length one; their
            similarity is the mean of the views' kernels.
        cells: the released counts over them.
        seed: of the draw of landmarks, which bound the work for many rows.
        step: called after each of the :data:`WIDTHS`.
    """
    count = len(views[0])
    drawn = np.random.default_rng(seed).permutation(count)[:_LANDMARKS]
    drawn.sort()
    apart = [squared_distances(view, view[drawn]) for view in views]
    overall = cells.overall
    fits = (
        _fit(np.mean([np.exp(-np.float32(width) * each) for each in apart], axis=0), drawn, cells)
        for width in WIDTHS
    )

    def evidence(fit: _Fit) -> float:
        step()
        return fit.evidence

    best = max(fits, key=evidence)
    chances = np.clip(overall + best.moves, DOUBT / len(overall), 1.0)
    made: Floats = (chances / chances.sum(axis=1, keepdims=True)).astype(np.float32)
    return made


def _fit(kernel: Floats, drawn: NDArray[np.int64], cells: Cells) -> _Fit:
    """Return the best fit with a kernel of (n, l) values between all rows and the landmarks."""
    from scipy.linalg import cho_factor, cho_solve, cholesky, solve_triangular

    among = kernel[drawn].astype(np.float64)
    among[np.diag_indices(len(among))] += _JITTER
    root = cholesky(among, lower=True, overwrite_a=True)
    # Of the features K L^-T, whose products are the kernel as the landmarks see it, cells take means.
    means = solve_triangular(root, cells.means(kernel).T, lower=True).T
    alike = means @ means.T
    overall = cells.overall
    classes = len(overall)
    spread = overall * (1 - overall)
    seen = cells.shares - overall
    noise = cells.sigma**2 * (1 - 1 / classes) / cells.mass**2
    best, pulls = -np.inf, np.zeros_like(seen)
    for strength in _STRENGTHS:
        for residual in _RESIDUALS:
            evidence, weights = 0.0, np.empty_like(seen)
            for label in range(classes):
                if label == 0 or classes > 2:  # of two classes both have the same covariance
                    own = spread[label] * residual / cells.mass + noise
                    covariance = strength * spread[label] * alike
                    covariance[np.diag_indices(len(own))] += own
                    lower = cho_factor(covariance, lower=True, overwrite_a=True, check_finite=False)
                weights[:, label] = cho_solve(lower, seen[:, label])
                evidence -= 0.5 * float(seen[:, label] @ weights[:, label])
                evidence -= float(np.log(np.diag(lower[0])).sum())
            if evidence > best:
                best, pulls = evidence, strength * weights * spread
    return _Fit(best, kernel @ solve_triangular(root.T, means.T @ pulls))
