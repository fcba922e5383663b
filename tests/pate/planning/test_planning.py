"""Plans: what they expect against simulated campaigns, and what they guarantee against the filter."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pate.accounting.composition import Gdp, Zcdp, composition_named, tightest, total_cost
from pate.accounting.conversion import epsilon_from_rho
from pate.accounting.filters import PrivacyFilter
from pate.errors import AccountingError, BudgetError, UsageError
from pate.formats.votes_file import read_vote_matrix
from pate.mechanisms import ConfidentGNMax, GNMax, InteractiveGNMax, LNMax, Mechanism
from pate.planning.chances import expected_asked
from pate.planning.plans import Campaign, Plan, Prospect, make_plan
from pate.planning.population import Population, assumed_population, proxy_population
from tests.support.simulated_noise import SimulatedNoise

FALSE_ALARM = 1e-6
PAPER = ConfidentGNMax(200, Fraction(150), Fraction(40), 1)


def assumed(**changes: Any) -> Population:
    asked: dict[str, Any] = {"teachers": 250, "agreement": 0.85, "size": 800, "seed": 1}
    return assumed_population(**asked | changes)


PUBLIC = assumed()


def plan(mechanism: Mechanism = PAPER, population: Population = PUBLIC, **changes: Any) -> Plan:
    cap = changes.pop("cap", None)
    asked: dict[str, Any] = {"queries": 640, "delta": 1e-5}
    return make_plan(mechanism, population, Campaign(**asked | changes), cap)


class TestPopulation:
    def test_it_is_what_was_assumed(self) -> None:
        """Hoeffding for the mean share: one vote of 250 in each of 800 queries, all independent."""
        for agreement, spread in ((0.85, None), (0.5, 0.3), (0.6, 0.0), (0.3, 0.05)):
            made = assumed(agreement=agreement, spread=spread)
            assert (made.votes.sum(axis=1) == 250).all()
            allowed = math.sqrt(math.log(2 * 4 / FALSE_ALARM) / (2 * 800 * 250))
            # The quantiles of the difficulty are taken in the middle of 800 steps.
            assert made.agreement == pytest.approx(agreement, abs=allowed + 1e-3)
        largest = math.sqrt(0.85 * 0.15)
        shares = assumed(teachers=10**5).votes[np.arange(800), assumed(teachers=10**5).labels]
        assert (shares / 10**5).std() == pytest.approx(largest / 2, rel=0.02)

    def test_wrong_votes_fall_where_they_were_assumed_to(self) -> None:
        alone = assumed(agreement=0.4, rival=1.0)
        assert ((alone.votes > 0).sum(axis=1) <= 2).all()
        even = assumed(agreement=0.4, rival=0.0, spread=0.0, teachers=9000)
        wrong = np.sort(even.votes, axis=1)[:, :-1]
        assert np.abs(wrong - 600).max() < 200, "eight standard deviations of 600 votes"

    def test_the_same_seed_gives_the_same_votes(self) -> None:
        assert np.array_equal(assumed().votes, assumed().votes)
        assert not np.array_equal(assumed().votes, assumed(seed=2).votes)

    def test_sure_teachers_and_two_classes(self) -> None:
        sure = assumed(agreement=1.0, classes=2)
        assert sure.plurality_accuracy == sure.agreement == 1.0
        hard = assumed(agreement=0.5, classes=2, spread=0.4999, teachers=1)
        assert set(hard.votes.ravel().tolist()) == {0, 1}

    def test_a_proxy_without_labels_counts_its_pluralities(self) -> None:
        votes = np.array([[3, 2], [1, 4]])
        made = proxy_population(votes)
        assert (made.meaning, made.source, made.labels.tolist()) == ("plurality", "proxy", [0, 1])
        assert made.plurality_accuracy == 1.0
        labelled = proxy_population(votes, np.array([1, 1]))
        assert (labelled.meaning, labelled.plurality_accuracy) == ("right", 0.5)
        assert labelled.agreement == 0.6

    def test_a_part_of_it_is_evenly_spaced(self) -> None:
        rows = np.array([[n, 100 - n] for n in range(100)])
        assert proxy_population(rows).thinned(4).votes[:, 0].tolist() == [0, 33, 66, 99]
        assert len(PUBLIC.thinned(800)) == len(PUBLIC.thinned(10**6)) == 800

    @pytest.mark.parametrize(
        "changes",
        [
            {"teachers": 0}, {"teachers": 2**18}, {"classes": 1}, {"classes": 0},
            {"agreement": 0.0}, {"agreement": 1.1}, {"agreement": math.nan}, {"spread": 0.36},
            {"spread": -0.1}, {"spread": math.nan}, {"rival": 1.1}, {"rival": math.nan},
            {"size": 0}, {"size": 10**9}, {"agreement": 1.0, "spread": 0.1},
        ],
    )  # fmt: skip
    def test_senseless_assumptions_are_refused(self, changes: dict[str, float]) -> None:
        with pytest.raises(UsageError):
            assumed(**changes)

    @pytest.mark.parametrize(
        ("votes", "labels"),
        [
            ([[1, 2], [3, 1]], None), ([[0, 0]], None), ([[1], [1]], None), ([[-1, 2]], None),
            ([[2**20, 0]], None), ([[1.0, 2.0]], None), (np.empty((0, 2), np.int64), None),
            ([[1, 2]], [2]), ([[1, 2]], [-1]), ([[1, 2]], [0, 1]), ([[1, 2]], [0.0]),
        ],
    )  # fmt: skip
    def test_votes_and_labels_that_cannot_be_are_refused(self, votes: Any, labels: Any) -> None:
        with pytest.raises(AccountingError):
            proxy_population(np.array(votes), None if labels is None else np.array(labels))


class TestExpectations:
    def test_a_simulated_campaign_gives_what_was_expected(self) -> None:
        """300 campaigns, each on queries drawn from the population, through a filter.

        Numbers asked are independent and bounded: Bernstein's inequality. Answers less their
        chance are a martingale over all queries asked: Freedman's inequality, of the same form.
        """
        mechanism = ConfidentGNMax(180, Fraction(60), Fraction(40), 1)
        population = assumed(agreement=0.7, size=300)
        budget = Fraction(3, 100)
        expected = plan(mechanism, population, queries=120, cap=budget)
        assert expected.asked < 110, "the budget ends most campaigns, not the queries"
        composition = tightest(mechanism.worst)
        worst = total_cost(composition, mechanism.worst)
        rng, noise = np.random.default_rng(2), SimulatedNoise(3)
        runs = 300
        seen: list[tuple[int, int, int]] = []
        every = rng.integers(len(population), size=(runs, 120))
        answers = iter(mechanism.answer_all(population.votes[every.ravel()], noise))
        for chosen in every:
            outcomes = [next(answers) for _ in chosen]
            purse = PrivacyFilter(budget)
            given = []
            for outcome in outcomes:
                if not purse.fits(worst, 1):
                    break
                purse.settle(purse.reserve(worst), total_cost(composition, outcome.events))
                given.append(outcome.label)
            assert purse.spent <= expected.cap
            truth = population.labels[chosen[: len(given)]].tolist()
            seen.append(
                (
                    len(given),
                    len(given) - given.count(None),
                    sum(a == b for a, b in zip(given, truth, strict=True)),
                )
            )
        level = math.log(2 * 3 / FALSE_ALARM)

        def allowed(variance: float, most: float) -> float:
            return most * level / 3 + math.sqrt((most * level / 3) ** 2 + 2 * variance * level)

        asked, answered, right = np.array(seen).sum(axis=0).tolist()
        # P[n or more are asked] is what the n-th query adds to the expectation.
        check, label = (composition.cost(event) for event in mechanism.worst)
        answer = expected.answered / expected.asked
        upto = [expected_asked(n, answer, check, label, budget) for n in range(121)]
        variance = float(np.diff(upto) @ (2 * np.arange(1, 121) - 1)) - expected.asked**2
        assert 1 < variance < 200
        assert abs(asked - runs * expected.asked) <= allowed(runs * variance, 120)
        for count, mean in ((answered, expected.answered), (right, expected.right)):
            chance = mean / expected.asked
            bound = allowed(runs * 120 * chance * (1 - chance), 1)
            assert abs(count - chance * asked) <= bound
            assert bound < 0.1 * count, "it could not fail otherwise"

    def test_accuracy_is_right_over_answered_and_says_how_sure_it_is(self) -> None:
        made = plan()
        assert made.accuracy == pytest.approx(made.right / made.answered)
        others = [
            plan(population=assumed_population(
                seed=seed, teachers=250, classes=10, agreement=0.85, size=800
            )).accuracy
            for seed in range(30)
        ]  # fmt: skip
        assert made.accuracy_error is not None
        assert 0 < np.std(np.array(others, float)) < 2 * made.accuracy_error < 0.05

    def test_nothing_answered_has_no_accuracy(self) -> None:
        made = plan(ConfidentGNMax(10**6, Fraction(10), Fraction(40), 1))
        assert made.answered == pytest.approx(0.0, abs=1e-9)
        nothing = Prospect(np.zeros(3), np.zeros(3))
        assert nothing.accuracy is None
        assert nothing.accuracy_error is None

    def test_more_noise_and_stricter_checks_go_the_right_way(self) -> None:
        noises = [Fraction(10), Fraction(40), Fraction(90)]
        accuracies = [Prospect.of(GNMax(sigma, 1), PUBLIC).accuracy or 0.0 for sigma in noises]
        assert accuracies == sorted(accuracies, reverse=True)
        assert accuracies[0] <= PUBLIC.plurality_accuracy + 0.01
        answers = [
            Prospect.of(ConfidentGNMax(threshold, Fraction(30), Fraction(40), 1), PUBLIC)
            for threshold in (100, 180, 240, 300)
        ]
        assert [each.answer for each in answers] == sorted(
            (each.answer for each in answers), reverse=True
        )
        assert [each.accuracy or 0.0 for each in answers] == sorted(
            each.accuracy or 0.0 for each in answers
        )

    def test_more_budget_is_never_worse(self) -> None:
        budgets = [Fraction(n, 100) for n in (1, 2, 5, 10, 20, 40)]
        plans = [plan(cap=cap) for cap in budgets]
        for figure in ("asked", "answered", "right", "epsilon"):
            values = [getattr(each, figure) for each in plans]
            assert values == sorted(values), figure
        assert len({each.accuracy for each in plans}) == 1

    def test_later_rounds_depend_on_the_student(self) -> None:
        later = InteractiveGNMax(5, Fraction(100), Fraction(40), Fraction(9, 10), 1)
        with pytest.raises(UsageError, match="student"):
            plan(later)


class TestGuarantees:
    def test_the_published_run_has_the_figures_that_are_known_of_it(self) -> None:
        """MNIST, 250 teachers: 640 checks and 282.7 labels cost 2.741 in zCDP, 2.527 exactly."""
        made = plan()
        costs = 640 * PAPER.worst[0].rho + Fraction("282.721029203409") * PAPER.worst[1].rho
        assert epsilon_from_rho(costs, 1e-5) == pytest.approx(2.741, abs=1e-3)
        assert Gdp().epsilon(costs, 1e-5) == pytest.approx(2.52735606, abs=1e-8)
        # All 640 answered: mu^2 = 640 (1/150^2 + 2/40^2), of discrete noise a little more.
        whole = 640 * (PAPER.worst[0].rho + PAPER.worst[1].rho)
        assert made.epsilon == pytest.approx(Gdp().epsilon(whole, 1e-5), rel=1e-3)
        assert made.epsilon > Gdp().epsilon(whole, 1e-5)

    def test_the_published_votes_as_a_proxy(self, test_data: Path) -> None:
        path = test_data / "pate_votes" / "mnist_250_teachers.npy"
        if not path.exists():
            pytest.skip("the published votes are not here")
        votes = read_vote_matrix(path)[:640]
        made = plan(population=proxy_population(votes))
        # 282.7 with continuous noise; on integers a noisy count of T passes: half a vote more.
        tails = [math.erfc((199.5 - top) / 150 / math.sqrt(2)) / 2 for top in votes.max(axis=1)]
        assert made.answered == pytest.approx(sum(tails), abs=1e-2)
        assert 282.72 < made.answered < 284
        assert made.accuracy is not None
        assert made.accuracy > 0.94, "agreement with the plurality; the papers' floor"

    @pytest.mark.parametrize(
        "mechanism",
        [PAPER, GNMax(Fraction(40), 1), LNMax(Fraction(50), 1), GNMax(Fraction(3, 2), 1)],
    )
    @pytest.mark.parametrize("epsilon", [0.7, 2.0, 9.0])
    def test_a_plan_for_an_epsilon_stays_within_it(
        self, mechanism: Mechanism, epsilon: float
    ) -> None:
        composition = tightest(mechanism.worst)
        budget = composition.budget(epsilon, 1e-5)
        worst = total_cost(composition, mechanism.worst)
        if worst > budget:
            with pytest.raises(BudgetError, match="more noise"):
                plan(mechanism, cap=budget)
            return
        made = plan(mechanism, cap=budget)
        assert made.epsilon <= epsilon
        assert made.composition == composition.name
        assert made.cap == min(budget, 640 * worst)
        assert made.asked >= min(640, PrivacyFilter(budget).fits(worst, 640))
        assert made.server_epsilon is None

    def test_a_unit_of_k_votes_costs_k_squared(self) -> None:
        once, thrice = plan(), plan(ConfidentGNMax(200, Fraction(150), Fraction(40), 3))
        assert thrice.cap == 9 * once.cap
        assert (thrice.answered, thrice.accuracy) == (once.answered, once.accuracy)
        # k votes against k times the noise are one vote against the noise, but for the last
        # digits: finer noise on integers is nearer to the continuous one.
        scaled = plan(ConfidentGNMax(200, Fraction(450), Fraction(120), 3))
        assert scaled.epsilon == pytest.approx(once.epsilon, rel=1e-3)

    def test_the_first_of_two_rounds_has_its_share(self) -> None:
        alone = plan(cap=Fraction(1, 20))
        first = plan(cap=Fraction(1, 10), rounds=2, part=Fraction(1, 2))
        assert first.limit == alone.limit == Fraction(1, 20)
        assert (first.asked, first.answered) == (alone.asked, alone.answered)
        assert first.epsilon == Gdp().epsilon(Fraction(1, 10), 1e-5) > alone.epsilon
        # Without a budget: what all rounds may cost, and all queries in the first.
        free = plan(rounds=2, part=Fraction(1, 2))
        assert free.limit == plan().cap == free.cap / 2

    def test_the_filter_of_the_plan_is_that_of_its_composition(self) -> None:
        made = plan(LNMax(Fraction(50), 1), cap=Zcdp().budget(2.0, 1e-5))
        assert composition_named(made.composition).epsilon(made.cap, 1e-5) == made.epsilon <= 2.0
        assert made.composition == "zcdp"

    @pytest.mark.parametrize("queries", [0, -1, 10**6 + 1])
    def test_a_senseless_number_of_queries_is_refused(self, queries: int) -> None:
        with pytest.raises(UsageError, match="queries"):
            plan(queries=queries)
