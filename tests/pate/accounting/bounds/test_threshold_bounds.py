"""The check, one bit: against 3000 digits, against all neighbours, and against the closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from pate.accounting.arrays import Floats
from pate.accounting.bounds.laws import DiscreteGaussian, Gaussian, Law
from pate.accounting.bounds.threshold import (
    joint,
    log_fail,
    log_pass,
    rdp_theorem6,
)
from pate.errors import AccountingError
from tests.support.accounting.exact import divergences

ORDERS = np.array([1.01, 1.5, 2.0, 5.0, 14.0, 60.0, 512.0])

#: v, T, sigma, k, order, divergence: both neighbours, continuous noise, with 3000 digits.
EXACT = [
    (214, 200, 150, 1, 2, 2.8209541953809577e-5),
    (0, 5000, 150, 1, 512, 2.8859714542774636e-197),
    (5000, 200, 150, 1, 14, 5.2675503798958633e-225),
    (5000, 4900, 1, 1, 2, 0.0),  # 6e-2131
    (4900, 5000, 1, 1, 512, 90.714401964771037),
    (30, 67, 1, 1, 14, 3.2567640744219692e-89),
    (30, 67, 1, 1, 40, 19.859179529701573),
    (67, 30, 1, 1, 512, 36.178233992659692),
    (200, 200, 5000, 1, 1.01, 1.2859719394637576e-8),
    (200, 200, 5000, 1, 512, 6.5117888136771155e-6),
    (250, 240, 3, 5, 1.01, 0.046545773142095516),
    (250, 240, 3, 5, 30, 7.0437090711243572),
    (3, 3, 1, 40, 2, 803.2221476526339),
    (100, 100.5, 40, 1, 1.5, 0.00029840641304929027),
    (1000, 1300, 40, 40, 20, 6.4859323199124048),
    (1300, 1000, 40, 40, 20, 6.4859323199124048),
]

#: v, T, sigma, log P[v + Z >= T]: with 50 digits.
PASSES = [
    (214, 200, 150, -0.62142088300296858),
    (120, 200, 150, -1.2143550854899097),
    (4500, 3500, 1500, -0.29101099055230867),
]

sigmas = st.floats(min_value=0.5, max_value=5000.0)
laws = st.one_of(
    sigmas.map(Gaussian),
    # A table for each: few of them.
    st.sampled_from([0.5, 1.0, 2.0, 3.3, 40.0, 150.0]).map(DiscreteGaussian),
)
counts = st.integers(min_value=0, max_value=5000)


def rdp_exact(v: float, threshold: float, law: Law, k: int, orders: ArrayLike) -> Floats:
    """The cost of the check: a label after it is free."""
    return joint([v], threshold, law, k, orders, np.zeros((1, np.size(orders))))[0]


@pytest.mark.parametrize(("v", "threshold", "sigma", "k", "order", "expected"), EXACT)
def test_against_many_digits(
    v: float, threshold: float, sigma: float, k: int, order: float, expected: float
) -> None:
    got = float(rdp_exact(v, threshold, Gaussian(sigma), k, [order])[0])
    assert expected <= got <= expected * (1 + 1e-9) + 1e-260


@pytest.mark.parametrize(("v", "threshold", "sigma", "expected"), PASSES)
def test_chance_to_pass(v: float, threshold: float, sigma: float, expected: float) -> None:
    assert log_pass([v], threshold, Gaussian(sigma))[0] == pytest.approx(expected, rel=1e-12)
    # By symmetry it is the chance to fail at the mirror image.
    mirrored = log_fail([2 * threshold - v], threshold, Gaussian(sigma))[0]
    assert mirrored == pytest.approx(expected, rel=1e-12)


@given(laws, st.floats(min_value=0, max_value=5000), st.floats(min_value=-100, max_value=5000))
def test_the_bit_is_one_or_the_other(
    law: Gaussian | DiscreteGaussian, v: float, threshold: float
) -> None:
    passed, failed = log_pass([v], threshold, law)[0], log_fail([v], threshold, law)[0]
    assert math.exp(passed) + math.exp(failed) == pytest.approx(1.0, abs=1e-12)


def test_the_discrete_law_passes_at_the_threshold_and_fails_below_it() -> None:
    x = np.arange(-400.0, 401.0)
    mass = np.exp(-(x**2) / 18.0)
    mass /= mass.sum()
    for v, threshold in [(10, 10), (10, 13), (13, 10), (10.4, 12.0), (-2, 3)]:
        passed = mass[v + x >= threshold].sum()
        law = DiscreteGaussian(3.0)
        assert math.exp(log_pass([v], threshold, law)[0]) == pytest.approx(passed, rel=1e-12)
        assert math.exp(log_fail([v], threshold, law)[0]) == pytest.approx(1 - passed, rel=1e-12)


@given(laws, counts, counts, st.integers(1, 6))
def test_no_neighbour_is_further_away(
    law: Gaussian | DiscreteGaussian, v: int, threshold: int, k: int
) -> None:
    bound = rdp_exact(v, threshold, law, k, ORDERS)
    near = np.arange(v - k, v + k + 1.0)
    here = np.array([log_pass([v], threshold, law)[0], log_fail([v], threshold, law)[0]])
    there = np.array([log_pass(near, threshold, law), log_fail(near, threshold, law)]).T
    others = np.delete(there, k, axis=0)
    if max(here.max(), others.max()) > -1e-12:
        return  # the sums of the exact divergence have no digits for that
    found = divergences(here, others, ORDERS).max(axis=0)
    # The oracle subtracts logarithms, and is itself good to this.
    rounding = 1e-9 + 1e-13 * (1.0 + law.sigma) * (1.0 + np.abs(here).max())
    assert (found <= bound * (1 + rounding) + 1e-16).all()
    independent = k**2 / (2 * law.sigma**2) * ORDERS
    assert (bound <= independent * (1 + 1e-9) + 1e-260).all()


@given(st.sampled_from([1.0, 3.0, 40.0, 150.0]).map(Gaussian), counts, counts, st.integers(1, 6))
def test_theorem_6_is_never_sharper(law: Gaussian, v: int, threshold: int, k: int) -> None:
    exact = rdp_exact(v, threshold, law, k, ORDERS)
    # The exact one holds its rounding on the safe side, down to 1e-270.
    assert (exact <= rdp_theorem6([v], threshold, law, k, ORDERS) * (1 + 1e-10) + 1e-260).all()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_stops_the_accountant(bad: float) -> None:
    """And joint, in test_confident_bounds.py."""
    law = Gaussian(3.0)
    with pytest.raises(AccountingError):
        rdp_theorem6([bad], 5.0, law, 1, [2.0])
    with pytest.raises(AccountingError):
        log_pass([bad], 5.0, law)
    with pytest.raises(AccountingError):
        log_fail([5.0], bad, law)
