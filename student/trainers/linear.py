"""Class probabilities of public rows from the noisy sums of dense votes: ridge regression.

Each private record gave its directions x to its class, so the released sums are B = X'Y + noise, Y the
records' classes. Least squares on them needs X'X, which is not released; the public rows stand for it:
X'X is about N times their second moments G, N being the number of records. N is estimated from B
itself, with the combination of directions that is closest to 1 on the public rows.

In the principal directions of G the sums are N g w + noise, w being the weights. With weights of variance
t^2 and noise of a known variance v, the best estimate shrinks by (N g t)^2 / ((N g t)^2 + v). The t with
which the released sums are most likely (the evidence, in closed form) is taken: no label is held out, and no
record is asked again. All of it is post-processing.

Source: Rasmussen and Williams, "Gaussian processes for machine learning", 2006, section 5.4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.codes import GRID
from pate.features.dense import Directions
from pate.features.space import space_over
from student.trainers.counts import LEAST_SHARE, records_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pate.data.values import Inputs
    from pate.formats.noisy_counts import NoisyVotes

    Floats = NDArray[np.float64]

#: Standard deviations of the weights that are tried.
_WEIGHTS: Final = tuple(2.0 ** (power / 2) for power in range(-16, 17))
#: Second moments below this part of the largest are of no direction.
_LEAST: Final = 1e-6
#: Least share of a label, as far as the draw of records goes.
_RAREST: Final = 0.01
#: The number of records must exceed this many standard deviations of its noise.
_CLEAR: Final = 2.0


def linear_chances(public: Inputs, noisy: NoisyVotes) -> Floats | None:
    """Return (n, m) class probabilities of the public rows; None if the sums are only noise.

    Args:
        public: the public set, n inputs.
        noisy: the released sums of dense votes.
    """
    sums, sigma = noisy.counts / GRID, noisy.sigma / GRID
    basis, classes = _Basis.of(public, noisy), sums.shape[1]
    records = basis.records(sums.sum(axis=1), sigma * np.sqrt(classes))
    if records is None:
        return None
    # The draw of the records is noise as well: each has one class of m.
    values = basis.values(sums, sigma, records, (1 - 1 / classes) / classes)
    chances = np.clip(values, LEAST_SHARE, 1.0)
    made: Floats = chances / chances.sum(axis=1, keepdims=True)
    return made


def linear_labels(public: Inputs, noisy: NoisyVotes, none: int) -> list[Floats] | None:
    """Return for each label (n, 2) probabilities that a public row lacks it, and has it; None as above.

    The size of the weights is each label's own.

    Args:
        public: the public set, n inputs.
        noisy: the released sums of dense votes for several labels.
        none: the column that is no label.
    """
    labels, totals, over = records_of(noisy, none)
    sigma = noisy.sigma / GRID
    basis = _Basis.of(public, noisy)
    records = basis.records(totals, sigma * np.sqrt(over))
    if records is None:
        return None
    made = []
    for each in labels.T:
        share = min(max(basis.number(each) / records, _RAREST), 1 / 2)
        values = basis.values(each[:, None], sigma, records, share * (1 - share))[:, 0]
        has = np.clip(values, LEAST_SHARE, 1 - LEAST_SHARE)
        made.append(np.stack([1 - has, has], axis=1))
    return made


@dataclass(frozen=True, eq=False)
class _Basis:
    """The public rows in the principal directions of their second moments.

    Attributes:
        moments: (k,) second moments, positive.
        axes: (d, k) orthonormal.
        turned: (n, k) the public rows.
    """

    moments: Floats
    axes: Floats
    turned: Floats

    @classmethod
    def of(cls, public: Inputs, noisy: NoisyVotes) -> _Basis:
        points = space_over(public).embed(public)
        rows = Directions.fit(points[noisy.queries]).codes(points) / GRID
        moments, axes = np.linalg.eigh(rows.T @ rows / len(rows))
        kept = moments > _LEAST * moments[-1]
        return cls(moments[kept], axes[:, kept], rows @ axes[:, kept])

    @property
    def one(self) -> Floats:
        """(k,) the combination of directions that is closest to 1 on the public rows."""
        one: Floats = self.turned.mean(axis=0) / (self.moments + 1e-3 * self.moments[-1])
        return one

    def number(self, sums: Floats) -> float:
        """Return how many records (d,) summed codes are of."""
        return float(self.one @ (self.axes.T @ sums))

    def records(self, sums: Floats, sigma: float) -> float | None:
        """Return the same of the codes of all records; None if it is only noise."""
        found = self.number(sums)
        return found if found > _CLEAR * sigma * float(np.linalg.norm(self.one)) else None

    def values(self, sums: Floats, sigma: float, records: float, drawn: float) -> Floats:
        """Return (n, m) the mean answers of records at the public rows.

        Args:
            sums: (d, m) codes times answers.
            sigma: standard deviation of the noise on each.
            records: their number.
            drawn: variance of one record's answer.
        """
        moments, seen = self.moments, self.axes.T @ sums
        energy = np.square(seen).sum(axis=1)
        noise = sigma**2 + records * moments * drawn

        def evidence(weight: float) -> float:
            spread = np.square(records * moments * weight) + noise
            return float(-(sums.shape[1] * np.log(spread) + energy / spread).sum())

        weight = max(_WEIGHTS, key=evidence)
        power = np.square(records * moments * weight)
        values: Floats = self.turned @ (
            (power / (power + noise) / (records * moments))[:, None] * seen
        )
        return values
