"""The noise of a campaign whose coordinator states none: public facts only, and one rule everywhere."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from pate.campaign.default_noise import default_noise, lead_in_sigmas
from pate.campaign.terms import composition_of, noise_of, resolve
from pate.mechanisms import DistributedGNMax, worst_cost
from pate.noise.shares import total_sigma
from pate.planning.chances import chances, gaussian_law
from tests.support.server.campaigns import make_spec


@pytest.mark.parametrize("trust", [0.9, 0.8])
@pytest.mark.parametrize("classes", [2, 3, 10, 100])
def test_a_class_that_leads_by_so_many_sigmas_wins_as_often_as_asked(
    classes: int, trust: float
) -> None:
    """By the discrete law that votes get, which is computed elsewhere and otherwise."""
    sigma = 200
    votes = np.zeros((1, classes), np.int64)
    votes[0, 0] = round(lead_in_sigmas(classes, trust) * sigma)
    law = gaussian_law(Fraction(sigma))
    _, right = chances(votes, np.zeros(1, np.int64), law, [(None, None)])
    assert right[0, 0] == pytest.approx(trust, abs=2e-3)


def paid(aggregator: str, teachers: int, queries: int, epsilon: float) -> tuple[int, int]:
    """Queries that the budget pays for at worst, and sigma2."""
    spec = make_spec(aggregator=aggregator, queries=queries, epsilon=epsilon, parties=3)
    noise = noise_of(spec, teachers, 1, 2)
    assert noise is not None
    mechanisms = resolve(spec, teachers, 1, 2)
    composition = composition_of(spec, mechanisms)
    cap = composition.budget(epsilon, 1e-5)
    return int(cap / worst_cost(composition, mechanisms, 1)), noise.sigma2


@pytest.mark.parametrize("aggregator", ["gnmax", "confident-gnmax"])
def test_the_least_noise_that_pays_for_all_queries_between_two_bounds(aggregator: str) -> None:
    least, most = 64, 154  # 0.16 and 0.386 of 400
    assert paid(aggregator, 400, 5, 4.0)[1] == least
    assert paid(aggregator, 400, 10**6, 4.0)[1] == most
    few, _ = paid(aggregator, 400, 5, 4.0)
    many, _ = paid(aggregator, 400, 10**6, 4.0)
    queries = (few + many) // 2
    number, sigma2 = paid(aggregator, 400, queries, 4.0)
    assert least < sigma2 < most
    assert number >= queries
    # With less noise it would not: a public set that is a little smaller gets less.
    assert paid(aggregator, 400, queries - (number - queries) - queries // 50, 4.0)[1] < sigma2


def test_where_labels_are_few_votes_are_trusted_less_and_no_less_than_that_takes() -> None:
    """0.386 of 30 teachers is 11 and 0.588 is 17; 40 labels are 20 of each of two classes."""
    assert paid("gnmax", 30, 400, 4.0) == (51, 11)
    assert paid("gnmax", 30, 400, 2.0) == (36, 17)
    number, sigma2 = paid("gnmax", 30, 400, 2.5)
    assert number >= 40
    assert 11 < sigma2 < 17
    assert paid("gnmax", 30, 25, 2.0)[1] < 17  # no more labels than there are queries


def test_the_rule_answers_several_times_the_labels_of_the_fixed_shares() -> None:
    """30 teachers and 400 queries of two classes; 40 teachers, 3,000 of ten: as hospitals have them."""
    for teachers, classes, queries, before in ((30, 2, 400, 10), (40, 10, 3000, 20)):
        spec = make_spec(aggregator="gnmax", queries=queries, epsilon=4.0)
        shares = make_spec(
            aggregator="gnmax",
            queries=queries,
            epsilon=4.0,
            sigma2=Fraction(-(-teachers * 4 // 25)),
        )
        numbers = []
        for each in (shares, spec):
            mechanisms = resolve(each, teachers, 1, classes)
            composition = composition_of(each, mechanisms)
            cap = composition.budget(4.0, 1e-5)
            numbers.append(int(cap / worst_cost(composition, mechanisms, 1)))
        assert numbers[0] == before
        assert numbers[1] > 1.6 * before


def test_what_is_stated_stays_and_so_does_what_goes_with_it() -> None:
    for stated in ({"sigma2": Fraction(16)}, {"sigma1": Fraction(50)}):
        spec = make_spec(queries=10**6, **stated)
        assert noise_of(spec, 100, 1, 10) is None
        (made,) = resolve(spec, 100, 1, 10)
        assert (made.to_dict()["sigma1"], made.to_dict()["sigma2"]) == ("50", "16")
    spec = make_spec(queries=10**6, threshold=Fraction(60))  # a threshold is no noise
    (made,) = resolve(spec, 100, 1, 10)
    assert (made.to_dict()["threshold"], made.to_dict()["sigma1"], made.to_dict()["sigma2"]) == (
        60, "72", "23",
    )  # fmt: skip


def test_labels_carry_no_more_noise_where_shares_are_added_that_nobody_counts() -> None:
    """Of four parties the shares of two count: labels carry root two times what is counted."""
    shared = {"aggregation": "masked", "noise": "distributed", "min_parties": 3, "colluders": 1}
    spec = make_spec(aggregator="gnmax", queries=10**6, **shared)
    central = noise_of(make_spec(aggregator="gnmax", queries=10**6), 400, 1, 2)
    noise = noise_of(spec, 400, 1, 2)
    assert noise is not None
    assert central is not None
    (made,) = resolve(spec, 400, 1, 2)
    assert isinstance(made, DistributedGNMax)
    carried = float(total_sigma(made.share, 4))
    assert carried == pytest.approx(central.sigma2, rel=0.01)
    assert noise.sigma2 < central.sigma2


def test_the_rule_is_quick_and_sure_for_any_roster() -> None:
    for teachers in (1, 2, 3, 7, 2**17):
        for classes in (2, 1000):
            noise = default_noise(teachers, classes, 1000, lambda _: 0)
            assert 1 <= noise.least <= noise.sigma2
            assert noise == default_noise(teachers, classes, 1000, lambda _: 0)
    spec = make_spec(epsilon=1e-3)
    assert noise_of(spec, 3, 1, 2) is not None  # it pays for nothing, and that is for others to say
