"""A lying server in all rounds of a campaign: what it finds is nearly what is charged, and no more."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from pate.accounting.composition import Gdp
from pate.accounting.events import NoisyArray
from pate.campaign.terms import round_mechanisms
from pate.codes import GRID, code_of
from pate.mechanisms import rounds_cost
from pate.rounds.model import RoundModel
from pate.rounds.record_array import residual_sums
from tests.support.audits import laws
from tests.support.world.kinds import Kind

DELTA = 1e-5
KIND = Kind(
    "neighbour", "capped", "dense", "residual", "record", "alone", "plain", "central", "gaussian",
    "table", "unproved", "labels",
)  # fmt: skip


def moved() -> int:
    """By how much a record that says another class moves the difference of two counts in a round.

    The server shows the model that makes arrays the longest: undecided, and cut at once.
    """
    shown = RoundModel(np.zeros((2, 2), np.int64), 1)
    code = np.array([[GRID, 0]])
    here, there = (residual_sums(code, np.array([label]), 2, shown) for label in (0, 1))
    assert not (here - there)[1].any()
    first, second = (here - there)[0].tolist()
    return abs(int(first) - int(second))


def found(sigma: Fraction, rounds: int) -> float:
    """The epsilon at DELTA that follows from exact probabilities of one event in both worlds.

    The event: the differences of the two counts, of all rounds together, reach a level.
    """
    noise = laws.total(laws.gaussian(sigma), 2 * rounds)
    above = noise[::-1].cumsum()[::-1]
    shift = rounds * moved()
    # What the convolution may be wrong by is far below the least that is looked at.
    here, there = above[:-shift], above[shift:]
    seen = (here > 2 * DELTA) & (there > 1e-9)
    return float(np.log((here[seen] - DELTA) / there[seen]).max())


@pytest.mark.parametrize(("epsilon", "rounds"), [(0.5, 2), (2.0, 3), (6.0, 4)])
def test_a_liar_finds_nearly_what_is_charged_and_no_more(epsilon: float, rounds: int) -> None:
    spec = KIND.spec(epsilon=epsilon, delta=DELTA, rounds=1 + rounds)
    counts, residuals = round_mechanisms(spec, 1)
    cost = rounds_cost(Gdp(), (counts, residuals), 1 + rounds)
    assert 0.999 * epsilon <= Gdp().epsilon(cost, DELTA) <= epsilon
    assert isinstance(residuals.worst[0], NoisyArray)
    assert residuals.worst[0].squared == code_of(spec.code).change(1).squared == 4 * GRID**2
    sigma = residuals.worst[0].share
    # Without the class counts, that are a hundredth and a half of it.
    assert 0.95 * epsilon <= found(sigma, rounds) <= epsilon
    # A round that is not charged is seen, and so is a sum that is charged as if it could not be altered.
    assert found(sigma, rounds + 1) > epsilon
    assert found(sigma / 2, rounds) > epsilon
