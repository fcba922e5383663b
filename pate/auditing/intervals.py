"""Bounds on probabilities from counts, and on epsilon and mu from two such bounds.

A *hit* is a run in which the attacker's event occurred. ``hits`` are counted on D, ``false_hits``
on its neighbour D'; runs are independent, and the event was fixed before any of them. ``doubt`` is
the probability with which a bound may be wrong.

Nothing is assumed about the mechanism. Proof: docs/proofs/audits.md, sections 1 and 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import betaincinv, ndtri

from pate.accounting.conversion import check_delta
from pate.errors import AccountingError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from pate.accounting.arrays import Floats


def clopper_pearson(hits: ArrayLike, runs: int, doubt: float) -> tuple[Floats, Floats]:
    """Return a lower and an upper bound on the probability of a hit, each wrong with ``doubt``.

    >>> low, high = clopper_pearson(0, 1000, 0.05)
    >>> float(low), round(float(high), 6)  # the rule of three: 3 / 1000
    (0.0, 0.002991)

    Source: Clopper and Pearson, Biometrika 1934.

    ``hits``: any shape, from 0 to ``runs``; fractions are treated as expected counts; ``doubt``: of
    each of the two bounds by itself, between 0 and 1.
    """
    return _lower(hits, runs, doubt), _upper(hits, runs, doubt)


def _lower(hits: ArrayLike, runs: int, doubt: float) -> Floats:
    counts = _check_counts(hits, runs)
    none = counts == 0
    # At an end of the range the bound is that end, where the beta law is undefined.
    low = betaincinv(np.where(none, 1, counts), runs - counts + 1, check_doubt(doubt))
    return np.where(none, 0.0, low)


def _upper(hits: ArrayLike, runs: int, doubt: float) -> Floats:
    counts = _check_counts(hits, runs)
    all_ = counts == runs
    # 1 - (lower bound on a miss): no digits are lost for a small doubt.
    high = 1.0 - betaincinv(np.where(all_, 1, runs - counts), counts + 1, check_doubt(doubt))
    return np.where(all_, 1.0, high)


def _check_counts(hits: ArrayLike, runs: int) -> Floats:
    counts = np.asarray(hits, np.float64)
    if runs < 1 or not ((counts >= 0) & (counts <= runs)).all():
        raise AccountingError(f"hits must be between 0 and the {runs} runs")
    return counts


def check_doubt(doubt: float) -> float:
    """Return ``doubt`` if it is a probability that a bound can have, else raise AccountingError."""
    if not 1e-300 <= doubt < 1.0:
        raise AccountingError(f"a doubt must be between 0 and 1, got {doubt}")
    return float(doubt)


def epsilon_lower_bound(
    hits: ArrayLike, false_hits: ArrayLike, runs: int, delta: float, doubt: float
) -> Floats:
    """Return a lower bound on the epsilon of (epsilon, delta)-DP, wrong with ``doubt`` at most.

    (epsilon, delta)-DP says P[hit | D] <= exp(epsilon) P[hit | D'] + delta. With a lower bound on
    the left and an upper one on the right, epsilon >= log((low - delta) / high).

    >>> round(float(epsilon_lower_bound(9000, 1000, 10_000, 1e-5, 0.05)), 3)
    2.132

    ``hits``: in ``runs`` runs on D; any shape; ``false_hits``: in as many runs on D'; the same
    shape; ``delta``: of (epsilon, delta); ``doubt``: shared evenly by the two bounds on
    probabilities.

    Returns at least 0, the trivial bound.
    """
    return _epsilon(*_bounds(hits, false_hits, runs, doubt), delta)


def mu_lower_bound(hits: ArrayLike, false_hits: ArrayLike, runs: int, doubt: float) -> Floats:
    """Return a lower bound on the mu of mu-Gaussian DP, wrong with ``doubt`` at most.

    mu-GDP says that no test of D' against D with false alarms a and misses b has Phi^-1(1 - a) -
    Phi^-1(b) > mu. The bound on mu needs no assumption. Converting it to epsilon would assume that
    the whole trade-off curve is Gaussian, so it is not converted.

    >>> round(float(mu_lower_bound(8413, 1587, 10_000, 0.05)), 2)  # of a mu of 2
    1.94

    Source: Dong, Roth, Su 2022 (arXiv 1905.02383), Definition 2.6; audits by it: Nasr et al. 2023
    (arXiv 2302.07956).

    ``hits``: in ``runs`` runs on D; any shape; ``false_hits``: in as many runs on D'; the same
    shape; ``doubt``: shared evenly by the two bounds on probabilities.

    Returns at least 0, the trivial bound.
    """
    return _mu(*_bounds(hits, false_hits, runs, doubt))


def both_lower_bounds(
    hits: ArrayLike, false_hits: ArrayLike, runs: int, delta: float, doubt: float
) -> tuple[Floats, Floats]:
    """Return :func:`epsilon_lower_bound` and :func:`mu_lower_bound`, each with ``doubt``."""
    low, high = _bounds(hits, false_hits, runs, doubt)
    return _epsilon(low, high, delta), _mu(low, high)


def _bounds(
    hits: ArrayLike, false_hits: ArrayLike, runs: int, doubt: float
) -> tuple[Floats, Floats]:
    """Return a lower bound on the probability of a hit and an upper one on that of a false hit."""
    return _lower(hits, runs, doubt / 2), _upper(false_hits, runs, doubt / 2)


def _epsilon(low: Floats, high: Floats, delta: float) -> Floats:
    low = low - check_delta(delta)
    told = low > high
    return np.where(told, np.log(np.where(told, low, 1.0) / np.where(told, high, 1.0)), 0.0)


def _mu(low: Floats, high: Floats) -> Floats:
    # Neither bound reaches the end at which the quantile would be infinite.
    bound: Floats = np.maximum(ndtri(low) - ndtri(high), 0.0)
    return bound
