"""Theorem 6 against its transcription in many digits, exact divergences, and its own promises."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pate.accounting.bounds import theorem6
from pate.accounting.bounds.laws import Gaussian
from pate.accounting.bounds.outlier import gnmax_log_q
from pate.errors import AccountingError

ORDERS = (1.01, 1.5, 2.0, 3.0, 8.0, 14.0, 20.5, 64.0, 128.0, 256.0, 512.0)

rates = st.floats(-17.0, 4.0).map(math.exp)
log_qs = st.one_of(st.floats(-60.0, -1e-9), st.floats(-2000.0, -1.0), st.just(-math.inf))
orders = st.one_of(st.sampled_from(ORDERS), st.floats(1.01, 512.0))


def transcribed(log_q: float, c: float, order: float) -> float:
    """The theorem as the paper has it, with mu1 and mu2 of its Proposition 10."""
    # Digits enough for 1 - q, whatever q is.
    with localcontext(prec=60 + int(-log_q / 2)) as context:
        context.Emin, context.Emax = -(10**12), 10**12
        lq, rate, a = Decimal(log_q), Decimal(c), Decimal(order)
        independent = rate * a
        q = lq.exp()
        mu2 = (-lq / rate).sqrt()
        mu1 = mu2 + 1
        e1, e2 = rate * mu1, rate * mu2
        if not (mu1 > a and mu2 > 1 and lq + e2 < 0):
            return float(independent)
        limit = (mu2 - 1) * e2 - mu2 * ((mu1 / (mu1 - 1)).ln() + (mu2 / (mu2 - 1)).ln())
        if lq > limit:
            return float(independent)
        big_a = (1 - q) / (1 - ((lq + e2) * (1 - 1 / mu2)).exp())
        log_b = e1 - lq / (mu1 - 1)
        moment = (1 - q) * big_a ** (a - 1) + (lq + (a - 1) * log_b).exp()
        return float(min(independent, moment.ln() / (a - 1)))


def test_published_figures() -> None:
    # Computed apart with 50 digits.
    votes = [[214, 10, 8, 7, 4, 4, 2, 1, 0, 0]]
    log_q = gnmax_log_q(votes, Gaussian(40.0))
    got = theorem6.rdp(log_q, 1 / 1600, [2, 8, 14, 32])[0]
    want = [
        0.00026786729120454290,
        0.00034038357695916050,
        0.00046813558871146896,
        0.0019097272367787213,
    ]
    assert got == pytest.approx(want, rel=1e-13)
    got = theorem6.rdp([-20.0], 1e-4, [1.5, 8, 20.5, 64])[0]
    want = [3.8138099729376437e-10, 4.4927183375980828e-10, 6.928103039524954e-10]
    assert got == pytest.approx([*want, 9.3794211408564742e-9], rel=1e-12)


@pytest.mark.parametrize("sigma", [1.0, 3.0, 40.0, 150.0, 1000.0, 5000.0])
@pytest.mark.parametrize("k", [1, 5])
def test_it_is_the_theorem(sigma: float, k: int) -> None:
    c = k * k / sigma**2
    log_q = [-1e-6, -0.3, -1.01, -2.0, -7.0, -20.0, -45.0, -110.0, -340.0, -599.0, -701.0]
    # Next to mu2 = 1, and to mu2 = order - 1, and within the last stretch before it.
    near = [-c * x * x for x in (1 + 1e-7, 1.0001, 1.1, 1.5, 2.5, 7.01, 13.0001, 20.0, 64.5)]
    log_q += [value for value in near if value > -1000.0]
    got = theorem6.rdp(log_q, c, ORDERS)
    for row, value in zip(got, log_q, strict=True):
        want = [transcribed(value, c, order) for order in ORDERS]
        assert row == pytest.approx(want, rel=2e-12, abs=1e-290), value


def test_the_small_difference_of_large_numbers() -> None:
    # log q near -1e5 and below, and yet q B^l is no small number: c (mu2 - l)^2 is.
    for c, order in ((1.0, 317.0), (4.0, 400.0), (100.0, 512.0), (2500.0, 256.0)):
        excess = order - 1.0
        for over in (0.3, 2.0, 17.0, 30.0):
            log_q = -c * (excess + over / math.sqrt(c)) ** 2
            with localcontext(prec=60):
                lq, rate = Decimal(log_q), Decimal(c)
                log_second = lq + Decimal(excess) * (2 * (-lq * rate).sqrt() + rate)
                want = float(log_second / Decimal(excess))  # A is 1 to 30000 digits
            got = theorem6.rdp([log_q], c, [order])[0, 0]
            if want > 0.0:
                assert got == pytest.approx(min(want, c * order), rel=1e-12)
            with localcontext(prec=60):
                level = Decimal(c) * Decimal(order) * Decimal(excess)
                gap = float(level - log_second)
            assert gap == pytest.approx(over**2, rel=1e-6)


def test_costs_that_floats_hardly_hold_keep_their_digits() -> None:
    # With only q B^l: order 2, sigma 1, log q = -10^k. The cost is exp(log q + 2 sqrt(-log q) + 1).
    for log_q in (-300.0, -700.0, -730.0):
        got = theorem6.rdp([log_q], 1.0, [2.0])[0, 0]
        with localcontext(prec=60):
            root = Decimal(-log_q).sqrt()
            first = (Decimal(log_q) + 2 * root - 1).exp()  # A - 1, up to its square
            want = float((Decimal(log_q) + 2 * root + 1).exp() + first)
        assert got == pytest.approx(want, rel=1e-11)


@pytest.mark.parametrize("log_q", [-1e4, -1e5, -1e7, -1e15, -1e300, -1.7e308, -math.inf])
def test_outcomes_beyond_floats_cost_nothing(log_q: float) -> None:
    assert theorem6.rdp([log_q], 1 / 1600, [1.01, 14.0, 512.0]).max() == 0.0


@given(log_qs, rates, orders)
def test_never_above_the_independent_cost(log_q: float, c: float, order: float) -> None:
    got = theorem6.rdp([log_q], c, [order])[0, 0]
    assert 0.0 <= got <= c * order


@settings(max_examples=300)
@given(log_qs, st.floats(0.0, 1.0), rates, orders)
def test_grows_with_q(log_q: float, part: float, c: float, order: float) -> None:
    other = log_q * part if math.isfinite(log_q) else -1000.0 * part - 1e-9
    first, second = theorem6.rdp([log_q, other], c, [order])[:, 0]
    assert second >= first * (1 - 1e-10)


def test_queries_are_apart() -> None:
    rng = np.random.default_rng(1)
    log_q = -rng.exponential(30.0, 5000)
    log_q[:20] = -rng.exponential(1e4, 20)
    c = 1 / 1600
    each = theorem6.rdp(log_q, c, ORDERS)
    one_by_one = [theorem6.rdp([value], c, ORDERS)[0] for value in log_q[:300]]
    assert each[:300] == pytest.approx(np.array(one_by_one), rel=1e-15)
    assert theorem6.rdp([], 0.1, [2.0, 3.0]).shape == (0, 2)


@pytest.mark.parametrize(
    ("log_q", "c", "at"),
    [
        *((log_q, 0.1, [2.0]) for log_q in ([0.1], [math.nan], [math.inf], [[-1.0]], -1.0)),
        *(([-1.0], c, [2.0]) for c in (0.0, -1.0, math.nan, math.inf)),
        *(([-1.0], 0.1, at) for at in ([1.0], [math.nan], [])),
    ],
)
def test_arguments_that_make_no_sense_are_refused(log_q: object, c: float, at: object) -> None:
    with pytest.raises(AccountingError):
        theorem6.rdp(log_q, c, at)  # type: ignore[arg-type]
