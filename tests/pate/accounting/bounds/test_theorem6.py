"""Theorems 6 and 6+: against transcriptions in many digits and exact divergences, a number everywhere."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import special

from pate.accounting.arrays import Floats
from pate.accounting.bounds import theorem6, two_tails
from pate.accounting.bounds.laws import Gaussian
from pate.accounting.bounds.outlier import gnmax_log_q
from pate.accounting.bounds.theorem6_plus import Table, rdp
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


@settings(max_examples=100)
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


MNIST = math.sqrt(2.0) / 40.0

# log q, mu, order, ln V / (order - 1) computed with 60 digits: a scan of t, then golden section.
FIGURES = [
    (-6.959065280038955, 0.035355339059327376, 2.0, 1.521517962525166e-5),
    (-6.959065280038955, 0.035355339059327376, 8.0, 7.237222572841207e-5),
    (-6.959065280038955, 0.035355339059327376, 14.0, 0.0001704797397477602),
    (-0.6931471805599453, 0.01414213562373095, 1.01, 9.379610275411322e-5),
    (-0.6931471805599453, 0.01414213562373095, 64.0, 0.006139267006994644),
    (-0.05, 0.5, 3.0, 0.3749892294184332),
    (-2.0, 0.000282842712474619, 1.01, 2.125129308508624e-8),
    (-2.0, 0.000282842712474619, 512.0, 1.087237211644419e-5),
    (-20.0, 0.01414213562373095, 20.5, 2.861478816310126e-10),
    (-700.0, 0.035355339059327376, 2.0, 1.983633470339218e-304),
    (-700.0, 0.035355339059327376, 512.0, 2.168792219951366e-14),
    (-700.0, 1.4142135623730951, 14.0, 0.03201731470706873),
    (-100000.0, 1.4142135623730951, 256.0, 241.2829023041343),
    (-100000.0, 0.5, 512.0, 28.03088824501447),
    (-40.0, 7.0710678118654755, 1.01, 0.06619715203400156),
    (-3.0, 7.0, 512.0, 12544.0),
    (-300.0, 3.0, 4.0, 2.402104115813301e-30),
    (-0.1, 3.0, 1.2, 5.398141382622201),
]

log_chances = st.floats(min_value=-12.0, max_value=-0.01)
mus = st.floats(min_value=0.05, max_value=2.5)
real_orders = st.floats(min_value=1.05, max_value=24.0)


def sums(log_q: float, mu: float, order: float, logits: Floats) -> Floats:
    """ln(T1 + T2) / (order - 1) at each t, as in the statement of the theorem, in plain floats.

    t comes as its logit: near 1, 1 - t would have lost its digits.
    """
    q = math.exp(log_q)
    a, b = special.ndtri(special.expit(logits) * q), -special.ndtri(special.expit(-logits) * q)
    # 1 - q' from whichever tails are small.
    upper = special.ndtr(-a - mu) - special.ndtr(-b - mu)
    rest = np.where(a + mu > 0.0, upper, special.ndtr(b + mu) - special.ndtr(a + mu))
    shift = (order - 1.0) * mu
    tails = np.logaddexp(special.log_ndtr(a - shift), special.log_ndtr(shift - b))
    first = order * math.log1p(-q) + (1.0 - order) * np.log(rest)
    made: Floats = np.logaddexp(first, order * (order - 1.0) * mu**2 / 2.0 + tails)
    return made / (order - 1.0)


@pytest.mark.parametrize(("log_q", "mu", "order", "least"), FIGURES)
@pytest.mark.parametrize("tightness", [0.02, 1e-3, 1e-5])
def test_figures_computed_apart(
    log_q: float, mu: float, order: float, least: float, tightness: float
) -> None:
    got = rdp([log_q], mu, [order], tightness)[0, 0]
    assert least * (1.0 - 1e-14) <= got <= least * (1.0 + tightness) * (1.0 + 1e-5)


def test_the_digits_that_can_be_had_are_had() -> None:
    # The figures with little rounding: at the least tightness the bound has nine digits of V.
    for log_q, mu, order, least in FIGURES:
        if mu * (order - 1.0) > 0.4:
            assert rdp([log_q], mu, [order], 1e-9)[0, 0] == pytest.approx(least, rel=3e-9)


@settings(max_examples=60, deadline=None)
@given(log_chances, mus, real_orders)
def test_no_point_is_above_the_bound(log_q: float, mu: float, order: float) -> None:
    logits = np.linspace(-40.0, 40.0, 4001)
    best = sums(log_q, mu, order, np.concatenate([[-np.inf], logits, [np.inf]])).max()
    got = rdp([log_q], mu, [order])[0, 0]
    # In plain floats V - 1 is known to some 1e-14; the scan misses the maximum by 1e-4 or less.
    rounding = 1e-13 / (order - 1.0)
    assert best <= got * (1.0 + 1e-9) + rounding
    assert got <= best * (1.0 + 1.2e-3) + rounding


@settings(max_examples=60, deadline=None)
@example(-7.0, 1.25, 3.5, 17.0, 1.0)
@given(log_chances, mus, real_orders, st.floats(-20.0, 20.0), st.floats(1e-3, 12.0))
def test_no_point_of_a_cell_is_above_the_bound_of_the_cell(
    log_q: float, mu: float, order: float, low: float, width: float
) -> None:
    q, alpha = np.array([log_q]), np.array([order])
    first, last, whole = np.array([low]), np.array([low + width]), np.array([np.inf])
    tails = [two_tails.cut(q, end, mu) for end in (-whole, whole)]
    ref = two_tails.largest_part(tails[0], tails[1], alpha, mu)
    for left, right in ((first, last), (-whole, last), (first, whole)):
        ends = [
            two_tails.points(two_tails.cut(q, end, mu), alpha, mu, ref) for end in (left, right)
        ]
        least, most = two_tails._log_width(ends[0], ends[1], q, mu)
        cell = two_tails._cell_bound(ends[0], ends[1], least - ref, most - ref)[0]
        inside = np.linspace(max(left[0], -60.0), min(right[0], 60.0), 400)
        best = sums(log_q, mu, order, inside).max() * (order - 1.0)
        assert best <= np.logaddexp(0.0, ref[0] + np.log(cell)) * (1.0 + 1e-9) + 1e-12


@settings(max_examples=60, deadline=None)
@given(st.floats(-1e5, -1e-3), st.floats(1e-3, 1.0), st.floats(1e-3, 8.0), st.floats(1.01, 512.0))
def test_more_q_more_mu_and_more_order_cost_more(
    log_q: float, step: float, mu: float, order: float
) -> None:
    got = rdp([log_q, log_q * (1.0 - step)], mu, [order, order * (1.0 + step)])
    # Each is above its V by a thousandth at most, so the order holds but for that.
    assert (got[1] >= got[0] / 1.0011).all()
    assert (got[:, 1] >= got[:, 0] / 1.0011).all()
    assert (rdp([log_q], mu * (1.0 + step), [order])[0] >= got[0, :1] / 1.0011).all()
    # A power of Python's rounds otherwise than a product.
    assert (got <= mu * mu / 2.0 * np.array([order, order * (1.0 + step)])).all()


@settings(max_examples=60, deadline=None)
@given(st.floats(-600.0, -0.1), st.floats(1e-3, 4.0), st.floats(1.01, 256.0))
def test_never_above_theorem_6(log_q: float, mu: float, order: float) -> None:
    old = theorem6.rdp([log_q], mu**2 / 2.0, [order])[0, 0]
    assert rdp([log_q], mu, [order])[0, 0] <= old * 1.0011


def test_much_below_theorem_6_where_it_matters() -> None:
    old = theorem6.rdp([-6.959], MNIST**2 / 2.0, [2.0, 14.0])[0]
    new = rdp([-6.959], MNIST, [2.0, 14.0])[0]
    assert (new < old * [0.06, 0.4]).all()


def test_the_ends() -> None:
    both = np.array([1.01, 2.0, 512.0])
    got = rdp([-np.inf, 0.0, -1e-300, -1e-3], MNIST, both)
    assert (got[0] == 0.0).all()
    assert (got[1:] == both * (MNIST * MNIST / 2.0)).all()
    # Above q = 0.99 the cost without votes is given, and it is hardly more.
    near = rdp([math.log(0.99) - 1e-9], MNIST, both, 1e-8)[0]
    assert near == pytest.approx(got[1], rel=2e-6)
    assert (near <= got[1]).all()


def test_extremes_stay_numbers() -> None:
    log_q = np.array([-1e300, -1e18, -1e6, -1e5, -5000.0, -745.0, -700.0, -40.0, -1.0, -0.02, -0.0])
    orders_ = np.array([1.0 + 1e-7, 1.01, 2.0, 64.0, 512.0, 1e5])
    for mu in (1e-6, 2.8e-4, 0.03, 1.4, 141.0, 900.0, 1e6):
        got = rdp(log_q, mu, orders_)
        assert np.isfinite(got).all()
        assert (got >= 0.0).all()
        assert (got <= orders_ * (mu * mu / 2.0)).all()
        # Where V - 1 is lost in rounding the bounds get looser, and may even fall a little.
        slack = 1.0011 if mu > 1e-4 else 1.5
        assert (np.diff(got[:8], axis=0) >= got[:7] * (1.0 / slack - 1.0)).all()
    assert 0.0 < rdp([-1.0], 1e-9, [2.0])[0, 0] <= 1e-18
    # Of a q of exp(-1e5) and order 2 nothing is left that a float could hold.
    assert rdp([-1e5], 0.03, [2.0])[0, 0] == 0.0


def test_many_at_once_are_as_one_by_one() -> None:
    random = np.random.default_rng(7)
    log_q, both = -(10.0 ** random.uniform(-2.0, 3.0, 700)), np.array([1.5, 6.0, 40.0])
    together = rdp(log_q, 0.3, both)
    for row in range(0, 700, 97):
        for column in range(3):
            alone = rdp(log_q[row : row + 1], 0.3, both[column : column + 1])[0, 0]
            assert together[row, column] == pytest.approx(alone, rel=1e-12)
    assert rdp([], 0.3, both).shape == (0, 3)


@pytest.mark.parametrize(
    ("name", "value"), [("_HALVINGS", 0), ("_HALVINGS", 1), ("_MOST_CELLS", 3)]
)
def test_cells_left_open_only_loosen_the_bound(
    monkeypatch: pytest.MonkeyPatch, name: str, value: int
) -> None:
    log_q, both = -np.geomspace(0.05, 30.0, 40), np.array([1.5, 6.0, 20.0])
    tight = rdp(log_q, MNIST, both, 1e-6)
    monkeypatch.setattr(two_tails, name, value)
    loose = rdp(log_q, MNIST, both, 1e-6)
    assert (loose >= tight * (1.0 - 1e-5)).all()
    assert (loose > tight * 1.001).any()
    assert (loose <= both * (MNIST * MNIST / 2.0)).all()


@pytest.mark.parametrize(
    "call",
    [
        lambda: rdp([0.1], 0.1, [2.0]), lambda: rdp([math.nan], 0.1, [2.0]),
        lambda: rdp([[-1.0]], 0.1, [2.0]), lambda: rdp([-1.0], 0.0, [2.0]),
        lambda: rdp([-1.0], math.inf, [2.0]), lambda: rdp([-1.0], math.nan, [2.0]),
        lambda: rdp([-1.0], 0.1, [1.0]), lambda: rdp([-1.0], 0.1, []),
        lambda: rdp([-1.0], 0.1, [2.0], 0.0), lambda: rdp([-1.0], 0.1, [2.0], math.nan),
        lambda: Table.build(0.1, [2.0], knots=15), lambda: Table.build(-0.1, [2.0]),
        lambda: Table.build(0.1, [0.5]),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(call: Callable[[], object]) -> None:
    with pytest.raises(AccountingError):
        call()


# The table


@pytest.fixture(scope="module")
def table() -> Table:
    return Table.build(MNIST, [1.25, 2.0, 8.0, 14.0, 64.0])


def test_a_table_is_never_below_the_bound_and_hardly_above(table: Table) -> None:
    random = np.random.default_rng(3)
    log_q = -np.concatenate([10.0 ** random.uniform(-3.0, 5.0, 1500), random.uniform(0, 20, 1500)])
    direct = rdp(log_q, MNIST, table.orders, 1e-6)
    got = table.lookup(log_q)
    assert (got >= direct * (1.0 - 1e-9)).all()
    # Per query, where it costs anything that can be noticed.
    noticed = direct > 1e-6 * direct.max(axis=0)
    assert (got[noticed] <= direct[noticed] * 1.06).all()
    assert (got <= direct * 1.06 + 1e-9).all()


def test_a_sum_of_lookups_is_hardly_above_the_sum_of_the_bounds(table: Table) -> None:
    # log q of votes such as those of MNIST and SVHN: most queries easy, some not.
    random = np.random.default_rng(4)
    gaps = 250.0 * random.beta(2.0, 1.0, 4000)
    log_q = np.minimum(special.log_ndtr(-gaps / (math.sqrt(2.0) * 40.0)) + 1.0, math.log(0.9))
    direct = rdp(log_q, MNIST, table.orders, 1e-6).sum(axis=0)
    got = table.lookup(log_q).sum(axis=0)
    assert (got >= direct).all()
    assert (got <= direct * 1.003).all()


def test_the_ends_of_a_table(table: Table) -> None:
    cap = table.orders * (MNIST * MNIST / 2.0)
    assert (table.lookup([0.0, -1e-300]) == cap).all()
    # Below the lowest knot: what costs nothing that could be noticed, but not nothing.
    lowest = table.lookup([-np.inf, -1e300, table.knots[0]])
    assert (lowest == table.values[0]).all()
    assert (lowest <= 1e-12).all()
    # At a knot q is not rounded, just above it q is.
    knot = table.knots[100]
    assert (table.lookup([knot])[0] == table.values[100]).all()
    assert (table.lookup([np.nextafter(knot, 0.0)])[0] == table.values[101]).all()
    for wrong in ([0.1], [math.nan], [[-1.0]]):
        with pytest.raises(AccountingError):
            table.lookup(wrong)


@pytest.mark.parametrize("mu", [2.8e-4, 0.3, 1.5, 300.0])
def test_tables_of_other_noises(mu: float) -> None:
    both = np.array([1.01, 3.0, 30.0, 512.0])
    made = Table.build(mu, both, knots=200)
    log_q = -np.geomspace(1e-3, 1e6, 100)
    # Of two bounds, either may have more slack: a thousandth at most.
    assert (made.lookup(log_q) >= rdp(log_q, mu, both) / 1.0011).all()
    assert (np.diff(made.values, axis=0) >= 0.0).all()


def test_a_table_cannot_be_written_to(table: Table) -> None:
    for array in (table.orders, table.knots, table.values):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0.0
    real_orders = np.array([2.0, 8.0])  # which stay their owner's
    made = Table.build(MNIST, real_orders, knots=16)
    real_orders[0] = 3.0
    assert made.orders.tolist() == [2.0, 8.0]
