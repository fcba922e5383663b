"""The cost of many attempts, and the settings that a budget allows.

Attempts are made on the same rows with fresh randomness, so their costs compose. All of them are
charged, also those that released nothing: their number T is fixed in advance, and the number that
passed is private. Four bounds, each rounded up; the least may be used:

- *basic*: T epsilon.
- *advanced*: Dwork and Roth 2014, Theorem 3.20.
- *optimal*: the exact worst case of T mechanisms of (epsilon, 0) (Kairouz, Oh, Viswanath, ICML
  2015, Theorem 3.3): the randomised responses to which all of them reduce. Theirs is stated on a
  grid of epsilons; here it is the exact curve between its points, too.
- *zCDP*: T epsilon^2/2 (Bun and Steinke 2016, Proposition 1.4, plus the deltas).

The same formulas price the noisy entropies and tables of a generator.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Final

from party.synthesis.seeds.deniability import (
    AttemptCost,
    RandomizedTest,
    Tight,
    check_delta,
    check_epsilon0,
    check_k_and_gamma,
    small_group_factor,
    theorem_1,
)
from party.synthesis.table.rounding import (
    decimal_down,
    exp_down,
    exp_up,
    log_up,
    round_down,
    round_up,
    sqrt_up,
)
from pate.accounting.conversion import epsilon_from_rho
from pate.errors import InfeasibleError, UsageError

#: Most attempts of one release: the optimal bound adds up one term per attempt.
MOST_ATTEMPTS: Final = 10**6
#: Margin for the rounding of a sum of that many terms of 60 digits each.
_SUM_ERROR: Final = Fraction(1, 10**45)
#: Steps of a bisection, and of the grid of epsilon0 in a search.
_HALVINGS: Final = 40
_GRID: Final = 400


@dataclass(frozen=True)
class TotalCost:
    """The total cost of ``attempts`` attempts towards an observer of all releases.

    Attributes:
        attempts: T.
        attempt: the cost of one; its delta is counted T times.
        delta: the whole delta of ``basic``, ``advanced``, ``optimal`` and ``zcdp``: the attempts'
            deltas, and at most as much again for composition.
        basic: epsilon at ``delta``.
        advanced: epsilon at ``delta``.
        optimal: epsilon at ``delta``.
        zcdp: epsilon at ``delta``, from ``rho``.
        rho: of ``rho_delta``-approximate zCDP of all attempts.
        rho_delta: T times the delta of an attempt.
    """

    attempts: int
    attempt: AttemptCost
    delta: Fraction
    basic: Fraction
    advanced: Fraction
    optimal: Fraction
    zcdp: Fraction
    rho: Fraction
    rho_delta: Fraction

    @property
    def epsilon(self) -> Fraction:
        """The least of the four bounds, at ``delta``."""
        return min(self.basic, self.advanced, self.optimal, self.zcdp)


def total_cost(
    test: RandomizedTest, attempts: int, delta: Fraction, tight: Tight | None = None
) -> TotalCost:
    """Return the cost of all attempts at ``delta``: half for their deltas, half for composition.

    >>> cost = total_cost(
    ...     RandomizedTest(50, Fraction(4), Fraction(1)), 1000, Fraction(1, 10**6)
    ... )
    >>> cost.attempt.t, round(float(cost.basic), 1), round(float(cost.optimal), 1)
    (28, 1133.5, 726.4)

    Args:
        test: the test.
        attempts: T, from 1 to :data:`MOST_ATTEMPTS`.
        delta: of all together.
        tight: for the tight accounting; None for the paper's.

    Raises:
        UsageError: for a number of attempts or a delta outside their ranges.
        InfeasibleError: if the test gives no such delta.
    """
    check_attempts(attempts)
    check_delta(delta)
    attempt = theorem_1(test, delta / 2 / attempts, tight)
    epsilon, spent = attempt.epsilon, attempts * attempt.delta
    slack = delta / 2
    rho = round_up(attempts * epsilon * epsilon / 2)
    return TotalCost(
        attempts=attempts,
        attempt=attempt,
        delta=delta,
        basic=round_up(attempts * epsilon),
        advanced=advanced(epsilon, attempts, slack),
        optimal=optimal(epsilon, attempts, slack),
        zcdp=Fraction(epsilon_from_rho(rho, math.nextafter(float(slack), 0.0))),
        rho=rho,
        rho_delta=round_up(spent),
    )


def advanced(epsilon: Fraction, count: int, delta: Fraction) -> Fraction:
    """Return epsilon sqrt(2 count ln(1/delta)) + count epsilon (e^epsilon - 1), rounded up.

    Source: Dwork and Roth 2014, Theorem 3.20.

    Raises:
        UsageError: for a count below 1 or a delta outside (0, 1).
    """
    check_delta(delta)
    if count < 1:
        raise UsageError(f"at least one mechanism is composed, got {count}")
    if epsilon > 1000:  # e^epsilon would overflow; basic composition is far less
        return round_up(count * epsilon)
    root = sqrt_up(2 * count * log_up(1 / delta))
    return round_up(epsilon * root + count * epsilon * (exp_up(epsilon) - 1))


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
    if everything > 15_000:  # beyond the exponents of rounding.py
        return round_up(everything)
    lie = 1 / (1 + exp_down(epsilon))
    high, low = Fraction(0), Fraction(0)
    with localcontext() as context:
        context.prec = 60
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
                high, low = Fraction(a) * (1 + _SUM_ERROR), Fraction(b) * (1 - _SUM_ERROR)
                if loss <= 0 or high - exp_down(loss) * low > delta:
                    break
            step = Decimal(count - i + 1) / Decimal(i)
            under_p, under_q = under_p * step / odds, under_q * step * odds
    if high - low <= delta:
        return Fraction(0)
    found = log_up((high - delta) / low)
    return round_up(max(Fraction(0), min(found, everything)))


def solve_advanced(total: Fraction, count: int, delta: Fraction) -> Fraction:
    """Return the largest epsilon (12 digits, rounded down) of each with :func:`advanced` <= total.

    >>> round(float(solve_advanced(Fraction(1), 132, Fraction(1, 10**9))), 5)
    0.01321

    Raises:
        UsageError: for a total that is not above 0, a count below 1, or a delta outside (0, 1).
    """
    if total <= 0:
        raise UsageError(f"an epsilon to divide must be above 0, got {total}")
    low, high = Fraction(0), min(Fraction(total), Fraction(1000))
    for _ in range(_HALVINGS):
        middle = round_down((low + high) / 2, 12)
        low, high = (middle, high) if advanced(middle, count, delta) <= total else (low, middle)
    return low


def solve_each(total: Fraction, count: int, delta: Fraction) -> Fraction:
    """Return the epsilon of each of ``count``: the larger of basic and advanced composition's.

    Basic composition (delta 0) wins for up to about 60 of them.
    """
    return max(round_down(Fraction(total) / count, 12), solve_advanced(total, count, delta))


def smallest_k(
    *,
    attempts: int,
    gamma: Fraction,
    epsilon: Fraction,
    delta: Fraction,
    epsilon0: Fraction | None = None,
    tight: Tight | None = None,
) -> RandomizedTest:
    """Return a test of small k whose ``attempts`` attempts cost at most ``epsilon`` at ``delta``.

    With ``epsilon0`` given, k is the least. Without, epsilon0 is the best of a grid of 400
    values below the epsilon that one attempt may cost.

    Args:
        attempts: T.
        gamma: of the test.
        epsilon: of all attempts together.
        delta: of all attempts together.
        epsilon0: of the test's noise, or None to choose it.
        tight: for the tight accounting; None for the paper's.

    Raises:
        UsageError: for a value outside its range.
        InfeasibleError: if no k is enough.
    """
    check_attempts(attempts)
    check_delta(delta)
    check_k_and_gamma(1, gamma)
    if epsilon <= 0:
        raise UsageError(f"an epsilon to divide must be above 0, got {epsilon}")
    most = _largest_attempt(attempts, Fraction(epsilon), delta)
    factor_gamma = Fraction(1) if tight is not None and tight.fixed else Fraction(gamma)
    grid = (
        [check_epsilon0(epsilon0)]
        if epsilon0 is not None
        else [each for each in (_on_grid(most * i / _GRID) for i in range(1, _GRID)) if each]
    )
    found: RandomizedTest | None = None
    for each in grid:
        k = _needed_k(each, most, factor_gamma, delta / 2 / attempts, tight)
        if k is not None and (found is None or k < found.k):
            found = RandomizedTest(k, gamma, each)
    if found is None or (tight is not None and found.k > tight.least_seeds):
        chosen = "" if epsilon0 is None else f" with epsilon0 = {float(epsilon0):.4g}"
        raise InfeasibleError(
            f"no k makes {attempts} attempts{chosen} cost as little as epsilon {float(epsilon):.4g}: "
            "fewer attempts, a larger epsilon, or seedless release"
        )
    return found


def check_attempts(attempts: int) -> int:
    """Return a number of attempts from 1 to :data:`MOST_ATTEMPTS`, else raise UsageError."""
    if type(attempts) is not int or not 1 <= attempts <= MOST_ATTEMPTS:
        raise UsageError(f"attempts must be from 1 to {MOST_ATTEMPTS}, got {attempts!r}")
    return attempts


def _largest_attempt(attempts: int, epsilon: Fraction, delta: Fraction) -> Fraction:
    """Return the largest epsilon of one attempt (9 digits) that ``attempts`` may cost, rounded down."""
    slack = delta / 2
    low, high = solve_each(epsilon, attempts, slack), epsilon
    for _ in range(_HALVINGS):
        middle = round_down((low + high) / 2, 9)
        if not low < middle < high:
            break
        low, high = (middle, high) if optimal(middle, attempts, slack) <= epsilon else (low, middle)
    return low


def _needed_k(
    epsilon0: Fraction, most: Fraction, gamma: Fraction, delta: Fraction, tight: Tight | None
) -> int | None:
    """Return the least k so that one attempt costs at most ``most`` and ``delta``, or None."""
    factor = exp_down(most - epsilon0) - 1
    if factor <= 0:
        return None
    t = max(1, math.ceil(gamma / factor))
    distance = math.ceil(log_up(small_group_factor(epsilon0, tight) / delta) / epsilon0)
    return t + max(1, distance)


def _on_grid(epsilon0: Fraction) -> Fraction | None:
    """Return ``epsilon0`` rounded to a value whose noise can be drawn, or None."""
    scale = (1 / epsilon0).limit_denominator(1000)
    return 1 / scale if Fraction(1, 100) <= scale <= 2**15 else None
