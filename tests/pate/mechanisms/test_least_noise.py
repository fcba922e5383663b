"""The least noise of a matrix of votes, by both laws, and which of them is taken."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from pate.accounting.composition import Pure, total_cost
from pate.errors import BudgetError
from pate.mechanisms import DistributedNeighbour, Neighbour
from pate.mechanisms.least_noise import (
    clear_margin,
    law_of_least_noise,
    least_noise,
    least_scale,
    spreads_of,
)
from pate.noise.exact import SystemNoise
from pate.noise.share_laws import GaussianShares, GeometricShares
from tests.support.noise_laws import FALSE_ALARM, chi_square, weights

DELTA = 1e-5


@pytest.mark.parametrize("votes", [1, 2, 30])
@pytest.mark.parametrize("epsilon", [0.02, 0.1, 0.3, 1.0, 2.0, 7.7])
@pytest.mark.parametrize("honest", [1, 3, 20])
def test_the_least_scale_fits_and_nothing_less_does(
    epsilon: float, honest: int, votes: int
) -> None:
    scale = least_scale(epsilon, honest, 2 * votes)

    def worth(value: Fraction) -> float:
        mechanism = DistributedNeighbour(0, honest=honest, votes_per_unit=votes, scale=value)
        return Pure().epsilon(total_cost(Pure(), mechanism.worst), 0.0)

    assert (scale * 64).denominator == 1
    assert worth(scale) <= epsilon
    assert worth(scale - Fraction(1, 64)) > epsilon


@pytest.mark.parametrize(
    ("epsilon", "gaussian", "geometric"),
    [
        (0.05, 81.7, 56.6), (0.1, 43.5, 28.3), (0.5, 9.97, 5.64), (1.0, 5.31, 2.80),
        (2.0, 2.89, 1.36),
    ],
)  # fmt: skip
def test_the_standard_deviations_of_some_budgets(
    epsilon: float, gaussian: float, geometric: float
) -> None:
    """Geometric noise by its own formula, sqrt(2 a)/(1 - a) with a = exp(-epsilon/2)."""
    found = spreads_of(epsilon, DELTA, 1, 1, 1)
    a = math.exp(-epsilon / 2)
    assert found["geometric"] == pytest.approx(math.sqrt(2 * a) / (1 - a), rel=1e-3)
    assert found["geometric"] == pytest.approx(geometric, rel=4e-3)
    assert found["gaussian"] == pytest.approx(gaussian, rel=1e-2)
    assert law_of_least_noise(epsilon, DELTA, 1, 1, 1) == "geometric"


def test_the_smaller_noise_is_taken() -> None:
    # A delta that is worth more than pure epsilon costs.
    assert law_of_least_noise(0.1, 1e-2, 3, 5, 1) == "gaussian"
    assert law_of_least_noise(0.0001, DELTA, 1, 1, 1) == "gaussian"
    # Neither the number of votes nor that of the parties matters, but for the grid.
    for votes, honest, parties in ((1, 1, 1), (7, 4, 6), (30, 20, 20)):
        assert law_of_least_noise(0.1, DELTA, honest, parties, votes) == "geometric"
        found = spreads_of(0.1, DELTA, honest, parties, votes)
        assert found["gaussian"] / found["geometric"] == pytest.approx(1.54, rel=0.01)


def test_at_delta_0_noise_is_geometric() -> None:
    assert least_noise(0.1, 0.0, 3, 1) == GeometricShares(Fraction(20), 3)
    assert isinstance(least_noise(0.1, DELTA, 3, 1), GaussianShares)
    assert spreads_of(0.1, 0.0, 1, 1, 1).keys() == {"geometric"}


@pytest.mark.parametrize("epsilon", [0.0, -1.0, 1e-9, math.nan])
def test_a_budget_that_no_noise_is_worth_is_refused(epsilon: float) -> None:
    with pytest.raises(BudgetError, match="no geometric noise"):
        least_scale(epsilon, 3, 2)


def test_noise_too_wide_for_shares_leaves_the_other_law() -> None:
    assert least_scale(0.0004, 1, 2) == 5000
    with pytest.raises(BudgetError, match="no geometric noise"):
        least_scale(0.0004, 3, 2)
    assert law_of_least_noise(0.0004, DELTA, 3, 5, 1) == "gaussian"


@pytest.mark.parametrize(("honest", "parties"), [(1, 1), (3, 3), (3, 5)])
def test_what_is_released_has_the_law_that_is_charged(honest: int, parties: int) -> None:
    """False alarm 1e-6. With more shares than are counted, that law and independent noise."""
    from scipy import stats

    cells, scale = 50_000, Fraction(5)
    rows: Any = np.full((cells // 4, 4), 7, dtype=np.int64)
    noise = SystemNoise()
    if honest == 1:
        noisy = Neighbour(0, votes_per_unit=1, scale=scale).released(rows, noise)
    else:
        mechanism = DistributedNeighbour(0, honest=honest, votes_per_unit=1, scale=scale)
        total = rows
        for _ in range(parties):
            total = total + mechanism.shares.draw(noise, rows.size).reshape(rows.shape)
        noisy = mechanism.released(total, noise)
    drawn = (noisy - 7).ravel()
    reach = 400
    one = stats.nbinom.pmf(np.arange(2 * reach + 1), parties / honest, -math.expm1(-1 / 5))
    law = np.convolve(one, one[::-1])[reach : 3 * reach + 1]
    if parties == honest:  # by the other formula
        exact = weights(lambda x: abs(x) / 5, reach)
        np.testing.assert_allclose(law, list(exact.values()), rtol=1e-9, atol=1e-30)
    assert chi_square(drawn, dict(zip(range(-reach, reach + 1), law.tolist(), strict=True))) > (
        FALSE_ALARM
    )


@pytest.mark.parametrize(("scale", "parties"), [(Fraction(20), 3), (Fraction(20), 5)])
def test_two_classes_with_as_many_votes_seldom_have_a_clear_margin(
    scale: Fraction, parties: int
) -> None:
    """By the exact law of the difference of two counts: about 5 of a hundred."""
    from scipy import stats

    shares = GeometricShares(scale, 3)
    margin = clear_margin(shares, parties)
    reach = 3000
    one = stats.nbinom.pmf(
        np.arange(2 * reach + 1), 2 * parties / 3, -math.expm1(-1 / float(scale))
    )
    law = np.convolve(one, one[::-1])[reach : 3 * reach + 1]
    assert 0.04 < float(law[np.abs(np.arange(-reach, reach + 1)) >= margin].sum()) < 0.06
