"""Gaussian differential privacy: the exact profile, and conditions for discrete noise.

A mechanism is *mu-GDP* if telling two neighbours apart from its output is never easier than telling
N(0, 1) from N(mu, 1). ``mu`` of Gaussian noise is l2 sensitivity over sigma, and squares of mu add
over adaptively chosen mechanisms. With h = epsilon/mu - mu/2 and Mills' ratio R,

    delta(epsilon) = Phi(-h) - e^epsilon Phi(-h - mu) = phi(h) (R(h) - R(h + mu)),

whose second form keeps its relative accuracy down to the smallest delta. A delta and an epsilon are
rounded up, a budget in mu down; the relative excess is below 1e-11 of a delta and 1e-12 of an
epsilon. :func:`squared_step` gives the cost of the noise that is drawn, which is discrete.

Proof: docs/proofs/discrete-gaussian.md. Sources: Balle and Wang 2018 (arXiv 1805.06530), Theorem 8;
Dong, Roth and Su 2022 (1905.02383).
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.accounting.conversion import check_delta, float_up, largest_float, rounded_down
from pate.errors import AccountingError

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: The least sigma of discrete Gaussian noise of which :func:`squared_step` is proved.
LEAST_SIGMA: Final = Fraction(2)

#: Relative rounding error of a delta is below this times (8 + h^2), with a margin: a dozen
#: operations, and Mills ratios good to 8 units in the last place.
_ROUNDING: Final = 2.0**-49
#: Beyond this h even Phi(-h) is below the least float, which is about Phi(-38.5).
_FAR: Final = 40.0
#: Below this mu the difference of two Mills ratios is an integral of its derivative.
_SMALL: Final = 0.5
#: Squares of a mu further down leave the range of floats.
_LEAST_BUDGET: Final = Fraction(1, 10**300)
_LOG_ROOT_TAU: Final = math.log(2.0 * math.pi) / 2.0


def squared_step(sigma: Fraction) -> Fraction:
    """Return mu^2 of one unit step of discrete Gaussian noise: a rational number just above it.

    The law N_Z(0, sigma^2) against its shift by an integer D is mu-GDP with mu = |D| d, where d^2 =
    2 (1 - sqrt(1 - l)) and l = 1/sigma^2. The returned value is l (1 + l/3): with 1 - l/2 - l^2/6 >
    0 squared, d^2 <= l (1 + l/3) is l^2 + 6 l - 3 <= 0, true for l <= 0.46. Displacements in
    several coordinates add: mu^2 is this times their squared l2 norm. Proof:
    docs/proofs/discrete-gaussian.md.

    >>> squared_step(Fraction(2))
    Fraction(13, 48)
    """
    if type(sigma) not in (Fraction, int):
        raise AccountingError(f"sigma must be exact, got {sigma!r}: give a Fraction")
    if sigma < LEAST_SIGMA:
        raise AccountingError(
            f"discrete Gaussian noise of sigma {sigma} has no Gaussian-DP cost here: it is proved "
            f"from {LEAST_SIGMA} up"
        )
    return squared_step_of(Fraction(sigma) ** 2)


def squared_step_of(variance: Fraction) -> Fraction:
    """Return :func:`squared_step` of the sigma whose square is ``variance``, which may be no fraction."""
    if variance < LEAST_SIGMA**2:
        raise AccountingError(
            f"discrete Gaussian noise of parameter sigma^2 = {variance} has no Gaussian-DP cost here"
        )
    inverse = 1 / variance
    return inverse * (1 + inverse / 3)


def delta_from_epsilon(mu: float, epsilon: float) -> float:
    """Return the delta at ``epsilon`` of the Gaussian mechanism, rounded up.

    >>> round(delta_from_epsilon(1.0, 1.0), 10)
    0.1269367375

    A delta too small for a float becomes the least float above 0: zero would claim pure DP.
    """
    mu, epsilon = _check(mu, "mu"), _check(epsilon, "epsilon")
    if mu == 0.0:
        return 0.0
    log_delta = _log_delta(mu, epsilon)
    if log_delta < -0.7:
        return math.exp(log_delta) * (1.0 + 2.0**-51) + math.ulp(0.0)
    return min(1.0, -math.expm1(_log_rest(mu, epsilon)) * (1.0 + 2.0**-51))


@lru_cache(maxsize=256)  # a party compares the terms at every request of a campaign
def epsilon_from_delta(mu: float, delta: float) -> float:
    """Return the epsilon at ``delta`` of the Gaussian mechanism, rounded up.

    :func:`delta_from_epsilon` of the result is at most ``delta``, up to its own rounding. Two mu
    that differ by less than the rounding may be ordered wrongly.

    >>> round(epsilon_from_delta(0.6179, 1e-5), 10)
    2.5271870979
    """
    mu, delta = _check(mu, "mu"), check_delta(delta)
    if mu == 0.0 or _affordable(mu, 0.0, delta):
        return 0.0
    low, high = 0.0, mu * (_FAR + mu / 2.0) * (1.0 + 2.0**-50)
    if high == math.inf:
        raise AccountingError(f"mu {mu} is too large for a number of epsilon: it protects nothing")
    while high - low > 2.0**-51 * high and low < (middle := (low + high) / 2.0) < high:
        low, high = (low, middle) if _affordable(mu, middle, delta) else (middle, high)
    return high


def mu_squared_from_epsilon(epsilon: float, delta: float) -> Fraction:
    """Return the budget in mu^2 for ``epsilon``: the largest of 12 digits, rounded down.

    :func:`epsilon_from_delta` of its root, rounded up as in :func:`mu_of`, is always at most
    ``epsilon``. A budget below 1e-300, which no noise can meet, becomes 0.

    >>> mu_squared_from_epsilon(2.527187097873, 1e-5)
    Fraction(38180041, 100000000)
    """
    epsilon, delta = _check(epsilon, "epsilon"), check_delta(delta)
    low = largest_float(lambda mu: _affordable(mu, epsilon, delta))
    square = Fraction(low) ** 2
    if square < _LEAST_BUDGET:
        return Fraction(0)
    digits = math.ceil(2.0 * math.log10(low))
    return rounded_down(
        square, digits, lambda each: epsilon_from_delta(mu_of(each), delta) <= epsilon
    )


def mu_from_epsilon(epsilon: float, delta: float) -> float:
    """Return the largest mu that converts to at most ``epsilon``: a distance over its noise."""
    return math.sqrt(mu_squared_from_epsilon(epsilon, delta))


def mu_of(mu_squared: Fraction) -> float:
    """Return the root of ``mu_squared``, rounded up.

    >>> mu_of(Fraction(1, 4)) >= 0.5
    True
    """
    if mu_squared < 0:
        raise AccountingError(f"mu squared must not be negative, got {mu_squared}")
    if mu_squared == 0:
        return 0.0
    return math.nextafter(math.sqrt(float_up(mu_squared)), math.inf)


def _check(value: float, name: str) -> float:
    if not 0.0 <= value < math.inf:
        raise AccountingError(f"{name} must be finite and not negative, got {value}")
    return float(value)


def _affordable(mu: float, epsilon: float, delta: float) -> bool:
    """Return whether delta(epsilon) is at most ``delta``, in doubt not."""
    if delta <= 0.5:
        return _log_delta(mu, epsilon) <= math.log(delta)
    return _log_rest(mu, epsilon) >= math.log(1.0 - delta)


def _h(mu: float, epsilon: float) -> float:
    """Return epsilon/mu - mu/2, correctly rounded, or infinity where it is far."""
    exact = Fraction(epsilon) / Fraction(mu) - Fraction(mu) / 2
    return float(exact) if exact < _FAR else math.inf


def _log_delta(mu: float, epsilon: float) -> float:
    """Return the logarithm of delta(epsilon), rounded up."""
    h = _h(mu, epsilon)
    if h == math.inf:
        return -math.inf
    if h < -1.0:  # then mu > 2, and delta is above 0.6: no accuracy is asked of this branch
        return math.log1p(-math.exp(_log_rest(mu, epsilon)))
    if mu < _SMALL:
        # R' = x R - 1. The integrand is entire, and 16 nodes leave nothing of its error.
        nodes, weights = _quadrature()
        x = h + mu * (1.0 + nodes) / 2.0
        log_drop = math.log(mu) + math.log(float(weights @ (1.0 - x * _mills(x))) / 2.0)
    else:
        log_drop = math.log(_mills(np.float64(h)) - _mills(np.float64(h + mu)))
    return log_drop - h * h / 2.0 - _LOG_ROOT_TAU + _ROUNDING * (8.0 + h * h)


def _log_rest(mu: float, epsilon: float) -> float:
    """Return the logarithm of 1 - delta(epsilon) = Phi(h) + phi(h) R(h + mu), rounded down."""
    from scipy.special import log_ndtr

    h = _h(mu, epsilon)
    if h == math.inf:
        return -math.ulp(1.0)
    second = math.log(_mills(np.float64(h + mu))) - h * h / 2.0 - _LOG_ROOT_TAU
    return float(np.logaddexp(log_ndtr(h), second)) - _ROUNDING * (8.0 + h * h)


@cache
def _quadrature() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return (16,) nodes and weights of Gauss and Legendre."""
    return np.polynomial.legendre.leggauss(16)


def _mills(x: np.ndarray | np.float64) -> np.ndarray:
    """Return (1 - Phi(x)) / phi(x)."""
    from scipy.special import erfcx  # slow to import, and most commands ask for no figure

    made: np.ndarray = math.sqrt(math.pi / 2.0) * erfcx(x / math.sqrt(2.0))
    return made
