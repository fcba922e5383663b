"""The cost of many attempts, and the settings that a budget allows.

Attempts are made on the same rows with fresh randomness, so their costs compose. All of them are
charged, also those that released nothing: their number T is fixed in advance, and the number that
passed is private.

The bound is the exact worst case of T mechanisms of (epsilon, 0): the randomised responses to which
all of them reduce. No other bound that knows only their epsilons is smaller. The same bound prices
the noisy entropies and tables of a generator.

Source: Kairouz, Oh, Viswanath, ICML 2015, Theorem 3.3. Theirs is stated on a grid of epsilons; here
it is the exact curve between its points, too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import MIN_EMIN, Decimal, localcontext
from fractions import Fraction
from typing import Final

from party.synthesis.seeds.deniability import (
    AttemptCost,
    RandomizedTest,
    Seeds,
    check_delta,
    check_k_and_gamma,
    small_group_factor,
    theorem_1,
)
from party.synthesis.table.rounding import decimal_down, exp_down, log_up, round_down, round_up
from pate.errors import InfeasibleError, UsageError

#: Most attempts of one release: the bound adds up one term per attempt.
MOST_ATTEMPTS: Final = 10**6
#: Above this epsilon, which protects nothing, the bound is the sum: powers have exponents to 20,000.
_LARGEST: Final = 15_000
#: Margin for the rounding of a sum of that many terms of 60 digits each.
_SUM_ERROR: Final = Fraction(1, 10**45)
#: Steps of a bisection, and of the grid of epsilon0 in a search.
_HALVINGS: Final = 40
_GRID: Final = 400


@dataclass(frozen=True)
class TotalCost:
    """The total cost of all attempts towards an observer of all releases.

    Attributes:
        attempt: the cost of one; its delta is counted for each.
        epsilon: of all, at the delta that was asked for.
        rho: of ``rho_delta``-approximate zCDP of all attempts: T epsilon^2/2 (Bun and Steinke 2016,
            Proposition 1.4), for sums with other costs.
        rho_delta: T times the delta of an attempt.
    """

    attempt: AttemptCost
    epsilon: Fraction
    rho: Fraction
    rho_delta: Fraction


def total_cost(test: RandomizedTest, attempts: int, delta: Fraction, seeds: Seeds) -> TotalCost:
    """Return the cost of all attempts at ``delta``: half for their deltas, half for composition.

    >>> cost = total_cost(
    ...     RandomizedTest(50, Fraction(4), Fraction(1)), 1000, Fraction(1, 10**6), Seeds(20_000, True)
    ... )
    >>> cost.attempt.t, round(float(cost.epsilon), 1)
    (38, 619.4)

    Args:
        test: the test.
        attempts: T, from 1 to :data:`MOST_ATTEMPTS`.
        delta: of all together.
        seeds: what is public about them.

    Raises:
        UsageError: for a number of attempts or a delta outside their ranges.
        InfeasibleError: if the test gives no such delta.
    """
    check_attempts(attempts)
    check_delta(delta)
    attempt = theorem_1(test, delta / 2 / attempts, seeds)
    return TotalCost(
        attempt=attempt,
        epsilon=optimal(attempt.epsilon, attempts, delta / 2),
        rho=round_up(attempts * attempt.epsilon**2 / 2),
        rho_delta=round_up(attempts * attempt.delta),
    )


def optimal(epsilon: Fraction, count: int, delta: Fraction) -> Fraction:
    """Return the least e so that ``count`` (epsilon, 0)-DP mechanisms are always (e, delta)-DP.

    With X the number of truthful answers among ``count`` randomised responses that tell the truth
    with probability p = e^epsilon/(1 + e^epsilon), the curve is
    delta(e) = max_i (A_i - e^e B_i), A_i = P[X > count - i], B_i = P[X < i]: the privacy loss of X = x
    is (2x - count) epsilon. Between two losses it is linear in e^e.

    Args:
        epsilon: of each, above 0.
        count: from 1 to :data:`MOST_ATTEMPTS`.
        delta: in (0, 1), only for composition.

    Raises:
        UsageError: for values outside these ranges.
    """
    check_attempts(count)
    check_delta(delta)
    if epsilon <= 0:
        raise UsageError("the epsilon of a mechanism must be above 0")
    everything = count * epsilon
    lie = 1 / (1 + exp_down(epsilon))
    high, low = Fraction(0), Fraction(0)
    with localcontext() as context:
        context.prec, context.Emin = 60, MIN_EMIN
        odds = decimal_down(exp_down(epsilon))
        # Terms l = 0, 1, ...: exactly l lies under p, or l truths under 1 - p.
        under_p = decimal_down(1 - lie) ** count
        under_q = decimal_down(lie) ** count
        a, b = Decimal(0), Decimal(0)
        clearly_less = decimal_down(delta * (1 - 2 * _SUM_ERROR))
        for i in range(1, count // 2 + 2):
            a, b = a + under_p, b + under_q
            if a > clearly_less or 2 * i >= count:
                loss = (count - 2 * i) * epsilon
                if loss > _LARGEST:
                    return round_up(everything)
                high, low = Fraction(a) * (1 + _SUM_ERROR), Fraction(b) * (1 - _SUM_ERROR)
                if loss <= 0 or high - exp_down(loss) * low > delta:
                    break
            step = Decimal(count - i + 1) / Decimal(i)
            under_p, under_q = under_p * step / odds, under_q * step * odds
    if high - low <= delta:
        return Fraction(0)
    found = log_up((high - delta) / low)
    return round_up(max(Fraction(0), min(found, everything)))


def largest_each(total: Fraction, count: int, delta: Fraction) -> Fraction:
    """Return the largest epsilon of each of ``count`` (12 digits, rounded down) that cost ``total``.

    >>> round(float(largest_each(Fraction(1), 132, Fraction(1, 10**9))), 5)
    0.01617

    Args:
        total: epsilon of all together.
        count: from 1 to :data:`MOST_ATTEMPTS`.
        delta: only for composition.

    Raises:
        UsageError: for a total that is not above 0, or values outside these ranges.
    """
    if total <= 0:
        raise UsageError(f"an epsilon to divide must be above 0, got {total}")
    check_attempts(count)
    low = round_down(Fraction(total) / count, 12)
    high = max(low, min(Fraction(total), Fraction(1000)))  # beyond, each protects nothing
    for _ in range(_HALVINGS):
        middle = round_down((low + high) / 2, 12)
        if not low < middle < high:
            break
        low, high = (middle, high) if optimal(middle, count, delta) <= total else (low, middle)
    return low


def smallest_k(
    *, attempts: int, gamma: Fraction, epsilon: Fraction, delta: Fraction, seeds: Seeds
) -> RandomizedTest:
    """Return a test of small k whose ``attempts`` attempts cost at most ``epsilon`` at ``delta``.

    epsilon0 is the best of a grid of 400 values below the epsilon that one attempt may cost.

    Args:
        attempts: T.
        gamma: of the test.
        epsilon: of all attempts together.
        delta: of all attempts together.
        seeds: what is public about them.

    Raises:
        UsageError: for a value outside its range.
        InfeasibleError: if no k is enough.
    """
    check_delta(delta)
    check_k_and_gamma(1, gamma)
    most = largest_each(Fraction(epsilon), attempts, delta / 2)
    found: RandomizedTest | None = None
    for part in range(1, _GRID):
        epsilon0 = _on_grid(most * part / _GRID)
        k = epsilon0 and _needed_k(
            epsilon0, most, Fraction(1) if seeds.fixed else gamma, delta / 2 / attempts, seeds.least
        )
        if epsilon0 and k and (found is None or k < found.k):
            found = RandomizedTest(k, gamma, epsilon0)
    if found is None or found.k > seeds.least:
        raise InfeasibleError(
            f"no k makes {attempts} attempts cost as little as epsilon {float(epsilon):.4g}: fewer "
            "attempts, a larger epsilon, or seedless release"
        )
    return found


def check_attempts(attempts: int) -> int:
    """Return a number of attempts from 1 to :data:`MOST_ATTEMPTS`, else raise UsageError."""
    if type(attempts) is not int or not 1 <= attempts <= MOST_ATTEMPTS:
        raise UsageError(f"attempts must be from 1 to {MOST_ATTEMPTS}, got {attempts!r}")
    return attempts


def _needed_k(
    epsilon0: Fraction, most: Fraction, gamma: Fraction, delta: Fraction, least_seeds: int
) -> int | None:
    """Return the least k so that one attempt costs at most ``most`` and ``delta``, or None."""
    factor = exp_down(most - epsilon0) - 1
    if factor <= 0:
        return None
    t = max(1, math.ceil(gamma / factor))
    distance = math.ceil(log_up(small_group_factor(epsilon0, least_seeds) / delta) / epsilon0)
    return t + max(1, distance)


def _on_grid(epsilon0: Fraction) -> Fraction | None:
    """Return ``epsilon0`` rounded to a value whose noise can be drawn, or None."""
    scale = (1 / epsilon0).limit_denominator(1000)
    return 1 / scale if Fraction(1, 100) <= scale <= 2**15 else None
