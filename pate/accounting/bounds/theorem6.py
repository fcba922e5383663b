"""Theorem 6 of the 2018 paper: the cost of a query whose outcome is nearly certain.

For a mechanism with the RDP curve c * order in both directions, and an outcome that fails with
probability q or less. The bound is never above c * order, the cost without knowledge of the votes,
and one-sided: it holds for the given votes against any neighbour, not the reverse. All terms that
are added are positive, so a cost of 1e-10 has as many good digits as one of 1.

Source: Papernot et al. 2018, Theorem 6, Proposition 10, Lemma 9. Proof: docs/proofs/labels.md,
section 4.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from pate.accounting.arrays import (
    Floats,
    blocks,
    check_orders,
    check_positive,
    check_queries,
    check_rdp,
)

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

#: Arguments of exponentials up to it neither overflow nor lose q to underflow.
_PLAIN = 600.0
#: exp of less is 0.
_NOTHING = -746.0
#: From here on, the rounding of log q shows in exp(log q + ...), which is formed with more digits.
_WIDE = -1000.0


def rdp(log_q: ArrayLike, c: float, orders: ArrayLike) -> Floats:
    """Return the cost of each query at each order, never above c * order.

    The log q are upper bounds on log P[outcome != i*]. The RDP curve c * order is that of noise unknown
    to the observer: c is squared_distance / (2 sigma^2) for GNMax, k^2 / (2 sigma1^2) for the threshold
    check.

    >>> rdp([-20.0, -0.1], 1e-4, [8, 20.5]).tolist()
    [[4.49271833759...e-10, 6.92810303952...e-10], [0.0008, 0.00205]]
    """
    checked, at = check_queries(log_q), check_orders(orders)
    c = check_positive(c, "c")
    excess, independent = at - 1.0, c * at
    made = np.empty((checked.size, at.size))
    made[:] = independent
    mu = np.sqrt(-checked / c)
    applies = np.flatnonzero(mu >= _least_mu(c))
    for part in blocks(applies.size, at.size):
        rows = applies[part]
        costs = _log_moments(checked[rows], mu[rows], c, excess) / excess
        np.copyto(costs, independent, where=mu[rows, None] <= excess)  # not the theorem's orders
        made[rows] = np.minimum(costs, independent)
    return check_rdp(made, "the cost by Theorem 6")


def _least_mu(c: float) -> float:
    """Return the least mu2 > 1 with log((mu2+1)/(mu2-1)) <= c (2 mu2 - 1), rounded up.

    The left side falls and the right side rises, so beyond it the condition always holds.
    """

    def misses(distance: float) -> bool:
        # log((mu+1)/(mu-1)) with mu = 1 + distance.
        return math.log1p(2.0 / distance) > c * (2.0 * distance + 1.0)

    low, high = 1e-300, max(1.0, 2.0 / math.sqrt(c))
    for _ in range(2000):
        middle = math.sqrt(low * high)
        if not low < middle < high:
            break
        low, high = (middle, high) if misses(middle) else (low, middle)
    return math.nextafter(1.0 + high, math.inf)


def _log_moments(log_q: Floats, mu: Floats, c: float, excess: Floats) -> Floats:
    """Return the theorem's cost times order - 1, (queries, orders), for any q.

    With logarithms where the numbers leave the floats.
    """
    root = np.sqrt(-log_q * c)  # c * mu
    # mu - 1 without cancellation where mu is close to 1; r / q = exp(c (2 mu - 1)).
    distance = c * ((-log_q - c) / c / (mu + 1.0)) ** 2
    # A = 1 + (r - q) / (1 - r), with no small difference of large numbers.
    log_a = np.log1p(np.exp(-distance) * np.expm1(c - 2.0 * root) / np.expm1(-distance))
    log_first = np.multiply.outer(log_a, excess)
    growth = np.multiply.outer(2.0 * root + c, excess)
    log_second = log_q[:, None] + growth
    _sharpen(log_second, log_q, c, excess)
    rest = -np.expm1(log_q)[:, None]  # 1 - q
    summed = rest * np.expm1(np.minimum(log_first, _PLAIN))
    summed -= np.exp(np.minimum(log_second, _PLAIN)) * np.expm1(-growth)
    moments: Floats = np.log1p(summed)
    large = np.maximum(log_first, log_second) > _PLAIN
    if large.any():
        log_first += np.log(rest)
        moments[large] = np.logaddexp(log_first[large], log_second[large])
    return moments


def _sharpen(log_second: Floats, log_q: Floats, c: float, excess: Floats) -> None:
    """Form log(q B^l) again where it is a small difference of large numbers."""
    rows, columns = np.nonzero((log_second > _NOTHING) & (log_q < _WIDE)[:, None])
    if rows.size:
        wide = log_q[rows].astype(np.longdouble)
        log_b = 2.0 * np.sqrt(-wide * np.longdouble(c)) + np.longdouble(c)
        log_second[rows, columns] = wide + excess[columns] * log_b
