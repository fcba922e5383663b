"""Costs of seed-based release: the published figures, bounds that are never understated, and
Theorem 1 with its repairs against exact laws of small worlds, and the worlds that need them.
"""

from __future__ import annotations

import doctest
import math
import random
from collections import Counter
from dataclasses import replace
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from party.synthesis import deniability
from party.synthesis.deniability import (
    COIN_DENOMINATOR,
    MOST_ATTEMPTS,
    AttemptCost,
    RandomizedTest,
    coin,
    exp_down,
    exp_up,
    largest_each,
    least_seeds,
    log_up,
    optimal,
    round_down,
    round_up,
    theorem_1,
    total_cost,
)
from pate.errors import InfeasibleError, UsageError
from tests.support.party.domains import Law, Row, World, dropped, needed_delta, random_world

Rows = Counter[Row]

ONE = Fraction(1)
MIXED, FIXED = (RandomizedTest(50, Fraction(4), ONE, 20_000, each) for each in (False, True))
#: exp(-1) to 58 digits; the exact laws below use it as exp(-epsilon0).
DECAY = exp_up(-ONE)


def power(digits: int) -> Fraction:
    return Fraction(1, 10**digits)


@pytest.mark.parametrize(
    ("digits", "t", "epsilon"), [(6, 46, 1.0834), (9, 39, 1.0976), (12, 32, 1.1178)]
)
def test_theorem_1_at_its_best_t(digits: int, t: int, epsilon: float) -> None:
    """t = 50 - ceil(ln(1/delta / ((1 + 1/e) 20,000)))."""
    cost = theorem_1(MIXED, power(digits))
    assert cost.t == t
    assert abs(float(cost.epsilon) - epsilon) < 1e-4
    assert cost.delta <= power(digits)


@pytest.mark.parametrize(
    ("test", "needed"),
    [
        (RandomizedTest(10, Fraction(4), ONE, 1000, fixed=False), 15),
        (RandomizedTest(50, Fraction(4), Fraction(1, 10), 1000, fixed=False), 133),
    ],
)
def test_a_guarantee_out_of_reach_ends_with_its_own_code(test: RandomizedTest, needed: int) -> None:
    with pytest.raises(InfeasibleError, match=f"k >= {needed}$") as caught:
        theorem_1(test, power(9))
    assert caught.value.exit_code == 23
    assert theorem_1(replace(test, k=needed), power(9)).t == 1


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
        cost = theorem_1(RandomizedTest(k, gamma, epsilon0, 400, fixed=False), delta)
    except InfeasibleError:
        assert not allowed
        return
    assert cost.t >= max(allowed, default=1)
    assert cost.delta <= delta
    assert float(cost.delta) >= factor * math.exp(-float(epsilon0) * (k - cost.t)) * (1 - 1e-12)
    exact = float(epsilon0) + math.log1p(float(gamma) / cost.t)
    assert float(cost.epsilon) == pytest.approx(exact, rel=1e-12)


def test_a_fixed_number_of_attributes_is_cheaper_and_k_seeds_are_needed() -> None:
    mixed, fixed = (theorem_1(each, power(9)) for each in (MIXED, FIXED))
    assert fixed.epsilon < mixed.epsilon
    assert (fixed.t, fixed.delta) == (mixed.t, mixed.delta)
    assert float(mixed.delta) == pytest.approx(math.exp(-11) / ((1 + math.exp(-1)) * 20_000))
    with pytest.raises(InfeasibleError, match="k = 50 is more than the 49 seeds"):
        replace(FIXED, seeds=49)


def test_a_thousand_attempts_cost_what_they_cost() -> None:
    cost = total_cost(MIXED, 1000, power(6))
    assert cost.attempt == theorem_1(MIXED, power(9) / 2)
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
    assert profile(exp_up(epsilon), count, exp_down(found)) <= wanted + power(40)
    if found:
        less = exp_up(found * (1 - power(12)))
        assert profile(exp_down(epsilon), count, less) > wanted


def test_the_curve_of_many_attempts_is_found_in_time() -> None:
    """A million terms."""
    most = optimal(Fraction(1, 1000), MOST_ATTEMPTS, power(6))
    assert float(most) == pytest.approx(4.8865437, rel=1e-6)


@pytest.mark.parametrize(("each", "attempts"), [("0.2", 10**5), ("1.5", 20_000), ("100", 10**6)])
def test_the_sum_of_many_costs_is_never_above_it_nor_out_of_range(each: str, attempts: int) -> None:
    """Their sum is beyond the powers that are computed; what they cost together need not be."""
    epsilon = Fraction(each)
    found = optimal(epsilon, attempts, power(6))
    rho = float(attempts * epsilon**2 / 2)
    if each == "0.2":
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


def test_the_coin_covers_what_an_outlier_adds() -> None:
    cost = theorem_1(MIXED, power(9))
    found = coin(cost.epsilon, 1000)
    assert found * (exp_down(cost.epsilon) - 1) * 1000 >= 1
    assert (found - Fraction(1, COIN_DENOMINATOR)) * (exp_up(cost.epsilon) - 1) * 1000 < 1
    with pytest.raises(InfeasibleError, match="would drop most"):
        coin(Fraction(1, 1000), 1000)


def test_least_seeds_is_a_tail_of_the_binomial() -> None:
    from scipy.stats import binom

    found = least_seeds(40_000, Fraction(1, 2), power(12))
    assert binom.cdf(found - 1, 40_000, 0.5) < 1e-12
    assert found > 19_000
    with pytest.raises(InfeasibleError, match="too few to split"):
        least_seeds(20, Fraction(1, 2), power(12))


def test_values_that_make_no_sense_are_refused() -> None:
    for change in (
        {"k": 0}, {"k": True}, {"gamma": ONE}, {"gamma": 1.5}, {"epsilon0": Fraction(0)},
        {"epsilon0": Fraction(101)}, {"epsilon0": 1.0}, {"seeds": 0},
    ):  # fmt: skip
        with pytest.raises(UsageError):
            replace(MIXED, **change)
    for call in (
        lambda: theorem_1(MIXED, Fraction(0)),
        lambda: theorem_1(MIXED, ONE),
        lambda: theorem_1(MIXED, 1e-6),  # type: ignore[arg-type]
        lambda: total_cost(MIXED, 0, power(6)),
        lambda: total_cost(MIXED, MOST_ATTEMPTS + 1, power(6)),
        lambda: optimal(Fraction(0), 3, power(6)),
        lambda: largest_each(Fraction(0), 3, power(6)),
    ):
        with pytest.raises(UsageError):
            call()


@given(x=st.fractions(Fraction(1, 10**6), 10**6, max_denominator=10**9))
def test_logarithms_and_powers_lie_on_their_side(x: Fraction) -> None:
    with localcontext() as context:
        context.prec = 120
        exact = Decimal(x.numerator) / Decimal(x.denominator)
        log = Fraction(exact.ln())
        small = x % 50
        power_of = Fraction((Decimal(small.numerator) / Decimal(small.denominator)).exp())
    for down, value, up in (
        (log, log, log_up(x)),
        (exp_down(small), power_of, exp_up(small)),
        (round_down(x), x, round_up(x)),
    ):
        assert down <= value <= up
        assert up - down <= max(abs(value), power(9)) * power(19)
    assert exp_up(-small) >= 1 / power_of >= exp_down(-small)


def test_the_examples_in_the_docstrings_hold() -> None:
    tried = doctest.testmod(deniability)
    assert tried.attempted > 0
    assert tried.failed == 0


# --- exact laws of small worlds ------------------------------------------------------------------

#: What that rounding can do to a delta.
ERROR = Fraction(1, 10**50)


def neighbours(fixed: bool, worlds: int) -> list[tuple[World, Rows, Rows]]:
    """Random worlds, each with rows and the same rows and one more; at least k rows.

    In every second world the rows are alike, so that one more can be an outlier.
    """
    draw = random.Random(f"worlds {fixed}")  # noqa: S311 -- worlds, no secrets
    found = []
    for number in range(worlds):
        world = random_world(draw, fixed=fixed)
        if number % 2:
            data = Counter({draw.choice(world.universe): 20})
        else:
            data = Counter(draw.choices(world.universe, k=world.k + draw.randint(0, 3)))
        found += [(world, data, data + Counter([row])) for row in draw.sample(world.universe, 6)]
    return found


@pytest.mark.parametrize("fixed", [True, False])
def test_theorem_1_holds_for_what_is_released(fixed: bool) -> None:
    most = Fraction(0)
    for world, data, more in neighbours(fixed, 40):
        rows = sum(data.values())
        law, other = world.law(data), world.law(more)
        gamma = ONE if fixed else world.gamma
        for t in range(1, world.k):
            delta = world.decay ** (world.k - t)
            tight = delta / ((1 + world.decay) * rows)
            factor = (1 + gamma / t) / world.decay
            for a, b in ((law, other), (other, law)):
                needed = needed_delta(a, b, factor, nothing=False)
                assert needed <= tight < delta
                most = max(most, needed / tight)
    # The bound is used: a weaker world than these would let a wrong formula through.
    assert most > Fraction(1, 3)


@pytest.mark.parametrize("fixed", [True, False])
def test_with_the_coin_the_whole_outcome_is_private(fixed: bool) -> None:
    missed = 0
    for world, data, more in neighbours(fixed, 20):
        rows = sum(data.values())
        bare, outlier = world.law(data), world.law(more)
        for t in range(1, world.k):
            factor = (1 + (ONE if fixed else world.gamma) / t) / world.decay
            delta = world.decay ** (world.k - t) / ((1 + world.decay) * rows)
            toss = 1 / (rows * (factor - 1))
            if toss >= 1:
                continue
            law, other = dropped(bare, toss), dropped(outlier, toss)
            assert needed_delta(law, other, factor, nothing=True) <= delta
            assert needed_delta(other, law, factor, nothing=True) <= delta
            missed += needed_delta(outlier, bare, factor, nothing=True) > delta
    assert missed > 0  # without the coin the delta of what is released is too small


def test_half_a_laplace_tail_is_too_little_for_noise_on_the_integers() -> None:
    """A record like no other passes with exp(-epsilon0 (k-t))/(1 + exp(-epsilon0)), not half of it."""
    halves = ((ONE / 2, ONE / 2),)
    world = World((halves, halves * 2), (1,), k=2, gamma=Fraction(4), decay=DECAY)
    data: Rows = Counter({(0, 0): 5})
    needed = needed_delta(
        world.law(data + Counter([(1, 1)])), world.law(data), 2 / DECAY, nothing=False
    )
    claimed = DECAY / (2 * 6)
    assert needed > Fraction(14, 10) * claimed
    assert needed == DECAY / ((1 + DECAY) * 6)


@cache
def outlier_world() -> tuple[Law, Law]:
    """1,000 rows alike, and the same with one more that is like none of them."""
    halves = ((ONE / 2, ONE / 2),)
    world = World((halves, halves * 2), (1,), k=50, gamma=Fraction(4), decay=DECAY)
    data: Rows = Counter({(0, 0): 1000})
    return world.law(data), world.law(data + Counter([(1, 1)]))


def one_attempt() -> AttemptCost:
    return theorem_1(replace(FIXED, seeds=1000), power(9))


def test_gap_1_an_outlier_shows_in_whether_anything_comes_out() -> None:
    cost = one_attempt()
    factor = exp_down(cost.epsilon)
    law, other = outlier_world()
    assert needed_delta(other, law, factor, nothing=False) <= cost.delta
    assert needed_delta(other, law, factor, nothing=True) >= Fraction("9.9e-4")


def test_gap_1_is_closed_by_the_coin() -> None:
    cost = one_attempt()
    toss = coin(cost.epsilon, 1000)
    factor = exp_down(cost.epsilon)
    law, other = (dropped(each, toss) for each in outlier_world())
    assert needed_delta(other, law, factor, nothing=True) < Fraction(1, 10**15)
    assert needed_delta(law, other, factor, nothing=True) < Fraction(1, 10**15)


def test_gap_1_needs_nearly_that_much_of_a_coin() -> None:
    cost = one_attempt()
    toss = coin(cost.epsilon, 1000) * Fraction(99, 100)
    law, other = (dropped(each, toss) for each in outlier_world())
    assert needed_delta(other, law, exp_up(cost.epsilon), nothing=True) > Fraction(1, 10**6)


def conditional(law: Law, seedless: Fraction, of_model: Law) -> Law:
    """The law of what is released, given that something is."""
    mixed: Law = {
        y: (1 - seedless) * p + seedless * of_model[y] for y, p in law.items() if y is not None
    }
    whole = sum(mixed.values())
    return {y: p / whole for y, p in mixed.items()}


def test_gap_2_until_it_passes_is_another_law_and_the_floor_repairs_it() -> None:
    prefixes = 61
    first = (tuple(Fraction(1, prefixes) for _ in range(prefixes)),)
    second = tuple((ONE / 2, ONE / 2) for _ in range(prefixes))
    world = World((first, second), (1,), k=50, gamma=Fraction(4), decay=DECAY)
    data: Rows = Counter({(v, 0): 1 for v in range(60)})
    law, other = world.law(data), world.law(data + Counter([(60, 0)]))
    model: Law = {y: Fraction(1, 2 * prefixes) for y in world.universe}
    cost = theorem_1(replace(FIXED, seeds=60), power(6))
    # Each single attempt is as private as the theorem says.
    assert needed_delta(other, law, exp_down(cost.epsilon), nothing=False) <= cost.delta

    bare = needed_delta(
        conditional(other, Fraction(0), model),
        conditional(law, Fraction(0), model),
        exp_up(cost.epsilon),
        nothing=False,
    )
    assert abs(bare - Fraction(1, 61)) < ERROR  # 1.6e-2


def test_the_deterministic_test_is_not_private_at_any_epsilon() -> None:
    """One record less of exactly k: what was released cannot be any more."""
    halves = ((ONE / 2, ONE / 2),)
    world = World((halves, halves * 2), (1,), k=3, gamma=Fraction(4), decay=Fraction(0))
    rows: Rows = Counter({(0, 0): 3, (1, 0): 3})
    law, other = world.law(rows), world.law(rows - Counter([(1, 0)]))
    assert needed_delta(law, other, Fraction(10**100), nothing=False) == Fraction(1, 2)
