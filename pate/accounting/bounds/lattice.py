"""Tails of discrete Gaussian laws on the integers, to a relative 1e-11.

Within 37 spreads of the middle the masses are summed one by one, once; farther out a series is
summed in closed form, whose error is on the side of a larger tail.

Proof: docs/proofs/labels.md, section 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from pate.errors import AccountingError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from pate.accounting.arrays import Floats

LOG_HALF = -math.log(2.0)
#: Larger integers are replaced by it: the tail of a smaller one is an upper bound.
FARTHEST = 2.0**60


def finite(values: ArrayLike, name: str) -> Floats:
    """Return ``values`` as float64, or raise AccountingError if one is not finite."""
    made = np.asarray(values, np.float64)
    if not np.isfinite(made).all():
        raise AccountingError(f"{name} must be a finite number of votes")
    return made


def log_complement(logs: Floats) -> Floats:
    """Return log(1 - exp(logs)), -inf at 0."""
    small = logs < LOG_HALF
    made = np.log1p(-np.exp(np.where(small, logs, -1.0)))
    with np.errstate(divide="ignore"):  # the complement of certainty
        return np.where(small, made, np.log(-np.expm1(np.where(small, -1.0, logs))))


@dataclass(frozen=True)
class Lattice:
    """The law on the integers with mass exp(-x^2/(2 spread^2)), times exp(log_odd) at odd x."""

    spread: float  # in votes
    log_odd: float  # logarithm of the factor of odd integers
    log_total: float  # logarithm of the sum of all masses
    table: Floats  # (farthest + 1,), log P[X >= x] at x = 0, 1, ...; never written to

    def log_tail(self, x: Floats) -> Floats:
        """Return log P[X >= x] at the integers ``x``, of any shape and sign."""
        x = np.clip(x, -FARTHEST, FARTHEST)
        turned = x <= 0.0
        x = np.where(turned, 1.0 - x, x)
        made = np.asarray(self.table[np.minimum(x, self.table.size - 1).astype(np.intp)])
        if (far := x >= self.table.size).any():
            made[far] = _log_far_sum(self.spread, self.log_odd, x[far]) - self.log_total
        return np.where(turned, log_complement(made), made) if turned.any() else made


@lru_cache(maxsize=8)
def lattice(spread: float, log_odd: float) -> Lattice:
    """Return that law with its table; the last few are cached."""
    # Masses down to exp(-700) are summed one by one: beyond, floats would be lost and the series
    # of the far tail is exact. The least odd mass is exp(-(x^2 + 1)/(2 spread^2)).
    farthest = math.isqrt(max(0, math.floor(1400.0 * spread**2 - 1.0)))
    x = np.arange(farthest + 1.0)
    masses = np.exp(-0.5 * (x / spread) ** 2 + (x % 2.0) * log_odd)
    # The rest is far below the rounding of the last mass; exp may make it 0.
    rest = np.exp(_log_far_sum(spread, log_odd, np.array([farthest + 1.0])))
    tails = np.cumsum(np.concatenate([rest, masses[::-1]]))[:0:-1]
    total = float(2.0 * tails[0] - masses[0])
    table = np.log(tails / total)
    table.flags.writeable = False
    return Lattice(spread, log_odd, math.log(total), table)


def log_odd_mass(sigma: float) -> float:
    """Return the logarithm of the factor of odd differences of two N_Z(0, sigma^2).

    The mass of a difference d is exp(-d^2/(4 sigma^2)) times the sum over all z of
    exp(-(z - d/2)^2 / sigma^2), which depends on d only by its parity.
    """
    if sigma >= 4.0:  # Poisson summation: the two sums differ by less than 1e-60
        return 0.0
    z = np.arange(1.0, 120.0)
    even = 1.0 + 2.0 * float(np.exp(-((z / sigma) ** 2)).sum())
    odd = 2.0 * float(np.exp(-z * (z - 1.0) / sigma**2).sum())
    return math.log(odd) - math.log(even) - 0.25 / sigma**2


def _log_far_sum(spread: float, log_odd: float, x: Floats) -> Floats:
    """Return the logarithm of the masses from ``x`` on, never below it; exact for large x/spread.

    Even and odd integers apart: exp(-(x + 2i)^2 / (2 s^2)) is exp(-x^2/(2 s^2)) y^i exp(-g i^2/2)
    with y = exp(-2x/s^2), g = 4/s^2. Five terms of the alternating series of exp(-g i^2/2) are an
    upper bound of it, and their sums over i are rational functions of y. The next term, which is
    the bound on what is too much, is 945 (s/x)^10: below 1e-12 from x = 36 s on.
    """
    odd = x % 2.0
    first = odd * log_odd + _log_every_second(spread, x)
    second = (1.0 - odd) * log_odd + _log_every_second(spread, x + 1.0)
    made: Floats = np.logaddexp(first, second)
    return made


def _log_every_second(spread: float, x: Floats) -> Floats:
    y = np.exp(-2.0 * x / spread**2)
    left = -np.expm1(-2.0 * x / spread**2)
    z = 2.0 / (spread * left) ** 2
    # Eulerian polynomials: sum i^2k y^i = y E_2k(y) / (1 - y)^(2k + 1).
    square = 1.0 + y
    fourth = 1.0 + y * (11.0 + y * (11.0 + y))
    sixth = 1.0 + y * (57.0 + y * (302.0 + y * (302.0 + y * (57.0 + y))))
    eighth = 1.0 + y * (
        247.0 + y * (4293.0 + y * (15619.0 + y * (15619.0 + y * (4293.0 + y * (247.0 + y)))))
    )
    series = -z * (square - z / 2.0 * (fourth - z / 3.0 * (sixth - z / 4.0 * eighth)))
    made: Floats = -0.5 * (x / spread) ** 2 + np.log1p(y * series) - np.log(left)
    return made
