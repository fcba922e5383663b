"""Skellam noise: the difference of two Poisson counts. Its sums are Skellam again.

Proof: docs/proofs/outlier.md.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from pate.accounting.arrays import Floats, check_positive
from pate.accounting.bounds.lattice import FARTHEST, finite, log_complement
from pate.errors import AccountingError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

#: Outside, the expansions below are not as exact as is claimed, or the tables too large.
_LEAST_VARIANCE, _LARGEST_VARIANCE = 1e-9, 1e9


def skellam_log_gap_tail(variance: float, gap: ArrayLike) -> Floats:
    """Return log P[Z_j - Z_i >= gap] for independent Skellam noises of that variance each.

    The difference is Skellam again, of twice the variance: P[d] = exp(-w) I_d(w), w = 2 variance.
    A gap that is no integer is rounded up, which changes nothing.

    >>> float(skellam_log_gap_tail(100.0, 50).round(9))
    -8.344451181

    Args:
        variance: of one noise, in votes squared, within [1e-9, 1e9].
        gap: in votes, of any shape and sign.

    Raises:
        AccountingError: for a variance outside, or a gap that is not finite.
    """
    width = check_positive(variance, "variance")
    if not _LEAST_VARIANCE <= width <= _LARGEST_VARIANCE:
        raise AccountingError(f"the variance of Skellam noise must lie in [1e-9, 1e9], got {width}")
    whole = np.clip(np.ceil(finite(gap, "a gap")), -FARTHEST, FARTHEST)
    turned = whole <= 0.0
    there = np.where(turned, 1.0 - whole, whole)
    table = _skellam_table(2.0 * width)
    made = np.asarray(table[np.minimum(there, table.size - 1).astype(np.intp)])
    if (far := there > table.size - 1).any():
        made[far] = _skellam_far(2.0 * width, there[far])
    return np.where(turned, log_complement(made), made)


@lru_cache(maxsize=8)
def _skellam_table(w: float) -> Floats:
    """Return log P[d >= n] at n = 0, 1, ... for P[d] = exp(-w) I_d(w), to 38 standard deviations.

    The ratios r_n = I_{n+1}(w) / I_n(w) obey r_n = 1 / (2(n+1)/w + r_{n+1}), a recurrence that is
    stable downwards: an error is multiplied by r^2 < 1 at each step. P[d >= n] / P[d = n] is
    S_n = 1 + r_n S_{n+1}.
    """
    size = max(1024, math.ceil(38.0 * math.sqrt(w))) + 1
    start = size + _steps(w, size)
    ratio = w / (start + math.hypot(start, w))  # about; what is wrong with it dies away
    tail = 1.0 / (1.0 - ratio)
    ratios, tails = np.empty(size), np.empty(size)
    for n in range(start - 1, -1, -1):
        ratio = 1.0 / (2.0 * (n + 1.0) / w + ratio)
        tail = 1.0 + ratio * tail
        if n < size:
            ratios[n], tails[n] = ratio, tail
    masses = np.cumsum(np.concatenate([[np.log(special.i0e(w))], np.log(ratios[:-1])]))
    table: Floats = masses + np.log(tails)
    table.flags.writeable = False
    return table


def _skellam_far(w: float, n: Floats) -> Floats:
    """Return log P[d >= n] beyond the table, by the expansion of I_n for large n.

    Its second correction is below 1e-8 in the logarithm, which is below -700 there.
    Source: the uniform expansion of modified Bessel functions (Debye), DLMF 10.41.3.
    """
    steps = _steps(w, float(n.min()))
    ratio = w / (n + steps + np.hypot(n + steps, w))
    tail = 1.0 / (1.0 - ratio)
    for step in range(steps - 1, -1, -1):
        ratio = 1.0 / (2.0 * (n + step + 1.0) / w + ratio)
        tail = 1.0 + ratio * tail
    root = np.hypot(n, w)
    p = n / root
    correction = (3.0 * p - 5.0 * p**3) / (24.0 * n)
    log_mass = n * (n / (root + w)) - n * np.arcsinh(n / w) - 0.5 * np.log(2.0 * math.pi * root)
    made: Floats = log_mass + np.log1p(correction) + np.log(tail)
    return made


def _steps(w: float, n: float) -> int:
    """Return after how many more integers than ``n`` the masses have lost a factor exp(40)."""
    return math.ceil(40.0 / math.asinh(n / w))
