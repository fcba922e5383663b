"""The privacy loss towards a server that sees noisy histograms, by independent sums over the integers."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import logsumexp

from pate.accounting.arrays import Floats
from pate.accounting.composition import Gdp
from pate.accounting.events import NoisyArray, NoisyHistogram
from pate.accounting.gdp import delta_from_epsilon, mu_of
from pate.errors import UsageError

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
