"""LNMax: the cost of a query under pure differential privacy, when its outcome is nearly certain.

With epsilon0 = gap_shift * gamma, E = e^epsilon0, l = order - 1 and q the chance, or an upper bound
on it, that the plurality does not win: the least of the bounds that are *independent* of the votes,
and, for small q, the *published* one or (``sharp``) the exact worst case over all epsilon0-DP
mechanisms. All increase with q, and bound the divergence of the given votes from any neighbour, not
the reverse.

Source: Papernot et al. 2017, Theorems 2 and 3; sharp: own. Proof: docs/proofs/labels.md, section 3.
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

#: Arguments of exponentials up to it do not overflow.
_PLAIN = 600.0
#: Below it, e^t - 1 - t and its like are summed as series.
_SMALL = 0.02
#: Of an epsilon0 below it, more than three digits are lost without the series.
_SMALL_SHIFT = 1e-3


def rdp(log_q: ArrayLike, epsilon0: float, orders: ArrayLike, sharp: bool) -> Floats:
    """Return the cost of each query at each order, as published or by the sharp bound.

    The log q are upper bounds on log P[outcome != plurality]. No cost is above :func:`independent`, and with
    ``sharp`` none is above :func:`pure_dp` nor the published bound.

    >>> rdp([-7.1507553162885115, -0.1], 0.1, [2, 9], sharp=False).round(9).tolist()
    [[0.000164958, 0.000202494], [0.01, 0.045]]
    >>> rdp([-7.1507553162885115, -0.1], 0.1, [2, 9], sharp=True).round(9).tolist()
    [[7.856e-06, 4.5528e-05], [0.009958584, 0.040423671]]
    """
    checked, epsilon0, alphas = _check(log_q, epsilon0, orders)
    ceiling = pure_dp(epsilon0, alphas) if sharp else independent(epsilon0, alphas)
    made = np.empty((checked.size, alphas.size))
    for part in blocks(checked.size, alphas.size):
        made[part] = _costs(checked[part], epsilon0, alphas - 1.0, ceiling, sharp)
    return check_rdp(made, "the cost by Theorem 3")


def independent(epsilon0: float, orders: ArrayLike) -> Floats:
    """Return min(order * epsilon0^2 / 2, epsilon0) at each order, whatever the votes.

    >>> independent(0.1, [2, 64]).round(9).tolist()
    [0.01, 0.1]

    Source: Papernot et al. 2017, Theorem 2; Bun and Steinke 2016, Proposition 1.4.
    """
    epsilon0, alphas = check_positive(epsilon0, "epsilon0"), check_orders(orders)
    made: Floats = np.minimum(0.5 * epsilon0**2 * alphas, epsilon0)
    return made


def pure_dp(epsilon0: float, orders: ArrayLike) -> Floats:
    """Return the largest Renyi divergence of an epsilon0-DP pair: that of randomised response.

    log( cosh((order - 1/2) epsilon0) / cosh(epsilon0 / 2) ) / (order - 1), attained by a coin of
    e^epsilon0 / (1 + e^epsilon0) against its reverse.

    >>> pure_dp(0.1, [2, 64]).round(9).tolist()
    [0.009958584, 0.08977153]

    Proof: docs/proofs/labels.md, section 3.
    """
    epsilon0, alphas = check_positive(epsilon0, "epsilon0"), check_orders(orders)
    excess = alphas - 1.0
    # cosh u / cosh v = 1 + 2 sinh((u+v)/2) sinh((u-v)/2) / cosh v; logarithms where it overflows.
    near = np.minimum(alphas * epsilon0, _PLAIN) / 2.0
    step = np.minimum(excess * epsilon0, _PLAIN) / 2.0
    small = np.log1p(2.0 * np.sinh(near) * np.sinh(step) / np.cosh(min(epsilon0, _PLAIN) / 2.0))
    tails = np.log1p(np.exp(-(2.0 * alphas - 1.0) * epsilon0)) - np.log1p(np.exp(-epsilon0))
    made: Floats = np.where(alphas * epsilon0 <= _PLAIN, small, excess * epsilon0 + tails) / excess
    return np.minimum(made, independent(epsilon0, alphas), out=made)


def _check(log_q: ArrayLike, epsilon0: float, orders: ArrayLike) -> tuple[Floats, float, Floats]:
    return check_queries(log_q), check_positive(epsilon0, "epsilon0"), check_orders(orders)


def _costs(log_q: Floats, epsilon0: float, excess: Floats, ceiling: Floats, sharp: bool) -> Floats:
    """Return the (queries, orders) costs of a block."""
    made = np.empty((log_q.size, excess.size))
    made[:] = ceiling
    # Where E q has no room below 1 in floats, q is as good as at the limit.
    applies = (log_q <= -np.logaddexp(0.0, epsilon0)) & (log_q + epsilon0 < 0.0)
    if applies.any():
        if sharp:
            logs = np.maximum(
                _two_point(log_q[applies], epsilon0, excess),
                _two_point(log_q[applies], -epsilon0, excess),
            )
        else:
            logs = _published(log_q[applies], epsilon0, excess)
        made[applies] = np.minimum(logs / excess, ceiling)
    return made


def _published(log_q: Floats, epsilon0: float, excess: Floats) -> Floats:
    """Return log( (1-q) A^l + q E^l ), A = (1-q)/(1 - E q), as (queries, orders)."""
    _, _, log_a = _against(log_q, epsilon0)
    log_first = np.multiply.outer(log_a, excess)
    log_second = np.add.outer(log_q, excess * epsilon0)
    rest = -np.expm1(log_q)[:, None]
    summed = rest * np.expm1(np.minimum(log_first, _PLAIN))
    summed -= np.exp(np.minimum(log_second, _PLAIN)) * np.expm1(-excess * epsilon0)
    return _log1p(summed, log_first + np.log(rest), log_second)


def _two_point(log_q: Floats, shift: float, excess: Floats) -> Floats:
    """Return log( (1-q)^(l+1) (1-p)^-l + q e^(-l shift) ) for p = q e^shift, (queries, orders).

    This is l times the divergence of the coins of q and p. Its first-order terms in l are l times
    their Kullback-Leibler divergence, in which large terms cancel for a small shift. So it is
    summed in parts that are all positive:

        l KL + (1-q) f(l x) + q f(-l shift),   f(t) = e^t - 1 - t,   x = log((1-q)/(1-p)),
        KL = q f(shift) + (1-q) (x - s),       s = (p-q)/(1-q).
    """
    rest, lean, x = _against(log_q, shift)
    divergence = np.exp(log_q + _log_excess_exp(np.array(shift))) + rest * _excess_log(lean, x)
    log_first = np.multiply.outer(x, excess)
    log_second = np.add.outer(log_q, _log_excess_exp(-excess * shift))
    summed = np.multiply.outer(divergence, excess)
    growth = np.minimum(log_first, _PLAIN)
    # The rounding of e^t - 1 - t is up to 1e-16 |t|, which is 4e-16 / |shift| of the result.
    growth = _excess_exp(growth) if abs(shift) < _SMALL_SHIFT else np.expm1(growth) - growth
    growth *= rest[:, None]
    summed += growth
    summed += np.exp(np.minimum(log_second, _PLAIN))
    return _log1p(summed, log_first + np.log(rest)[:, None], np.add.outer(log_q, -excess * shift))


def _against(log_q: Floats, shift: float) -> tuple[Floats, Floats, Floats]:
    """Return 1 - q, (p-q)/(1-q) and log((1-q)/(1-p)) for p = q e^shift < 1; each (queries,)."""
    # |p - q| = max(p, q) (1 - e^-|shift|)
    size = -np.exp(log_q + max(shift, 0.0)) * math.expm1(-abs(shift))
    difference = math.copysign(1.0, shift) * size
    rest = -np.expm1(log_q)
    return rest, difference / rest, np.log1p(difference / -np.expm1(log_q + shift))


def _log1p(summed: Floats, log_first: Floats, log_second: Floats) -> Floats:
    """Return log(1 + summed), or the sum of two terms in logarithms where that overflows."""
    made = np.log1p(summed)
    large = np.maximum(log_first, log_second) > _PLAIN - 1.0
    if large.any():
        made[large] = np.logaddexp(log_first[large], log_second[large])
    return made


def _excess_exp(t: Floats) -> Floats:
    """Return e^t - 1 - t, which is not negative, to full precision."""
    small = np.clip(t, -_SMALL, _SMALL)
    series = small / 7.0
    for term in (6.0, 5.0, 4.0, 3.0):
        series += 1.0
        series *= small
        series /= term
    series += 1.0
    series *= 0.5 * small * small
    return np.where(np.abs(t) < _SMALL, series, np.expm1(t) - t)


def _log_excess_exp(t: Floats) -> Floats:
    """Return log(e^t - 1 - t); beyond 600 it is t."""
    return np.where(t > _PLAIN, t, np.log(_excess_exp(np.minimum(t, _PLAIN))))


def _excess_log(s: Floats, x: Floats) -> Floats:
    """Return x - s, which is not negative, to full precision, where x = -log(1 - s)."""
    small = np.clip(s, -_SMALL, _SMALL)
    series = np.zeros_like(s)
    for term in range(11, 1, -1):
        series = 1.0 / term + small * series
    return np.where(np.abs(s) < _SMALL, s * s * series, np.maximum(x - s, 0.0))
