"""The published cost of the noisy release against exact divergences of real neighbours."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy import integrate

from pate.accounting.bounds import theorem6
from pate.accounting.bounds.laws import Gaussian
from pate.accounting.bounds.outlier import gnmax_log_q
from pate.accounting.publishing import gnss
from pate.errors import AccountingError
from tests.support.accounting.published_sensitivity import discounted_maximum, gnmax

if TYPE_CHECKING:
    from collections.abc import Callable


def quadrature(spread: float, shift: float, other: float, order: float) -> float:
    """D_order(N(0, spread^2) || N(shift, other^2)) by integration."""

    def density(x: float) -> float:
        log_p = -0.5 * (x / spread) ** 2 - math.log(spread)
        log_q = -0.5 * ((x - shift) / other) ** 2 - math.log(other)
        return math.exp(order * log_p + (1 - order) * log_q) / math.sqrt(2 * math.pi)

    width = 1 / math.sqrt(order / spread**2 + (1 - order) / other**2)
    centre = (1 - order) * shift / other**2 * width**2
    value, _ = integrate.quad(density, centre - 12 * width, centre + 12 * width, limit=200)
    return math.log(value) / (order - 1)


@pytest.mark.parametrize(
    ("spread", "shift", "other", "order"),
    [
        (1, 0.5, 1, 2), (1, 0.5, 0.9, 3), (2, 0.1, 2.2, 14), (1, 0, 1.3, 1.2), (1, 1, 0.97, 9.5)
    ],
)  # fmt: skip
def test_the_divergence_is_the_integral(
    spread: float, shift: float, other: float, order: float
) -> None:
    got = gnss.divergence(spread, shift, other, order)
    assert got == pytest.approx(quadrature(spread, shift, other, order), rel=1e-9)


# Two classes, GNMax, with the parameters of the published figures: order, beta and sigma_SS.
@pytest.mark.parametrize(
    ("votes", "sigma", "order", "beta", "sigma_ss", "exact", "published"),
    [
        ((178, 72), 40.0, 14.0, 0.0329, 6.23, 1.5875, 0.5184),
        ((2645, 2355), 100.0, 20.5, 0.0205, 11.9, 0.4161, 0.2194),
        ((185, 65), 40.0, 7.5, 0.0533, 4.88, 0.6294, 0.5354),
    ],
)
def test_the_published_cost_is_below_real_neighbours_and_the_safe_one_is_not(
    votes: tuple[int, int],
    sigma: float,
    order: float,
    beta: float,
    sigma_ss: float,
    exact: float,
    published: float,
) -> None:
    teachers, worst = sum(votes), 0.0
    found = []
    for top in (votes[0], votes[0] + 1):
        histogram = [top, teachers - top]
        log_q = gnmax_log_q([histogram], Gaussian(sigma))
        cost = float(theorem6.rdp(log_q, 1 / sigma**2, [order])[0, 0])
        found.append((cost, discounted_maximum(beta, gnmax(histogram, teachers, sigma, order))))
    (cost, smooth), (cost2, smooth2) = found
    assert abs(cost2 - cost) <= min(smooth, smooth2)
    assert abs(math.log(smooth2 / smooth)) <= beta * (1 + 1e-12)
    for one, two in ((smooth, smooth2), (smooth2, smooth)):
        spreads = sigma_ss * one, sigma_ss * two
        worst = max(worst, gnss.divergence(spreads[0], cost2 - cost, spreads[1], order))
    paper = gnss.cost(beta, sigma_ss, order, "paper")
    assert paper * 1.1 < worst <= gnss.cost(beta, sigma_ss, order)
    assert worst == pytest.approx(exact, abs=1e-4)
    assert paper == pytest.approx(published, abs=1e-4)


def test_the_safe_cost_is_the_supremum() -> None:
    rng = np.random.default_rng(7)
    for _ in range(400):
        order, sigma = 1 + 10 ** rng.uniform(-2, 2.5), 10 ** rng.uniform(-0.5, 3)
        beta = 10 ** rng.uniform(-6, 0) / order
        safe = gnss.cost(beta, sigma, order)
        exact = [
            gnss.divergence(sigma, min(1.0, math.exp(t)) * part, sigma * math.exp(t), order)
            for t in (-beta, -beta * 0.999, *(beta * rng.uniform(-1, 1, 30)), beta)
            for part in (1.0, -1.0, rng.uniform(-1, 1))
        ]
        if not math.isfinite(safe):
            assert max(exact) > 1 or not math.isfinite(exact[0])
            continue
        assert safe >= max(exact) * (1 - 1e-9) - 1e-13
        assert max(exact) >= safe * (1 - 1e-6) - 1e-13


def test_figures_computed_apart() -> None:
    assert gnss.cost(0.0153, 4.62, 14.0, "paper") == pytest.approx(0.71427989575809564, rel=1e-12)
    assert gnss.cost(0.0153, 4.62, 14.0) == pytest.approx(0.55481378963045728, rel=1e-12)
    # Small beta: the terms of order beta cancel, those of beta^2 are left.
    assert gnss.cost(1e-7, 1e9, 2.0) == pytest.approx(1e-14 * 2 + 1e-18, rel=1e-6)
    assert gnss.cost(0.5, 1.0, 3.0) == math.inf
    assert gnss.cost(0.5, 1.0, 3.0, "paper") == math.inf


def test_the_upper_bound_holds_as_often_as_it_says() -> None:
    # 200,000 runs, failure 2 %: more than 2.25 % has a chance below 1e-13.
    rng = np.random.default_rng(11)
    beta, sigma, sigma_log, failure = 0.05, 4.0, 3.0, 0.02
    cost, smooth = 1.0, 0.1
    missed = 0
    z = rng.standard_normal((200_000, 2))
    noisy = cost + smooth * sigma * z[:, 0]
    noisy_log = math.log(smooth) + beta * sigma_log * z[:, 1]
    for one, two in zip(noisy.tolist(), noisy_log.tolist(), strict=True):
        upper = gnss.upper_bound(
            one, two, beta=beta, sigma=sigma, sigma_log=sigma_log, failure=failure
        )
        missed += upper < cost
    assert missed / 200_000 < failure + 0.0025
    assert missed > 0


def test_cost_of_the_logarithm() -> None:
    # ln SS moves by at most beta, and the noise is beta * sigma_l: a plain Gaussian.
    assert gnss.log_release_cost(5.0, 14.0) == pytest.approx(gnss.divergence(5.0, 1.0, 5.0, 14.0))


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_what_cannot_be_is_refused(bad: float) -> None:
    known: dict[str, Any] = {"beta": 0.1, "sigma": 2.0, "sigma_log": 2.0, "failure": 0.1}
    calls: list[Callable[[], float]] = [
        lambda: gnss.cost(bad, 1.0, 2.0),
        lambda: gnss.cost(0.1, bad, 2.0),
        lambda: gnss.cost(0.1, 1.0, bad),
        lambda: gnss.cost(0.1, 1.0, 1.0, "paper"),
        lambda: gnss.cost(0.1, 1.0, 2.0, "published"),  # type: ignore[arg-type]
        lambda: gnss.divergence(bad, 0.0, 1.0, 2.0),
        lambda: gnss.divergence(1.0, math.nan, 1.0, 2.0),
        lambda: gnss.log_release_cost(bad, 2.0),
        lambda: gnss.upper_bound(math.nan, 0.0, **known),
        lambda: gnss.upper_bound(0.0, 0.0, **{**known, "failure": bad}),
        lambda: gnss.upper_bound(0.0, 0.0, **{**known, "sigma_log": bad}),
    ]
    for call in calls:
        with pytest.raises(AccountingError):
            call()
