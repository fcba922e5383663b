"""What events and series cost, and the filter that no budget passes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from itertools import product
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pate.accounting.composition import Gdp, Zcdp, total_cost
from pate.accounting.events import GaussianMax, GaussianThreshold, LaplaceMax, NoisyHistogram
from pate.accounting.filters import PrivacyFilter, Reservation, Spent
from pate.accounting.gdp import squared_step_of
from pate.errors import AccountingError, BudgetError, UsageError
from pate.exact import fraction_from_text
from pate.noise.shares import ripple

costs = st.fractions(min_value=0, max_value=Fraction(1, 3), max_denominator=1000)


class FilterMachine(RuleBasedStateMachine):
    """Any order of reserving and settling, against sums kept apart."""

    def __init__(self) -> None:
        super().__init__()
        self.filter = PrivacyFilter(Fraction(1))
        self.held: list[Reservation] = []
        self.used: list[Fraction] = []

    @rule(rho=costs)
    def reserve(self, rho: Fraction) -> None:
        committed = sum(self.used, Fraction(0)) + sum((h.cost for h in self.held), Fraction(0))
        if committed + rho > 1:
            assert self.filter.fits(rho, 1) == 0
            with pytest.raises(BudgetError):
                self.filter.reserve(rho)
        else:
            assert self.filter.fits(rho, 1) == 1
            self.held.append(self.filter.reserve(rho))

    @rule(which=st.integers(min_value=0), share=st.fractions(min_value=0, max_value=1))
    def settle(self, which: int, share: Fraction) -> None:
        if self.held:
            reservation = self.held.pop(which % len(self.held))
            self.filter.settle(reservation, reservation.cost * share)
            self.used.append(reservation.cost * share)
            with pytest.raises(AccountingError, match="not open"):
                self.filter.settle(reservation, Fraction(0))

    @rule(which=st.integers(min_value=0), over=costs)
    def overdraw(self, which: int, over: Fraction) -> None:
        if self.held and over > 0:
            reservation = self.held[which % len(self.held)]
            with pytest.raises(AccountingError, match="more than"):
                self.filter.settle(reservation, reservation.cost + over)

    @invariant()
    def sums_are_exact_and_within(self) -> None:
        assert self.filter.spent == sum(self.used, Fraction(0))
        assert self.filter.reserved == sum((h.cost for h in self.held), Fraction(0))
        assert self.filter.left == 1 - self.filter.spent - self.filter.reserved
        assert self.filter.left >= 0


TestFilterMachine = FilterMachine.TestCase
TestFilterMachine.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)


def test_it_is_exact_to_the_last_query() -> None:
    # Ten times 0.1 in floats is 0.9999999999999999: an eleventh query of 1e-16 would pass there.
    budget = PrivacyFilter(Fraction(1))
    for _ in range(10):
        budget.settle(budget.reserve(Fraction(1, 10)), Fraction(1, 10))
    assert budget.left == 0
    with pytest.raises(BudgetError, match="left"):
        budget.reserve(Fraction(1, 10**100))
    with pytest.raises(BudgetError, match="more than 1e308"):
        budget.reserve(Fraction(10**400))
    budget.reserve(Fraction(0))


def test_confident_queries_give_the_label_back() -> None:
    check, label = Fraction(1, 45000), Fraction(1, 1600)
    budget = PrivacyFilter(Fraction("0.19"))
    admitted = answered = 0
    while budget.fits(check + label, 1):
        held = budget.reserve(check + label)
        yes = admitted % 3 == 0
        budget.settle(held, check + label if yes else check)
        admitted += 1
        answered += yes
    # By hand: 820/45000 + 274/1600 = 0.18947..., and one more worst case would be 0.19012 > 0.19.
    assert (admitted, answered) == (820, 274)
    assert budget.spent == 820 * check + 274 * label


@given(st.fractions(min_value=0, max_value=5), costs, st.integers(min_value=0, max_value=50))
def test_what_fits_can_be_reserved_and_no_more(cap: Fraction, rho: Fraction, times: int) -> None:
    budget = PrivacyFilter(cap)
    number = budget.fits(rho, times)
    for _ in range(number):
        budget.reserve(rho)
    if number < times:
        with pytest.raises(BudgetError):
            budget.reserve(rho)


def test_a_campaign_is_taken_up_where_it_stopped() -> None:
    budget = PrivacyFilter(Fraction(1), spent=Fraction(3, 4))
    assert budget.left == Fraction(1, 4)
    with pytest.raises(BudgetError):
        budget.reserve(Fraction(1, 2))
    with pytest.raises(AccountingError, match="another budget"):
        PrivacyFilter(Fraction(1), spent=Fraction(5, 4))


def test_reservations_of_another_budget_are_refused() -> None:
    first, second = PrivacyFilter(Fraction(1)), PrivacyFilter(Fraction(1))
    held = first.reserve(Fraction(1, 2))
    with pytest.raises(AccountingError, match="not open"):
        second.settle(held, Fraction(0))
    with pytest.raises(AccountingError, match="not open"):
        first.settle(Reservation(held.number, Fraction(1)), Fraction(0))
    assert first.reserved == Fraction(1, 2)


@pytest.mark.parametrize("rho", [Fraction(-1, 2), math.nan, 0.1, math.inf, None])
def test_costs_that_make_no_sense_stop_the_accountant(rho: object) -> None:
    budget = PrivacyFilter(Fraction(1))
    held = budget.reserve(Fraction(1, 2))
    for call in (
        lambda: PrivacyFilter(rho),  # type: ignore[arg-type]
        lambda: budget.reserve(rho),  # type: ignore[arg-type]
        lambda: budget.fits(rho, 3),  # type: ignore[arg-type]
        lambda: budget.settle(held, rho),  # type: ignore[arg-type]
    ):
        with pytest.raises(AccountingError):
            call()
    with pytest.raises(AccountingError):
        budget.fits(Fraction(1), -1)
    assert budget.spent == 0
    assert budget.reserved == Fraction(1, 2)


def test_costs_of_the_papers_settings() -> None:
    assert GaussianThreshold(Fraction(150), 1).rho == Fraction(1, 45000)
    assert GaussianMax(Fraction(40), 1).rho == Fraction(1, 1600)
    assert LaplaceMax(Fraction(20), 1).epsilon == Fraction(1, 10)
    assert LaplaceMax(Fraction(20), 1).rho == Fraction(1, 200)
    # A party of 5 teachers: k^2.
    assert GaussianMax(Fraction(40), 5).rho == Fraction(25, 1600)
    assert GaussianThreshold(Fraction(3, 2), 2).rho == Fraction(8, 9)
    assert LaplaceMax(Fraction(20), 5).rho == Fraction(1, 8)


def test_published_counts_cost_what_was_published() -> None:
    # 640 queries, 286 answers (MNIST), of Papernot et al. 2018: rho = N/(2 s1^2) + A/s2^2.
    spent = [GaussianThreshold(Fraction(200), 1)] * 640 + [GaussianMax(Fraction(40), 1)] * 286
    assert total_cost(Zcdp(), spent) == Fraction(640, 80000) + Fraction(286, 1600)
    assert total_cost(Zcdp(), []) == 0


@pytest.mark.parametrize("kind", [GaussianThreshold, GaussianMax, LaplaceMax])
def test_bad_values_cannot_be_built(
    kind: type[GaussianThreshold | GaussianMax | LaplaceMax],
) -> None:
    for value in (Fraction(0), Fraction(-3), Fraction(1, 10**9), Fraction(2**40), 2.5, math.nan):
        with pytest.raises(UsageError):
            kind(value, 1)  # type: ignore[arg-type]
    for votes in (0, -1, 2**40, 1.0, True, "1"):
        with pytest.raises(UsageError, match="votes_per_unit"):
            kind(Fraction(3), votes)  # type: ignore[arg-type]


def test_fractions_have_one_text() -> None:
    assert fraction_from_text("3/2") == Fraction(3, 2)
    assert fraction_from_text("0") == 0
    for text in ("03/2", "3/02", "0/1", "+3", "3 /2", "", "/", "6/4", "3\n"):
        with pytest.raises(AccountingError, match="fraction"):
            fraction_from_text(text)


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


@cache
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
