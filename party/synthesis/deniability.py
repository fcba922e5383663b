"""What rows made from seeds cost: the randomised test, its theorem, and the sum over all attempts.

Mechanism 1 releases a candidate if k' >= k + Z: k' is the number of rows that could have made it
about as likely as its seed did (within a factor ``gamma``), and P[z] ~ exp(-epsilon0 |z|), drawn
afresh for every candidate. Neighbours differ by one row more or less; both have at least ``seeds``
rows, a public number. Every candidate may also be dropped by an independent coin (:func:`coin`).
All attempts are charged, at the exact worst case of T mechanisms of (epsilon, 0); the same bound
prices noisy entropies and tables. Every epsilon and delta is an exact fraction, rounded up at its
20th digit.

Source: Bindschaedler, Shokri, Gunter, "Plausible Deniability for Privacy-Preserving Data
Synthesis", PVLDB 10(5), 2017, Theorem 1; Kairouz, Oh, Viswanath, ICML 2015, Theorem 3.3. The
repairs are ours. Proof: docs/proofs/deniability.md.
"""

from __future__ import annotations

import decimal
import math
from dataclasses import dataclass
from decimal import MIN_EMIN, Decimal, localcontext
from fractions import Fraction
from typing import Final

from pate.errors import AccountingError, InfeasibleError, UsageError
from pate.noise.exact import check_scale

#: Largest accepted threshold and number of rows.
LARGEST_K: Final = 10**9
LARGEST_GAMMA: Final = 10**6
#: Denominator of the coin's probability: it is tossed with one bounded integer.
COIN_DENOMINATOR: Final = 2**60
#: Most attempts of one release: the bound adds up one term per attempt.
MOST_ATTEMPTS: Final = 10**6
#: Above this epsilon, which protects nothing, the bound is the sum: powers have exponents to 20,000.
_LARGEST: Final = 15_000
_LARGEST_EXPONENT: Final = 20_000
#: Margin for the rounding of a sum of that many terms of 60 digits each.
_DIGITS: Final = 60
_SUM_ERROR: Final = Fraction(1, 10**45)
#: Steps of a bisection.
_HALVINGS: Final = 40


@dataclass(frozen=True)
class RandomizedTest:
    """The privacy test with noise (the paper's Test 2), and what is public about its seeds."""

    k: int  # records that a candidate should be plausible for, before noise
    gamma: Fraction  # the ratio of probabilities that still counts as plausible
    epsilon0: Fraction
    seeds: int  # a lower bound on the number of rows of D_S
    # whether the number of resampled attributes is fixed. Then all positive probabilities of a
    # candidate are equal, and the theorem's gamma is 1
    fixed: bool

    def __post_init__(self) -> None:
        k, gamma, epsilon0 = self.k, self.gamma, self.epsilon0
        if type(k) is not int or not 1 <= k <= LARGEST_K:
            raise UsageError(f"k counts records: an integer from 1 to {LARGEST_K}, got {k!r}")
        if type(gamma) not in (Fraction, int) or not 1 < gamma <= LARGEST_GAMMA:
            most = f"above 1 and up to {LARGEST_GAMMA}"
            raise UsageError(f"gamma must be exact, {most}, got {gamma!r}")
        if type(epsilon0) not in (Fraction, int) or epsilon0 <= 0:
            raise UsageError(f"epsilon0 must be exact and above 0, got {epsilon0!r}")
        check_scale(1 / Fraction(epsilon0), "1/epsilon0, the scale of the test's noise,")
        if type(self.seeds) is not int or self.seeds < 1:
            least = "the least number of seeds must be an integer of at least 1"
            raise UsageError(f"{least}, got {self.seeds!r}")
        if k > self.seeds:
            raise InfeasibleError(
                f"k = {k} is more than the {self.seeds} seeds that a party is known to have"
            )

    @property
    def small_group_factor(self) -> Fraction:
        """The factor of exp(-epsilon0 (k - t)) in delta, rounded up.

        A record that is plausible for fewer than t others is drawn as the seed with probability
        1/N' and passes with at most P[Z <= -(k - t)] = exp(-epsilon0 (k - t)) / (1 +
        exp(-epsilon0)): for noise on the integers the divisor is *not* 2.
        """
        return 1 / ((1 + exp_down(-self.epsilon0)) * self.seeds)


@dataclass(frozen=True)
class AttemptCost:
    """The cost of one attempt, rounded up: epsilon from ``t`` plausible records on, below it delta."""

    t: int
    epsilon: Fraction
    delta: Fraction


@dataclass(frozen=True)
class TotalCost:
    """The cost of all attempts: epsilon at the wanted delta, and ``rho_delta``-approximate rho-zCDP.

    rho is T epsilon^2/2 (Bun and Steinke 2016, Proposition 1.4), for sums with other costs.
    """

    attempt: AttemptCost
    epsilon: Fraction
    rho: Fraction
    rho_delta: Fraction


def theorem_1(test: RandomizedTest, delta: Fraction) -> AttemptCost:
    """Return the least epsilon of one attempt whose delta is at most ``delta``.

    epsilon = epsilon0 + ln(1 + gamma/t) and delta = exp(-epsilon0 (k - t)) / ((1 +
    exp(-epsilon0)) seeds) for every t in 1..k-1. epsilon falls in t and delta rises, so the largest
    t that ``delta`` allows is best. The paper does not divide delta.

    >>> test = RandomizedTest(50, Fraction(4), Fraction(1), 20_000, fixed=False)
    >>> cost = theorem_1(test, Fraction(1, 10**9))
    >>> cost.t, round(float(cost.epsilon), 4)
    (39, 1.0976)

    InfeasibleError if even t = 1 needs more than ``delta``.
    """
    check_delta(delta)
    distance = max(1, _distance(test, delta))
    t = test.k - distance
    if t < 1:
        raise InfeasibleError(
            f"k = {test.k} with epsilon0 = {_brief(test.epsilon0)} gives no delta of "
            f"{_brief(delta)} per attempt: it needs k >= {distance + 1}"
        )
    gamma = Fraction(1) if test.fixed else Fraction(test.gamma)
    epsilon = test.epsilon0 + log_up(1 + gamma / t)
    spent = test.small_group_factor * exp_up(-test.epsilon0 * distance)
    return AttemptCost(t, round_up(epsilon), round_up(spent))


def total_cost(test: RandomizedTest, attempts: int, delta: Fraction) -> TotalCost:
    """Return the cost of all attempts at ``delta``: half for their deltas, half for composition.

    >>> test = RandomizedTest(50, Fraction(4), Fraction(1), 20_000, fixed=True)
    >>> cost = total_cost(test, 1000, Fraction(1, 10**6))
    >>> cost.attempt.t, round(float(cost.epsilon), 1)
    (38, 619.4)
    """
    check_attempts(attempts)
    check_delta(delta)
    attempt = theorem_1(test, delta / 2 / attempts)
    return TotalCost(
        attempt=attempt,
        epsilon=optimal(attempt.epsilon, attempts, delta / 2),
        rho=round_up(attempts * attempt.epsilon**2 / 2),
        rho_delta=round_up(attempts * attempt.delta),
    )


def coin(epsilon: Fraction, seeds: int) -> Fraction:
    """Return the probability with which each candidate must be dropped, whatever it is.

    With it, "nothing came out" is as deniable as what comes out: an outlier raises its probability
    by at most 1/N', and q (e^epsilon - 1) >= 1/N' makes up for that. It is a multiple of
    1/:data:`COIN_DENOMINATOR`, rounded up.

    ``epsilon`` is that of one attempt, as Theorem 1 has it. InfeasibleError if at least every second
    candidate would be dropped.
    """
    needed = 1 / (seeds * (exp_down(epsilon) - 1))
    if not 0 < needed < Fraction(1, 2):
        raise InfeasibleError(
            f"with {seeds} seeds and epsilon {_brief(epsilon)} an attempt, the coin that hides "
            "whether a candidate passed would drop most of them: a larger epsilon0, or more rows"
        )
    return Fraction(math.ceil(needed * COIN_DENOMINATOR), COIN_DENOMINATOR)


def least_seeds(min_rows: int, share: Fraction, failure: Fraction) -> int:
    """Return a public lower bound on |D_S| that holds with probability 1 - ``failure``.

    Each of at least ``min_rows`` rows is a seed independently with probability ``share``, so the size
    of D_S is random; Hoeffding's bound. ``failure`` is to be added to delta.

    >>> least_seeds(40_000, Fraction(1, 2), Fraction(1, 10**12))
    19256
    """
    missing = log_up(1 / failure) * min_rows / 2
    root = math.isqrt(math.ceil(missing)) + 1
    found = math.floor(share * min_rows) - root
    if found < 1:
        raise InfeasibleError(
            f"{min_rows} rows are too few to split: no number of seeds is guaranteed"
        )
    return found


def optimal(epsilon: Fraction, count: int, delta: Fraction) -> Fraction:
    """Return the least e so that ``count`` (epsilon, 0)-DP mechanisms are always (e, delta)-DP.

    With X the number of truthful answers among ``count`` randomised responses that tell the truth
    with probability p = e^epsilon/(1 + e^epsilon), the curve is
    delta(e) = max_i (A_i - e^e B_i), A_i = P[X > count - i], B_i = P[X < i]: the privacy loss of X = x
    is (2x - count) epsilon. Between two losses it is linear in e^e.
    """
    check_attempts(count)
    check_delta(delta)
    if epsilon <= 0:
        raise UsageError("the epsilon of a mechanism must be above 0")
    everything = count * epsilon
    lie = 1 / (1 + exp_down(epsilon))
    high, low = Fraction(0), Fraction(0)
    with localcontext() as context:
        context.prec, context.Emin = _DIGITS, MIN_EMIN
        odds = _decimal_down(exp_down(epsilon))
        # Terms l = 0, 1, ...: exactly l lies under p, or l truths under 1 - p.
        under_p = _decimal_down(1 - lie) ** count
        under_q = _decimal_down(lie) ** count
        a, b = Decimal(0), Decimal(0)
        clearly_less = _decimal_down(delta * (1 - 2 * _SUM_ERROR))
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


def check_attempts(attempts: int) -> int:
    """Return a number of attempts from 1 to :data:`MOST_ATTEMPTS`, else raise UsageError."""
    if type(attempts) is not int or not 1 <= attempts <= MOST_ATTEMPTS:
        raise UsageError(f"attempts must be from 1 to {MOST_ATTEMPTS}, got {attempts!r}")
    return attempts


def check_delta(delta: Fraction) -> None:
    """Check that ``delta`` is an exact number strictly between 0 and 1, else raise UsageError."""
    if type(delta) is not Fraction or not 0 < delta < 1:
        raise UsageError(f"a delta must be exact and between 0 and 1, both excluded, got {delta!r}")


def _distance(test: RandomizedTest, delta: Fraction) -> int:
    """Return the least integer n = k - t with small_group_factor * exp(-epsilon0 n) <= delta."""
    return math.ceil(log_up(test.small_group_factor / delta) / test.epsilon0)


def _brief(value: Fraction) -> str:
    return f"{float(value):.4g}"


# --- rounding to a known side --------------------------------------------------------------------
# Floats do not say on which side of the true value they are. Here a fraction is never below (`_up`)
# or never above (`_down`) the exact value, and within a relative error of 1e-50 of it. `decimal`
# rounds its logarithm and exponential correctly, so one step to the side at 60 digits is enough.


def _context(rounding: str) -> decimal.Context:
    traps = [decimal.InvalidOperation, decimal.DivisionByZero, decimal.Overflow]
    return decimal.Context(_DIGITS, rounding, Emin=-(10**6), Emax=10**6, traps=traps)


_UP: Final = _context(decimal.ROUND_CEILING)
_DOWN: Final = _context(decimal.ROUND_FLOOR)


def _decimal_up(x: Fraction) -> Decimal:
    return _UP.divide(Decimal(x.numerator), Decimal(x.denominator))


def _decimal_down(x: Fraction) -> Decimal:
    return _DOWN.divide(Decimal(x.numerator), Decimal(x.denominator))


def log_up(x: Fraction) -> Fraction:
    """Return ln(x), not understated, for x above 0."""
    if x <= 0:
        raise AccountingError(f"internal error: a logarithm of {float(x)}")
    return Fraction(_UP.next_plus(_DOWN.ln(_decimal_up(x))))


def exp_up(x: Fraction) -> Fraction:
    """Return e^x, not understated; AccountingError beyond e^20000."""
    x = max(_bounded(x), Fraction(-_LARGEST_EXPONENT))
    return Fraction(_UP.next_plus(_UP.exp(_decimal_up(x))))


def exp_down(x: Fraction) -> Fraction:
    """Return e^x, not overstated; 0 below e^-20000, AccountingError beyond e^20000."""
    if _bounded(x) < -_LARGEST_EXPONENT:
        return Fraction(0)
    return Fraction(_DOWN.next_minus(_DOWN.exp(_decimal_down(x))))


def round_up(x: Fraction, digits: int = 20) -> Fraction:
    """Return ``x`` >= 0 with that many significant decimal digits, not understated.

    >>> round_up(Fraction(1, 3), 4)
    Fraction(1667, 5000)
    """
    context = decimal.Context(prec=digits, rounding=decimal.ROUND_CEILING)
    return Fraction(context.plus(_decimal_up(x)))


def round_down(x: Fraction, digits: int = 20) -> Fraction:
    """Return ``x`` >= 0 with that many significant decimal digits, not overstated."""
    context = decimal.Context(prec=digits, rounding=decimal.ROUND_FLOOR)
    return Fraction(context.plus(_decimal_down(x)))


def _bounded(x: Fraction) -> Fraction:
    if x > _LARGEST_EXPONENT:
        raise AccountingError("a cost is too large for a number: it protects nothing")
    return x
