from __future__ import annotations

from fractions import Fraction
from typing import ClassVar

import numpy as np
import pytest

import pate
from pate import ConfidentGNMax, GNMax, LabelSource, LNMax
from pate.accounting.composition import Gdp, total_cost
from pate.errors import AccountingError, BudgetError, UsageError
from pate.mechanisms import DistributedGNMax, InteractiveGNMax, Mechanism, Neighbour
from pate.mechanisms.contract import Votes
from pate.noise.lanes import Integers
from tests.support.simulated_noise import SimulatedNoise

#: A hundred queries on which 1,000 teachers agree.
AGREED = np.tile(np.array([[1_000, 0, 0]]), (100, 1))
NARROW = GNMax(Fraction(10), votes_per_unit=1)


def source(
    mechanism: Mechanism = NARROW, *, queries: int = 5, votes: Votes = AGREED
) -> LabelSource:
    """A source whose budget covers a number of queries and a half."""
    cost = total_cost(Gdp(), mechanism.worst)
    epsilon = Gdp().epsilon(cost * queries + cost / 2, 1e-5)
    return LabelSource(votes, mechanism, epsilon=epsilon, delta=1e-5)


def test_it_stops_when_the_next_query_would_not_fit() -> None:
    answers = source(queries=5).answer()
    assert answers.asked == (0, 1, 2, 3, 4)
    # 1,000 votes ahead at sigma 10: another label has a chance below e^-2000.
    assert answers.labels == dict.fromkeys(range(5), 0)


def test_an_answer_costs_once() -> None:
    labels = source(queries=5)
    for _ in range(20):
        assert labels.answer([7]).labels == {7: 0}
    assert labels.answer().asked == (7, 0, 1, 2, 3)
    with pytest.warns(UserWarning, match="pays for no further answer: 1 queries are not answered"):
        assert labels.answer([50, 7]).asked == (7, 0, 1, 2, 3)
    assert labels.answer([7]).asked == (7, 0, 1, 2, 3)


def test_a_query_without_an_answer_gives_back_the_cost_of_its_label() -> None:
    split = np.tile(np.array([[334, 333, 333]]), (100, 1))
    mechanism = ConfidentGNMax(900, Fraction(20), Fraction(10), votes_per_unit=1)
    answers = source(mechanism, queries=3, votes=split).answer()
    # 566 votes below the threshold at sigma 20: an answer has a chance below e^-400.
    assert answers.labels == {}
    # In checks, a ninth of the worst cost each: 31.5 in all, and the last one needs 9 at hand.
    assert len(answers.asked) == 23


def test_the_epsilon_is_the_cap_before_and_after() -> None:
    labels = LabelSource(AGREED, NARROW, epsilon=1.0, delta=1e-5)
    before = labels.answers.epsilon
    assert 0.99 < before <= 1.0
    assert labels.answer().epsilon == before
    assert "epsilon 1 at delta 1e-05 (unit: record" in str(labels.answers)


def test_what_fails_after_the_charge_has_cost_the_worst() -> None:
    class Broken:
        production: ClassVar[bool] = True

        def gaussian(self, sigma: Fraction, count: int) -> Integers:
            raise AccountingError("no noise")

        def laplace(self, scale: Fraction, count: int) -> Integers:
            raise AccountingError("no noise")

    cost = total_cost(Gdp(), NARROW.worst)
    epsilon = Gdp().epsilon(cost * 5 + cost / 2, 1e-5)
    labels = LabelSource(AGREED, NARROW, epsilon=epsilon, delta=1e-5, noise=Broken())
    with pytest.raises(AccountingError, match="no noise"):
        labels.answer([0, 1])
    answers = labels.answer([0, 1])
    assert answers.labels == {}
    assert answers.asked == (0, 1)


def test_votes_are_copied() -> None:
    votes = AGREED.copy()
    labels = source(votes=votes)
    votes[:] = [0, 0, 1_000]
    assert labels.answer([0]).labels == {0: 0}


@pytest.mark.parametrize(
    ("mechanism", "why"),
    [
        (DistributedGNMax(Fraction(10), 3, 1), "run a campaign"),
        (Neighbour(10, Fraction(10), 1), "run a campaign"),
        (InteractiveGNMax(10, Fraction(10), Fraction(10), Fraction(1, 2), 1), "run a campaign"),
    ],
)
def test_mechanisms_that_need_more_than_votes_are_refused(mechanism: Mechanism, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        LabelSource(AGREED, mechanism, epsilon=1, delta=1e-5)


def test_seeded_noise_is_refused() -> None:
    with pytest.raises(UsageError, match="seed"):
        LabelSource(AGREED, NARROW, epsilon=1, delta=1e-5, noise=SimulatedNoise(1))


@pytest.mark.parametrize(
    ("votes", "why"),
    [
        ([[1, 2], [2, 2]], "query 0 has 3 votes, query 1 has 4"),
        ([[1, 2], [3]], "inhomogeneous"),
        ([[0.5, 1.5]], "query 0, class 0 is 0.5; votes must be whole numbers"),
        ([[0.5, 0.5]], "shares that sum to 1"),
        ([[float("nan"), 1.0]], "must be whole numbers"),
        ([[-1, 2]], "not negative"),
        ([1, 2, 3], "labels, it seems, not votes"),
        ([["a", "b"]], "not numbers"),
        ([[True, False]], "not numbers"),
    ],
)
def test_votes_that_are_none_are_refused(votes: object, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        LabelSource(votes, NARROW, epsilon=1, delta=1e-5)  # type: ignore[arg-type]


@pytest.mark.parametrize(("epsilon", "delta"), [(0, 1e-5), (float("nan"), 1e-5), (1, 0), (1, 2)])
def test_a_budget_that_is_none_is_refused(epsilon: float, delta: float) -> None:
    with pytest.raises(UsageError, match=r"epsilon|delta"):
        LabelSource(AGREED, NARROW, epsilon=epsilon, delta=delta)


def test_whole_floats_are_votes() -> None:
    assert source(votes=AGREED.astype(float)).answer([0]).labels == {0: 0}
    assert source(votes=AGREED.astype(np.uint16)).answer([0]).labels == {0: 0}


def test_a_notebook_shows_the_figures_and_no_label() -> None:
    answers = source(queries=5).answer()
    said = "5 labels of 5 queries asked; epsilon"
    assert repr(answers) == str(answers)
    assert repr(answers).startswith(said)
    assert repr(answers).endswith("; 9 % of the budget is left")
    assert answers.left == pytest.approx(0.5 / 5.5)
    assert answers._repr_html_().startswith(f"<p>{said}")


def test_a_series_has_a_row_for_each_query() -> None:
    answers = source(queries=2).answer([7, 3])
    index = [f"patient {number}" for number in range(100)]
    series = answers.to_series(index)
    assert (list(series.index), series.name, str(series.dtype)) == (index, "label", "Int64")
    assert series.dropna().to_dict() == {"patient 3": 0, "patient 7": 0}
    assert answers.to_series().dropna().index.tolist() == [3, 7]
    with pytest.raises(UsageError, match="an index of 3 for 100 queries"):
        answers.to_series([1, 2, 3])


def test_what_is_charged_and_left_is_said() -> None:
    labels = source(queries=5)
    assert (labels.spent, labels.left, labels.epsilon_charged) == (0, 1, 0)
    promised = labels.answer().epsilon
    assert labels.spent == pytest.approx(5 / 5.5)
    assert labels.left == pytest.approx(0.5 / 5.5)
    assert 0 < labels.epsilon_charged < promised


def test_queries_that_are_none_are_refused() -> None:
    for query in (-1, 100, True):
        with pytest.raises(UsageError, match="no query"):
            source().answer([query])


def test_a_budget_that_pays_for_nothing_is_refused() -> None:
    with pytest.raises(BudgetError, match=r"one answer may cost epsilon .* the budget is 0.01"):
        LabelSource(AGREED, LNMax(Fraction(1, 20), 1), epsilon=0.01, delta=1e-5)


def test_every_name_of_the_front_door_is_there() -> None:
    for name in pate.__all__:
        assert getattr(pate, name).__name__ == name
    with pytest.raises(AttributeError, match="nothing"):
        pate.nothing  # noqa: B018
