"""The largest charge of a series covers every pair of neighbours: all of them in tiny worlds.

A unit with c votes spreads them over two rounds and two counts in one world, and in another way in the
other. What each round then costs is worked out from the counts that move; see docs/proofs/composition.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from typing import Final

import pytest

from pate.accounting.composition import Gdp, Zcdp
from pate.accounting.events import NoisyHistogram
from pate.accounting.filters import Spent
from pate.accounting.gdp import squared_step_of
from pate.noise.shares import ripple

ROUNDS: Final = 2
COUNTS: Final = 2
#: Shares of two honest parties, so narrow that the ripple of their sum is seen.
SHARES: Final = (Fraction(3, 2), Fraction(2), Fraction(5))
HONEST: Final = 2


def spreads(votes: int) -> Iterator[tuple[int, ...]]:
    """All ways to spread at most so many votes over the counts of all rounds."""
    for each in product(range(votes + 1), repeat=ROUNDS * COUNTS):
        if sum(each) <= votes:
            yield each


def cost(share: Fraction, moved: tuple[int, ...]) -> tuple[Fraction, Fraction]:
    """rho, and half of mu squared, of a round in which these counts differ by so much."""
    squares, cells = sum(each**2 for each in moved), sum(each != 0 for each in moved)
    variance = HONEST * share**2
    more = cells * ripple(share, HONEST)
    mu = squares * squared_step_of(variance)
    return squares / (2 * variance) + more, (mu + 3 * more * (1 + mu) + 9 * more**2) / 2


@pytest.mark.parametrize("votes", [1, 2, 3])
def test_all_rounds_together_cost_a_pair_no_more_than_the_largest_charge(votes: int) -> None:
    charges = {
        share: (Zcdp().cost(event), Gdp().cost(event))
        for share in SHARES
        for event in [NoisyHistogram(share, HONEST, votes)]
    }
    worst = 0.0
    for mine, other in product(spreads(votes), repeat=2):
        moved = [one - two for one, two in zip(mine, other, strict=True)]
        rounds = [tuple(moved[at * COUNTS : (at + 1) * COUNTS]) for at in range(ROUNDS)]
        for shares in product(SHARES, repeat=ROUNDS):
            paid = [cost(share, each) for share, each in zip(shares, rounds, strict=True)]
            for currency in range(2):
                total = sum((each[currency] for each in paid), Fraction(0))
                most = max(charges[share][currency] for share in shares)
                assert total <= most
                worst = max(worst, float(total / most))
    assert worst > 0.99  # a smaller charge would not do


def test_a_unit_with_another_cap_in_each_round_would_cost_more() -> None:
    """Why all rounds of a series have one cap: one vote where one is charged, another where two are."""
    narrow, wide = Fraction(2), Fraction(4)
    first, second = NoisyHistogram(narrow, HONEST, 1), NoisyHistogram(wide, HONEST, 2)
    paid = cost(narrow, (1, -1))[0] + cost(wide, (1, -1))[0]
    assert paid > max(first.rho, second.rho)


def test_the_larger_cost_is_taken_in_each_currency_and_never_falls() -> None:
    one = Spent.concentrated(Fraction(1), gaussian=Fraction(2), failing=Fraction(1, 10**9))
    two = Spent.concentrated(Fraction(3), gaussian=Fraction(1), failing=Fraction(1, 10**9))
    both = one.or_more(two)
    assert both == two.or_more(one)
    assert (both.rho, both.gaussian) == (Fraction(3), Fraction(2))
    assert both.pure is None
    assert both.at_orders == two.at_orders
    assert both.failing == Fraction(2, 10**9)  # outright failures are never shared
    pure = Spent.promised(Fraction(2), Fraction(0))
    assert pure.or_more(Spent.promised(Fraction(1), Fraction(0))) == pure
    assert pure.or_more(one).pure is None
    # Of one alone nothing changes but what may fail.
    assert Spent().or_more(two) == Spent() + two == two
