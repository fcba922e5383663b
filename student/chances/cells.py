"""Noisy vote counts as shares of cells, and class probabilities of public rows that agree with them.

With neighbour votes every private record voted at its nearest query, so a query's counts describe its
*cell*: all rows, private or public, that vote there. The public rows of a cell resemble the private ones
that voted there. So the mean of a model over the public rows of each cell should agree with the cell's
shares of votes, as far as the noise allows: learning from label proportions (Quadrianto et al., "Estimating
labels from label proportions", JMLR 10, 2009), here with noise of a known size.

The first model is additive in the columns (:func:`additive`). Its likelihood is of the cells, not of rows,
so it does not assign the label of a cell to each of its rows; if two cells differ in only one column, their
difference is attributed to that column.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.answers import LABELS
from pate.codes import code_of
from pate.errors import DataError
from pate.features.neighbours import nearest
from pate.features.space import space_over
from pate.rounds.solver import softmax

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pate.data.values import Inputs
    from pate.formats.noisy_counts import NoisyVotes

    Floats = NDArray[np.float64]

#: Least share of a class, before and after fitting.
LEAST_SHARE: Final = 1e-3
_TILTS: Final = 30
#: A cell's mass is at least this part of the public set's estimate, and at least half a record.
_LEAST_PART: Final = 0.05
_STEPS: Final = 8  # intervals of a column of numbers
#: Prior inverse variance of a coefficient. It was chosen on labelled splits of Adult's and
#: Diabetes' private files, so for benchmarks on these two it has seen their records; figures change
#: little from 20 to 100.
_RIDGE: Final = 40.0
_LEAST_SPREAD: Final = 0.1  # of a column when it is scaled, so that a rare category is not blown up
_ROUNDS: Final = 3  # of the variances, which depend on the fitted shares
_ITERATIONS: Final = 200


@dataclass(frozen=True, eq=False)
class Cells:
    """The shares of votes per cell, and their precision."""

    cell: NDArray[np.int64]  # (n,) int64, the cell of each public row
    # (q,) int64, public rows per cell; each cell holds at least its own query
    rows: NDArray[np.int64]
    mass: Floats  # (q,) estimated private records per cell, positive
    shares: Floats  # (q, m) observed shares of the classes: unbiased, so not all within 0 and 1
    sigma: float  # standard deviation of the noise in each count, in votes

    @property
    def overall(self) -> Floats:
        """Return (m,) the shares of the classes among all records, none below the least."""
        total = np.maximum((self.mass[:, None] * self.shares).sum(axis=0), 0.0)
        floored = np.maximum(total / max(total.sum(), 1e-12), LEAST_SHARE)
        shares: Floats = floored / floored.sum()
        return shares

    def means(self, rows: NDArray[np.floating]) -> Floats:
        """Return (q, k) the mean of (n, k) values over the public rows of each cell."""
        sums = [np.bincount(self.cell, column, len(self.rows)) for column in rows.T]
        return np.stack(sums, axis=1) / self.rows[:, None]

    def variances(self, expected: Floats) -> Floats:
        """Return (q, m) the variance of the observed shares, given the expected ones.

        It is the noise's, and that of a draw of ``mass`` records.
        """
        classes = expected.shape[1]
        draw = np.clip(expected * (1 - expected), 0.01, None) / self.mass[:, None]
        noise = self.sigma**2 * (1 - 1 / classes) / self.mass**2
        variances: Floats = draw + noise[:, None]
        return variances


def cells_of(public: Inputs, noisy: NoisyVotes) -> Cells | None:
    """Return the cells of released counts; None if there are none, only noise, or dense votes."""
    answer = code_of(noisy.code).answer
    counts, sigma = noisy.counts / answer.grid, noisy.sigma / answer.grid
    if answer.name == LABELS:
        raise DataError("several labels have shares of their own: labels_of")
    made = _places(public, noisy, counts.sum(axis=1), counts.shape[1] * sigma**2)
    if made is None:
        return None
    cell, rows, mass = made
    classes = counts.shape[1]
    # The counts of a cell determine the shares, except for their mean: the mass is estimated better
    # from all cells and the public set together.
    apart = counts - counts.mean(axis=1, keepdims=True)
    return Cells(cell, rows, mass, 1 / classes + apart / mass[:, None], sigma)


def labels_of(public: Inputs, noisy: NoisyVotes, none: int) -> list[Cells] | None:
    """Return for each label cells of those records that lack it and of those that have it; None as above.

    The column ``none`` is no label.
    """
    labels, records, over = records_of(noisy, none)
    sigma = noisy.sigma / code_of(noisy.code).grid
    made = _places(public, noisy, records, over * sigma**2)
    if made is None:
        return None
    cell, rows, mass = made
    shares = labels / mass[:, None]
    # Noise of one count in the share of two that sum to 1.
    return [
        Cells(cell, rows, mass, np.stack([1 - each, each], axis=1), math.sqrt(2) * sigma)
        for each in shares.T
    ]


def records_of(noisy: NoisyVotes, none: int) -> tuple[Floats, Floats, float]:
    """Return (q, l) votes for each of l labels, (q,) records, and the variance of the latter's noise.

    A record with j of at most T labels votes j times, and 1 - j/T for none of them; so ``none`` and a
    T-th of all labels are the records. The variance is relative to that of one count.
    """
    code = code_of(noisy.code)
    votes = noisy.counts / code.grid
    labels = np.delete(votes, none, axis=1)
    most = code.answer.most
    return labels, votes[:, none] + labels.sum(axis=1) / most, 1 + labels.shape[1] / most**2


def _places(
    public: Inputs, noisy: NoisyVotes, totals: Floats, noise: float
) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats] | None:
    """Return the cell of each public row, public rows and records a cell; None as :func:`cells_of`.

    ``totals`` are (q,) the records that voted at each query, with noise of the variance ``noise``.
    """
    if noisy.dense or not len(totals) or totals.sum() <= 2 * math.sqrt(noise * len(totals)):
        return None
    points = space_over(public).embed(public)
    cell = nearest(points[noisy.queries], points)
    # Of two equal rows the first is the nearest; a query still belongs to its own cell.
    cell[noisy.queries] = np.arange(len(noisy.queries))
    rows = np.bincount(cell, minlength=len(noisy.queries)).astype(np.int64)
    return cell, rows, _masses(totals, rows, noise)


def _masses(totals: Floats, rows: NDArray[np.int64], noise: float) -> Floats:
    """Return (q,) how many records voted in each cell.

    Between the noisy total of the cell and the public set's share of it, weighed by their
    variances; the difference between the private and the public distribution is itself estimated
    from the totals (empirical Bayes, by moments).
    """
    records = totals.sum()
    expected = records * rows / rows.sum()
    drawn = expected * (1 + records / rows.sum())
    surplus = ((totals - expected) ** 2 - noise - drawn).sum() / (expected**2).sum()
    prior = drawn + max(surplus, 0.0) * expected**2
    mass: Floats = (expected * noise + totals * prior) / (noise + prior)
    held: Floats = np.maximum(mass, _LEAST_PART * expected + 0.5)
    return held


def tilt(cells: Cells, guesses: Floats) -> Floats:
    """Return (n, m) positive guesses moved so that their cell means agree with the counts.

    Every cell has a target between the mean of its guesses and its observed shares: the weight is
    estimated from the excess of the differences over their variance, over all cells. Within a cell
    the odds of all rows are multiplied alike until the mean is met.
    """
    mean = cells.means(guesses)
    variances = cells.variances(mean)
    spread = np.clip(mean * (1 - mean), 0.01, None)
    apart = cells.shares - mean
    weight = cells.mass[:, None]
    surplus = max(float((weight * (apart**2 - variances)).sum() / (weight * spread).sum()), 0.0)
    target = mean + apart * (surplus * spread) / (surplus * spread + variances)
    target = np.clip(target, LEAST_SHARE, 1.0)
    target /= target.sum(axis=1, keepdims=True)
    moved = guesses
    for _ in range(_TILTS):
        moved = moved * (target / cells.means(moved))[cells.cell]
        moved = moved / moved.sum(axis=1, keepdims=True)
    return moved


def additive(rows: NDArray[np.float32], cells: Cells) -> Floats:
    """Return (n, m) probabilities of a logistic model of (n, d) encoded rows, numbers cut into steps."""
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


def of_sum_one(values: Floats) -> Floats:
    """Return (n, m) positive values, each row divided by its sum."""
    made: Floats = values / values.sum(axis=1, keepdims=True)
    return made


def shares_below(values: Floats) -> Floats:
    """Return (n, m) the shares of m points from (n, m - 1) rough sums of the first 1, 2, ... of them.

    Sums are cut to [0, 1] and made to ascend: halfway between the closest ascending sums above and below.
    """
    cut = np.clip(values, 0.0, 1.0)
    above = np.maximum.accumulate(cut, axis=1)
    below = np.minimum.accumulate(cut[:, ::-1], axis=1)[:, ::-1]
    made: Floats = np.diff((above + below) / 2, axis=1, prepend=0.0, append=1.0)
    return made
