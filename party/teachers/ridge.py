"""Ridge regression on class indicators, in closed form, its penalty chosen by leave-one-out.

Source: Rifkin and Lippert, "Notes on regularized least squares", MIT-CSAIL-TR-2007-025: the
leave-one-out residuals of every penalty come from one eigendecomposition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Penalties tried, as a share of the mean eigenvalue of the centred Gram matrix.
_PENALTIES: Final = tuple(10.0 ** (step / 2) for step in range(-6, 5))


def fit_ridge(
    features: NDArray[np.float32], labels: NDArray[np.int64], classes: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return weights and bias of a one-against-the-rest linear classifier.

    Args:
        features: (n, d).
        labels: (n,), from 0 to ``classes`` - 1.
        classes: number of outputs.

    Returns:
        (d, classes) and (classes,): the class of x is the largest of ``x @ weights + bias``.
    """
    count, width = features.shape
    middle = features.mean(axis=0, dtype=np.float64)
    centred = features - middle.astype(np.float32)
    targets = np.where(labels[:, None] == np.arange(classes), 1.0, -1.0)
    level = targets.mean(axis=0)
    targets -= level

    # The smaller of the two Gram matrices has the same positive eigenvalues.
    dual = count <= width
    gram = centred @ centred.T if dual else centred.T @ centred
    values, vectors = np.linalg.eigh(gram.astype(np.float64))
    kept = values > values[-1] * 1e-7
    if not kept.any() or values[-1] <= 0:  # all rows alike: only the frequencies are left
        return np.zeros((width, classes), np.float32), level.astype(np.float32)
    values, vectors = values[kept], vectors[:, kept]
    # Left singular vectors, (n, rank), and the targets seen along them.
    left = vectors if dual else (centred @ vectors) / np.sqrt(values)
    along = left.T @ targets

    best: tuple[float, NDArray[np.float64]] | None = None
    for share in _PENALTIES:
        shrink = values / (values + share * values.sum() / count)
        residual = targets - left @ (shrink[:, None] * along)
        influence = np.square(left) @ shrink + 1 / count
        error = float(np.mean(np.square(residual / np.clip(1 - influence, 1e-6, None)[:, None])))
        if best is None or error < best[0]:
            best = error, shrink
    assert best is not None  # noqa: S101  # _PENALTIES is not empty
    scaled = best[1][:, None] * along / np.sqrt(values)[:, None]
    right = (centred.T @ vectors) / np.sqrt(values) if dual else vectors
    weights = right @ scaled
    return weights.astype(np.float32), (level - middle @ weights).astype(np.float32)
