"""The privacy loss towards a server that sees noisy histograms, by independent sums."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.special import logsumexp

from pate.accounting.arrays import Floats
from pate.accounting.composition import Gdp, Pure, Zcdp, tightest
from pate.accounting.events import (
    GaussianMax,
    GeometricHistogram,
    LaplaceMax,
    NoisyArray,
    NoisyHistogram,
)
from pate.accounting.gdp import delta_from_epsilon, mu_of
from pate.errors import AccountingError, UsageError

ORDERS = (1.05, 1.5, 2.0, 2.5)


def shift_divergence(log_p: Floats, shift: int, order: float) -> float:
    """D(P shifted || P) for a law on -R .. R, by its plain definition."""
    here, there = log_p[shift:], log_p[: log_p.size - shift]
    return float(logsumexp(order * there + (1 - order) * here) / (order - 1))


def sum_of_shares(sigma: Fraction, shares: int) -> Floats:
    """Log masses of a sum of discrete Gaussians, as far out as floats reach."""
    variance = float(sigma) ** 2
    reach = math.ceil(25 * math.sqrt(variance))
    one = np.exp(-(np.arange(-reach, reach + 1.0) ** 2) / (2 * variance))
    law = one = one / one.sum()
    for _ in range(shares - 1):
        law = np.convolve(law, one)
    made: Floats = np.log(law[law > 1e-290])
    return made


@pytest.mark.parametrize("sigma", [Fraction(1), Fraction(5, 4), Fraction(3, 2), Fraction(5, 2)])
@pytest.mark.parametrize("shares", [1, 2, 3, 8])
@pytest.mark.parametrize("k", [1, 2])
def test_shares_of_discrete_noise(sigma: Fraction, shares: int, k: int) -> None:
    event, law = NoisyHistogram(sigma, shares, k), sum_of_shares(sigma, shares)
    plain = Fraction(k**2) / (shares * sigma**2)
    for order in ORDERS:
        bound = float(event.rho) * order
        assert 2 * shift_divergence(law, k, order) <= bound * (1 + 1e-9)
        assert bound >= float(plain) * order
    if sigma >= Fraction(5, 2):
        assert float(event.rho) == pytest.approx(float(plain), rel=1e-12)


def test_many_shares_of_some_size_need_no_correction_worth_the_name() -> None:
    event = NoisyHistogram(Fraction(2), 1000, 1)
    assert float(event.rho) == pytest.approx(1 / 4000, rel=1e-9)


@pytest.mark.parametrize("votes", [1, 3])
def test_an_array_that_changes_like_a_histogram_costs_the_same(votes: int) -> None:
    plain = NoisyHistogram(Fraction(9, 4), 3, votes)
    array = NoisyArray(Fraction(9, 4), 3, 2 * votes**2, 2 * votes)
    assert array.rho == plain.rho
    assert array.ripple == plain.ripple
    assert Gdp().cost(array) == Gdp().cost(plain)


@pytest.mark.parametrize("change", [(1,) * 6, (-1, 1) * 5, (2, -1, 1), (3,), (2, -2, 2, -2)])
@pytest.mark.parametrize("shares", [1, 3])
def test_an_array_may_change_in_any_way_within_the_bounds(
    change: tuple[int, ...], shares: int
) -> None:
    """The divergence of a product of laws is the sum of its parts."""
    sigma = Fraction(5, 4)
    event = NoisyArray(sigma, shares, sum(each**2 for each in change), len(change))
    law = sum_of_shares(sigma, shares)
    for order in ORDERS:
        exact = sum(shift_divergence(law, abs(each), order) for each in change)
        bound = float(event.rho) * order
        assert exact <= bound * (1 + 1e-9)
        # And it is no loose bound.
        assert exact > 0.75 * bound


@pytest.mark.parametrize("moved", [2, 20])
def test_the_exact_profile_of_many_small_changes_is_below_the_gaussian(moved: int) -> None:
    """One draw on each of 2 or 20 counts that change by one; the sum of the draws tells all."""
    sigma = 4
    event = NoisyArray(Fraction(sigma), 1, moved, moved)
    mu = mu_of(2 * Gdp().cost(event))
    one = np.exp(sum_of_shares(Fraction(sigma), 1))
    law = one
    for _ in range(moved - 1):
        law = np.convolve(law, one)
    at = np.arange(law.size) - law.size // 2
    for epsilon in (0.1, 0.5, 1.0, 2.0):
        gain = np.exp((2 * at - moved) / (2 * sigma**2)) - math.exp(epsilon)
        exact = float((law * np.clip(gain, 0, None)).sum())
        assert exact <= delta_from_epsilon(mu, epsilon)
        assert exact > 0.6 * delta_from_epsilon(mu, epsilon)


@pytest.mark.parametrize(
    ("squared", "moved"),
    [(0, 1), (1, 0), (True, 1), (2.0, 1), (2**80 + 1, 1), (2, 3), (2**40, 2**31 + 1), ("2", 1)],
)
def test_an_array_that_cannot_be_is_refused(squared: object, moved: object) -> None:
    with pytest.raises(UsageError):
        NoisyArray(Fraction(4), 2, squared, moved)  # type: ignore[arg-type]


@pytest.mark.parametrize("change", [(2, -1, 1), (3, -3), (1, 1, 1)])
@pytest.mark.parametrize(("honest", "left"), [(1, 1), (2, 2), (2, 3)])
def test_the_exact_profile_of_shares_is_below_the_charge(
    change: tuple[int, ...], honest: int, left: int
) -> None:
    """Hockey-stick divergence of all counts together, by enumeration of their noise.

    ``left`` is the number of shares that the observer does not know: of parties that neither dropped
    out nor collude, ``honest`` or more. Known shares shift both worlds alike.
    """
    sigma = Fraction(2)
    event = NoisyArray(sigma, honest, sum(each**2 for each in change), len(change))
    mu = mu_of(2 * Gdp().cost(event))
    law = np.exp(sum_of_shares(sigma, left))
    middle = law.size // 2
    law = law[max(0, middle - 40) : middle + 41]
    here, there = np.ones(1), np.ones(1)
    for shift in change:
        room = np.pad(law, abs(shift))
        here = np.multiply.outer(here, room).ravel()
        there = np.multiply.outer(there, np.roll(room, shift)).ravel()
    for epsilon in (0.25, 1.0, 2.0):
        exact = float(np.clip(here - math.exp(epsilon) * there, 0, None).sum())
        assert exact <= delta_from_epsilon(mu, epsilon)
        if left == honest:
            assert exact > 0.5 * delta_from_epsilon(mu, epsilon)
    if honest == 2:  # with a share less than is counted it would not hold
        alone = np.exp(sum_of_shares(sigma, 1))
        first = np.pad(alone, 3)
        far = np.roll(first, 3)
        one = NoisyArray(sigma, 2, 9, 1)
        worst = float(np.clip(first - math.exp(1.0) * far, 0, None).sum())
        assert worst > delta_from_epsilon(mu_of(2 * Gdp().cost(one)), 1.0)


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
