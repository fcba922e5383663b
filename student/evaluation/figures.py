"""A figure with its interval, where inputs may come in patients.

The interval is by linearisation: each patient, or input, has an influence on a figure, and the sum of
their squares is its variance (Binder, "On the variances of asymptotically normal estimators from
complex surveys", 1983).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from student.evaluation.rates import CONFIDENCE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Figure:
    """A figure with its 95 % confidence interval, or None if that is unknown."""

    value: float
    interval: tuple[float, float] | None

    def __str__(self) -> str:
        """Return it in few digits, with its interval in brackets."""
        ends = "" if self.interval is None else " ({:.3g} to {:.3g})".format(*self.interval)
        return f"{self.value:.3g}{ends}"

    @classmethod
    def of(cls, value: float, influences: Floats, units: NDArray[np.int64] | None) -> Figure:
        """Return a figure with the interval that the influences of n inputs give it."""
        from scipy.special import stdtrit

        at = (
            np.arange(len(influences))
            if units is None
            else np.unique(units, return_inverse=True)[1]
        )
        summed = np.bincount(at, weights=influences)
        if len(summed) < 2:
            return cls(value, None)
        error = float(np.sqrt(np.square(summed).sum() * len(summed) / (len(summed) - 1)))
        half = float(stdtrit(len(summed) - 1, 1.0 - (1.0 - CONFIDENCE) / 2.0)) * error
        return cls(value, (value - half, value + half))

    def to_json(self) -> dict[str, object]:
        """Return plain JSON values."""
        return {
            "value": self.value,
            "interval": None if self.interval is None else list(self.interval),
        }
