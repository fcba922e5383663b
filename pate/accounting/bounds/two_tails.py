"""The largest T1 + T2 of Theorem 6+, over the ways to share q between two tails of a normal law.

The tails x < a and x > b have mass q together under N(0, 1), and q' under N(-mu, 1); the lower one
has the part t of q. With the likelihood ratio L(x) = exp(mu * x + mu^2 / 2),

    T1 = (1 - q)^order * (1 - q')^(1 - order),
    T2 = integral of L^(order - 1) over both tails under N(0, 1),
    R  = (L(b)^(order - 1) - L(a)^(order - 1)) / (1/L(a) - 1/L(b)), minus the slope of T2 against q'.

T1 + T2 - 1 may be 1e-9 of its parts, and they may all be 1e-300. So T1 - 1 is made from logarithms
of 1 - q and 1 - q', never as a difference, and all is in units of exp(ref). The maximum over t is
bounded by cells of t, never by trying points; cells are halved until none can hold more than (1 +
tightness) times the best point seen.

Proof: docs/proofs/theorem-6-plus.md, for the maximum section 6.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy import special

if TYPE_CHECKING:
    from pate.accounting.arrays import Floats

#: Rows of the array of points: ln(t/(1-t)); T1 - 1 and T2 in units of exp(ref); ln R; ln q' and
#: ln(1 - q'). The last three are not scaled.
LOGIT, FIRST, SECOND, LOG_SLOPE, LOG_Q2, LOG_REST = range(6)

#: The cut of a tail without mass: nothing is left beyond it, and products with it stay finite.
_FAR: Final = 1e9
#: Where ln p is below this, -ln(1 - p) is p to the last digit of a float.
_TINY: Final = -40.0
#: Exponents are cut off here where they are unused, or belong to a dominating term.
_MOST_EXPONENT: Final = 600.0
#: The Mills ratio is exp(_log_mills + this); the constant cancels in ratios.
_LOG_MILLS_SCALE: Final = 0.5 * math.log(math.pi / 2.0)


@dataclass(frozen=True)
class Cuts:
    """Pairs of tails: arrays of one shape, and no order in them."""

    log_q: Floats  # logarithm of the mass of both tails together under N(0, 1)
    logit: Floats  # ln(t / (1 - t)); -inf is only the upper tail, inf only the lower
    a: Floats  # upper end of the lower tail, in standard deviations
    b: Floats  # lower end of the upper tail
    log_low: Floats  # logarithm of the mass of the lower tail, t * q
    log_high: Floats  # logarithm of the mass of the upper tail, (1 - t) * q
    ratio_a: Floats  # ln L(a)
    ratio_b: Floats  # ln L(b)
    mills_a: Floats  # logarithm of the Mills ratio of the lower tail
    mills_b: Floats  # logarithm of the Mills ratio of the upper tail
    log_q2: Floats  # ln q'
    log_rest: Floats  # ln(1 - q')
    log_loss: Floats  # ln(-ln(1 - q'))


def cut(log_q: Floats, logit: Floats, mu: float) -> Cuts:
    """Return the tails that share the mass q as t to 1 - t; ``mu`` is the shift in standard deviations."""
    log_q, logit = np.broadcast_arrays(log_q, logit)
    log_low = log_q - np.logaddexp(0.0, -logit)
    log_high = log_q - np.logaddexp(0.0, logit)
    a = np.maximum(_quantile(log_low), -_FAR)
    b = np.minimum(-_quantile(log_high), _FAR)
    ratio_a, ratio_b = mu * a + mu * mu / 2.0, mu * b + mu * mu / 2.0
    mills_a, mills_b = _log_mills(-a), _log_mills(b)
    log_q2 = np.logaddexp(
        log_low - ratio_a + _log_mills(-a - mu) - mills_a,
        log_high - ratio_b + _log_mills(b + mu) - mills_b,
    )
    log_rest = _log_rest(log_q2, a + mu, b + mu)
    return Cuts(
        log_q=log_q,
        logit=logit,
        a=a,
        b=b,
        log_low=log_low,
        log_high=log_high,
        ratio_a=ratio_a,
        ratio_b=ratio_b,
        mills_a=mills_a,
        mills_b=mills_b,
        log_q2=log_q2,
        log_rest=log_rest,
        log_loss=_log_loss(log_q2, log_rest),
    )


def log_tails(cuts: Cuts, order: Floats, mu: float) -> tuple[Floats, Floats]:
    """Return the logarithms of the parts of T2: from the lower tail, and from the upper."""
    excess = order - 1.0
    shift = excess * mu
    low = cuts.log_low + excess * cuts.ratio_a + _log_mills(shift - cuts.a) - cuts.mills_a
    high = cuts.log_high + excess * cuts.ratio_b + _log_mills(cuts.b - shift) - cuts.mills_b
    return low, high


def points(cuts: Cuts, order: Floats, mu: float, ref: Floats) -> Floats:
    """Return the terms at cuts, (6, ...): the rows are named at the head of this module."""
    excess = order - 1.0
    log_gain = _log_loss(cuts.log_q, _log1mexp(cuts.log_q))
    # T1 - 1 = exp(d) - 1, from d itself and from d in units of exp(ref), which may be all there is.
    scaled = excess * np.exp(cuts.log_loss - ref) - order * np.exp(log_gain - ref)
    d = excess * np.exp(cuts.log_loss) - order * np.exp(log_gain)
    near = np.where(np.abs(d) < 1e-300, 1e-300, np.minimum(d, 1.0))
    first = np.where(
        d > 1.0,
        # Here d <= ref, so that neither part overflows.
        np.exp(np.minimum(d - ref, _MOST_EXPONENT)) - np.exp(-np.maximum(ref, 0.0)),
        scaled * (np.expm1(near) / near),
    )
    low, high = log_tails(cuts, order, mu)
    second = np.exp(low - ref) + np.exp(high - ref)
    width = cuts.ratio_b - cuts.ratio_a
    log_slope = excess * cuts.ratio_b + cuts.ratio_a
    log_slope = log_slope + np.log(np.expm1(-excess * width) / np.expm1(-width))
    return np.stack(
        np.broadcast_arrays(cuts.logit, first, second, log_slope, cuts.log_q2, cuts.log_rest)
    )


def largest_part(upper: Cuts, lower: Cuts, order: Floats, mu: float) -> Floats:
    """Return ``ref``: no part of T1 - 1 or T2 exceeds a few times its exponential, at any t.

    T2 is largest for only the upper tail (t = 0), T1 for only the lower (t = 1); and T1 - 1 >= -min(1,
    order * q).
    """
    excess = order - 1.0
    # T1 = exp(rise - fall), with these the logarithms of the two.
    fall = np.log(order) + _log_loss(upper.log_q, _log1mexp(upper.log_q))
    rise = np.log(excess) + lower.log_loss
    larger = np.maximum(fall, rise)
    log_first = np.where(larger < 0.0, larger, np.maximum(np.exp(rise) - np.exp(fall), 0.0))
    return np.maximum(log_first, log_tails(upper, order, mu)[1])


def _quantile(log_mass: Floats) -> Floats:
    """Return x with ln P[Z < x] = log_mass, to a few units of the last digit."""
    x: Floats = special.ndtri_exp(log_mass)
    far = np.isfinite(log_mass) & (log_mass < -1000.0)
    if far.any():
        # Far out scipy gives 12 digits; a step of Newton gives the rest. The derivative of
        # ln P[Z < x] is the inverse of the Mills ratio at -x.
        rough = x[far]
        slope = np.exp(-_log_mills(-rough) - _LOG_MILLS_SCALE)
        x[far] = rough - (special.log_ndtr(rough) - log_mass[far]) / slope
    return x


def _log_mills(x: Floats) -> Floats:
    """Return the logarithm of P[Z > x] / phi(x), less a constant."""
    near = np.log(special.erfcx(np.maximum(x, -30.0) / math.sqrt(2.0)))
    made: Floats = np.where(x < -30.0, x * x / 2.0 + math.log(2.0), near)
    return made


def _log_rest(log_q2: Floats, a: Floats, b: Floats) -> Floats:
    """Return ln(1 - q') = ln P[a < Z < b]."""
    # An interval on one side of 0 is a difference of tails on that side, where they are small.
    near, far = np.where(b < 0.0, b, -a), np.where(b < 0.0, a, -b)
    inner = special.log_ndtr(near)
    by_tails = inner + _log1mexp(special.log_ndtr(far) - inner)
    one_sided = (a > 0.0) | (b < 0.0)
    made: Floats = np.where(one_sided & (log_q2 > -0.7), by_tails, _log1mexp(log_q2))
    return made


def _log_loss(log_p: Floats, log_rest: Floats) -> Floats:
    """Return ln(-ln(1 - p)) from ln p and ln(1 - p): the small one of them has the digits."""
    made: Floats = np.where(log_p < _TINY, log_p, np.log(np.maximum(-log_rest, 1e-300)))
    return made


def _log1mexp(x: Floats) -> Floats:
    """Return ln(1 - exp(x)) for x < 0; rounding may have made a 0 of it."""
    made: Floats = np.where(
        x > -0.7,
        np.log(-np.expm1(np.clip(x, -0.7, -1e-300))),
        np.log1p(-np.exp(np.minimum(x, -0.7))),
    )
    return made


#: Ends of the first cells, as logits of t.
GRID: Final = np.array(
    [-np.inf, -24, -12, -8, -6, -4.5, -3, -2, -1, 0, 1, 2, 3, 4.5, 6, 9, 14, 24, np.inf]
)
#: Halvings after which an open cell is taken as it is: looser, never wrong. Four are the rule.
_HALVINGS: Final = 40
#: As many open cells of a block at once, at most; then they are taken as they are, too.
_MOST_CELLS: Final = 2**18
#: Rounding, in units of the largest part of V - 1: see section 7 of the proof.
_ROUNDING: Final = 2.0**-47
#: Exponents are cut off here: the exponential is beyond any value it is compared with.


def log_excess(log_q: Floats, mu: float, orders: Floats, tightness: float) -> Floats:
    """Return ln(V - 1), rounded up, (queries, orders): branch and bound over cells of t.

    An item is a query with an order; a cell belongs to an item.
    """
    order = orders[:, None]
    cuts = cut(log_q[:, None, None], GRID, mu)
    upper, lower = (cut(log_q[:, None, None], end, mu) for end in (GRID[:1], GRID[-1:]))
    ref = largest_part(upper, lower, order, mu)
    items = (len(log_q) * len(orders), len(GRID))
    made = points(cuts, order, mu, ref).reshape(6, *items)
    left, right = made[:, :, :-1].reshape(6, -1), made[:, :, 1:].reshape(6, -1)
    item = np.repeat(np.arange(items[0]), items[1] - 1)

    ref, log_q, order = ref.ravel(), np.repeat(log_q, len(orders)), np.tile(orders, len(log_q))
    exponent = order * (order - 1.0) * (mu * mu / 2.0)
    # Rounding of the sum of the parts, in the units of ref; exponents are handled at the end.
    slack = _ROUNDING * (1.0 - order * np.exp(log_q) / np.expm1(log_q))
    cap = np.exp(np.minimum(_log_expm1(exponent) - ref, _MOST_EXPONENT))
    best = (made[FIRST] + made[SECOND]).max(axis=1)
    top = best.copy()
    for halving in range(_HALVINGS + 1):
        least, most = _log_width(left, right, log_q[item], mu)
        bound = _cell_bound(left, right, least - ref[item], most - ref[item])
        goal = best * (1.0 + tightness) + slack
        # Halving cannot reduce an error due to the rounding of w.
        mended = _cell_bound(left, right, most - ref[item], least - ref[item])
        is_open = (mended > goal[item]) & (goal < cap)[item] & (halving < _HALVINGS)
        is_open &= is_open.sum() <= _MOST_CELLS
        np.maximum.at(top, item[~is_open], bound[~is_open])
        if not is_open.any():
            break
        left, right, item = left[:, is_open], right[:, is_open], item[is_open]
        middle = _middle(left[LOGIT], right[LOGIT])
        between = points(cut(log_q[item], middle, mu), order[item], mu, ref[item])
        np.maximum.at(best, item, between[FIRST] + between[SECOND])
        left = np.concatenate([left, between], axis=1)
        right = np.concatenate([between, right], axis=1)
        item = np.concatenate([item, item])

    sizes = 32.0 + np.abs(log_q - ref) + exponent + order * mu * np.sqrt(-2.0 * log_q)
    found: Floats = ref + np.log(top + slack) + 2.0**-48 * sizes
    return found.reshape(-1, len(orders))


def _cell_bound(left: Floats, right: Floats, least: Floats, most: Floats) -> Floats:
    """Return an upper bound on T1 + T2 - 1 between two points; see the head of this module.

    ``least`` and ``most`` are ln w - ref, not more and not less than it is.
    """
    rise = right[FIRST] - left[FIRST]
    # With only the upper tail T2 is flat; with only the lower it falls without bound.
    drop = np.exp(np.minimum(left[LOG_SLOPE] + least, _MOST_EXPONENT))
    drop = np.where(np.isneginf(left[LOGIT]), 0.0, drop)
    climb = np.exp(np.minimum(right[LOG_SLOPE] + most, _MOST_EXPONENT))
    at_left, at_right = left[FIRST] + left[SECOND], right[FIRST] + right[SECOND]
    over_left = np.maximum(rise - drop, 0.0)
    over_right = np.maximum(climb - rise, 0.0)
    made: Floats = np.where(
        np.isposinf(right[LOGIT]),
        at_left + over_left,
        np.maximum(at_left + over_left / 2.0, at_right + over_right / 2.0),
    )
    return made


def _log_width(left: Floats, right: Floats, log_q: Floats, mu: float) -> tuple[Floats, Floats]:
    """Return bounds on ln w, w = q'_1 - q'_0, from below and above, whatever is rounded.

    From the logarithms of q', or of 1 - q' where that is the smaller.
    """
    by_rest = right[LOG_Q2] > -0.7
    large = np.where(by_rest, left[LOG_REST], right[LOG_Q2])
    small = np.where(by_rest, right[LOG_REST], left[LOG_Q2])
    step = np.maximum(large - small, 0.0)
    # Both are sums of a logarithm of a mass, of ln L at its cut and of Mills ratios.
    logit = np.where(np.isfinite(left[LOGIT]), left[LOGIT], right[LOGIT])
    size = 2.0 + np.abs(log_q) + np.abs(logit)
    rounding = 2.0**-49 * (size + mu * np.sqrt(2.0 * size) + mu * mu)
    with np.errstate(divide="ignore"):
        least = large + np.log(-np.expm1(-np.maximum(step - rounding, 0.0)))
        most = large + np.log(-np.expm1(-step - rounding))
    return least, most


def _middle(left: Floats, right: Floats) -> Floats:
    """Return a logit between two; an endless cell is divided at twice its finite end."""
    finite = np.isfinite(left) & np.isfinite(right)
    inner = np.where(np.isfinite(left), left, 0.0) + np.where(np.isfinite(right), right, 0.0)
    made: Floats = np.where(finite, inner / 2.0, inner * 2.0)
    return made


def _log_expm1(x: Floats) -> Floats:
    """Return ln(exp(x) - 1) for x > 0."""
    small = np.minimum(x, 30.0)
    made: Floats = np.where(x > 30.0, x, np.log(np.expm1(small)))
    return made
