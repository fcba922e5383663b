"""The rule of rounds: monotone, exact in its sum, and the same plans as were published."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import pytest

from pate.accounting.gdp import mu_squared_from_epsilon
from pate.errors import UsageError
from pate.rounds.plan import DIRECTIONS, MOST_ROUNDS, directions_of, parts_of, plan_of, told_apart


def mu(epsilon: float) -> float:
    return math.sqrt(mu_squared_from_epsilon(epsilon, 1e-5))


@pytest.mark.parametrize(("classes", "records"), [(2, 550), (4, 5_000), (10, 21_000), (77, 7_500)])
def test_less_noise_never_has_fewer_rounds_or_directions(classes: int, records: int) -> None:
    epsilons = (0.01, 0.1, 0.5, 1.0, 4.0, 8.0, 50.0)
    for more in (1, 10):
        plans = [plan_of(classes, 128, more * records, mu(epsilon)) for epsilon in epsilons]
        for before, after in itertools.pairwise(plans):
            assert before.rounds <= after.rounds
            assert before.kappa <= after.kappa
        numbers = [directions_of(classes, more * records, mu(each), 4_000) for each in epsilons]
        assert numbers == sorted(numbers)
        assert set(numbers) <= {8, *DIRECTIONS}


def test_there_are_no_more_directions_than_public_rows() -> None:
    assert directions_of(2, 10**6, 1.0, 100) == DIRECTIONS[0]
    assert directions_of(2, 10**6, 1.0, 50) == 50


@pytest.mark.parametrize("rounds", [1, 2, 3, 7, MOST_ROUNDS])
def test_parts_add_up_to_the_whole_exactly(rounds: int) -> None:
    whole = mu_squared_from_epsilon(1.0, 1e-5)
    parts = parts_of(whole, rounds)
    assert len(parts) == rounds + 1
    assert sum(parts) == whole
    assert min(parts) > 0


def test_each_of_several_labels_is_a_question_of_two_classes() -> None:
    """Nine groups of diagnoses of 45,493 patients, altered: the rows of docs/votes.md."""
    found = {}
    for epsilon in (0.1, 0.5, 1.0):
        classes = told_apart(10, several=True)
        number = directions_of(classes, 45_493, mu(epsilon) / 2, 9_967)
        found[epsilon] = number, plan_of(classes, number, 45_493, mu(epsilon) / 2).kappa
    assert found == {0.1: (64, 0.5), 0.5: (256, 0.5), 1.0: (256, 1.0)}
    assert told_apart(10, several=False) == 10


def test_what_has_no_plan_is_refused() -> None:
    for wrong in ((1, 64, 100, 1.0), (2, 0, 100, 1.0), (2, 64, 0, 1.0), (2, 64, 100, 0.0)):
        with pytest.raises(UsageError):
            plan_of(*wrong)
    with pytest.raises(UsageError):
        plan_of(2, 64, float("nan"), 1.0)
    for rounds in (0, -1, MOST_ROUNDS + 1):
        with pytest.raises(UsageError):
            parts_of(Fraction(1), rounds)
