"""The filter never lets a budget be passed, and gives back exactly what was not used."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pate.accounting.filters import PrivacyFilter, Reservation
from pate.errors import AccountingError, BudgetError

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
TestFilterMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


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
