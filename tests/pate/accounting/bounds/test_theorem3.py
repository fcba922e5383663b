"""Theorems 3 and 3+ against their transcription in many digits, and against pairs of laws."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from functools import cache

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pate.accounting.bounds import theorem3
from pate.accounting.bounds.outlier import lnmax_log_q
from pate.accounting.conversion import best_order, epsilon_from_rdp
from pate.errors import AccountingError

ORDERS = (1.01, 1.5, 2.0, 3.0, 9.0, 14.0, 33.0, 128.0, 512.0)

epsilons = st.floats(-9.0, 3.0).map(math.exp)
log_qs = st.one_of(st.floats(-60.0, -1e-9), st.floats(-2000.0, -1.0), st.just(-math.inf))
orders = st.one_of(st.sampled_from(ORDERS), st.floats(1.01, 512.0))


@cache
def transcribed(log_q: float, epsilon0: float, order: float) -> tuple[float, float]:
    """The published bound and the sharp one, as the formulas stand."""
    with localcontext(prec=80 + int(min(-log_q, 4e3) / 2)):
        e0, a = Decimal(epsilon0), Decimal(order)
        q, big, excess = Decimal(log_q).exp(), e0.exp(), a - 1
        published = min(a * e0 * e0 / 2, e0)
        pure = (((a * e0).exp() + (-excess * e0).exp()) / (1 + big)).ln() / excess
        if q > 1 / (1 + big):
            return float(published), float(pure)
        up = (1 - q) ** a * (1 - big * q) ** -excess
        down = (1 - q) ** a * (1 - q / big) ** -excess
        large, small = q * (excess * e0).exp(), q * (-excess * e0).exp()
        sharp = max(up + small, down + large).ln() / excess
        return float(min(published, (up + large).ln() / excess)), float(sharp)


def renyi(p: list[float], p_other: list[float], order: float) -> float:
    logs = [
        order * math.log(x) + (1 - order) * math.log(y) for x, y in zip(p, p_other, strict=True)
    ]
    return float(np.logaddexp.reduce(logs)) / (order - 1)


def test_published_figures() -> None:
    # Computed apart with 50 digits; gamma 0.05, so that a label is 0.1-DP.
    log_q = lnmax_log_q([[214, 10, 8, 7, 4, 4, 2, 1, 0, 0]], 0.05)
    at = [2, 3, 5, 9]
    want = [
        0.00016495830699729764,
        0.00016928404082583325,
        0.00017886659628910621,
        0.00020249369670518185,
    ]
    assert theorem3.rdp(log_q, 0.1, at, sharp=False)[0] == pytest.approx(want, rel=1e-12)
    want = [
        7.8560310344222554e-6,
        1.2194847685527472e-5,
        2.1810704738133214e-5,
        4.5528087765805545e-5,
    ]
    assert theorem3.rdp(log_q, 0.1, at, sharp=True)[0] == pytest.approx(want, rel=1e-12)
    assert theorem3.independent(0.1, at) == pytest.approx([0.01, 0.015, 0.025, 0.045], rel=1e-15)


def test_published_epsilons() -> None:
    votes = [
        [214, 10, 8, 7, 4, 4, 2, 1, 0, 0],
        [180, 40, 10, 10, 5, 5, 0, 0, 0, 0],
        [90, 80, 40, 20, 10, 10, 0, 0, 0, 0],
    ]
    orders = np.arange(2, 10)
    at = orders.tolist()
    log_q = lnmax_log_q(votes, 0.05)
    rdp = (np.array([60, 30, 10]) @ theorem3.rdp(log_q, 0.1, orders, sharp=False)).tolist()
    got = epsilon_from_rdp(at, rdp, 1e-5, "classical")
    assert got == pytest.approx(1.9423876999812436, rel=1e-12)
    assert best_order(at, rdp, 1e-5, "classical") == 9
    rdp = (100 * theorem3.independent(0.1, orders)).tolist()
    got = epsilon_from_rdp(at, rdp, 1e-5, "classical")
    assert got == pytest.approx(5.302585092994046, rel=1e-12)
    assert best_order(at, rdp, 1e-5, "classical") == 6


@pytest.mark.parametrize("epsilon0", [1e-5, 9e-4, 1.1e-3, 0.1, 1.0, 7.0, 60.0])
def test_it_is_the_theorem(epsilon0: float) -> None:
    limit = -math.log1p(math.exp(epsilon0))
    log_q = [-1e-6, -0.5, -2.0, -9.0, -50.0, -300.0, -690.0, -715.0]
    # On both sides of where the bounds end.
    log_q += [limit * (1 + x) for x in (-1e-9, 1e-9, 1e-4, 0.1)]
    for sharp in (False, True):
        got = theorem3.rdp(log_q, epsilon0, ORDERS, sharp)
        for row, value in zip(got, log_q, strict=True):
            want = [transcribed(value, epsilon0, order)[sharp] for order in ORDERS]
            assert row == pytest.approx(want, rel=1e-11, abs=1e-305), value


def test_the_small_difference_of_large_numbers() -> None:
    # q E^l is a number of everyday size, and neither factor is.
    for epsilon0, order in ((200.0, 500.0), (1500.0, 80.0), (40.0, 512.0)):
        for log_second in (-700.0, -30.0, -1.0, 5.0, 900.0):
            excess = order - 1.0
            log_q = log_second - excess * epsilon0
            with localcontext(prec=60):
                exactly = float(Decimal(log_q) + Decimal(excess) * Decimal(epsilon0))
            want = float(np.logaddexp(0.0, exactly)) / excess
            for sharp in (False, True):
                got = theorem3.rdp([log_q], epsilon0, [order], sharp)[0, 0]
                assert got == pytest.approx(want, rel=1e-9)


@pytest.mark.parametrize("log_q", [-1e5, -1e7, -1e300, -1.7e308, -math.inf])
@pytest.mark.parametrize("sharp", [False, True])
def test_outcomes_beyond_floats_cost_nothing(log_q: float, sharp: bool) -> None:
    assert theorem3.rdp([log_q], 0.1, [1.01, 9.0, 512.0], sharp).max() == 0.0


def test_nothing_overflows() -> None:
    log_q = [-1e-300, -1.0, -3000.0, -1e4, -1e5, -1e6]
    for epsilon0 in (1e-100, 1e-12, 800.0, 1e5):
        for sharp in (False, True):
            got = theorem3.rdp(log_q, epsilon0, ORDERS, sharp)
            assert np.isfinite(got).all()
            assert (got <= theorem3.independent(epsilon0, ORDERS)).all()


@given(log_qs, epsilons, orders)
def test_sharp_is_below_published_is_below_independent(
    log_q: float, epsilon0: float, order: float
) -> None:
    published = theorem3.rdp([log_q], epsilon0, [order], sharp=False)[0, 0]
    sharp = theorem3.rdp([log_q], epsilon0, [order], sharp=True)[0, 0]
    pure, independent = theorem3.pure_dp(epsilon0, [order]), theorem3.independent(epsilon0, [order])
    assert 0.0 <= sharp <= published * (1 + 1e-12)
    assert published <= independent
    assert sharp <= pure <= independent


@given(log_qs, st.floats(0.0, 1.0), epsilons, orders)
def test_grows_with_q(log_q: float, part: float, epsilon0: float, order: float) -> None:
    other = log_q * part if math.isfinite(log_q) else -1000.0 * part - 1e-9
    for sharp in (False, True):
        first, second = theorem3.rdp([log_q, other], epsilon0, [order], sharp)[:, 0]
        assert second >= first * (1 - 1e-10)


@given(
    st.lists(st.floats(1e-4, 1.0), min_size=2, max_size=6),
    st.data(),
    st.floats(0.01, 3.0),
    st.sampled_from((1.01, 2.0, 9.0, 40.0)),
)
def test_no_pair_of_laws_is_worse(
    raw: list[float], data: st.DataObject, epsilon0: float, order: float
) -> None:
    p = np.array(raw) / sum(raw)
    ends = st.sampled_from((-1.0, 1.0))
    tilt = data.draw(
        st.lists(st.one_of(ends, st.floats(-1.0, 1.0)), min_size=len(p), max_size=len(p))
    )
    # Tilted by at most half of epsilon0, and normalised by at most as much.
    other = p * np.exp(0.5 * epsilon0 * np.array(tilt))
    other /= other.sum()
    log_q = math.log1p(-p.max())
    assume(log_q < 0.0)
    exact = renyi(p.tolist(), other.tolist(), order)
    bound = theorem3.rdp([log_q], epsilon0, [order], sharp=True)[0, 0]
    assert exact <= bound * (1 + 1e-9) + 1e-13
    assert exact <= theorem3.pure_dp(epsilon0, [order])[0] * (1 + 1e-9) + 1e-13


@given(st.floats(1e-6, 1.0), st.floats(0.01, 3.0), st.sampled_from((1.5, 2.0, 9.0, 40.0)))
def test_two_coins_attain_it(part: float, epsilon0: float, order: float) -> None:
    big = math.exp(epsilon0)
    q = part / (1 + big)
    bound = theorem3.rdp([math.log(q)], epsilon0, [order], sharp=True)[0, 0]
    attained = max(
        renyi([q, 1 - q], [q_other, 1 - q_other], order) for q_other in (q * big, q / big)
    )
    assert attained == pytest.approx(bound, rel=1e-8, abs=1e-12)
    reversed_coin = renyi([big / (1 + big), 1 / (1 + big)], [1 / (1 + big), big / (1 + big)], order)
    assert theorem3.pure_dp(epsilon0, [order])[0] == pytest.approx(reversed_coin, rel=1e-9)


@pytest.mark.parametrize(
    ("log_q", "epsilon0", "at"),
    [
        *((log_q, 0.1, [2.0]) for log_q in ([0.1], [math.nan], [[-1.0]], -1.0)),
        *(([-1.0], epsilon0, [2.0]) for epsilon0 in (0.0, -1.0, math.nan, math.inf)),
        *(([-1.0], 0.1, at) for at in ([1.0], [])),
    ],
)
def test_arguments_that_make_no_sense_are_refused(
    log_q: object, epsilon0: float, at: object
) -> None:
    for sharp in (False, True):
        assert theorem3.rdp([], 0.1, ORDERS, sharp).shape == (0, len(ORDERS))
        with pytest.raises(AccountingError):
            theorem3.rdp(log_q, epsilon0, at, sharp)  # type: ignore[arg-type]
