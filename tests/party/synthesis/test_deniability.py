"""Costs of seed-based release: the published figures, and bounds that are never understated."""

from __future__ import annotations

import doctest
import math
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from party.synthesis.seeds import composition, deniability
from party.synthesis.seeds.composition import (
    MOST_ATTEMPTS,
    largest_each,
    optimal,
    smallest_k,
    total_cost,
)
from party.synthesis.seeds.deniability import (
    COIN_DENOMINATOR,
    RandomizedTest,
    Seeds,
    coin,
    least_seeds,
    theorem_1,
)
from party.synthesis.table import rounding
from pate.errors import InfeasibleError, UsageError

if TYPE_CHECKING:
    from types import ModuleType

TEST = RandomizedTest(50, Fraction(4), Fraction(1))
MIXED, FIXED = (Seeds(20_000, fixed=each) for each in (False, True))


def power(digits: int) -> Fraction:
    return Fraction(1, 10**digits)


@pytest.mark.parametrize(
    ("digits", "t", "epsilon"), [(6, 46, 1.0834), (9, 39, 1.0976), (12, 32, 1.1178)]
)
def test_theorem_1_at_its_best_t(digits: int, t: int, epsilon: float) -> None:
    """t = 50 - ceil(ln(1/delta / ((1 + 1/e) 20,000)))."""
    cost = theorem_1(TEST, power(digits), MIXED)
    assert cost.t == t
    assert abs(float(cost.epsilon) - epsilon) < 1e-4
    assert cost.delta <= power(digits)


@pytest.mark.parametrize(
    ("test", "needed"),
    [
        (RandomizedTest(10, Fraction(4), Fraction(1)), 15),
        (RandomizedTest(50, Fraction(4), Fraction(1, 10)), 133),
    ],
)
def test_a_guarantee_out_of_reach_ends_with_its_own_code(test: RandomizedTest, needed: int) -> None:
    seeds = Seeds(1000, fixed=False)
    with pytest.raises(InfeasibleError, match=f"k >= {needed}$") as caught:
        theorem_1(test, power(9), seeds)
    assert caught.value.exit_code == 23
    enough = RandomizedTest(needed, test.gamma, test.epsilon0)
    assert theorem_1(enough, power(9), seeds).t == 1


@given(
    k=st.integers(2, 400),
    gamma=st.fractions(Fraction(11, 10), 50, max_denominator=100),
    epsilon0=st.fractions(Fraction(1, 20), 5, max_denominator=100),
    digits=st.integers(1, 12),
)
def test_t_is_the_largest_that_delta_allows(
    k: int, gamma: Fraction, epsilon0: Fraction, digits: int
) -> None:
    delta = power(digits)
    factor = 1 / ((1 + math.exp(-float(epsilon0))) * 400)
    allowed = [
        t
        for t in range(1, k)
        if factor * math.exp(-float(epsilon0) * (k - t)) <= float(delta) * (1 - 1e-9)
    ]
    try:
        cost = theorem_1(RandomizedTest(k, gamma, epsilon0), delta, Seeds(400, fixed=False))
    except InfeasibleError:
        assert not allowed
        return
    assert cost.t >= max(allowed, default=1)
    assert cost.delta <= delta
    assert float(cost.delta) >= factor * math.exp(-float(epsilon0) * (k - cost.t)) * (1 - 1e-12)
    exact = float(epsilon0) + math.log1p(float(gamma) / cost.t)
    assert float(cost.epsilon) == pytest.approx(exact, rel=1e-12)


def test_a_fixed_number_of_attributes_is_cheaper_and_k_seeds_are_needed() -> None:
    mixed, fixed = (theorem_1(TEST, power(9), each) for each in (MIXED, FIXED))
    assert fixed.epsilon < mixed.epsilon
    assert (fixed.t, fixed.delta) == (mixed.t, mixed.delta)
    assert float(mixed.delta) == pytest.approx(math.exp(-11) / ((1 + math.exp(-1)) * 20_000))
    with pytest.raises(InfeasibleError, match="k = 50 is more than the 49 seeds"):
        theorem_1(TEST, power(9), Seeds(49, fixed=True))


def test_a_thousand_attempts_cost_what_they_cost() -> None:
    cost = total_cost(TEST, 1000, power(6), MIXED)
    assert cost.attempt == theorem_1(TEST, power(9) / 2, MIXED)
    assert cost.epsilon == optimal(cost.attempt.epsilon, 1000, power(6) / 2)
    assert float(cost.rho) == pytest.approx(1000 * float(cost.attempt.epsilon) ** 2 / 2)
    assert float(cost.rho_delta) == pytest.approx(1000 * float(cost.attempt.delta))
    assert cost.rho_delta <= power(6) / 2


@pytest.mark.parametrize(
    ("attempts", "epsilon"), [(1, 1.11), (100, 98.6), (500, 389), (1000, 726.4), (5000, 3285)]
)
def test_totals_of_the_published_table(attempts: int, epsilon: float) -> None:
    """Its attempts cost what the paper says: delta is exp(-(k - t)), whatever the seeds."""
    t = 50 - math.ceil(math.log(2 * attempts * 10**6))
    each = Fraction(1 + math.log1p(4 / t))
    assert float(optimal(each, attempts, power(6) / 2)) == pytest.approx(epsilon, rel=3e-3)


def profile(odds: Fraction, count: int, factor: Fraction) -> Fraction:
    """The exact delta at e^epsilon = ``factor`` of randomised responses whose odds are ``odds``."""
    p = odds / (1 + odds)
    q = 1 - p
    return sum(
        (
            math.comb(count, x)
            * max(Fraction(0), p**x * q ** (count - x) - factor * q**x * p ** (count - x))
            for x in range(count + 1)
        ),
        start=Fraction(0),
    )


@pytest.mark.parametrize("count", [1, 2, 3, 7, 40, 71])
@pytest.mark.parametrize("each", ["0.02", "0.3", "2.5"])
@pytest.mark.parametrize("delta", ["1e-9", "1e-4", "0.3"])
def test_optimal_composition_is_exact_and_never_understated(
    count: int, each: str, delta: str
) -> None:
    epsilon, wanted = Fraction(each), Fraction(delta)
    found = optimal(epsilon, count, wanted)
    assert found <= count * epsilon
    assert profile(rounding.exp_up(epsilon), count, rounding.exp_down(found)) <= wanted + power(40)
    if found:
        less = rounding.exp_up(found * (1 - power(12)))
        assert profile(rounding.exp_down(epsilon), count, less) > wanted


def test_the_curve_of_many_attempts_is_found_in_time() -> None:
    """A million terms."""
    most = optimal(Fraction(1, 1000), MOST_ATTEMPTS, power(6))
    assert float(most) == pytest.approx(4.8865437, rel=1e-6)


@pytest.mark.parametrize(("each", "attempts"), [("0.02", 10**6), ("1.5", 20_000), ("100", 10**6)])
def test_the_sum_of_many_costs_is_never_above_it_nor_out_of_range(each: str, attempts: int) -> None:
    """Their sum is beyond the powers that are computed; what they cost together need not be."""
    epsilon = Fraction(each)
    found = optimal(epsilon, attempts, power(6))
    rho = float(attempts * epsilon**2 / 2)
    if each == "0.02":
        assert 0.95 < float(found) / (rho + 2 * math.sqrt(rho * math.log(10**6))) < 1
    else:
        assert 15_000 < found <= attempts * epsilon


def test_a_total_beyond_all_numbers_is_divided() -> None:
    assert largest_each(Fraction(10**6), 20, power(9)) == 50_000


@pytest.mark.parametrize("count", [20, 132])
def test_epsilon_of_an_entropy(count: int) -> None:
    found = largest_each(Fraction(1), count, power(9))
    assert found > Fraction(1, count)  # of the sum
    assert optimal(found, count, power(9)) <= 1 < optimal(found + power(11), count, power(9))


@pytest.mark.parametrize(
    ("attempts", "epsilon", "most"),
    [(100, 1, 725), (100, 8, 111), (500, 3, 725), (1000, 8, 453)],
)
def test_the_smallest_k_of_a_budget(attempts: int, epsilon: int, most: int) -> None:
    """The published table lies on a coarse grid of k, so it may be up to 20 percent above."""
    found = smallest_k(
        attempts=attempts,
        gamma=Fraction(4),
        epsilon=Fraction(epsilon),
        delta=power(6),
        seeds=FIXED,
    )
    assert 0.8 * most <= found.k <= most
    assert total_cost(found, attempts, power(6), FIXED).epsilon <= epsilon
    fewer = RandomizedTest(found.k - 1, found.gamma, found.epsilon0)
    assert total_cost(fewer, attempts, power(6), FIXED).epsilon > epsilon * 0.999


def test_no_k_is_enough_where_there_are_fewer_seeds() -> None:
    with pytest.raises(
        InfeasibleError, match="no k makes 1000 attempts cost as little as epsilon 8"
    ):
        smallest_k(
            attempts=1000,
            gamma=Fraction(4),
            epsilon=Fraction(8),
            delta=power(6),
            seeds=Seeds(300, fixed=True),
        )


def test_the_coin_covers_what_an_outlier_adds() -> None:
    cost = theorem_1(TEST, power(9), MIXED)
    found = coin(cost.epsilon, 1000)
    assert found * (rounding.exp_down(cost.epsilon) - 1) * 1000 >= 1
    assert (found - Fraction(1, COIN_DENOMINATOR)) * (rounding.exp_up(cost.epsilon) - 1) * 1000 < 1
    with pytest.raises(InfeasibleError, match="would drop most"):
        coin(Fraction(1, 1000), 1000)


def test_least_seeds_is_a_tail_of_the_binomial() -> None:
    from scipy.stats import binom

    found = least_seeds(40_000, Fraction(1, 2), power(12))
    assert binom.cdf(found - 1, 40_000, 0.5) < 1e-12
    assert found > 19_000
    assert least_seeds(100, Fraction(1), power(12)) == 100
    with pytest.raises(InfeasibleError, match="too few to split"):
        least_seeds(20, Fraction(1, 2), power(12))


@pytest.mark.parametrize(
    "build",
    [
        lambda: RandomizedTest(0, Fraction(4), Fraction(1)),
        lambda: RandomizedTest(True, Fraction(4), Fraction(1)),
        lambda: RandomizedTest(50, Fraction(1), Fraction(1)),
        lambda: RandomizedTest(50, 1.5, Fraction(1)),  # type: ignore[arg-type]
        lambda: RandomizedTest(50, Fraction(4), Fraction(0)),
        lambda: RandomizedTest(50, Fraction(4), Fraction(101)),
        lambda: RandomizedTest(50, Fraction(4), 1.0),  # type: ignore[arg-type]
        lambda: Seeds(0, fixed=True),
        lambda: theorem_1(TEST, Fraction(0), MIXED),
        lambda: theorem_1(TEST, Fraction(1), MIXED),
        lambda: theorem_1(TEST, 1e-6, MIXED),  # type: ignore[arg-type]
        lambda: total_cost(TEST, 0, power(6), MIXED),
        lambda: total_cost(TEST, MOST_ATTEMPTS + 1, power(6), MIXED),
        lambda: optimal(Fraction(0), 3, power(6)),
        lambda: largest_each(Fraction(0), 3, power(6)),
    ],
)
def test_values_that_make_no_sense_are_refused(build: object) -> None:
    assert callable(build)
    with pytest.raises(UsageError):
        build()


@given(x=st.fractions(Fraction(1, 10**6), 10**6, max_denominator=10**9))
def test_logarithms_and_powers_lie_on_their_side(x: Fraction) -> None:
    with localcontext() as context:
        context.prec = 120
        exact = Decimal(x.numerator) / Decimal(x.denominator)
        log = Fraction(exact.ln())
        small = x % 50
        power_of = Fraction((Decimal(small.numerator) / Decimal(small.denominator)).exp())
    for down, value, up in (
        (log, log, rounding.log_up(x)),
        (rounding.exp_down(small), power_of, rounding.exp_up(small)),
        (rounding.round_down(x), x, rounding.round_up(x)),
    ):
        assert down <= value <= up
        assert up - down <= max(abs(value), power(9)) * power(19)
    assert rounding.exp_up(-small) >= 1 / power_of >= rounding.exp_down(-small)


@pytest.mark.parametrize("module", [deniability, composition, rounding])
def test_the_examples_in_the_docstrings_hold(module: ModuleType) -> None:
    tried = doctest.testmod(module)
    assert tried.attempted > 0
    assert tried.failed == 0
