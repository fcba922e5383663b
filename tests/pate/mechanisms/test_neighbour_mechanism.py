"""Neighbour votes as a mechanism: one Gaussian release of a whole matrix, of sensitivity sqrt(2) k."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from pate.accounting.composition import Gdp, Zcdp, total_cost
from pate.accounting.events import NoisyHistogram
from pate.errors import BudgetError, ProtocolError, UsageError
from pate.mechanisms import (
    DistributedNeighbour,
    GNMax,
    MatrixMechanism,
    Neighbour,
    mechanism_from_dict,
    worst_cost,
)
from pate.mechanisms.least_noise import clear_margin, least_share
from pate.mechanisms.matrix import require_unit
from pate.noise.exact import SystemNoise
from pate.noise.share_laws import GaussianShares
from pate.noise.shares import total_sigma
from tests.support.one_query import answer

CENTRAL = Neighbour(5, Fraction(81, 2), 3)
SHARED = DistributedNeighbour(5, Fraction(81, 4), 4, 3)
GEOMETRIC = Neighbour(5, votes_per_unit=3, scale=Fraction(81, 2))
SHARED_GEOMETRIC = DistributedNeighbour(5, honest=4, votes_per_unit=3, scale=Fraction(81, 2))
ALL = (CENTRAL, SHARED, GEOMETRIC, SHARED_GEOMETRIC)
DELTA = 1e-5


class NoNoise:
    """Counts what it is asked for, and adds nothing."""

    production: ClassVar[bool] = True

    def __init__(self) -> None:
        self.asked: list[tuple[Fraction, int]] = []

    def gaussian(self, sigma: Fraction, count: int) -> Any:
        self.asked.append((sigma, count))
        return np.zeros(count, dtype=np.int64)

    def laplace(self, scale: Fraction, count: int) -> Any:
        raise AssertionError("these neighbour votes have Gaussian noise")


def rows_of(*rows: list[int]) -> Any:
    return np.array(rows, dtype=np.int64)


# --- the text form ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "field", ["threshold", "sigma", "votes_per_unit", "share", "honest", "scale"]
)
@pytest.mark.parametrize("value", [None, "", "x", "0", "-1", "2/4", 1.5, True, 10**50, "nan"])
def test_another_text_is_refused(field: str, value: object) -> None:
    for mechanism in ALL:
        fields: dict[str, Any] = dict(mechanism.to_dict())
        if field not in fields:
            continue
        for changed in ({**fields, field: value}, {k: v for k, v in fields.items() if k != field}):
            with pytest.raises(UsageError):
                mechanism_from_dict(changed)
    with pytest.raises(UsageError):
        mechanism_from_dict({**SHARED.to_dict(), "mechanism": "neighbour"})
    with pytest.raises(UsageError):
        mechanism_from_dict({**CENTRAL.to_dict(), "more": 1})
    for mechanism in ALL:  # one law, no more
        with pytest.raises(UsageError):
            mechanism_from_dict({**mechanism.to_dict(), "scale": "20", "sigma": "20"})


@pytest.mark.parametrize(
    "make",
    [
        lambda: Neighbour(5, Fraction(1, 2), 1),
        lambda: Neighbour(5, Fraction(0), 1),
        lambda: Neighbour(5, 40.5, 1),  # type: ignore[arg-type]
        lambda: Neighbour(5, Fraction(40), 0),
        lambda: Neighbour(5.0, Fraction(40), 1),  # type: ignore[arg-type]
        lambda: DistributedNeighbour(5, Fraction(40), 0, 1),
        lambda: DistributedNeighbour(5, Fraction(40), 2**40, 1),
        lambda: DistributedNeighbour(5, Fraction(1, 64), 3, 1),
        lambda: Neighbour(5, votes_per_unit=1),
        lambda: Neighbour(5, scale=Fraction(20)),
        lambda: Neighbour(5, Fraction(20), 1, Fraction(20)),
        lambda: Neighbour(5, votes_per_unit=1, scale=20.5),  # type: ignore[arg-type]
        lambda: DistributedNeighbour(5, honest=3, votes_per_unit=1),
        lambda: DistributedNeighbour(5, votes_per_unit=1, scale=Fraction(20)),
        lambda: DistributedNeighbour(5, honest=3, scale=Fraction(20)),
        lambda: DistributedNeighbour(5, honest=3, votes_per_unit=1, scale=Fraction(2**13)),
    ],
)
def test_parameters_that_make_no_sense_are_refused(make: Any) -> None:
    with pytest.raises(UsageError):
        make()


# --- what it costs ------------------------------------------------------------------------------


def mu_of(epsilon: float, delta: float) -> float:
    """Of the Gaussian mechanism that is just (epsilon, delta): Balle and Wang 2018, Theorem 8."""
    from scipy.stats import norm

    def over(mu: float) -> float:
        right = norm.cdf(-mu / 2 - epsilon / mu)
        return float(norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * right) - delta

    return float(brentq(over, 1e-6, 100.0, xtol=1e-14, rtol=1e-13))


@pytest.mark.parametrize("votes", [1, 2, 7])
@pytest.mark.parametrize(
    ("make", "sigma"),
    [
        (lambda k: Neighbour(0, Fraction(30), k), 30.0),
        (lambda k: DistributedNeighbour(0, Fraction(15), 4, k), 30.0),
        (lambda k: DistributedNeighbour(0, Fraction(15), 3, k), 15 * math.sqrt(3)),
    ],
)
def test_a_matrix_costs_what_a_gaussian_of_that_sensitivity_costs(
    votes: int, make: Any, sigma: float
) -> None:
    mechanism = make(votes)
    (event,) = mechanism.worst
    epsilon = Gdp().epsilon(total_cost(Gdp(), mechanism.worst), DELTA)
    mu = mu_of(epsilon, DELTA)
    # Discrete noise costs at most one part in 6 sigma^2 of mu more, and no less.
    assert mu * sigma / votes == pytest.approx(math.sqrt(2), rel=1 / (5 * sigma**2))
    assert mu * sigma / votes >= math.sqrt(2) * (1 - 1e-9)
    assert float(Zcdp().cost(event)) == pytest.approx((votes / sigma) ** 2, rel=1e-9)


def test_the_number_of_queries_costs_nothing_and_none_costs_nothing() -> None:
    once = worst_cost(Gdp(), [CENTRAL], 1)
    assert worst_cost(Gdp(), [CENTRAL], 10_000) == once == total_cost(Gdp(), CENTRAL.worst) > 0
    assert worst_cost(Gdp(), [CENTRAL], 0) == 0
    gnmax = GNMax(Fraction(40), 1)
    assert worst_cost(Gdp(), [gnmax], 7) == 7 * total_cost(Gdp(), gnmax.worst)
    assert worst_cost(Gdp(), [SHARED, CENTRAL], 5) == max(
        worst_cost(Gdp(), [each], 5) for each in (SHARED, CENTRAL)
    )


@given(
    epsilon=st.floats(0.02, 20.0),
    delta=st.floats(1e-9, 1e-2),
    honest=st.integers(1, 40),
    votes=st.integers(1, 30),
)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_the_least_share_fits_and_nothing_less_does(
    epsilon: float, delta: float, honest: int, votes: int
) -> None:
    share = least_share(epsilon, delta, honest, votes)
    assert share >= 1
    assert (share * 64).denominator == 1

    def worth(value: Fraction) -> float:
        event = NoisyHistogram(value, honest, votes)
        return Gdp().epsilon(Gdp().cost(event), delta) if Gdp().supports(event) else math.inf

    assert worth(share) <= epsilon * (1 + 1e-9)
    less = share - Fraction(1, 64)
    if less >= 1:
        assert worth(less) > epsilon


@pytest.mark.parametrize(("epsilon", "sigma"), [(0.1, 43.5), (0.2, 23.0), (0.5, 9.9), (1.0, 5.3)])
def test_the_noise_of_some_budgets(epsilon: float, sigma: float) -> None:
    """By the profile of the Gaussian mechanism: sqrt(2) / mu, up to the next 1/64, and for the lattice."""
    found = float(least_share(epsilon, DELTA, 1, 1))
    assert found == pytest.approx(sigma, rel=0.03)
    assert 0 <= found - math.sqrt(2) / mu_of(epsilon, DELTA) < 1 / 64 + 1 / (5 * found)


def test_a_budget_that_no_noise_is_worth_is_refused() -> None:
    for epsilon, votes in ((1e-9, 2**31), (1e-4, 2**8), (0.1, 20_000)):
        with pytest.raises(BudgetError, match="no noise"):
            least_share(epsilon, DELTA, 1, votes)
    assert least_share(0.1, DELTA, 1, 10_000) > 400_000


# --- what it says ------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ALL)
def test_a_label_needs_the_margin(mechanism: MatrixMechanism) -> None:
    noisy = rows_of([9, 4, 0], [9, 5, 0], [-20, -15, -10], [3, 3, 3], [0, 8, 8], [-3, 2, -9])
    assert mechanism.labels(noisy) == (0, None, 2, None, None, 1)


def test_a_tie_goes_to_the_first_where_no_margin_is_asked_for() -> None:
    assert Neighbour(0, Fraction(40), 1).labels(rows_of([1, 3, 3], [2, 2, 2])) == (1, 0)


def test_labels_of_nothing_are_none() -> None:
    assert CENTRAL.labels(np.zeros((0, 3), dtype=np.int64)) == ()


@given(
    rows=st.lists(st.lists(st.integers(-50, 50), min_size=4, max_size=4), min_size=1, max_size=6),
    threshold=st.integers(0, 30),
)
@settings(max_examples=100, deadline=None, derandomize=True)
def test_labels_are_those_of_a_plain_loop(rows: list[list[int]], threshold: int) -> None:
    found = Neighbour(threshold, Fraction(40), 1).labels(np.array(rows, dtype=np.int64))
    wanted = []
    for row in rows:
        first, second = sorted(row, reverse=True)[:2]
        wanted.append(row.index(first) if first - second >= threshold else None)
    assert found == tuple(wanted)


@pytest.mark.parametrize(
    "rows",
    [
        np.zeros((2, 3)), np.zeros((2, 1), dtype=np.int64), np.zeros(3, dtype=np.int64),
        np.full((1, 3), 2**41, dtype=np.int64), np.full((1, 3), -(2**41), dtype=np.int64),
    ],
)  # fmt: skip
def test_rows_that_cannot_be_noisy_votes_are_refused(rows: Any) -> None:
    for mechanism in (CENTRAL, SHARED):
        with pytest.raises(ProtocolError):
            mechanism.labels(rows)
        with pytest.raises(ProtocolError):
            mechanism.released(rows, SystemNoise())


def test_exact_counts_are_not_negative() -> None:
    with pytest.raises(ProtocolError):
        CENTRAL.released(rows_of([-1, 2, 3]), SystemNoise())
    np.testing.assert_array_equal(SHARED.released(rows_of([-1, 2, 3]), SystemNoise()), [[-1, 2, 3]])


def test_each_count_has_a_draw_of_its_own_and_shares_none() -> None:
    noise = NoNoise()
    rows = rows_of([1, 2, 3], [4, 5, 6])
    np.testing.assert_array_equal(CENTRAL.released(rows, noise), rows)
    SHARED.released(rows, noise)
    assert noise.asked == [(Fraction(81, 2), 6)]


def test_the_noise_is_the_discrete_gaussian_that_is_charged() -> None:
    """Its sum of squares over sigma^2 is chi-square: outside these bounds with a chance of 1e-9."""
    from scipy.stats import chi2

    cells = 20_000
    rows = np.full((cells // 4, 4), 7, dtype=np.int64)
    noise = (CENTRAL.released(rows, SystemNoise()) - 7).ravel()
    low, high = chi2.ppf([5e-10, 1 - 5e-10], cells)
    sigma = 40.5
    squared = float((noise.astype(float) ** 2).sum()) / sigma**2
    assert low < squared < high
    # Independent of each other: the products of neighbours sum to about nothing, 6.2 sigma of it.
    products = float((noise[1:] * noise[:-1]).sum()) / sigma**2
    assert abs(products) < 6.2 * math.sqrt(cells)
    assert abs(noise.sum()) < 6.2 * sigma * math.sqrt(cells)


def test_answers_are_of_one_release_and_all_have_its_one_event() -> None:
    noise = NoNoise()
    rows = rows_of([9, 0, 0], [1, 1, 1], [0, 0, 9])
    outcomes = CENTRAL.answer_all(rows, noise)
    assert [(each.label, each.source) for each in outcomes] == [
        (0, "records"), (None, None), (2, "records"),
    ]  # fmt: skip
    assert {each.events for each in outcomes} == {CENTRAL.worst}
    assert noise.asked == [(CENTRAL.sigma, 9)]
    assert answer(CENTRAL, rows[0], noise) == outcomes[0]
    assert answer(SHARED, rows[2], noise).label == 2


# --- margins and units -----------------------------------------------------------------------


@pytest.mark.parametrize(("share", "parties"), [(Fraction(40), 1), (Fraction(7, 2), 5)])
def test_two_classes_with_as_many_votes_seldom_have_a_clear_margin(
    share: Fraction, parties: int
) -> None:
    """Two counts differ by sqrt(2) sigma: twice that is exceeded 4.6 times of a hundred."""
    from scipy.stats import norm

    sigma = float(total_sigma(share, parties))
    margin = clear_margin(GaussianShares(share), parties)
    assert margin - 1 < 2 * math.sqrt(2) * sigma <= margin
    assert 2 * norm.sf(margin / (math.sqrt(2) * sigma)) < 0.0456


def test_a_whole_party_is_no_unit_of_it() -> None:
    require_unit("record")
    require_unit("patient")
    with pytest.raises(UsageError, match="--unit record or patient"):
        require_unit("party")
