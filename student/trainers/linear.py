"""Class probabilities of public rows from the noisy sums of dense votes: ridge regression.

Each private record gave its directions x to its class, so the released sums are B = X'Y + noise, Y the
records' classes. Least squares on them needs X'X, which is not released; the public rows stand for it:
X'X is about N times their second moments G, N being the number of records. N is estimated from B
itself, with the combination of directions that is closest to 1 on the public rows.

In the principal directions of G the ridge shrinks each by g/(g + strength). The variance of the noise is
known, so the risk of every strength has an unbiased estimate from B alone (Stein's, for a linear
estimator), and the strength with the least is taken. All of it is post-processing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from pate.codes import GRID
from pate.features.dense import Directions
from pate.features.space import space_over
from student.trainers.counts import LEAST_SHARE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pate.data.values import Inputs
    from pate.formats.noisy_counts import NoisyVotes

    Floats = NDArray[np.float64]

#: Strengths tried, relative to the largest second moment.
_STRENGTHS: Final = tuple(2.0**power for power in range(-20, 5))
#: Second moments below this part of the largest are of no direction.
_LEAST: Final = 1e-9
#: The number of records must exceed this many standard deviations of its noise.
_CLEAR: Final = 2.0


def linear_chances(public: Inputs, noisy: NoisyVotes) -> Floats | None:
    """Return (n, m) class probabilities of the public rows; None if the sums are only noise.

    Args:
        public: the public set, n inputs.
        noisy: the released sums of dense votes.
    """
    points = space_over(public).embed(public)
    rows = Directions.fit(points[noisy.queries]).codes(points) / GRID
    sums, sigma = noisy.counts / GRID, noisy.sigma / GRID
    moments, axes = np.linalg.eigh(rows.T @ rows / len(rows))
    kept = moments > _LEAST * moments[-1]
    moments, axes = moments[kept], axes[:, kept]
    turned, seen = rows @ axes, axes.T @ sums
    classes = sums.shape[1]
    one = turned.mean(axis=0) / (moments + 1e-3 * moments[-1])
    records = float(one @ seen.sum(axis=1))
    if records <= _CLEAR * sigma * float(np.linalg.norm(one)) * np.sqrt(classes):
        return None
    noise = classes * sigma**2
    signal = np.square(seen).sum(axis=1) - noise  # unbiased

    def risk(strength: float) -> float:
        kept = moments / (moments + strength)
        return float((((1 - kept) ** 2 * signal + kept**2 * noise) / moments).sum())

    strength = min((each * moments[-1] for each in _STRENGTHS), key=risk)
    chances = turned @ (seen / (moments + strength)[:, None]) / records
    chances = np.clip(chances, LEAST_SHARE, 1.0)
    made: Floats = chances / chances.sum(axis=1, keepdims=True)
    return made
