"""What a server that sees noisy histograms learns: sums over the integers, done otherwise."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp
from scipy.stats import skellam as scipy_skellam

from pate.accounting.bounds import theorem6_plus
from pate.accounting.server_view import (
    Skellam,
    dgauss_rdp,
    distributed_dgauss_rdp,
    server_view_rdp,
    skellam_rdp,
    skellam_rdp_bound,
)
from pate.accounting.units import Neighbours
from pate.errors import AccountingError, UsageError

if TYPE_CHECKING:
    from pate.accounting.arrays import Floats

ORDERS = np.array([1.01, 1.5, 2.0, 5.0, 14.0, 64.0, 512.0])

#: variance, k, order, divergence of (+k, -k): a sum with 50 digits.
SKELLAM = [
    (0.3, 1, 2, 3.8363206152934279),
    (1, 1, 1.01, 1.0618179997993513),
    (1, 1, 512, 8.9286074889118155),
    (1, 3, 14, 15.758068819186271),
    (4, 1, 64, 3.7911969505728673),
    (37.5, 7, 8, 8.2538565063329136),
    (100, 1, 2, 0.019999183736430567),
    (100, 1, 8, 0.079891367602322925),
    (100, 5, 100, 11.70349582885891),
    (1600, 1, 1.01, 0.00063125001990744446),
    (1600, 2, 64, 0.15974978377592209),
    (10000, 1, 512, 0.051166600229476956),
]

#: variance, k, order, divergence of (+k, -k): two theta series with 50 digits.
DISCRETE_GAUSSIAN = [
    (0.01, 1, 1.5, 102.77258872223978),
    (0.1, 1, 1.0001, 10.000132967262374),
    (0.15, 2, 1.3, 33.426492418370921),
    (0.2, 1, 2.25, 11.189412676321566),
    (0.5, 3, 7.7, 138.59999410308934),
    (1, 1, 1.5, 1.4999999571953921),
    (1, 1, 2, 2.0),
    (2, 7, 100.5, 2462.25),
]


def shift_divergence(log_p: Floats, shift: int, orders: Floats) -> Floats:
    """D(P shifted || P) at ``orders`` for a law on -R .. R, by its plain definition."""
    here, there = log_p[shift:], log_p[: log_p.size - shift]
    terms = np.multiply.outer(orders, there) + np.multiply.outer(1 - orders, here)
    made: Floats = logsumexp(terms, axis=1) / (orders - 1)
    return made


@pytest.mark.parametrize(("variance", "k", "order", "divergence"), SKELLAM)
def test_skellam(variance: float, k: int, order: float, divergence: float) -> None:
    got = skellam_rdp(variance, k, [order])[0]
    assert divergence * (1 - 3e-16) <= got <= divergence * (1 + 3e-11)
    assert got <= skellam_rdp_bound(variance, k, [order])[0]
    assert skellam_rdp(variance, k, [order], "remove")[0] == pytest.approx(got / 2, rel=1e-15)


@pytest.mark.parametrize(("variance", "k"), [(0.5, 1), (3.0, 2), (25.0, 1), (25.0, 6), (400.0, 3)])
def test_skellam_against_the_masses_of_scipy(variance: float, k: int) -> None:
    reach = math.ceil(30 * math.sqrt(variance)) + 30 * k
    log_p = scipy_skellam.logpmf(np.arange(-reach, reach + 1), variance / 2, variance / 2)
    orders = np.array([1.5, 2.0, 3.0])
    known = log_p[np.isfinite(log_p)]  # scipy's underflow far out
    found = 2 * shift_divergence(known, k, orders)
    assert skellam_rdp(variance, k, orders) == pytest.approx(found, rel=1e-8)


@pytest.mark.parametrize("variance", [1.0, 10.0, 1e3, 1e5, 1e6])
@pytest.mark.parametrize("k", [1, 3, 40])
def test_skellam_lies_below_the_published_bound_and_near_the_gaussian_one(
    variance: float, k: int
) -> None:
    orders = np.concatenate([ORDERS, np.arange(2.0, 40.0)])
    exact, bound = skellam_rdp(variance, k, orders), skellam_rdp_bound(variance, k, orders)
    assert (exact <= bound).all()
    gaussian = orders * k**2 / variance
    # The losses are k asinh(x/V), not k x/V: lower orders cost a little more, high ones less.
    assert (exact <= gaussian * (1 + 0.1 / variance)).all()
    small = orders * k < variance / 100
    assert (exact[small] >= gaussian[small] * 0.999).all()


def test_skellam_costs_rise_with_the_order_and_fall_with_the_noise() -> None:
    costs = np.array([skellam_rdp(v, 2, ORDERS) for v in (0.5, 2.0, 30.0, 1000.0, 40_000.0)])
    assert (np.diff(costs, axis=1) >= 0).all()
    assert (np.diff(costs, axis=0) <= 0).all()


@given(
    st.sampled_from([0.3, 2.0, 30.0, 800.0]), st.integers(2, 6), st.sampled_from([1.2, 2.0, 9.0])
)
@settings(deadline=None, max_examples=30)
def test_moving_all_votes_alike_is_the_dearest_move(variance: float, k: int, order: float) -> None:
    # One side of a move: how k votes may leave classes. Each part costs half of its (+j, -j).
    one = [0.0, *(skellam_rdp(variance, j, [order])[0] / 2 for j in range(1, k + 1))]
    for classes in range(2, k + 1):
        for parts in itertools.combinations_with_replacement(range(k + 1), classes):
            if sum(parts) <= k:
                assert sum(one[part] for part in parts) <= one[k] * (1 + 1e-10)


@pytest.mark.parametrize(("variance", "k", "order", "divergence"), DISCRETE_GAUSSIAN)
def test_discrete_gaussian(variance: float, k: int, order: float, divergence: float) -> None:
    got = dgauss_rdp(variance, k, [order])[0]
    assert divergence * (1 - 3e-16) <= got <= divergence * (1 + 1e-12)
    assert got <= order * k**2 / variance * (1 + 1e-12)
    assert dgauss_rdp(variance, k, [order], "remove")[0] == pytest.approx(got / 2, rel=1e-15)


@pytest.mark.parametrize("variance", [0.02, 0.1, 0.158, 0.16, 0.4, 1.0, 9.0])
@pytest.mark.parametrize("k", [1, 2, 5])
def test_discrete_gaussian_against_its_masses(variance: float, k: int) -> None:
    reach = math.ceil(60 * math.sqrt(variance)) + 60 * k
    log_p = -(np.arange(-reach, reach + 1.0) ** 2) / (2 * variance)
    log_p -= logsumexp(log_p)
    orders = np.array([1.1, 1.5, 1.73, 2.0, 3.5, 8.25])
    assert dgauss_rdp(variance, k, orders) == pytest.approx(
        2 * shift_divergence(log_p, k, orders), rel=1e-11
    )


def test_wide_discrete_noise_costs_what_continuous_noise_does() -> None:
    for variance in (2.0, 1600.0, 1e6):
        same = server_view_rdp(variance, 1, Neighbours(3), ORDERS)
        assert dgauss_rdp(variance, 3, ORDERS) == pytest.approx(same, rel=1e-12)


def test_server_view() -> None:
    got = server_view_rdp(160.0, 8, Neighbours(1), [2.0, 8.0, 14.0])
    assert got == pytest.approx([0.0015625, 0.00625, 0.0109375], rel=1e-15)
    # A histogram shows no more than its one arg max costs without looking at votes; k^2, and half.
    assert server_view_rdp(1600.0, 1, Neighbours(2), [3.0])[0] == pytest.approx(3 * 4 / 1600)
    assert server_view_rdp(1600.0, 1, Neighbours(2, "remove"), [3.0])[0] == pytest.approx(6 / 1600)


def sum_of_shares(variance: float, shares: int) -> Floats:
    """Log masses of a sum of discrete Gaussians, as far out as floats reach."""
    reach = math.ceil(25 * math.sqrt(variance))
    one = np.exp(-(np.arange(-reach, reach + 1.0) ** 2) / (2 * variance))
    law = one = one / one.sum()
    for _ in range(shares - 1):
        law = np.convolve(law, one)
    made: Floats = np.log(law[law > 1e-290])
    return made


@pytest.mark.parametrize("variance", [0.25, 0.3, 0.5, 1.0, 2.0, 6.0])
@pytest.mark.parametrize("shares", [1, 2, 3, 8])
@pytest.mark.parametrize("k", [1, 2])
def test_shares_of_discrete_noise(variance: float, shares: int, k: int) -> None:
    orders = np.array([1.05, 1.5, 2.0, 2.5])
    found = 2 * shift_divergence(sum_of_shares(variance, shares), k, orders)
    bound = distributed_dgauss_rdp(variance, shares, Neighbours(k), orders)
    assert (found <= bound * (1 + 1e-9)).all()
    plain = server_view_rdp(variance, shares, Neighbours(k), orders)
    assert (bound >= plain).all()
    if variance >= 6.0:
        assert bound == pytest.approx(plain, rel=1e-12)


def test_the_correction_for_sums_is_needed() -> None:
    # The sum of two narrow discrete Gaussians is told from its shift more easily than one wide.
    orders = np.array([1.1])
    found = 2 * shift_divergence(sum_of_shares(0.25, 2), 1, orders)
    assert found[0] > 1.05 * server_view_rdp(0.25, 2, Neighbours(1), orders)[0]
    assert found[0] <= distributed_dgauss_rdp(0.25, 2, Neighbours(1), orders)[0]


def test_many_shares_of_some_size_need_no_correction_worth_the_name() -> None:
    plain = server_view_rdp(4.0, 1000, Neighbours(1), ORDERS)
    assert distributed_dgauss_rdp(4.0, 1000, Neighbours(1), ORDERS) == pytest.approx(
        plain, rel=1e-9
    )


def test_skellam_law() -> None:
    law = Skellam(25.0)
    assert law.sigma == 5.0
    x = np.arange(-60, 61)
    mass = scipy_skellam.pmf(x, 12.5, 12.5)
    for t in (-7.0, 0.0, 3.4, 12.0):
        assert math.exp(law.log_survival([t])[0]) == pytest.approx(mass[x >= t].sum(), rel=1e-9)
    difference = scipy_skellam.pmf(np.arange(-120, 121), 25.0, 25.0)
    tail = difference[120 + 9 :].sum()
    assert math.exp(law.log_gap_tail([9.0])[0]) == pytest.approx(tail, rel=1e-9)


def test_no_data_dependent_bound_for_skellam_noise() -> None:
    law = Skellam(25.0)
    with pytest.raises(AccountingError, match="Theorem 6"):
        theorem6_plus.rdp(np.array([-9.0]), law.mu_of_step, np.array([2.0]))
    with pytest.raises(AccountingError, match="no data-dependent"):
        law.gap_at([-3.0])


@pytest.mark.parametrize("variance", [0.0, -1.0, math.nan, math.inf, 1e9, 1e-5])
def test_a_bad_variance_stops_the_accountant(variance: float) -> None:
    with pytest.raises(AccountingError, match="variance"):
        skellam_rdp(variance, 1, [2.0])
    with pytest.raises(AccountingError, match="variance"):
        skellam_rdp_bound(variance, 1, [2.0])
    with pytest.raises(AccountingError, match="variance"):
        Skellam(variance)
    if variance < 1e-4 or not math.isfinite(variance):
        with pytest.raises(AccountingError, match="variance"):
            dgauss_rdp(variance, 1, [2.0])
        with pytest.raises(AccountingError, match="variance"):
            distributed_dgauss_rdp(variance, 1, Neighbours(1), [2.0])


def test_impossible_questions_stop_the_accountant() -> None:
    for honest in (0, -1, 2.0, True):
        with pytest.raises(AccountingError, match="honest"):
            server_view_rdp(10.0, honest, Neighbours(1), [2.0])  # type: ignore[arg-type]
    with pytest.raises(AccountingError, match="share"):
        distributed_dgauss_rdp(0.2, 5, Neighbours(1), [2.0])
    with pytest.raises(AccountingError, match="end"):
        skellam_rdp(1.0, 2**30, [512.0])
    for k in (0, -1, 1.5, True):
        with pytest.raises(UsageError):
            skellam_rdp(10.0, k, [2.0])  # type: ignore[arg-type]
        with pytest.raises(UsageError):
            skellam_rdp_bound(10.0, k, [2.0])  # type: ignore[arg-type]
        with pytest.raises(UsageError):
            dgauss_rdp(10.0, k, [2.0])  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        dgauss_rdp(10.0, 1, [2.0], "add")  # type: ignore[arg-type]
    for orders in ([], [1.0], [math.nan]):
        with pytest.raises(AccountingError):
            skellam_rdp(10.0, 1, orders)
        with pytest.raises(AccountingError):
            dgauss_rdp(10.0, 1, orders)
        with pytest.raises(AccountingError):
            server_view_rdp(10.0, 1, Neighbours(1), orders)
