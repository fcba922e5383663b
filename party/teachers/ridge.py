"""Ridge regression on class indicators, in closed form.

One teacher by itself has the penalty with the least leave-one-out error; one of many whose mean counts has a
tenth of it, as their mean averages out variance, and not bias.

Source: Rifkin and Lippert, "Notes on regularized least squares", MIT-CSAIL-TR-2007-025: the
leave-one-out residuals of every penalty come from one eigendecomposition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

#: Penalties tried, as a share of the mean eigenvalue of the centred Gram matrix.
_PENALTIES: Final = np.array([10.0 ** (step / 2) for step in range(-6, 5)])


#: Penalty of one of many, as a share of what is best for one.
OF_MANY: Final = 0.1


class Ridge(NamedTuple):
    """A one-against-the-rest linear classifier: the class of x is the largest of x W + b.

    Attributes:
        weights: W, (d, classes) float32.
        bias: b, (classes,) float32.
        error: mean square of the leave-one-out residuals, to compare features by.
    """

    weights: Floats
    bias: Floats
    error: float


def fit_ridge(
    features: Floats, labels: NDArray[np.int64], classes: int, share: float = 1.0
) -> Ridge:
    """Return the classifier of a shard.

    Args:
        features: (n, d).
        labels: (n,), from 0 to ``classes`` - 1.
        classes: number of outputs.
        share: of the best penalty, that it has; :data:`OF_MANY` where only the mean of many counts.
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
    if not kept.any() or values[-1] <= 0:  # all rows equal: only the class frequencies matter
        error = float(np.mean(np.square(targets)))
        return Ridge(np.zeros((width, classes), np.float32), level.astype(np.float32), error)
    values, vectors = values[kept], vectors[:, kept]
    # Left singular vectors, (n, rank), and the targets seen along them.
    left = vectors if dual else (centred @ vectors) / np.sqrt(values)
    along = left.T @ targets

    # All penalties at once: (penalties, rank), then (n, penalties) and (n, penalties, classes).
    shrink = values / (values + _PENALTIES[:, None] * (values.sum() / count))
    influence = np.square(left) @ shrink.T + 1 / count
    pulled = (shrink.T[:, :, None] * along[:, None, :]).reshape(len(values), -1)
    fitted = (left @ pulled).reshape(count, len(_PENALTIES), classes)
    residual = targets[:, None, :] - fitted
    residual /= np.clip(1 - influence, 1e-6, None)[:, :, None]
    errors = np.square(residual).mean(axis=(0, 2))
    best = int(errors.argmin())
    held = values / (values + share * _PENALTIES[best] * (values.sum() / count))

    if dual:
        weights = centred.T @ (vectors @ (along * (held / values)[:, None])).astype(np.float32)
    else:
        scaled = along * (held / np.sqrt(values))[:, None]
        weights = (vectors @ scaled).astype(np.float32)
    bias = level - middle @ weights
    return Ridge(weights, bias.astype(np.float32), float(errors[best]))
