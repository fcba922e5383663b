"""Masses of two tails of a normal law before and after a shift: the numbers of Theorem 6+.

The tails x < a and x > b have mass q together under N(0, 1), and q' under N(-mu, 1); the lower one
has the part t of q. With the likelihood ratio L(x) = exp(mu * x + mu^2 / 2),

    T1 = (1 - q)^order * (1 - q')^(1 - order),
    T2 = integral of L^(order - 1) over both tails under N(0, 1),
    R  = (L(b)^(order - 1) - L(a)^(order - 1)) / (1/L(a) - 1/L(b)):

-R is the slope of T2 against q' as t moves.

T1 + T2 - 1 may be 1e-9 of its parts, and they may all be 1e-300. So T1 - 1 is made from logarithms
of 1 - q and 1 - q', never as a difference, and all is in units of exp(ref). A mass after the shift
is the mass before it times the mean of a power of L over the tail: the error of a cut then moves
all terms alike, and cancels where they do.

Proof: docs/proofs/theorem-6-plus.md.
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
