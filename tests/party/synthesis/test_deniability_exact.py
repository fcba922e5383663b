"""Theorem 1 and its repairs against exact laws of small worlds, and the worlds that need them."""

from __future__ import annotations

import random
from collections import Counter
from fractions import Fraction

import pytest

from party.synthesis.seeds.deniability import (
    AttemptCost,
    RandomizedTest,
    Seeds,
    coin,
    theorem_1,
)
from party.synthesis.table.rounding import exp_down, exp_up
from tests.support.party.worlds import Law, Row, World, needed_delta, random_world

Rows = Counter[Row]

ONE = Fraction(1)
#: exp(-1) to 58 digits; the exact laws below use it as exp(-epsilon0).
DECAY = exp_up(-ONE)
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
    for world, data, more in neighbours(fixed, 40):
        rows = sum(data.values())
        for t in range(1, world.k):
            factor = (1 + (ONE if fixed else world.gamma) / t) / world.decay
            delta = world.decay ** (world.k - t) / ((1 + world.decay) * rows)
            dropped = 1 / (rows * (factor - 1))
            if dropped >= 1:
                continue
            law, other = world.law(data, dropped), world.law(more, dropped)
            assert needed_delta(law, other, factor, nothing=True) <= delta
            assert needed_delta(other, law, factor, nothing=True) <= delta
            bare = needed_delta(world.law(more), world.law(data), factor, nothing=True)
            missed += bare > delta
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


def outlier_world(coin_probability: Fraction = Fraction(0)) -> tuple[Law, Law]:
    """1,000 rows alike, and the same with one more that is like none of them."""
    halves = ((ONE / 2, ONE / 2),)
    world = World((halves, halves * 2), (1,), k=50, gamma=Fraction(4), decay=DECAY)
    data: Rows = Counter({(0, 0): 1000})
    return (
        world.law(data, coin_probability),
        world.law(data + Counter([(1, 1)]), coin_probability),
    )


def one_attempt() -> AttemptCost:
    test = RandomizedTest(50, Fraction(4), ONE)
    return theorem_1(test, Fraction(1, 10**9), Seeds(1000, fixed=True))


def test_gap_1_an_outlier_shows_in_whether_anything_comes_out() -> None:
    cost = one_attempt()
    factor = exp_down(cost.epsilon)
    law, other = outlier_world()
    assert needed_delta(other, law, factor, nothing=False) <= cost.delta
    assert needed_delta(other, law, factor, nothing=True) >= Fraction("9.9e-4")


def test_gap_1_is_closed_by_the_coin() -> None:
    cost = one_attempt()
    dropped = coin(cost.epsilon, 1000)
    factor = exp_down(cost.epsilon)
    law, other = outlier_world(dropped)
    assert needed_delta(other, law, factor, nothing=True) < Fraction(1, 10**15)
    assert needed_delta(law, other, factor, nothing=True) < Fraction(1, 10**15)


def test_gap_1_needs_nearly_that_much_of_a_coin() -> None:
    cost = one_attempt()
    law, other = outlier_world(coin(cost.epsilon, 1000) * Fraction(99, 100))
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
    test = RandomizedTest(50, Fraction(4), ONE)
    cost = theorem_1(test, Fraction(1, 10**6), Seeds(60, fixed=True))
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
