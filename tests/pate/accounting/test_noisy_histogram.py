"""The privacy loss towards a server that sees noisy histograms, by independent sums over the integers."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.special import logsumexp

from pate.accounting.events import NoisyHistogram

if TYPE_CHECKING:
    from pate.accounting.arrays import Floats

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
        bound = event.rdp(order)
        assert 2 * shift_divergence(law, k, order) <= bound * (1 + 1e-9)
        assert bound >= float(plain) * order
    if sigma >= Fraction(5, 2):
        assert float(event.rho) == pytest.approx(float(plain), rel=1e-12)


def test_many_shares_of_some_size_need_no_correction_worth_the_name() -> None:
    event = NoisyHistogram(Fraction(2), 1000, 1)
    assert float(event.rho) == pytest.approx(1 / 4000, rel=1e-9)
