"""Tails of the noise against sums in many digits, brackets and their own symmetries."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pate.accounting.bounds.laws import DiscreteGaussian, Gaussian, Law
from pate.errors import AccountingError

SIGMAS = (0.01, 0.05, 0.3, 1.0, 2.0, 3.9, 4.0, 7.5, 40.0)


@cache
def masses(sigma: float) -> dict[int, Decimal]:
    """Masses of N_Z(0, sigma^2), by definition, as far out as 40 digits reach."""
    with localcontext(prec=60):
        spread = 2 * Decimal(sigma) ** 2
        reach = 14 * math.ceil(sigma) + 14
        raw = {z: (-Decimal(z * z) / spread).exp() for z in range(-reach, reach + 1)}
        total = sum(raw.values())
        return {z: mass / total for z, mass in raw.items()}


def convolved_log_tail(sigma: float, gap: int) -> float:
    """log P[Z_j - Z_i >= gap], the difference summed over both noises."""
    law = masses(sigma)
    with localcontext(prec=60):
        tails: dict[int, Decimal] = {}
        above = Decimal(0)
        for z in range(max(law), min(law) - 1, -1):
            above += law[z]
            tails[z] = above
        low, high = min(law), max(law)
        total = Decimal(0)
        for z in law:
            if z + gap <= high:
                total += law[z] * tails[max(z + gap, low)]
        return float(total.ln())


def far_log_tail(sigma: float, gap: int) -> float:
    """The same for far gaps: P[d] is exp(-d^2/(4 sigma^2)) times a sum that is recomputed for d."""
    with localcontext(prec=80):
        square = Decimal(sigma) ** 2
        reach = 14 * math.ceil(sigma) + 14
        norm = sum((-Decimal(z * z) / (2 * square)).exp() for z in range(-reach, reach + 1))
        total, d = Decimal(0), gap
        while True:
            middle = Decimal(d) / 2
            around = range(d // 2 - reach, d // 2 + reach + 1)
            inner = sum((-((z - middle) ** 2) / square).exp() for z in around)
            term = (-Decimal(d * d) / (4 * square)).exp() * inner
            total += term
            if d > gap + 1 and term < total * Decimal("1e-20"):
                return float((total / norm**2).ln())
            d += 1


@pytest.mark.parametrize("gap", [-300.0, -40.0, -1.5, 0.0, 1e-9, 3.0, 40.0, 400.0])
def test_gaussian_tails_are_those_of_erfc(gap: float) -> None:
    law = Gaussian(40.0)
    exact = math.log(math.erfc(gap / 80.0) / 2.0)
    assert law.log_gap_tail(gap) == pytest.approx(exact, rel=1e-13, abs=1e-15)
    exact = math.log(math.erfc(gap / (40.0 * math.sqrt(2.0))) / 2.0)
    assert law.log_survival(gap) == pytest.approx(exact, rel=1e-13, abs=1e-15)


@pytest.mark.parametrize("standard", [30.0, 450.0, 1e4, 1e6])
def test_far_gaussian_tails_lie_in_their_brackets(standard: float) -> None:
    # x/(1+x^2) < tail/density < (x^2+2)/(x(x^2+3)) for the standard normal law.
    density = -(standard**2) / 2 - math.log(2 * math.pi) / 2
    got = float(Gaussian(7.0).log_survival(7.0 * standard))
    rounding = 1e-15 * abs(got)
    square = standard**2
    assert got >= density - math.log(standard) - math.log1p(1 / square) - rounding
    upper = density - math.log(standard) + math.log1p(2 / square) - math.log1p(3 / square)
    assert got <= upper + rounding


@pytest.mark.parametrize("sigma", SIGMAS)
def test_discrete_tails_are_sums_over_the_lattice(sigma: float) -> None:
    law = DiscreteGaussian(sigma)
    near = [-7, -2, -1, 0, 1, 2, 3, 8, math.ceil(5 * sigma)]
    got = law.log_gap_tail(near)
    for gap, value in zip(near, got, strict=True):
        if gap < 12 * math.ceil(sigma):
            want = convolved_log_tail(sigma, gap)
            assert value == pytest.approx(want, rel=1e-12, abs=1e-15), gap


@pytest.mark.parametrize("sigma", [0.01, 0.05, 0.3, 2.0, 4.0])
def test_discrete_tails_stay_exact_where_floats_end(sigma: float) -> None:
    law = DiscreteGaussian(sigma)
    # 52.9 sigma is where the table ends; 633 sigma has a logarithm of -1e5.
    for gap in {math.ceil(x * sigma) for x in (20, 52, 52.9, 53, 54, 60, 200, 633)}:
        want = far_log_tail(sigma, gap)
        assert law.log_gap_tail(gap) == pytest.approx(want, rel=1e-13), gap


@pytest.mark.parametrize("sigma", SIGMAS)
def test_discrete_survival(sigma: float) -> None:
    law = DiscreteGaussian(sigma)
    for t in (-2, 0, 1, 2, math.ceil(4 * sigma)):
        with localcontext(prec=60):
            tail = sum((mass for z, mass in masses(sigma).items() if z >= t), Decimal(0))
            want = float(tail.ln())
        if t <= 10 * sigma:
            assert law.log_survival(t) == pytest.approx(want, rel=1e-12, abs=1e-15)
            assert law.log_survival(t - 0.75) == law.log_survival(t)
            assert law.log_survival(np.nextafter(t, np.inf)) == law.log_survival(t + 1)


@pytest.mark.parametrize("sigma", [40.0, 1000.0, 5000.0, 1e5])
def test_discrete_tails_lie_between_two_gaussian_ones(sigma: float) -> None:
    # From 2 sigma on the density of a difference is convex and falls. So the sum of its values
    # is above the integral from the gap, and below that from half a vote before.
    gaps = np.ceil(sigma * np.array([2.0, 3.0, 10.0, 52.0, 52.91, 52.93, 100.0, 633.0, 6300.0]))
    law, smooth = DiscreteGaussian(sigma), Gaussian(sigma)
    got = law.log_gap_tail(gaps)
    slack = 1e-12 + 1e-14 * np.abs(got)
    assert (got >= smooth.log_gap_tail(gaps) - slack).all()
    assert (got <= smooth.log_gap_tail(gaps - 0.5) + slack).all()
    assert got[-2] < -1e5


def test_a_continuous_tail_is_not_a_bound_for_discrete_noise() -> None:
    smooth = Gaussian(2.0).log_gap_tail(5)
    assert math.exp(DiscreteGaussian(2.0).log_gap_tail(5) - smooth) == pytest.approx(1.42, abs=0.01)
    smooth = Gaussian(10.0).log_gap_tail(50)
    assert math.exp(DiscreteGaussian(10.0).log_gap_tail(50) - smooth) > 1.1


@given(st.sampled_from(SIGMAS), st.integers(-500, 500))
def test_discrete_tails_add_to_one_and_fall(sigma: float, gap: int) -> None:
    law = DiscreteGaussian(sigma)
    here, there = law.log_gap_tail([gap, 1 - gap])
    assert math.exp(here) + math.exp(there) == pytest.approx(1.0, abs=1e-15)
    tails = law.log_gap_tail(np.arange(gap, gap + 60.0))
    assert (np.diff(tails) <= 0.0).all()
    assert (np.diff(law.log_gap_tail(np.arange(60.0 * sigma // 1, 60.0 * sigma + 60.0))) < 0).all()


@given(st.sampled_from((0.5, 2.0, 40.0)), st.integers(-30, 90), st.floats(0.0, 1.0))
def test_between_integers_the_tail_is_a_straight_line(sigma: float, gap: int, part: float) -> None:
    law = DiscreteGaussian(sigma)
    first, second, got = np.exp(law.log_gap_tail([gap, gap + 1.0, gap + part]))
    line = (1.0 - part) * first + part * second
    # Of gap + part, part has lost digits; below 1e-300 floats have few themselves.
    assert got == pytest.approx(line, rel=1e-12, abs=1e-13 * first + 1e-300)
    assert got >= second


@given(
    st.sampled_from((0.3, 2.0, 10.0, 40.0, 5000.0)),
    st.one_of(st.floats(-1e6, -1e-12), st.floats(-2.0, -1e-3)),
)
def test_gap_at_inverts_the_tail(sigma: float, log_tail: float) -> None:
    # Where the discrete tail is steep, one step of the gap may change it by much.
    for law in (Gaussian(sigma), DiscreteGaussian(sigma)):
        gap = float(law.gap_at(log_tail))
        step = 1e-14 * max(1.0, abs(gap)) + 1e-12 * sigma
        before, after = law.log_gap_tail([gap - step, gap + step])
        assert before >= log_tail * (1 + 1e-11) - 1e-15
        assert after <= log_tail * (1 - 1e-11) + 1e-15
        if isinstance(law, DiscreteGaussian):  # rounded to the side of a larger tail
            assert law.log_gap_tail(gap) >= log_tail * (1 + 1e-12) - 1e-15


@given(st.sampled_from(SIGMAS), st.integers(-60, 400))
def test_gap_at_finds_integers(sigma: float, gap: int) -> None:
    law = DiscreteGaussian(sigma)
    log_tail = law.log_gap_tail(gap)
    if float(log_tail) < -1e-9:
        assert law.gap_at(log_tail) == pytest.approx(gap, abs=1e-6)


def test_gap_at_at_the_ends() -> None:
    for law in (Gaussian(3.0), DiscreteGaussian(3.0), DiscreteGaussian(0.01)):
        assert law.gap_at([0.0, -np.inf]).tolist() == [-math.inf, math.inf]
        assert float(law.gap_at(-1e300)) > 1e13


def test_the_step() -> None:
    assert Gaussian(40.0).mu_of_step == 1 / 40
    assert DiscreteGaussian(2.0).mu_of_step == pytest.approx(
        math.sqrt(2 * (1 - math.sqrt(0.75))), rel=1e-15
    )
    with localcontext(prec=60):
        inverse = 1 / Decimal(10) ** 10
        exact = (2 * (1 - (1 - inverse).sqrt())).sqrt()
    assert DiscreteGaussian(1e5).mu_of_step == pytest.approx(float(exact), rel=1e-15)
    with pytest.raises(AccountingError, match="trade-off"):
        _ = DiscreteGaussian(1.99).mu_of_step


def test_shapes_are_kept() -> None:
    laws: list[Law] = [Gaussian(40.0), DiscreteGaussian(40.0)]
    for law in laws:
        for shape in ((), (0,), (3,), (2, 3)):
            gaps = np.full(shape, 2.5)
            assert law.log_gap_tail(gaps).shape == shape
            assert law.log_survival(gaps).shape == shape
            assert law.gap_at(-gaps).shape == shape


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_of_votes_is_refused(bad: float) -> None:
    for law in (Gaussian(3.0), DiscreteGaussian(3.0)):
        for call in (law.log_survival, law.log_gap_tail):
            with pytest.raises(AccountingError, match="finite"):
                call([1.0, bad])
        with pytest.raises(AccountingError, match="log_tail"):
            law.gap_at([-1.0, abs(bad)])


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, 1e-10, 1e10])
def test_noise_that_makes_no_sense_is_refused(bad: float) -> None:
    with pytest.raises(AccountingError):
        DiscreteGaussian(bad)
    if not 0.0 < bad < math.inf:
        with pytest.raises(AccountingError):
            Gaussian(bad)
