"""The search against going through every setting, and against what a campaign may spend."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pate.accounting.composition import Gdp, tightest, total_cost
from pate.errors import UsageError
from pate.mechanisms import ConfidentGNMax, GNMax, LNMax, Mechanism
from pate.planning import survey as survey_module
from pate.planning.plans import make_plan, prospect
from pate.planning.population import Population, assumed_population
from pate.planning.search import Goal, Search
from pate.planning.survey import Scene, coarse_axes, fine_axes, survey

if TYPE_CHECKING:
    from pate.planning.plans import Plan
    from pate.planning.survey import Axes, Kind

KINDS: tuple[Kind, ...] = ("lnmax", "gnmax", "confident-gnmax")
PUBLIC = assumed_population(
    np.random.default_rng(1), teachers=100, classes=5, agreement=0.8, size=400
)
SURE = Goal(least_accuracy=0.9)


def scene(kind: Kind = "confident-gnmax", **changes: Any) -> Scene:
    asked: dict[str, Any] = {"kind": kind, "queries": 500, "delta": 1e-5}
    return Scene(**asked | changes)


@pytest.fixture(scope="module")
def searches() -> dict[Kind, Search]:
    return {kind: Search(PUBLIC, scene(kind), 2.0, SURE, largest=8.0) for kind in KINDS}


def planned(mechanism: Mechanism, epsilon: float, population: Population = PUBLIC) -> Plan:
    budget = tightest(mechanism.worst).budget(epsilon, 1e-5)
    return make_plan(mechanism, population, queries=500, delta=1e-5, cap=budget)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "goal", [Goal(), SURE, Goal(least_accuracy=0.97), Goal(at_least=20.0), Goal(60.0, 0.5)]
)
@pytest.mark.parametrize("epsilon", [1.0, 2.0, 8.0])
def test_a_plan_meets_its_epsilon_and_its_goal(
    searches: dict[Kind, Search], kind: Kind, goal: Goal, epsilon: float
) -> None:
    best = searches[kind].best(epsilon, goal)
    if best is None:
        # Without a check no label is better than the plurality, which is right on 96 %.
        assert kind != "confident-gnmax"
        assert kind == "lnmax" or goal.least_accuracy == 0.97
        return
    made = planned(best.mechanism, epsilon)
    assert made.epsilon <= epsilon
    assert best.asked == pytest.approx(made.asked, rel=1e-9)
    assert best.answered == pytest.approx(made.answered, rel=1e-9)
    assert best.right == pytest.approx(made.right, rel=1e-9)
    assert best.accuracy >= goal.least_accuracy
    assert best.answered >= (goal.at_least or 0.0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("goal", [SURE, Goal(at_least=30.0)])
def test_no_setting_of_the_grid_is_better(
    monkeypatch: pytest.MonkeyPatch, kind: Kind, goal: Goal
) -> None:
    monkeypatch.setattr(survey_module, "_COARSE", {"label": 6, "sigma1": 3, "threshold": 4})
    monkeypatch.setattr(survey_module, "FINE", 3)
    epsilon, few = 3.0, PUBLIC.thinned(100)
    search = Search(few, scene(kind), epsilon, goal)
    best = search.best(epsilon, goal)
    every: list[Mechanism] = []
    for seen in search._surveys:
        for label, (sigma1, threshold) in itertools.product(seen.labels, seen.checks):
            if sigma1 is not None and threshold is not None:
                every.append(ConfidentGNMax(threshold, sigma1, label, 1))
            else:
                every.append(LNMax(label, 1) if kind == "lnmax" else GNMax(label, 1))
    assert len(every) > 6
    worths = []
    for mechanism in every:
        composition = tightest(mechanism.worst)
        if total_cost(composition, mechanism.worst) > composition.budget(epsilon, 1e-5):
            continue
        made = planned(mechanism, epsilon, few)
        if made.accuracy is not None and made.accuracy >= goal.least_accuracy:
            if goal.at_least is None:
                worths.append(made.right)
            elif made.answered >= goal.at_least:
                worths.append(made.accuracy)
    if best is None:
        assert not worths
        assert kind == "lnmax"
        return
    worth = best.right if goal.at_least is None else best.accuracy
    assert worth == pytest.approx(max(worths), rel=1e-9)


def test_more_budget_gives_more_and_a_higher_floor_less(searches: dict[Kind, Search]) -> None:
    budgets = [2.0 ** (step / 2) for step in range(-4, 7)]
    for search in searches.values():
        frontier = search.frontier(budgets, SURE)
        assert list(frontier.epsilons) == sorted(set(frontier.epsilons) & set(budgets))
        assert (np.diff(frontier.right) >= -1e-9).all()
        assert (frontier.accuracy >= 0.9).all()
        assert len(frontier.mechanisms) == len(frontier.asked) == len(frontier.epsilons) >= 3
        for epsilon, mechanism in zip(frontier.epsilons, frontier.mechanisms, strict=True):
            assert planned(mechanism, float(epsilon)).epsilon <= epsilon
        trade = search.trade(2.0, np.linspace(0.3, 0.99, 12).tolist())
        assert (np.diff(trade.right) <= 1e-9).all()
        assert set(trade.epsilons) == {2.0}


def test_the_check_is_worth_its_price_here(searches: dict[Kind, Search]) -> None:
    goal = Goal(least_accuracy=0.97)
    without, with_check = (searches[kind].best(2.0, goal) for kind in ("gnmax", "confident-gnmax"))
    assert with_check is not None
    assert without is None or with_check.right > without.right


def test_a_unit_of_many_votes_gets_less() -> None:
    rights = []
    for votes in (1, 2, 4):
        found = Search(PUBLIC, scene("gnmax", votes_per_unit=votes), 4.0, SURE).best(4.0, SURE)
        assert found is not None
        assert found.mechanism.votes_per_unit == votes
        rights.append(found.right)
    assert rights == sorted(rights, reverse=True)


def test_the_first_round_spends_its_share_only() -> None:
    found = Search(PUBLIC, scene(rounds=2, share=Fraction(1, 4)), 2.0, SURE).best(2.0, SURE)
    assert found is not None
    budget = Gdp().budget(2.0, 1e-5)
    first = make_plan(
        found.mechanism, PUBLIC, queries=500, delta=1e-5, cap=budget, rounds=2, share=Fraction(1, 4)
    )
    assert first.limit <= budget / 4
    assert found.asked == pytest.approx(first.asked, rel=1e-9)


def test_what_cannot_be_had_is_not_found(searches: dict[Kind, Search]) -> None:
    search = searches["gnmax"]
    assert search.best(2.0, Goal(at_least=501.0)) is None
    assert search.best(1e-6, SURE) is None
    assert search.best(2.0, Goal(least_accuracy=1.0)) is None
    assert not len(search.frontier([1e-6], SURE).epsilons)
    hopeless = Search(PUBLIC, scene("gnmax", votes_per_unit=100), 0.1, SURE)
    assert hopeless.best(0.1, SURE) is None


def test_a_survey_says_what_each_mechanism_gives() -> None:
    axes: Axes = {
        "label": (Fraction(8), Fraction(21)),
        "sigma1": (Fraction(3), Fraction(30)),
        "threshold": (Fraction(50), Fraction(80)),
    }
    seen = survey(PUBLIC, scene(), axes)
    for (c, (sigma1, threshold)), (s, sigma2) in itertools.product(
        enumerate(seen.checks), enumerate(seen.labels)
    ):
        assert sigma1 is not None
        assert threshold is not None
        expected = prospect(ConfidentGNMax(threshold, sigma1, sigma2, 1), PUBLIC)
        assert seen.paid[c, s] == seen.answer[c, s]
        assert seen.answer[c, s] == pytest.approx(expected.answer, rel=1e-12)
        assert seen.accuracy[c, s] == pytest.approx(expected.accuracy, rel=1e-12)


def test_noise_too_narrow_for_gdp_is_counted_in_zcdp() -> None:
    axes: Axes = {"label": (Fraction(3, 2), Fraction(2))}
    costs = survey(PUBLIC, scene("gnmax"), axes).costs
    assert costs["gdp"][1][0] is None
    assert costs["zcdp"][1][0] == Fraction(4, 9)
    assert costs["gdp"][1][1] == Gdp().cost(GNMax(Fraction(2), 1).worst[0])


def test_finer_axes_lie_between_the_neighbours_of_a_point() -> None:
    axes = {
        "label": (Fraction(10), Fraction(20), Fraction(40)),
        "sigma1": (Fraction(50),),
        "threshold": (Fraction(60), Fraction(70), Fraction(80)),
    }
    point = {"label": Fraction(20), "sigma1": Fraction(50), "threshold": Fraction(80)}
    fine = fine_axes(axes, point)
    assert fine["label"][0] == 10
    assert fine["label"][-1] == 40
    assert Fraction(20) in fine["label"]
    assert fine["sigma1"] == (Fraction(50),)
    assert fine["threshold"][0] == 70
    assert fine["threshold"][-1] == 80
    assert all(value.denominator in (1, 2, 4) for axis in fine.values() for value in axis)


def test_noise_of_a_search_stays_within_what_a_plan_can_have() -> None:
    axes = coarse_axes(2**17, scene(votes_per_unit=1000), 1e-9)
    assert max(axes["label"]) == max(axes["sigma1"]) == 2**17
    assert min(axes["threshold"]) >= 1


def test_progress_ends_where_it_said_it_would() -> None:
    steps: list[tuple[int, int]] = []
    Search(PUBLIC, scene("gnmax"), 2.0, SURE, progress=lambda *step: steps.append(step))
    assert [done for done, _ in steps] == sorted({done for done, _ in steps})
    assert len({total for _, total in steps}) == 1
    assert steps[-1][0] == steps[-1][1]


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf])
def test_senseless_budgets_are_refused(epsilon: float) -> None:
    with pytest.raises(UsageError, match="epsilon"):
        Search(PUBLIC, scene(), epsilon, SURE)


def test_senseless_goals_and_scenes_are_refused() -> None:
    for at_least, accuracy in ((0.0, 0.5), (-1.0, 0.5), (math.nan, 0.5), (1.0, 1.1), (1.0, -0.1)):
        with pytest.raises(UsageError):
            Goal(at_least, accuracy)
    for changes in (
        {"kind": "interactive-gnmax"},
        {"queries": 0},
        {"rounds": 0},
        {"share": Fraction(0)},
        {"share": Fraction(3, 2)},
    ):
        with pytest.raises(UsageError):
            scene(**changes)
