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

#: Standard deviations of the weights that are tried.
_WEIGHTS: Final = tuple(2.0 ** (power / 2) for power in range(-16, 17))
#: Second moments below this part of the largest are of no direction.
_LEAST: Final = 1e-6
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
    energy = np.square(seen).sum(axis=1)
    # The draw of the records is noise as well: each has one class of m.
    noise = sigma**2 + records * moments * (1 - 1 / classes) / classes

    def evidence(weight: float) -> float:
        spread = np.square(records * moments * weight) + noise
        return float(-(classes * np.log(spread) + energy / spread).sum())

    weight = max(_WEIGHTS, key=evidence)
    power = np.square(records * moments * weight)
    shrunk = (power / (power + noise) / (records * moments))[:, None] * seen
    chances = turned @ shrunk
    chances = np.clip(chances, LEAST_SHARE, 1.0)
    made: Floats = chances / chances.sum(axis=1, keepdims=True)
    return made
