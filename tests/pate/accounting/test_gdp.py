"""Gaussian DP: the exact profile against 50 digits, and the discrete noise against that profile."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp, ndtri_exp

from pate.accounting.arrays import Floats
from pate.accounting.bounds.laws import DiscreteGaussian
from pate.accounting.conversion import epsilon_from_rho
from pate.accounting.gdp import (
    LEAST_SIGMA,
    delta_from_epsilon,
    epsilon_from_delta,
    mu_of,
    mu_squared_from_epsilon,
    squared_step,
)
from pate.errors import AccountingError

mus = st.floats(min_value=1e-3, max_value=50.0)
deltas = st.floats(min_value=-690.0, max_value=-0.01).map(math.exp)

#: mu, epsilon, delta: with 400 digits from the difference of two normal tails.
DELTAS = [
    (1.0, 1.0, 0.12693673750664395), (0.001, 0.0, 0.00039894226377883829),
    (0.001, 0.03, 1.6566203950429383e-202), (0.001, 0.0365, 1.5447670547026216e-296),
    (0.01, 0.1, 7.8576927710367718e-27), (0.3, 0.0, 0.11923538474048503),
    (0.5, 2.0, 9.4391686349472338e-6), (0.7, 20.0, 3.8539849879915729e-177),
    (3.0, 1.0, 0.78760074136038453), (5.0, 180.0, 3.1251398265616371e-247),
    (10.0, 30.0, 0.97060185434685867), (50.0, 900.0, 0.99999999999850787),
    (50.0, 1250.0, 0.49202434210800699), (50.0, 2900.0, 2.4452518461996452e-239),
    (12.0, 10.0, 0.99999978947710097),
]  # fmt: skip

#: mu, delta, epsilon: by 220 bisections with 400 digits.
EPSILONS = [
    (0.6179, 1e-05, 2.5271870978727303), (0.001, 1e-05, 0.00193872496986011),
    (0.001, 1e-300, 0.036762916699487862), (0.01, 1e-12, 0.060752210629786218),
    (0.1, 1e-100, 2.107068131290992), (1.0, 0.3, 0.27661739889684955),
    (2.0, 0.6, 0.4953231860788165), (2.0, 0.01, 5.9978925298189199),
    (10.0, 1e-08, 105.3272470887507), (50.0, 1e-300, 3101.60657214131),
    (50.0, 0.5, 1249.0001331842984), (50.0, 0.9999, 1063.0101949768016),
    (50.0, 1e-05, 1462.2850159647798), (7.0, 0.999, 1.5748546798842399),
    (0.05, 0.001, 0.084017662655424102),
]  # fmt: skip


@pytest.mark.parametrize(("mu", "epsilon", "delta"), DELTAS)
def test_delta(mu: float, epsilon: float, delta: float) -> None:
    got = delta_from_epsilon(mu, epsilon)
    assert delta * (1 - 2e-16) <= got <= delta * (1 + 1e-11)


@pytest.mark.parametrize(("mu", "delta", "epsilon"), EPSILONS)
def test_epsilon(mu: float, delta: float, epsilon: float) -> None:
    got = epsilon_from_delta(mu, delta)
    assert epsilon * (1 - 2e-16) <= got <= epsilon * (1 + 1e-12)


def test_the_discrete_draw_of_a_published_campaign_costs_what_the_papers_noise_does() -> None:
    # 640 checks of sigma 150, 286 answers of sigma 40, k = 1; continuous: 2.543 at delta 1e-5.
    steps = 640 * squared_step(Fraction(150)) + 2 * 286 * squared_step(Fraction(40))
    assert epsilon_from_delta(mu_of(steps), 1e-5) == pytest.approx(2.543, abs=1e-3)


@given(mus, deltas)
@settings(deadline=None, max_examples=60)
def test_there_and_back(mu: float, delta: float) -> None:
    epsilon = epsilon_from_delta(mu, delta)
    # Never too much; and no smaller epsilon would do, but for rounding.
    assert delta_from_epsilon(mu, epsilon) <= delta * (1 + 1e-12)
    if epsilon > 1e-9:
        assert delta_from_epsilon(mu, epsilon * (1 - 1e-9)) > delta * (1 - 1e-12)


@given(mus, deltas, st.floats(min_value=1.0, max_value=10.0))
@settings(deadline=None, max_examples=60)
def test_more_noise_or_a_larger_delta_costs_no_more(mu: float, delta: float, more: float) -> None:
    epsilon = epsilon_from_delta(mu, delta)
    assert epsilon_from_delta(mu * more, delta) >= epsilon * (1 - 1e-13)
    assert epsilon_from_delta(mu, min(delta * more, 0.999)) <= epsilon * (1 + 1e-13)


@given(mus, deltas)
@settings(deadline=None, max_examples=60)
def test_the_profile_is_never_above_what_zcdp_says(mu: float, delta: float) -> None:
    rho = Fraction(mu) ** 2 / 2
    assert epsilon_from_delta(mu, delta) <= epsilon_from_rho(rho, delta) * (1 + 1e-12) + 1e-12


@given(st.floats(min_value=1e-6, max_value=200.0), deltas)
@settings(deadline=None, max_examples=60)
def test_a_budget_in_mu_is_within_and_close_to_epsilon(epsilon: float, delta: float) -> None:
    budget = mu_squared_from_epsilon(epsilon, delta)
    assert budget > 0
    assert epsilon_from_delta(mu_of(budget), delta) <= epsilon
    # The largest: one part in 10^10 more is too much.
    assert epsilon_from_delta(mu_of(budget * (1 + Fraction(1, 10**10))), delta) > epsilon


def test_a_budget_has_twelve_digits() -> None:
    for epsilon in (1e-3, 0.5, 2.0, 40.0):
        budget = mu_squared_from_epsilon(epsilon, 1e-5)
        scaled = budget
        while scaled < 10**11:
            scaled *= 10
        assert scaled.denominator == 1


@pytest.mark.parametrize("epsilon", [0.0, 5e-324, 1e-9, 1.0, 1e300])
@pytest.mark.parametrize("delta", [5e-324, 1e-300, 0.5, math.nextafter(0.5, 1.0), 1 - 2**-53])
def test_budgets_at_the_ends_of_the_floats(epsilon: float, delta: float) -> None:
    budget = mu_squared_from_epsilon(epsilon, delta)
    assert epsilon_from_delta(mu_of(budget), delta) <= epsilon


@pytest.mark.parametrize("mu", [5e-324, 1e-300, 1e-9, 1e9, 1e154, 1e300])
def test_extremes_stay_numbers(mu: float) -> None:
    for epsilon in (0.0, 5e-324, 1e-5, 1.0, 1e5, 1e300):
        # A delta is never 0: that would be pure DP.
        assert 0.0 < delta_from_epsilon(mu, epsilon) <= 1.0
    for delta in (5e-324, 1e-5, 0.5, 1 - 2**-53):
        if mu < 1e200:
            assert 0.0 <= epsilon_from_delta(mu, delta) < math.inf
        else:
            with pytest.raises(AccountingError, match="too large"):
                epsilon_from_delta(mu, delta)


def test_nothing_costs_nothing() -> None:
    assert delta_from_epsilon(0.0, 0.0) == 0.0
    assert epsilon_from_delta(0.0, 1e-5) == 0.0
    assert mu_of(Fraction(0)) == 0.0


def steps_of(law: DiscreteGaussian, reach: int) -> Floats:
    """d_m = a_{m+1} - a_m for m = 0 .. reach - 1, where P[Z >= m] = Phi(-a_m)."""
    log_tails = law.log_survival(np.arange(reach + 1.0))
    quantiles = -ndtri_exp(log_tails)
    # P[Z >= 0] is above 1/2: by symmetry a_0 = -a_1.
    quantiles[0] = -quantiles[1]
    made: Floats = np.diff(quantiles)
    return made


@pytest.mark.parametrize(
    "sigma",
    [
        2.0, 2.0001, 2.05, 2.1, 2.25, 2.5, 2.7, 3.0, 3.3, 4.0, 5.5, 7.0, 10.0, 31.0, 40.0, 150.0,
        700.0,
    ],
)  # fmt: skip
def test_no_step_of_the_discrete_law_is_above_the_bound(sigma: float) -> None:
    steps = steps_of(DiscreteGaussian(sigma), int(60 * sigma))
    bound = math.sqrt(2 * (1 - math.sqrt(1 - 1 / sigma**2))) if sigma < 20 else None
    square = float(squared_step(Fraction(sigma)))
    if bound is not None:
        assert steps.max() <= bound
        assert bound**2 <= square
    # Rounding of quantiles of size 60, and of their differences.
    assert steps.max() <= math.sqrt(square) + 1e-13
    # What the theorem gives away: the largest step is the middle one, 1/sigma + 1/(24 sigma^3).
    assert steps.argmax() == 0 or sigma > 20
    assert steps.max() == pytest.approx(
        1 / sigma + 1 / (24 * sigma**3), rel=1 / (20 * sigma**4) + 1e-12
    )


def masses(sigma: float) -> Floats:
    """N_Z(0, sigma^2) from -R to R."""
    reach = math.ceil(42 * sigma)
    logs = -(np.arange(-reach, reach + 1.0) ** 2) / (2 * sigma**2)
    made: Floats = np.exp(logs - logsumexp(logs))
    return made


def exact_delta(law: Floats, loss: Floats, epsilon: float) -> float:
    """The sum of (P - e^epsilon Q)+, where ``loss`` is ln(P/Q) at each point of P."""
    gain = -np.expm1(np.minimum(epsilon - loss, 0.0))
    return float(law @ gain)


@pytest.mark.parametrize("sigma", [2.0, 2.3, 3.0, 5.0, 12.0])
@pytest.mark.parametrize("shift", [1, 2, 3, 7])
def test_the_discrete_profile_is_below_the_gaussian_one(sigma: float, shift: int) -> None:
    law = masses(sigma)
    x = np.arange(law.size) - law.size // 2
    loss = shift * (2 * x + shift) / (2 * sigma**2)
    mu = mu_of(shift**2 * squared_step(Fraction(sigma)))
    for epsilon in np.concatenate(
        [np.linspace(0.0, 8.0, 33) * mu, mu * (mu / 2 + np.arange(1, 30))]
    ):
        exact = exact_delta(law, loss, float(epsilon))
        assert exact <= delta_from_epsilon(mu, float(epsilon)) * (1 + 1e-9)


@pytest.mark.parametrize(("sigma", "k"), [(2.0, 1), (2.0, 3), (3.0, 1), (4.5, 2), (12.0, 5)])
@pytest.mark.parametrize("queries", [1, 2, 5])
def test_moved_votes_of_several_queries_stay_below_the_composed_profile(
    sigma: float, k: int, queries: int
) -> None:
    # (+k, -k) in each query: the losses of all coordinates add, and by symmetry have one law.
    one = masses(sigma)
    law = one
    for _ in range(2 * queries - 1):
        law = np.maximum(np.convolve(law, one), 0.0)
    total = np.arange(law.size) - law.size // 2
    loss = k * (2 * total + 2 * queries * k) / (2 * sigma**2)
    mu = mu_of(2 * queries * k**2 * squared_step(Fraction(sigma)))
    close = 0.0
    for epsilon in np.linspace(0.0, mu * (mu / 2 + 7), 60):
        exact = exact_delta(law, loss, float(epsilon))
        bound = delta_from_epsilon(mu, float(epsilon))
        assert exact <= bound * (1 + 1e-9)
        close = max(close, exact / bound)
    assert close > 0.9


def test_the_continuous_figure_would_be_too_small_for_discrete_noise() -> None:
    # Why squared_step is above 1/sigma^2: with mu = 1/sigma the discrete law breaks the profile.
    law = masses(2.0)
    x = np.arange(law.size) - law.size // 2
    loss = (2 * x + 1) / 8.0
    total_variation = exact_delta(law, loss, 0.0)
    assert total_variation == pytest.approx(law.max(), rel=1e-12)
    assert total_variation > delta_from_epsilon(0.5, 0.0)
    assert total_variation <= delta_from_epsilon(mu_of(squared_step(Fraction(2))), 0.0)


@given(st.fractions(min_value=LEAST_SIGMA, max_value=10**6, max_denominator=10**6))
def test_a_step_is_just_above_the_root(sigma: Fraction) -> None:
    inverse = 1 / sigma**2
    step = squared_step(sigma)
    # x = 2 (1 - sqrt(1 - l)) is the smaller root of x (1 - x/4) = l, which rises up to x = 2.
    assert step < 2
    assert inverse <= step * (1 - step / 4)
    assert step <= inverse * (1 + inverse / 3)


@pytest.mark.parametrize("sigma", [Fraction(199, 100), Fraction(0), Fraction(-3), 40.0, "40", True])
def test_a_bad_sigma_stops_the_accountant(sigma: object) -> None:
    with pytest.raises(AccountingError, match="sigma"):
        squared_step(sigma)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
def test_bad_numbers_stop_the_accountant(value: float) -> None:
    with pytest.raises(AccountingError, match="mu"):
        delta_from_epsilon(value, 1.0)
    with pytest.raises(AccountingError, match="epsilon"):
        delta_from_epsilon(1.0, value)
    with pytest.raises(AccountingError, match="mu"):
        epsilon_from_delta(value, 1e-5)
    with pytest.raises(AccountingError, match="epsilon"):
        mu_squared_from_epsilon(value, 1e-5)
    for delta in (value, 0.0, 1.0):
        with pytest.raises(AccountingError, match="delta"):
            epsilon_from_delta(1.0, delta)
        with pytest.raises(AccountingError, match="delta"):
            mu_squared_from_epsilon(1.0, delta)
    with pytest.raises(AccountingError, match="mu squared"):
        mu_of(Fraction(-1))
