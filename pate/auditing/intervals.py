"""Bounds on probabilities from counts, and on epsilon and mu from two such bounds.

A *hit* is a run in which the attacker's event occurred. ``hits`` are counted on D, ``false_hits``
on its neighbour D'; runs are independent, and the event was fixed before any of them. ``doubt`` is
the probability with which a bound may be wrong.

Nothing is assumed about the mechanism. Proof: docs/proofs/audits.md, sections 1 and 2. Below, the same from
the guesses of one run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, gammaln, ndtri

from pate.accounting.conversion import check_delta
from pate.errors import AccountingError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from pate.accounting.arrays import Floats


def least_chance(hits: ArrayLike, runs: int, doubt: float) -> Floats:
    """Return a lower bound on the probability of a hit, wrong with ``doubt``.

    One less that of a miss is an upper bound: no digits are lost for a small doubt.

    >>> least_chance([0, 1000], 1000, 0.05).round(6).tolist()  # the rule of three: 3 / 1000
    [0.0, 0.997009]

    Source: Clopper and Pearson, Biometrika 1934.

    ``hits``: any shape, from 0 to ``runs``; fractions are treated as expected counts; ``doubt``: of
    this bound by itself, between 0 and 1.
    """
    counts = np.asarray(hits, np.float64)
    if runs < 1 or not ((counts >= 0) & (counts <= runs)).all():
        raise AccountingError(f"hits must be between 0 and the {runs} runs")
    # A quantile is slow, and most counts of an attacker's events are equal to others.
    each, places = np.unique(counts, return_inverse=True)
    none = each == 0
    # There the bound is 0, where the beta law is undefined.
    low = betaincinv(np.where(none, 1, each), runs - each + 1, check_doubt(doubt))
    bounds: Floats = np.where(none, 0.0, low)[places].reshape(counts.shape)
    return bounds


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
    missed = runs - np.asarray(false_hits, np.float64)
    return least_chance(hits, runs, doubt / 2), 1.0 - least_chance(missed, runs, doubt / 2)


def _epsilon(low: Floats, high: Floats, delta: float) -> Floats:
    low = low - check_delta(delta)
    told = low > high
    return np.where(told, np.log(np.where(told, low, 1.0) / np.where(told, high, 1.0)), 0.0)


def _mu(low: Floats, high: Floats) -> Floats:
    # Neither bound reaches the end at which the quantile would be infinite.
    bound: Floats = np.maximum(ndtri(low) - ndtri(high), 0.0)
    return bound


#: Bound on the relative rounding error of the p-value.
_ROUNDING = 1e-8
#: An epsilon above any that an audit can show.
_MOST_EPSILON = 700.0

Guesses = NDArray[np.int64]


def p_value(right: int, guesses: int, canaries: int, epsilon: float, delta: float) -> float:
    """Return a bound on the probability of that many right guesses under (epsilon, delta)-DP.

    Each of m canaries is included or left out by its own fair coin. The attacker sees only the output
    and guesses r of the coins, a number fixed in advance. If what runs is (epsilon, delta)-DP for one
    canary more or less, the number W of right guesses satisfies

        P[W >= v] <= P[B >= v] + m delta max over 1 <= s <= v of P[B >= v] P[B < s] / (s P[B = s])

    with B binomial of r tosses that succeed with exp(epsilon) / (1 + exp(epsilon)). For r = m and small
    delta some (epsilon, delta)-DP code attains it, so no smaller bound exists.

    The idea and the first term: Steinke, Nasr, Jagielski, "Privacy Auditing with One (1) Training Run"
    (NeurIPS 2023, arXiv 2305.08846). The second term and the proof are our own. Proof:
    docs/proofs/audits.md, section 4.

    >>> abs(p_value(10, 10, 10, 0.0, 0.0) * 2**10 - 1) < 1e-7
    True
    >>> p_value(60, 100, 100, 0.0, 1e-5) > p_value(60, 100, 100, 0.0, 0.0)
    True

    ``delta``: of the hypothesis; 0 is allowed here.

    Returns from 0 to 1, rounded up.
    """
    _check_guesses(right, guesses, canaries)
    if not 0.0 <= epsilon <= _MOST_EPSILON or not 0.0 <= delta < 1.0:
        raise AccountingError(f"not a hypothesis: epsilon {epsilon}, delta {delta}")
    if right == 0:
        return 1.0
    # Up to a factor, the binomial law: log of C(r, w) exp(epsilon w) for w = 0..r.
    w = np.arange(guesses + 1, dtype=np.float64)
    mass = gammaln(guesses + 1) - gammaln(w + 1) - gammaln(guesses - w + 1) + epsilon * w
    below: Floats = np.logaddexp.accumulate(mass)  # of P[B <= w]
    tail = np.logaddexp.reduce(mass[right:]) - below[-1]
    excess = 0.0
    if delta > 0.0:
        s = np.arange(1, right + 1)
        # P[B < s] / (s P[B = s]) overflows where s is far above the mean; times P[B >= v] it does not.
        most = float(np.max(below[s - 1] - mass[s] - np.log(s)))
        excess = canaries * delta * float(np.exp(min(tail + most, 700.0)))
    return min(1.0, (float(np.exp(tail)) + excess) * (1.0 + _ROUNDING))


def canary_lower_bound(
    right: int, guesses: int, canaries: int, delta: float, confidence: float
) -> float:
    """Return a lower bound on epsilon at ``delta``, from the guesses of one run.

    It is the largest epsilon that the guesses refute, to six digits, rounded down.

    >>> round(canary_lower_bound(100, 100, 100, 1e-5, 0.95), 2)
    3.49
    >>> canary_lower_bound(52, 100, 100, 1e-5, 0.95)
    0.0

    ``canaries``: m, each in or out by a fair coin; ``delta``: of (epsilon, delta); 0 is allowed;
    ``confidence``: probability with which the bound holds.
    """
    _check_guesses(right, guesses, canaries)
    doubt = check_doubt((1.0 - confidence) * (1.0 - 1e-9))

    def refuted(epsilon: float) -> bool:
        return p_value(right, guesses, canaries, epsilon, delta) <= doubt

    if not refuted(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while high < _MOST_EPSILON and refuted(high):
        low, high = high, min(2.0 * high, _MOST_EPSILON)
    while high - low > 1e-7 * high:
        middle = (low + high) / 2.0
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def guess_from_labels(labels: Guesses, canary_labels: Guesses, guesses: int) -> Guesses:
    """Guess which canaries were included, from only the released labels of their queries.

    A canary is a record with the very input of a public query and a wrong label. If the released
    label is that wrong one, the guess is in; if it is another, out; if there is none, teachers
    disagreed, so in. The surest guesses are made, in this order; the rest are abstentions. Their
    number is fixed, so it reveals nothing.

    >>> guess_from_labels(np.array([3, 4, -1, 7]), np.array([3, 5, 6, 7]), 3)
    array([ 1, -1,  0,  1])

    ``labels``: (canaries,) int64, released; -1 where there is none; ``canary_labels``: (canaries,)
    int64, the wrong ones.

    Returns (canaries,) int64: 1 in, -1 out, 0 no guess; r of them are not 0.
    """
    if labels.shape != canary_labels.shape or not 1 <= guesses <= len(labels):
        raise AccountingError(f"{guesses} guesses on labels of shape {labels.shape}")
    none, taken = labels < 0, labels == canary_labels
    said = np.where(taken | none, 1, -1)
    doubtful = np.where(taken, 0, np.where(none, 2, 1))
    made = np.zeros(len(labels), np.int64)
    chosen = np.argsort(doubtful, kind="stable")[:guesses]
    made[chosen] = said[chosen]
    return made


def _check_guesses(right: int, guesses: int, canaries: int) -> None:
    if not 0 <= right <= guesses <= canaries or guesses < 1:
        raise AccountingError(
            f"impossible counts: {right} right of {guesses} guesses on {canaries} canaries"
        )
