"""Plans with noise shares: two figures, and the search, against plain sums; chances: test_chances.py."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from pate.accounting.composition import Gdp
from pate.accounting.filters import PrivacyFilter
from pate.errors import BudgetError, UsageError
from pate.mechanisms import (
    DistributedConfidentGNMax,
    DistributedGNMax,
    DistributedInteractiveGNMax,
    DistributedTeachers,
    GNMax,
    Mechanism,
    over_noisy_sums,
)
from pate.noise.shares import total_sigma
from pate.planning.plans import Campaign, Plan, Prospect, make_plan
from pate.planning.population import assumed_population
from pate.planning.search import Goal, Search, coarse_axes
from tests.support.simulated_noise import SimulatedNoise

#: Of all statistical tests of this file together.
FALSE_ALARM = 1e-6
PUBLIC = assumed_population(seed=1, teachers=100, classes=5, agreement=0.8, size=400)
CAMPAIGN = Campaign(queries=500, delta=1e-5, most=25, fewest=17)
HONEST = 9
CONFIDENT = DistributedConfidentGNMax(60, Fraction(4), HONEST, 1)
SURE = Goal(least_accuracy=0.9)


GNMAX = DistributedGNMax(Fraction(3), HONEST, 1)


def plan(mechanism: Mechanism = CONFIDENT, cap: Fraction | None = None, **changes: Any) -> Plan:
    return make_plan(mechanism, PUBLIC, replace(CAMPAIGN, **changes), cap)


@pytest.mark.parametrize(
    "mechanism", [GNMAX, CONFIDENT]
)  # fmt: skip
@pytest.mark.parametrize("shares", [HONEST, 25])
def test_a_plan_expects_what_sums_of_shares_give(
    mechanism: DistributedTeachers, shares: int
) -> None:
    """The shipped rules on votes and real sums: Bernstein's inequality over 20,000 queries."""
    few, repeats = PUBLIC.thinned(40), 500
    expected = Prospect.of(mechanism, few, shares=shares)
    rows = np.repeat(few.votes, repeats, axis=0)
    noise = SimulatedNoise(5)
    for _ in range(shares):
        rows = rows + noise.gaussian(mechanism.share, rows.size).reshape(rows.shape)
    outcomes = mechanism.answer_all(rows, noise)
    given = np.array([-1 if each.label is None else each.label for each in outcomes])
    level = math.log(2 * 8 / FALSE_ALARM)
    for seen, expectations in (
        (given >= 0, expected.answered),
        (given == np.repeat(few.labels, repeats), expected.right),
    ):
        variance = repeats * float((expectations * (1 - expectations)).sum())
        allowed = level / 3 + math.sqrt(level**2 / 9 + 2 * variance * level)
        assert abs(int(seen.sum()) - repeats * float(expectations.sum())) <= allowed + 0.5
        assert allowed < 0.04 * seen.sum(), "it could not fail otherwise"


class TestTwoFigures:
    def test_every_query_voted_on_is_charged_in_full(self) -> None:
        cost = Gdp().cost(CONFIDENT.worst[0])
        made = plan()
        assert made.composition == "gdp"
        assert made.cap == 500 * cost
        assert made.asked == made.voted == 500
        assert made.answered < 0.9 * 500, "answered or not"
        assert made.epsilon == made.server_epsilon == Gdp().epsilon(500 * cost, 1e-5)

    @pytest.mark.parametrize("epsilon", [1.0, 3.0])
    def test_within_a_budget_no_more_is_voted_on_than_can_be_asked(self, epsilon: float) -> None:
        budget = Gdp().budget(epsilon, 1e-5)
        cost = Gdp().cost(CONFIDENT.worst[0])
        made = plan(cap=budget)
        assert made.voted == made.asked == PrivacyFilter(budget).fits(cost, 500) < 500
        assert made.server_epsilon == Gdp().epsilon(made.voted * cost, 1e-5)
        assert made.server_epsilon is not None
        assert made.server_epsilon <= made.epsilon <= epsilon
        assert made.right == pytest.approx(made.answered * (made.accuracy or 0.0))

    def test_the_first_of_two_rounds_asks_its_share_of_what_is_voted_on(self) -> None:
        budget = Gdp().budget(2.0, 1e-5)
        cost = Gdp().cost(CONFIDENT.worst[0])
        first = plan(cap=budget, rounds=2, part=Fraction(1, 4))
        assert first.asked == budget / 4 // cost
        assert first.voted == budget // cost

    def test_expectations_are_those_of_all_shares_and_fewer_are_better(self) -> None:
        for mechanism in (CONFIDENT, DistributedGNMax(Fraction(8), HONEST, 1)):
            made = plan(mechanism)
            assert (made.campaign.most, made.campaign.fewest) == (25, 17)
            assert made.accuracy == Prospect.of(mechanism, PUBLIC, shares=25).accuracy
            assert made.with_fewest == Prospect.of(mechanism, PUBLIC, shares=17).accuracy
            best = Prospect.of(mechanism, PUBLIC).accuracy
            assert made.accuracy is not None
            assert made.with_fewest is not None
            assert best is not None
            assert made.accuracy < made.with_fewest < best
        # Who pays for the noise of parties that might collude: all of the roster.
        assert total_sigma(Fraction(4), 25) == 20
        assert total_sigma(Fraction(4), HONEST) == 12

    def test_more_colluders_need_wider_shares_at_the_same_price(self) -> None:
        plain = GNMax(Fraction(20), 1)
        plans = [plan(over_noisy_sums(plain, honest)) for honest in (17, 13, 9, 4)]
        for made in plans:
            assert made.epsilon <= plan(over_noisy_sums(plain, 1)).epsilon
            assert made.epsilon == pytest.approx(plans[0].epsilon, rel=4e-3)
        accuracies = [made.accuracy or 0.0 for made in plans]
        assert accuracies == sorted(accuracies, reverse=True)

    def test_what_does_not_fit_together_is_refused(self) -> None:
        with pytest.raises(UsageError, match="whose noise"):
            plan(most=None, fewest=None)
        with pytest.raises(UsageError, match="whose noise"):
            plan(GNMax(Fraction(9), 1))
        with pytest.raises(UsageError, match="student"):
            plan(DistributedInteractiveGNMax(5, Fraction(4), HONEST, Fraction(1, 2), 1))
        with pytest.raises(BudgetError, match="more noise"):
            plan(cap=Fraction(1, 10**6))
        for most, fewest in ((3, 4), (3, 0), (0, 0), (3, None), (None, 3)):
            with pytest.raises(UsageError, match="fewest"):
                plan(most=most, fewest=fewest)


class TestSearch:
    def test_a_check_of_the_same_votes_has_no_noise_of_its_own(self) -> None:
        assert set(coarse_axes(CONFIDENT, 100, 0.1)) == {"noise", "threshold"}
        assert set(coarse_axes(GNMAX, 100, 0.1)) == {"noise"}

    def test_fewer_honest_parties_give_less(self) -> None:
        rights = []
        for honest in (17, 9, 4):
            like = replace(CONFIDENT, honest=honest)
            found = Search(like, PUBLIC, CAMPAIGN, 3.0, SURE).best(3.0, SURE)
            assert found is not None
            rights.append(found.right)
        assert rights == sorted(rights, reverse=True)
