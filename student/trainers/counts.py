"""Class probabilities of public rows from noisy vote counts.

With neighbour votes every private record voted at its nearest query, so a query's counts describe its
*cell*: all rows, private or public, that vote there. The public rows of a cell resemble the private ones
that voted there. So the mean of a model over the public rows of each cell should agree with the cell's
shares of votes, as far as the noise allows: this is learning from label proportions (Quadrianto et al.,
"Estimating labels from label proportions", JMLR 10, 2009), here with noise of a known size. The only
inputs are noisy counts and the public set, so this is post-processing.
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


@dataclass(frozen=True, eq=False)
class Cells:
    """The shares of votes per cell, and their precision.

    Attributes:
        cell: (n,) int64, the cell of each public row.
        rows: (q,) int64, public rows per cell; each cell holds at least its own query.
        mass: (q,) estimated private records per cell, positive.
        shares: (q, m) observed shares of the classes: unbiased, so not all within 0 and 1.
        sigma: standard deviation of the noise in each count, in votes.
    """

    cell: NDArray[np.int64]
    rows: NDArray[np.int64]
    mass: Floats
    shares: Floats
    sigma: float

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
    """Return the cells of released counts; None if there are none, only noise, or dense votes.

    Args:
        public: the public set, n inputs.
        noisy: the released counts over some of them.
    """
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
    """Return for each label the shares of the records that lack and have it; None as above.

    Args:
        public: the public set, n inputs.
        noisy: the released counts of several labels.
        none: the column that is no label.

    Returns:
        Cells of two classes for each other column, in order.
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

    Args:
        noisy: counts, or dense sums, of several labels.
        none: the column that is no label.
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

    Args:
        public: the public set.
        noisy: the released counts.
        totals: (q,) records that voted at each query, with noise.
        noise: its variance.
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
    """Return the guesses moved so that their cell means agree with the counts.

    Every cell has a target between the mean of its guesses and its observed shares: the weight is
    estimated from the excess of the differences over their variance, over all cells. Within a cell
    the odds of all rows are multiplied alike until the mean is met.

    Args:
        cells: q of them.
        guesses: (n, m) positive probabilities.

    Returns:
        (n, m) probabilities.
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
