"""Weights of public rows with which they have the mean of the private records.

Public and private rows may be drawn differently: another hospital, another year, one record of a patient
in place of all. The released sums of dense votes say where the private records' mean is. Of all weights
with that mean those closest to equal ones (least relative entropy) are exp(t.x), t being a vector: an
exponential tilt. Its parts that may be noise are shrunk by the evidence, as in
:mod:`student.trainers.linear`; all of it is post-processing.

Source: Hainmueller, "Entropy balancing for causal effects", Political Analysis 20(1), 2012.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

#: Variances of the parts of t that are tried.
_SIZES: Final = tuple(2.0 ** (power / 2) for power in range(-20, 17))
#: Variances below this part of the largest are of no direction.
_LEAST: Final = 1e-6
#: Keeps t finite where the mean is at the rim of what the rows can have.
_RIDGE: Final = 1e-5
#: Least share of the rows that the weights may leave, as an effective number; below it they are equal.
_ENOUGH: Final = 0.1


def matching_weights(rows: Floats, mean: Floats, noise: float, records: float) -> Floats:
    """Return (n,) weights of rows, positive, with sum 1.

    Args:
        rows: (n, d) public rows.
        mean: (d,) of the private records, with noise.
        noise: its variance in each coordinate.
        records: number of the private records, whose draw is noise as well.
    """
    equal = np.full(len(rows), 1 / len(rows))
    middle = rows.mean(axis=0)
    apart = rows - middle
    variances, axes = np.linalg.eigh(apart.T @ apart / len(rows))
    kept = variances > _LEAST * variances[-1]
    variances, axes = variances[kept], axes[:, kept]
    moved = axes.T @ (mean - middle)
    noises = noise + variances * (1 / len(rows) + 1 / records)

    def evidence(size: float) -> float:
        spread = np.square(variances) * size + noises
        return float(-(np.log(spread) + np.square(moved) / spread).sum())

    power = np.square(variances) * max(_SIZES, key=evidence)
    goal = power / (power + noises) * moved
    turned = apart @ axes

    def tilted(t: Floats) -> tuple[Floats, float]:
        heights = turned @ t
        highest = float(heights.max())
        raised = np.exp(heights - highest)
        return raised / raised.sum(), highest + float(np.log(raised.mean()))

    def value(t: Floats) -> tuple[float, Floats]:
        weights, log_mean = tilted(t)
        return (
            log_mean - float(t @ goal) + _RIDGE / 2 * float(t @ t),
            weights @ turned - goal + _RIDGE * t,
        )

    def curvature(t: Floats) -> Floats:
        weights, _ = tilted(t)
        at = turned - weights @ turned
        curved: Floats = (at * weights[:, None]).T @ at + _RIDGE * np.eye(len(t))
        return curved

    from scipy import optimize  # slow to import

    found = optimize.minimize(
        value, np.zeros(len(goal)), jac=True, hess=curvature, method="trust-exact"
    )
    weights, _ = tilted(found.x)
    enough = 1 / np.square(weights).sum() >= _ENOUGH * len(rows)
    return weights if np.isfinite(weights).all() and enough else equal
