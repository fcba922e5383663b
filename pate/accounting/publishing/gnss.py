"""GNSS: the published release of a data-dependent cost, and its actual cost.

The mechanism of PATE18 releases f(D) + SS(D) sigma N(0, 1), with f(D) the data-dependent cost and
SS its beta-smooth sensitivity: |f(D) - f(D')| is at most the smaller of SS(D) and SS(D'), and these
two differ by at most a factor exp(beta). Its published cost, Theorem 23 of PATE18, is too small:
the term for the shift lacks about 1 / (1 - 2 order beta). ``safe`` is the supremum of the exact
divergence of the two Gaussians; ``paper`` is kept for comparison with published figures, and must
never be charged.

The noise here is continuous, and nothing draws it: :mod:`pate.accounting.publishing.gate` does the
same for less, with noise on integers. ``pate account --sanitised`` compares it with that.

Source: Papernot et al. 2018 (arXiv 1802.08908), Theorem 23, for ``paper``; upper bound from a
released ln SS: Redberg, Zhu, Wang 2023 (arXiv 2301.00301). Proof: docs/proofs/gate.md, section 5.
"""

from __future__ import annotations

import math
from typing import Literal

from pate.accounting.arrays import check_orders, check_positive
from pate.accounting.conversion import check_delta
from pate.errors import AccountingError

Formula = Literal["safe", "paper"]


def divergence(spread: float, shift: float, spread_other: float, order: float) -> float:
    """Return the Renyi divergence of N(0, spread^2) from N(shift, spread_other^2), in nats.

    Infinite where order * spread_other^2 + (1 - order) * spread^2 is not positive.

    >>> divergence(2.0, 1.0, 2.0, 3.0)
    0.375

    Source: Gil, Alajaji, Linder 2013, table 2.
    """
    order = _order(order)
    wide = check_positive(spread_other, "a spread") / check_positive(spread, "a spread")
    if not math.isfinite(shift):
        raise AccountingError(f"a shift must be finite, got {shift}")
    mixed = order * wide**2 + (1.0 - order)
    if mixed <= 0.0:
        return math.inf
    scales = math.log(wide) + math.log(wide**2 / mixed) / (2.0 * (order - 1.0))
    return max(0.0, scales) + order * (shift / spread) ** 2 / (2.0 * mixed)


def cost(beta: float, sigma: float, order: float, formula: Formula = "safe") -> float:
    """Return the Renyi divergence of one release, in nats; infinity where there is no bound.

    ``safe`` is the exact supremum over all pairs that beta and sigma allow. ``paper`` is UNSOUND:
    exact divergences of real neighbours lie above it. It is for comparison with published figures.
    The noise ``sigma`` is in smooth sensitivities.

    >>> round(cost(0.0153, 4.62, 14.0), 12)
    0.55481378963
    >>> round(cost(0.0329, 6.23, 14.0), 3), round(cost(0.0329, 6.23, 14.0, "paper"), 3)
    (1.607, 0.518)

    Proof: docs/proofs/gate.md, section 5.
    """
    beta, sigma = check_positive(beta, "beta"), check_positive(sigma, "sigma")
    order = _order(order)
    if formula == "paper":
        rest = 1.0 - 2.0 * order * beta
        if rest <= 0.0:
            return math.inf
        scales = (beta * order - math.log(rest) / 2.0) / (order - 1.0)
        return order * math.exp(2.0 * beta) / sigma**2 + scales
    if formula != "safe":
        raise AccountingError(f"formula must be safe or paper, got {formula!r}")
    # With y = 1 - exp(-2 beta) the first terms, which nearly cancel, are
    # (order ln(1 - y) - ln(1 - order y)) / (2 (order - 1)): both sides without their linear parts.
    y = -math.expm1(-2.0 * beta)
    rest = 1.0 - order * y
    if rest <= 0.0:
        return math.inf
    scales = (_curved(order * y) - order * _curved(y)) / (2.0 * (order - 1.0))
    return max(0.0, scales) + order * math.exp(-2.0 * beta) / (2.0 * sigma**2 * rest)


def log_release_cost(sigma: float, order: float) -> float:
    """Return the cost of releasing ln SS + beta sigma N(0, 1): ln SS has sensitivity beta."""
    return _order(order) / (2.0 * check_positive(sigma, "sigma") ** 2)


def upper_bound(
    noisy: float, noisy_log: float, *, beta: float, sigma: float, sigma_log: float, failure: float
) -> float:
    """Return what f(D) does not exceed, but for a chance of ``failure`` over both noises.

    ``noisy`` is f(D) + SS(D) sigma N(0, 1), ``noisy_log`` is ln SS(D) + beta sigma_log N(0, 1). Half of the
    failure is given to each of the draws.

    >>> round(upper_bound(1.0, -3.0, beta=0.02, sigma=5, sigma_log=10, failure=2e-3), 3)
    2.427
    """
    beta, sigma = check_positive(beta, "beta"), check_positive(sigma, "sigma")
    sigma_log = check_positive(sigma_log, "sigma")
    if not (math.isfinite(noisy) and math.isfinite(noisy_log)):
        raise AccountingError("a released value is not a finite number")
    from scipy.special import ndtri  # slow to import

    z = -float(ndtri(check_delta(failure) / 2.0))
    return noisy + z * sigma * math.exp(noisy_log + z * beta * sigma_log)


def _order(order: float) -> float:
    return float(check_orders([order])[0])


def _curved(x: float) -> float:
    """Return -ln(1 - x) - x for 0 < x < 1, also where x is small."""
    if x > 0.1:
        return -math.log1p(-x) - x
    # Terms beyond the 20th are below 1e-17 of the first.
    return sum(x**n / n for n in range(21, 1, -1))
