"""The check, alone and with its label: against 3000 digits, all neighbours, and an exact mechanism."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from pate.accounting.arrays import Floats
from pate.accounting.bounds import threshold
from pate.accounting.bounds.laws import DiscreteGaussian, Gaussian, Law
from pate.accounting.bounds.threshold import expected, joint
from pate.accounting.units import Neighbours
from pate.errors import AccountingError, UsageError
from tests.support.accounting import exact

ORDERS = np.array([1.01, 1.5, 2.0, 6.0, 14.0, 40.0])
#: A label that costs nothing: what is left is the check.
FREE = np.zeros((1, len(ORDERS)))
MANY = np.array([1.01, 1.5, 2.0, 5.0, 14.0, 60.0, 512.0])

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
tops = st.integers(min_value=0, max_value=5000)


def alone(v: float, limit: float, law: Law, k: int, orders: ArrayLike) -> Floats:
    """The cost of the check: a label after it is free."""
    made: Floats = joint([v], limit, law, k, orders, np.zeros((1, np.size(orders))))[0]
    return made


# --- the check ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("v", "limit", "sigma", "k", "order", "expected"), EXACT)
def test_against_many_digits(
    v: float, limit: float, sigma: float, k: int, order: float, expected: float
) -> None:
    got = float(alone(v, limit, Gaussian(sigma), k, [order])[0])
    assert expected <= got <= expected * (1 + 1e-9) + 1e-260


@pytest.mark.parametrize(("v", "limit", "sigma", "expected"), PASSES)
def test_chance_to_pass(v: float, limit: float, sigma: float, expected: float) -> None:
    assert threshold.log_pass([v], limit, Gaussian(sigma))[0] == pytest.approx(expected, rel=1e-12)
    # By symmetry it is the chance to fail at the mirror image.
    mirrored = threshold.log_fail([2 * limit - v], limit, Gaussian(sigma))[0]
    assert mirrored == pytest.approx(expected, rel=1e-12)


@given(laws, st.floats(min_value=0, max_value=5000), st.floats(min_value=-100, max_value=5000))
def test_the_bit_is_one_or_the_other(
    law: Gaussian | DiscreteGaussian, v: float, limit: float
) -> None:
    passed, failed = threshold.log_pass([v], limit, law)[0], threshold.log_fail([v], limit, law)[0]
    assert math.exp(passed) + math.exp(failed) == pytest.approx(1.0, abs=1e-12)


def test_the_discrete_law_passes_at_the_threshold_and_fails_below_it() -> None:
    x = np.arange(-400.0, 401.0)
    mass = np.exp(-(x**2) / 18.0)
    mass /= mass.sum()
    for v, limit in [(10, 10), (10, 13), (13, 10), (10.4, 12.0), (-2, 3)]:
        passed = mass[v + x >= limit].sum()
        law = DiscreteGaussian(3.0)
        assert math.exp(threshold.log_pass([v], limit, law)[0]) == pytest.approx(passed, rel=1e-12)
        assert math.exp(threshold.log_fail([v], limit, law)[0]) == pytest.approx(
            1 - passed, rel=1e-12
        )


@given(laws, tops, tops, st.integers(1, 6))
def test_no_neighbour_is_further_away(
    law: Gaussian | DiscreteGaussian, v: int, limit: int, k: int
) -> None:
    bound = alone(v, limit, law, k, MANY)
    near = np.arange(v - k, v + k + 1.0)
    here = np.array(
        [threshold.log_pass([v], limit, law)[0], threshold.log_fail([v], limit, law)[0]]
    )
    there = np.array([threshold.log_pass(near, limit, law), threshold.log_fail(near, limit, law)]).T
    others = np.delete(there, k, axis=0)
    if max(here.max(), others.max()) > -1e-12:
        return  # the sums of the exact divergence have no digits for that
    found = exact.divergences(here, others, MANY).max(axis=0)
    # The oracle subtracts logarithms, and is itself good to this.
    rounding = 1e-9 + 1e-13 * (1.0 + law.sigma) * (1.0 + np.abs(here).max())
    assert (found <= bound * (1 + rounding) + 1e-16).all()
    independent = k**2 / (2 * law.sigma**2) * MANY
    assert (bound <= independent * (1 + 1e-9) + 1e-260).all()


@given(
    st.sampled_from([1.0, 3.0, 40.0, 150.0]).map(Gaussian),
    tops,
    tops,
    st.integers(1, 6),
)
def test_theorem_6_is_never_sharper(law: Gaussian, v: int, limit: int, k: int) -> None:
    bound = alone(v, limit, law, k, MANY)
    # It holds its rounding on the safe side, down to 1e-270.
    assert (bound <= threshold.rdp_theorem6([v], limit, law, k, MANY) * (1 + 1e-10) + 1e-260).all()


# --- check and label ---------------------------------------------------------------------------


def test_the_expected_cost_is_no_bound() -> None:
    here, order, law = np.array([8, 7]), np.array([40.0]), DiscreteGaussian(10.0)
    histograms = np.concatenate([here[None], exact.every_neighbour(here, Neighbours(1, "change"))])
    top = histograms.max(axis=1).astype(np.float64)
    passed, failed = threshold.log_pass(top, 20.0, law), threshold.log_fail(top, 20.0, law)
    log_labels = exact.log_labels(histograms, exact.Lattice("gaussian", 2.0))
    outcomes = np.column_stack([failed, passed[:, None] + log_labels])
    found = exact.divergences(outcomes[0], outcomes[1:], order).max()
    labels = exact.divergences(log_labels[0], log_labels[1:], order).max(axis=0)[None]
    checks = joint([8.0], 20.0, law, 1, order, FREE[:, :1])
    reported = float(expected(passed[:1], checks, labels)[0, 0])
    # Both parts are at their exact worst; what is reported is a fraction of the truth.
    assert found > 1.3 * reported
    assert found <= float(joint([8.0], 20.0, law, 1, order, labels)[0, 0])


def brute(p: float, other: float, label: float, order: float) -> float:
    passed = p**order * other ** (1 - order) * math.exp((order - 1) * label)
    failed = (1 - p) ** order * (1 - other) ** (1 - order)
    return math.log(passed + failed) / (order - 1)


@given(
    st.integers(0, 60),
    st.integers(1, 4),
    st.floats(2.0, 50.0),
    st.floats(1.5, 12.0),
    st.floats(0.0, 3.0),
)
def test_joint_is_its_formula(v: int, k: int, sigma: float, order: float, label: float) -> None:
    law = Gaussian(sigma)
    p, low, high = np.exp(threshold.log_pass([v, v - k, v + k], 30.0, law))
    if min(low, 1 - high) < 1e-9:
        return
    want = max(brute(p, low, label, order), brute(p, high, label, order))
    got = joint([v], 30.0, law, k, [order], [[label]])[0, 0]
    assert got == pytest.approx(want, rel=1e-7, abs=1e-12)


def test_joint_of_a_sure_check_is_the_label() -> None:
    sure = joint([5000.0], 100.0, Gaussian(1.0), 1, ORDERS, 0.3 * ORDERS[None])
    assert sure[0] == pytest.approx(0.3 * ORDERS, rel=1e-9)
    never = joint([0.0], 5000.0, Gaussian(1.0), 1, [2.0, 3.0], [[100.0, 400.0]])
    assert never[0] == pytest.approx(0.0, abs=1e-200)


@given(st.floats(0.0, 300.0), st.floats(0.0, 5.0), st.floats(1.0, 3.0))
def test_joint_rises_with_the_label_and_lies_between_its_parts(
    v: float, label: float, more: float
) -> None:
    law = Gaussian(60.0)
    low = joint([v], 100.0, law, 1, ORDERS, np.full((1, len(ORDERS)), label))[0]
    high = joint([v], 100.0, law, 1, ORDERS, np.full((1, len(ORDERS)), label * more))[0]
    check = joint([v], 100.0, law, 1, ORDERS, FREE)[0]
    assert (low <= high * (1 + 1e-12)).all()
    assert (check <= low * (1 + 1e-12)).all()
    assert (low <= (check + label) * (1 + 1e-9)).all()


def test_extremes_neither_warn_nor_overflow() -> None:
    v = np.array([0.0, 1.0, 40.0, 2500.0, 4999.0, 5000.0, -5000.0, 1e9, -1e9])
    for sigma in (1.0, 150.0, 5000.0):
        for limit in (-1e9, 0.0, 2500.0, 5000.0, 1e9):
            for law in (Gaussian(sigma), DiscreteGaussian(sigma)):
                check = joint(v, limit, law, 1, ORDERS, FREE)
                for label in (0.0, 1e-300, 1e-3, 0.3, 40.0, 1e4):
                    got = joint(v, limit, law, 1, ORDERS, FREE + label)
                    assert np.isfinite(got).all()
                    assert (got >= 0.0).all()
                    assert (got <= (check + label) * (1 + 1e-9) + 1e-240).all()


def test_a_label_without_bound_leaves_none() -> None:
    got = joint([50.0], 60.0, Gaussian(40.0), 1, [2.0, 3.0], [[math.inf, 0.1]])
    assert got[0, 0] == math.inf
    assert got[0, 1] < 0.1


def test_one_row_of_costs_serves_all_queries() -> None:
    law, v = Gaussian(40.0), np.array([50.0, 90.0])
    one = joint(v, 60.0, law, 1, ORDERS, 0.01 * ORDERS[None])
    assert one.tolist() == joint(v, 60.0, law, 1, ORDERS, np.tile(0.01 * ORDERS, (2, 1))).tolist()


def test_rows_are_independent_of_each_other() -> None:
    law, random = Gaussian(40.0), np.random.default_rng(5)
    v = random.integers(0, 200, 700).astype(np.float64)
    labels = random.uniform(0.0, 0.1, (700, len(ORDERS)))
    together = joint(v, 100.0, law, 1, ORDERS, labels)
    assert joint([], 5.0, law, 1, ORDERS, FREE).shape == (0, len(ORDERS))
    for row in (0, 1, 350, 699):
        apart = joint(v[row : row + 1], 100.0, law, 1, ORDERS, labels[row : row + 1])
        assert together[row].tolist() == apart[0].tolist()


def test_what_is_never_answered_costs_no_label() -> None:
    assert expected([-math.inf], [[0.1]], [[math.inf]]).tolist() == [[0.1]]


def test_bad_values_stop_the_accountant() -> None:
    law = Gaussian(3.0)
    tables: tuple[tuple[Any, Any, Any, Any, str], ...] = (
        *(([bad], 5.0, [2.0], [[0.1]], "finite") for bad in (math.nan, math.inf, -math.inf)),
        *(([5.0], bad, [2.0], [[0.1]], "finite") for bad in (math.nan, math.inf, -math.inf)),
        *(([5.0], 5.0, [2.0], [[bad]], "label") for bad in (math.nan, -1e-9)),
        *(([5.0], 5.0, bad, [[0.1]], "order") for bad in ([1.0], [], [math.nan], [[2.0]], [0.5])),
        ([5.0, 6.0], 5.0, [2.0], np.zeros((3, 1)), "fit"),
        ([5.0], 5.0, [2.0, 3.0], [[0.1]], "fit"),
        ([[5.0]], 5.0, [2.0], [[0.1]], "fit"),
    )
    for v, limit, orders, label, says in tables:
        with pytest.raises(AccountingError, match=says):
            joint(v, limit, law, 1, orders, label)
    for bad in (math.nan, math.inf, -math.inf):
        with pytest.raises(AccountingError):
            threshold.rdp_theorem6([bad], 5.0, law, 1, [2.0])
        with pytest.raises(AccountingError):
            threshold.log_pass([bad], 5.0, law)
        with pytest.raises(AccountingError):
            threshold.log_fail([5.0], bad, law)
    for k in (0, -1, 1.0, True):
        with pytest.raises(UsageError):
            joint([5.0], 5.0, law, k, [2.0], [[0.1]])  # type: ignore[arg-type]
    costs: tuple[tuple[Any, Any, Any, str], ...] = (
        *(([-0.1], [[bad]], [[0.1]], "check") for bad in (math.nan, -1e-9)),
        *(([-0.1], [[0.1]], [[bad]], "label") for bad in (math.nan, -1e-9)),
        *(([bad], [[0.1]], [[0.1]], "log P") for bad in (math.nan, math.inf)),
        ([-0.1, -0.2], np.zeros((3, 1)), np.zeros((2, 1)), "fit"),
        ([-0.1], np.zeros((1, 2)), np.zeros((1, 1)), "fit"),
        ([[-0.1]], [[0.1]], [[0.1]], "list"),
    )
    for log_pass, check, label, says in costs:
        with pytest.raises(AccountingError, match=says):
            expected(log_pass, check, label)
