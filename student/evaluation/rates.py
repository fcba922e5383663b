"""Shares of some inputs, with their sampling errors, where inputs may come in patients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Confidence level of every interval.
CONFIDENCE: Final = 0.95


@dataclass(frozen=True)
class Rate:
    """A share of some inputs.

    >>> Rate(20, 20).interval()[0] < 0.85  # twenty of twenty is no certainty
    True

    Attributes:
        hits: number with the property, from 0 to ``count``.
        count: total number, possibly 0.
        independent: number of independent inputs that is worth as much; None: ``count``.
    """

    hits: int
    count: int
    independent: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.hits <= self.count:
            raise DataError(f"{self.hits} of {self.count} is not a share")

    @property
    def share(self) -> float | None:
        """Hits over count; None without inputs."""
        return self.hits / self.count if self.count else None

    def interval(self, doubt: float = 1.0 - CONFIDENCE) -> tuple[float, float]:
        """Return the Wilson score interval of the share; (0, 1) without inputs.

        Args:
            doubt: approximate probability that it misses the true share.

        Source: Wilson, "Probable inference, the law of succession, and statistical inference",
        JASA 1927.
        """
        if not self.count:
            return 0.0, 1.0
        share = self.hits / self.count
        return wilson(share, self.count if self.independent is None else self.independent, doubt)

    def to_json(self) -> dict[str, object]:
        """Return plain JSON values."""
        low, high = self.interval()
        return {"share": self.share, "low": low, "high": high, "of": self.count}


def wilson(share: float, count: float, doubt: float = 1.0 - CONFIDENCE) -> tuple[float, float]:
    """Return the Wilson score interval of a share of ``count`` independent inputs.

    SciPy has it for whole numbers only; patients make the count a fraction.
    """
    from scipy.special import ndtri

    pull = float(ndtri(1.0 - doubt / 2.0)) ** 2 / count
    centre = share + pull / 2.0
    half = (pull * share * (1.0 - share) + pull**2 / 4.0) ** 0.5
    low, high = (centre - half) / (1.0 + pull), (centre + half) / (1.0 + pull)
    return (0.0 if share == 0 else max(0.0, low)), (1.0 if share == 1 else min(1.0, high))


def rate_of(hits: NDArray[np.bool_], units: NDArray[np.int64] | None) -> Rate:
    """Return the share of the inputs that have a property.

    Args:
        hits: (n,) whether each input has it.
        units: (n,) whole numbers, equal for inputs of one patient; None if all are independent.
    """
    hit, count = int(hits.sum()), len(hits)
    if units is None or not count:
        return Rate(hit, count)
    return Rate(hit, count, _independent(hits, units))


def _independent(hits: NDArray[np.bool_], units: NDArray[np.int64]) -> float:
    """Return how many independent inputs would determine the share as well as these do.

    That is p (1 - p) over the variance of p estimated between patients. It is at most n; and at least
    what remains if all inputs of a patient are alike, which also serves where p is 0 or 1 and nothing
    varies. Few patients estimate a variance badly, for which Student's t pays.

    Source: Korn and Graubard, "Confidence intervals for proportions with small expected number of
    positive counts estimated from survey data", Survey Methodology 1998, with Wilson's interval.
    """
    from scipy.special import ndtri, stdtrit

    _, at = np.unique(units, return_inverse=True)
    sizes = np.bincount(at)
    count, patients, share = len(hits), len(sizes), float(hits.mean())
    found = float(count**2 / (sizes**2).sum())
    if patients < 2:
        return 1.0
    if 0 < share < 1:
        spread = float(((np.bincount(at, weights=hits) - sizes * share) ** 2).sum())
        variance = patients / (patients - 1) * spread / count**2
        found = min(count, max(found, share * (1 - share) / max(variance, 1e-300)))
    tail = 1.0 - (1.0 - CONFIDENCE) / 2.0
    return found * float(ndtri(tail) / stdtrit(patients - 1, tail)) ** 2
