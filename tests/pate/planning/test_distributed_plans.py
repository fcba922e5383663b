"""Plans with noise shares, and of records that vote, against plain sums and samples."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from pate.accounting.composition import Gdp
from pate.accounting.filters import PrivacyFilter
from pate.campaign.spec import CampaignSpec
from pate.campaign.terms import matrix_mechanism
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
from pate.planning.records import plan_records
from pate.planning.search import Goal, Search, coarse_axes
from tests.support.server.campaigns import make_spec
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
def test_a_plan_expects_what_sums_of_shares_give(mechanism: DistributedTeachers) -> None:
    """The shipped rules on votes and real sums: Bernstein's inequality over 8,000 queries."""
    few, repeats, shares = PUBLIC.thinned(40), 200, 25
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
        assert allowed < 0.06 * seen.sum(), "it could not fail otherwise"


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


def campaign(representatives: int, code: str = "nearest", **changes: Any) -> CampaignSpec:
    asked: dict[str, Any] = {
        "aggregator": "neighbour", "representatives": list(range(representatives)),
        "most_votes": 4095, "votes_per_patient": 1, "epsilon": 1e4, "queries": 2000,
    }  # fmt: skip
    return make_spec(**asked | ({} if code == "nearest" else {"code": code}) | changes)


NOISE: dict[str, Any] = {"sigma2": Fraction(48), "threshold": Fraction(136)}


def test_fewer_representatives_are_clearer() -> None:
    shares = [
        plan_records(campaign(each, **NOISE), records=60_000, columns=10, purity=0.95).labelled or 0
        for each in (50, 100, 200, 400, 800)
    ]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0.97
    assert shares[-1] < 0.05


@pytest.mark.parametrize(
    ("terms", "columns", "purity", "at_each"),
    [
        (NOISE, 10, 0.95, 300),
        ({"sigma2": Fraction(3), "threshold": Fraction(5)}, 2, 0.6, 40),
        ({"sigma2": Fraction(5), "threshold": Fraction(9)}, 20, 0.6, 30),
        ({"scale": Fraction(6), "threshold": Fraction(20), "delta": 0.0}, 3, 0.7, 60),
    ],
)
def test_labels_are_as_frequent_and_as_right_as_sampled_ones(
    terms: dict[str, Any], columns: int, purity: float, at_each: int
) -> None:
    """Of 20,000 sampled places and the noise that ships, and of 1,000 whose votes are drawn for a plan.

    Both shares deviate by 0.5 / sqrt(1,000) = 0.016 at most: six deviations of the two together are 0.097,
    passed with 1e-8. Sizes are quantiles, so it is far less.
    """
    spec = campaign(100, **terms)
    plan = plan_records(spec, records=100 * at_each, columns=columns, purity=purity)
    draw, many = np.random.default_rng(7), 20_000
    shares = np.full(columns, (1 - purity) / 2 / max(1, columns - 2))
    shares[:2] = purity, (1 - purity) * (0.5 if columns > 2 else 1.0)
    sizes = draw.poisson(draw.gamma(4.0, at_each / 4.0, many))
    votes = draw.multinomial(sizes, shares[: max(2, columns)])
    adding = spec.wanted_parties if spec.sums.distributed else 1
    mechanism, noise = matrix_mechanism(spec, 1), SimulatedNoise(3)
    seen = votes + sum(
        mechanism.shares.draw(noise, votes.size).reshape(votes.shape) for _ in range(adding)
    )
    second, first = np.partition(seen, -2, axis=1)[:, -2:].T
    clear = first - second >= mechanism.threshold
    # A tie goes to any of the classes alike.
    top = (seen + draw.uniform(0, 0.5, seen.shape)).argmax(axis=1) == 0
    assert plan.noise == pytest.approx(mechanism.shares.spread(adding))
    assert plan.labelled == pytest.approx(clear.mean(), abs=0.02)
    assert plan.right == pytest.approx((seen.argmax(axis=1) == 0)[clear].mean(), abs=0.02)
    assert plan.top_right == pytest.approx(top.mean(), abs=0.02)
    assert plan.labels == pytest.approx(100 * (plan.labelled or 0))
    assert plan.counts == 100 * columns


def test_the_error_of_sums_is_that_of_simulated_ones() -> None:
    """Shares of a label of many votes with the noise as it is planned; within 5 of its deviations."""
    rng = np.random.default_rng(5)
    spec = campaign(50, "nearest labels-2", sigma2=Fraction(37))
    plan = plan_records(spec, records=40_000, columns=5)
    assert (plan.votes, plan.labelled) == (800, None)
    shares = (0.3 * plan.votes + rng.normal(0.0, plan.noise, 4000)) / plan.votes
    assert shares.std() == pytest.approx(plan.error, rel=5 / (2 * 4000) ** 0.5)
    dense = plan_records(campaign(8, "dense-8", sigma2=Fraction(50)), records=40_000, columns=4)
    assert (dense.votes, dense.counts) == (10_000, 32)
    assert dense.error == pytest.approx(dense.noise / 10_000)


@pytest.mark.parametrize("odd", [{"columns": 1}, {"purity": 0.1}, {"purity": 1.1}])
def test_what_makes_no_sense_is_refused(odd: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        plan_records(campaign(10, **NOISE), **{"records": 100, "columns": 10, **odd})


@pytest.mark.parametrize(
    ("terms", "labelled"),
    [
        ({"scale": Fraction(1, 64), "delta": 0.0, "threshold": Fraction(1)}, 0.99),
        ({"sigma2": Fraction(1), "threshold": Fraction(1)}, 0.99),
        ({"scale": Fraction(3000), "delta": 0.0}, 0.0),
        ({"sigma2": Fraction(2**18)}, 0.0),
    ],
)
def test_a_campaign_with_hardly_any_noise_or_with_nothing_but_noise_has_a_plan(
    terms: dict[str, Any], labelled: float
) -> None:
    plan = plan_records(campaign(50, **terms), records=5_000, columns=5)
    assert plan.labelled == pytest.approx(labelled, abs=0.02)
