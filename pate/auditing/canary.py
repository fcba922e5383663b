"""One-run audit: coins include canaries, and the attacker guesses the coins from the output.

Each of m canaries is included or left out by its own fair coin. The attacker sees only the output
and guesses r of the coins, a number fixed in advance. If what runs is (epsilon, delta)-DP for one
canary more or less, the number W of right guesses satisfies

    P[W >= v] <= P[B >= v] + m delta max over 1 <= s <= v of P[B >= v] P[B < s] / (s P[B = s])

with B binomial of r tosses that succeed with exp(epsilon) / (1 + exp(epsilon)). For r = m and small
delta some (epsilon, delta)-DP code attains it, so no smaller bound exists.

The idea and the first term: Steinke, Nasr, Jagielski, "Privacy Auditing with One (1) Training Run"
(NeurIPS 2023, arXiv 2305.08846). The second term and the proof are our own. Proof:
docs/proofs/audits.md, section 4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from pate.auditing.intervals import check_doubt
from pate.errors import AccountingError

if TYPE_CHECKING:
    from pate.accounting.arrays import Floats

#: Bound on the relative rounding error of the p-value.
_ROUNDING = 1e-8
#: An epsilon above any that an audit can show.
_MOST_EPSILON = 700.0

Guesses = NDArray[np.int64]


def p_value(right: int, guesses: int, canaries: int, epsilon: float, delta: float) -> float:
    """Return a bound on the probability of that many right guesses under (epsilon, delta)-DP.

    >>> abs(p_value(10, 10, 10, 0.0, 0.0) * 2**10 - 1) < 1e-7
    True
    >>> p_value(60, 100, 100, 0.0, 1e-5) > p_value(60, 100, 100, 0.0, 0.0)
    True

    ``delta``: of the hypothesis; 0 is allowed here.

    Returns from 0 to 1, rounded up.
    """
    _check_counts(right, guesses, canaries)
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
    _check_counts(right, guesses, canaries)
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


def _check_counts(right: int, guesses: int, canaries: int) -> None:
    if not 0 <= right <= guesses <= canaries or guesses < 1:
        raise AccountingError(
            f"impossible counts: {right} right of {guesses} guesses on {canaries} canaries"
        )
