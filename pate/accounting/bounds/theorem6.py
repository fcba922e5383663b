"""Theorem 6 of the 2018 paper: the cost of a query whose outcome is nearly certain.

For a mechanism with the RDP curve c * order in both directions, and an outcome i* that fails with
probability q or less: with mu2 = sqrt(-log q / c) and mu1 = mu2 + 1, the best choice there is,

    rdp = log( (1-q) A^(order-1) + q B^(order-1) ) / (order-1),
    log A = log( (1-q) / (1-r) ),  r = exp(-c (mu2-1)^2),      log B = c (2 mu2 + 1),

provided that order < mu1 and log((mu2+1)/(mu2-1)) <= c (2 mu2 - 1), which is the paper's condition
that makes it grow with q; and never more than c * order, the cost without knowledge of the votes.

A and B depend only on the query. They are formed once for each query, and per order there are two
exponentials and a logarithm. All terms of (1-q) (A^l - 1) + q (B^l - 1) are positive, so a cost of
1e-10 has as many good digits as one of 1.

The bound is one-sided: it holds for the given votes against any neighbour, not the reverse.

Source: Papernot et al. 2018, Theorem 6, Proposition 10, Lemma 9.
Proof: docs/proofs/labels.md, section 4.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

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
    from collections.abc import Iterator

    from numpy.typing import ArrayLike, NDArray

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
    checked = check_queries(log_q)
    grid = _Orders.of(c, orders)
    made = np.empty((checked.size, grid.excess.size))
    made[:] = grid.independent
    for rows, moments in _data_dependent(checked, grid):
        made[rows] = np.minimum(moments / grid.excess, grid.independent)
    return check_rdp(made, "the cost by Theorem 6")


class _Orders(NamedTuple):
    """Terms that depend only on the mechanism and the orders."""

    c: float
    excess: Floats  # (orders,), order - 1
    independent: Floats  # (orders,), c * order
    least_mu: float  # mu2 from which on the bound grows with q

    @classmethod
    def of(cls, c: float, orders: ArrayLike) -> _Orders:
        c, checked = check_positive(c, "c"), check_orders(orders)
        return cls(c, checked - 1.0, c * checked, _least_mu(c))


class _Parts(NamedTuple):
    """Terms that depend only on the query; each (queries,)."""

    log_q: Floats
    mu: Floats
    log_a: Floats
    log_b: Floats

    @classmethod
    def of(cls, log_q: Floats, c: float) -> _Parts:
        mu = np.sqrt(-log_q / c)
        root = np.sqrt(-log_q * c)  # c * mu
        # mu - 1 without cancellation where mu is close to 1; r / q = exp(c (2 mu - 1)).
        distance = c * ((-log_q - c) / c / (mu + 1.0)) ** 2
        # A = 1 + (r - q) / (1 - r), with no small difference of large numbers.
        log_a = np.log1p(np.exp(-distance) * np.expm1(c - 2.0 * root) / np.expm1(-distance))
        return cls(log_q, mu, log_a, 2.0 * root + c)


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


def _data_dependent(log_q: Floats, grid: _Orders) -> Iterator[tuple[NDArray[np.intp], Floats]]:
    """Yield queries to which Theorem 6 applies, by row numbers, with (rows, orders) log moments.

    A log moment is the cost times order - 1. The array is overwritten by the next block.
    """
    applies = np.sqrt(-log_q / grid.c) >= grid.least_mu
    rows = np.flatnonzero(applies)
    parts = _Parts.of(log_q[rows], grid.c)
    largest = float(grid.excess.max())
    beyond = (parts.log_q + largest * parts.log_b < _NOTHING) & (parts.mu > largest)
    nothing = beyond & (parts.log_a == 0.0)
    plain = (np.maximum(parts.log_a, parts.log_b) * largest <= _PLAIN) & (parts.log_q >= -_PLAIN)
    inside = parts.mu > largest  # of the theorem's orders, all of them
    kinds = (
        (nothing, _no_moments),
        (plain & inside, _plain_moments),
        (plain & ~inside, _plain_moments),
        (~(nothing | plain), _extreme_moments),
    )
    limit = grid.excess * grid.independent
    sizes = [part.stop - part.start for part in blocks(rows.size, grid.excess.size)]
    scratch = np.empty((2, max(sizes, default=0), grid.excess.size))
    for wanted, moments_of in kinds:
        chosen = np.flatnonzero(wanted)
        for part in blocks(chosen.size, grid.excess.size):
            block = _Parts(*(values[chosen[part]] for values in parts))
            moments = moments_of(block, grid, scratch)
            if block.mu.min() <= largest:
                outside = block.mu[:, None] <= grid.excess
                np.copyto(moments, limit, where=outside)
            yield rows[chosen[part]], np.minimum(moments, limit, out=moments)


def _no_moments(parts: _Parts, grid: _Orders, scratch: Floats) -> Floats:  # noqa: ARG001
    """Return zeros: the theorem's value is less than the least float."""
    return np.zeros((parts.log_q.size, grid.excess.size))


def _plain_moments(parts: _Parts, grid: _Orders, scratch: Floats) -> Floats:
    """Return the theorem's value where no exponential overflows, and q does not underflow."""
    q = np.exp(parts.log_q)
    # Reused: allocating fresh memory would take most of the time.
    first: Floats = scratch[0, : q.size]
    second: Floats = scratch[1, : q.size]
    np.multiply(parts.log_a[:, None], grid.excess, out=first)
    np.expm1(first, out=first)
    first *= (1.0 - q)[:, None]
    np.multiply(parts.log_b[:, None], grid.excess, out=second)
    np.expm1(second, out=second)
    second *= q[:, None]
    first += second
    return np.log1p(first, out=first)


def _extreme_moments(parts: _Parts, grid: _Orders, scratch: Floats) -> Floats:  # noqa: ARG001
    """Return the theorem's value for any q, with logarithms where the numbers leave the floats."""
    log_first = np.multiply.outer(parts.log_a, grid.excess)
    growth = np.multiply.outer(parts.log_b, grid.excess)
    log_second = parts.log_q[:, None] + growth
    _sharpen(log_second, parts.log_q, grid)
    rest = -np.expm1(parts.log_q)[:, None]  # 1 - q
    summed = rest * np.expm1(np.minimum(log_first, _PLAIN))
    summed -= np.exp(np.minimum(log_second, _PLAIN)) * np.expm1(-growth)
    moments: Floats = np.log1p(summed)
    large = np.maximum(log_first, log_second) > _PLAIN
    if large.any():
        log_first += np.log(rest)
        moments[large] = np.logaddexp(log_first[large], log_second[large])
    return moments


def _sharpen(log_second: Floats, log_q: Floats, grid: _Orders) -> None:
    """Form log(q B^l) again where it is a small difference of large numbers."""
    rows, columns = np.nonzero((log_second > _NOTHING) & (log_q < _WIDE)[:, None])
    if rows.size:
        wide = log_q[rows].astype(np.longdouble)
        log_b = 2.0 * np.sqrt(-wide * np.longdouble(grid.c)) + np.longdouble(grid.c)
        log_second[rows, columns] = wide + grid.excess[columns] * log_b
