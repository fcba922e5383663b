"""The cost of one attempt of seed-based release: the randomised privacy test and its theorem.

Mechanism 1 draws a seed from the N rows of D_S, makes a candidate y from it by a fixed model,
counts the rows k' of D_S that could have made y about as likely as the seed did (within a factor
``gamma``), and releases y if k' >= k + Z. Z has the law P[z] ~ exp(-epsilon0 |z|) on the integers
and is drawn afresh for every candidate. Neighbours differ by one row of D_S more or less; both have
at least ``least_seeds`` rows, a number that is public.

Theorem 1 covers *what is released*. Whether anything is released is covered only if every candidate
may also be dropped by an independent coin (:func:`coin`): without it an outlier could change the
number of released rows noticeably. Proofs, and the worlds that need each repair:
docs/proofs/deniability.md.

Every epsilon and delta is an exact fraction, rounded up at its 20th digit.

Source: Bindschaedler, Shokri, Gunter, "Plausible Deniability for Privacy-Preserving Data Synthesis",
PVLDB 10(5), 2017, Theorem 1; the repairs are ours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from party.synthesis.table.rounding import exp_down, exp_up, log_up, round_up
from pate.errors import InfeasibleError, UsageError
from pate.noise.exact import check_scale

#: Largest accepted threshold and number of rows.
LARGEST_K: Final = 10**9
LARGEST_GAMMA: Final = 10**6
#: Denominator of the coin's probability: it is tossed with one bounded integer.
COIN_DENOMINATOR: Final = 2**60


@dataclass(frozen=True)
class RandomizedTest:
    """The privacy test with noise (the paper's Test 2).

    Attributes:
        k: the number of records that a candidate should be plausible for, before noise.
        gamma: the ratio of probabilities that still counts as plausible, above 1.
        epsilon0: of the noise, P[Z = z] ~ exp(-epsilon0 |z|).

    Raises:
        UsageError: for a k below 1, a gamma not above 1, or an epsilon0 whose noise cannot be drawn.
    """

    k: int
    gamma: Fraction
    epsilon0: Fraction

    def __post_init__(self) -> None:
        check_k_and_gamma(self.k, self.gamma)
        check_epsilon0(self.epsilon0)


def check_k_and_gamma(k: int, gamma: Fraction) -> None:
    """Check the two numbers of plausible deniability.

    Raises:
        UsageError: for a k below 1, or a gamma that is not exact or not above 1.
    """
    if type(k) is not int or not 1 <= k <= LARGEST_K:
        raise UsageError(f"k counts records: an integer from 1 to {LARGEST_K}, got {k!r}")
    if type(gamma) not in (Fraction, int) or not 1 < gamma <= LARGEST_GAMMA:
        raise UsageError(f"gamma must be exact, above 1 and up to {LARGEST_GAMMA}, got {gamma!r}")


def check_epsilon0(epsilon0: Fraction) -> Fraction:
    """Return ``epsilon0`` if the noise of a test can be drawn with it.

    Raises:
        UsageError: if it is not exact, not positive, above 100, or has too many digits.
    """
    if type(epsilon0) not in (Fraction, int) or epsilon0 <= 0:
        raise UsageError(f"epsilon0 must be exact and above 0, got {epsilon0!r}")
    check_scale(1 / Fraction(epsilon0), "1/epsilon0, the scale of the test's noise,")
    return Fraction(epsilon0)


@dataclass(frozen=True)
class Seeds:
    """What is public about the seeds and the candidates made from them.

    Attributes:
        least: a lower bound on the number of rows of D_S.
        fixed: whether the number of resampled attributes is fixed. Then all positive probabilities
            of a candidate are equal, and gamma is 1.
    """

    least: int
    fixed: bool

    def __post_init__(self) -> None:
        check_least_seeds(self.least)


def check_least_seeds(least_seeds: int) -> int:
    """Return a public lower bound on |D_S| if it is one.

    Raises:
        UsageError: if it is no integer from 1 on.
    """
    if type(least_seeds) is not int or least_seeds < 1:
        raise UsageError(
            f"the least number of seeds must be an integer of at least 1, got {least_seeds!r}"
        )
    return least_seeds


@dataclass(frozen=True)
class AttemptCost:
    """The cost of one attempt: (epsilon, delta)-DP for one row of D_S added or removed.

    Attributes:
        t: the number of plausible records from which on the factor applies; below it, delta.
        epsilon: rounded up.
        delta: rounded up.
    """

    t: int
    epsilon: Fraction
    delta: Fraction


def theorem_1(test: RandomizedTest, delta: Fraction, seeds: Seeds) -> AttemptCost:
    """Return the least epsilon of one attempt whose delta is at most ``delta``.

    epsilon = epsilon0 + ln(1 + gamma/t) and delta = exp(-epsilon0 (k - t)) / ((1 +
    exp(-epsilon0)) seeds) for every t in 1..k-1. epsilon falls in t and delta rises, so the largest
    t that ``delta`` allows is best. The paper does not divide delta.

    >>> test = RandomizedTest(50, Fraction(4), Fraction(1))
    >>> cost = theorem_1(test, Fraction(1, 10**9), Seeds(20_000, fixed=False))
    >>> cost.t, round(float(cost.epsilon), 4)
    (39, 1.0976)

    Args:
        test: the test.
        delta: the most that may be spent on small groups, strictly between 0 and 1.
        seeds: what is public about them.

    Raises:
        UsageError: for a delta outside (0, 1).
        InfeasibleError: if even t = 1 needs more than ``delta``, or k is more than the seeds.
    """
    check_delta(delta)
    factor = small_group_factor(test.epsilon0, seeds.least)
    if test.k > seeds.least:
        raise InfeasibleError(
            f"k = {test.k} is more than the {seeds.least} seeds that a party is known to have"
        )
    # delta = factor * exp(-epsilon0 (k - t)): the distance k - t that makes it small enough.
    distance = max(1, _distance(test.epsilon0, delta, factor))
    t = test.k - distance
    if t < 1:
        raise InfeasibleError(
            f"k = {test.k} with epsilon0 = {_brief(test.epsilon0)} gives no delta of "
            f"{_brief(delta)} per attempt: it needs k >= {distance + 1}"
        )
    gamma = Fraction(1) if seeds.fixed else Fraction(test.gamma)
    epsilon = test.epsilon0 + log_up(1 + gamma / t)
    spent = factor * exp_up(-test.epsilon0 * distance)
    return AttemptCost(t, round_up(epsilon), round_up(spent))


def small_group_factor(epsilon0: Fraction, least_seeds: int) -> Fraction:
    """Return the factor of exp(-epsilon0 (k - t)) in delta, rounded up.

    A record that is plausible for fewer than t others is drawn as the seed with probability 1/N'
    and passes with at most P[Z <= -(k - t)] = exp(-epsilon0 (k - t)) / (1 + exp(-epsilon0)): for
    noise on the integers the divisor is *not* 2.
    """
    return 1 / ((1 + exp_down(-epsilon0)) * least_seeds)


def coin(epsilon: Fraction, least_seeds: int) -> Fraction:
    """Return the probability with which each candidate must be dropped, whatever it is.

    With it, "nothing came out" is as deniable as what comes out: an outlier raises its probability
    by at most 1/N', and q (e^epsilon - 1) >= 1/N' makes up for that.

    Args:
        epsilon: of one attempt, as Theorem 1 has it.
        least_seeds: a public lower bound on the number of rows of D_S.

    Returns:
        a multiple of 1/:data:`COIN_DENOMINATOR`, rounded up.

    Raises:
        InfeasibleError: if at least every second candidate would be dropped.
    """
    check_least_seeds(least_seeds)
    needed = 1 / (least_seeds * (exp_down(epsilon) - 1))
    if not 0 < needed < Fraction(1, 2):
        raise InfeasibleError(
            f"with {least_seeds} seeds and epsilon {_brief(epsilon)} an attempt, the coin that hides "
            "whether a candidate passed would drop most of them: a larger epsilon0, or more rows"
        )
    return Fraction(math.ceil(needed * COIN_DENOMINATOR), COIN_DENOMINATOR)


def least_seeds(min_rows: int, share: Fraction, failure: Fraction) -> int:
    """Return a public lower bound on |D_S| that holds with probability 1 - ``failure``.

    Each of at least ``min_rows`` rows is a seed independently with probability ``share``, so the size
    of D_S is random; Hoeffding's bound. ``failure`` is to be added to delta.

    >>> least_seeds(40_000, Fraction(1, 2), Fraction(1, 10**12))
    19256

    Raises:
        UsageError: for a share outside (0, 1], or a ``failure`` outside (0, 1).
        InfeasibleError: if the bound is below 1.
    """
    check_delta(failure)
    check_least_seeds(min_rows)
    if type(share) not in (Fraction, int) or not 0 < share <= 1:
        raise UsageError(f"the share of seeds must be between 0 and 1, got {share!r}")
    if share == 1:
        return min_rows
    missing = log_up(1 / failure) * min_rows / 2
    root = math.isqrt(math.ceil(missing)) + 1
    found = math.floor(share * min_rows) - root
    if found < 1:
        raise InfeasibleError(
            f"{min_rows} rows are too few to split: no number of seeds is guaranteed"
        )
    return found


def check_delta(delta: Fraction) -> None:
    """Check that ``delta`` is an exact number strictly between 0 and 1, else raise UsageError."""
    if type(delta) is not Fraction or not 0 < delta < 1:
        raise UsageError(f"a delta must be exact and between 0 and 1, both excluded, got {delta!r}")


def _distance(epsilon0: Fraction, delta: Fraction, factor: Fraction) -> int:
    """Return the least integer n with factor * exp(-epsilon0 n) <= delta."""
    return math.ceil(log_up(factor / delta) / epsilon0)


def _brief(value: Fraction) -> str:
    return f"{float(value):.4g}"
