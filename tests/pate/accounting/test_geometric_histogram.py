"""The event of a histogram with geometric noise: its cost, against exact laws on tiny worlds."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from pate.accounting.composition import Gdp, Pure, Zcdp, tightest
from pate.accounting.events import GaussianMax, GeometricHistogram, LaplaceMax, NoisyHistogram
from pate.errors import AccountingError

EVENT = GeometricHistogram(Fraction(20), 3, 2)


def test_it_costs_its_epsilon_and_half_the_square_of_it() -> None:
    assert EVENT.epsilon == Fraction(1, 10)
    assert EVENT.rho == Fraction(1, 200)
    assert (Pure().cost(EVENT), Zcdp().cost(EVENT)) == (Fraction(1, 10), Fraction(1, 200))
    # The number of shares is in no figure: what they sum to is the same law.
    assert GeometricHistogram(Fraction(20), 7, 2).epsilon == EVENT.epsilon


def test_one_event_has_pure_composition_and_others_what_they_had() -> None:
    assert tightest([EVENT]).name == "pure"
    assert tightest([NoisyHistogram(Fraction(40), 3, 1)]).name == "gdp"
    assert tightest([LaplaceMax(Fraction(20), 1)]).name == "zcdp"
    assert tightest([EVENT, GaussianMax(Fraction(40), 1)]).name == "zcdp"
    assert tightest([]).name == "gdp"
    assert not Gdp().supports(EVENT)
    with pytest.raises(AccountingError, match="pure"):
        Pure().cost(LaplaceMax(Fraction(20), 1))


def test_pure_costs_convert_at_delta_0_and_are_rounded_up() -> None:
    pure = Pure()
    for delta in (0.0, 1e-5):
        assert pure.epsilon(Fraction(0), delta) == 0.0
        assert Fraction(pure.epsilon(Fraction(1, 3), delta)) >= Fraction(1, 3)
        for epsilon in (0.1, 0.3, 1.0, 7.7):
            assert pure.epsilon(pure.budget(epsilon, delta), delta) == epsilon
    for delta in (-1e-9, 1.0, math.nan, math.inf):
        with pytest.raises(AccountingError, match="delta"):
            pure.epsilon(Fraction(1), delta)
    for epsilon in (-0.1, math.nan, math.inf):
        with pytest.raises(AccountingError, match="epsilon"):
            pure.budget(epsilon, 0.0)
    with pytest.raises(AccountingError):
        pure.epsilon(Fraction(-1), 0.0)


def law_of_sum(scale: float, shares: int, parties: int, reach: int) -> np.ndarray[Any, Any]:
    """The law of ``parties`` shares on -reach .. reach, by convolving the two sides of each."""
    from scipy.stats import nbinom

    one = nbinom.pmf(np.arange(2 * reach + 1), parties / shares, -math.expm1(-1 / scale))
    whole = np.convolve(one, one[::-1])
    middle = len(one) - 1
    made: np.ndarray[Any, Any] = whole[middle - reach : middle + reach + 1]
    return made


#: Of all units: (before, after) histograms over three counts, with at most two votes each.
HISTOGRAMS = [
    counts for counts in itertools.product(range(3), repeat=3) if sum(counts) <= 2
]  # fmt: skip


@pytest.mark.parametrize(("honest", "parties"), [(1, 1), (3, 3), (3, 4), (2, 5)])
def test_no_likelihood_ratio_exceeds_the_charged_epsilon(honest: int, parties: int) -> None:
    """The hockey-stick divergence at delta 0, over every pair of neighbours of two votes.

    Shares of more parties than are counted make it no larger.
    """
    scale, reach = 1.5, 40
    law = law_of_sum(scale, honest, parties, reach)
    inner = slice(12, 2 * reach + 1 - 12)
    worst = dict.fromkeys(range(-2, 3), 0.0)
    for shift in worst:
        moved = np.roll(law, shift)
        worst[shift] = float(np.log(law[inner] / moved[inner]).max())
    largest = 0.0
    for before, after in itertools.product(HISTOGRAMS, repeat=2):
        shifts = [b - a for a, b in zip(before, after, strict=True)]
        distance = sum(map(abs, shifts))
        assert distance <= 4  # a unit of two votes, altered
        ratio = sum(worst[shift] for shift in shifts)
        if distance:
            event = GeometricHistogram(Fraction(3, 2), honest, distance)
            assert ratio <= float(event.epsilon) * (1 + 1e-9)
        largest = max(largest, ratio)
    charged = float(GeometricHistogram(Fraction(3, 2), honest, 4).epsilon)
    assert largest <= charged * (1 + 1e-9)
    # With just the counted shares the charge is reached.
    assert parties > honest or largest == pytest.approx(charged, rel=1e-6)


@pytest.mark.parametrize(("honest", "left"), [(1, 1), (3, 3), (3, 4), (2, 5)])
@pytest.mark.parametrize("change", [(5,), (-7, 2), (3, -1, 1, -4)])
def test_an_array_with_signs_is_within_the_charge_and_with_a_share_less_is_not(
    change: tuple[int, ...], honest: int, left: int
) -> None:
    """As dense votes change: the exact likelihood ratio of all counts together, at delta 0."""
    scale, reach = 1.5, 60
    inner = slice(16, 2 * reach + 1 - 16)

    def worst(shares: int) -> float:
        law = law_of_sum(scale, honest, shares, reach)
        return sum(float(np.log(law[inner] / np.roll(law, shift)[inner]).max()) for shift in change)

    distance = sum(map(abs, change))
    charged = float(GeometricHistogram(Fraction(3, 2), honest, distance).epsilon)
    assert worst(left) <= charged * (1 + 1e-9)
    if left == honest:
        assert worst(left) == pytest.approx(charged, rel=1e-6)
    if honest > 1:
        assert worst(honest - 1) > charged * (1 + 1e-3)
