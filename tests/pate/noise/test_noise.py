"""The samplers against the laws that they claim.

Statistical tests use the operating system's bits, so each run is a new experiment; each one
fails a correct sampler with probability at most 1e-6.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from pate.errors import AccountingError, UsageError
from pate.noise.exact import (
    LARGEST_TERM,
    LEAST_SCALE,
    SystemNoise,
    check_scale,
    discrete_gaussian,
    discrete_laplace,
)
from pate.noise.lanes import Lanes
from tests.support.noise_laws import FALSE_ALARM, chi_square, enumerate_paths, weights
from tests.support.simulated_noise import SimulatedNoise

DRAWS = 200_000

# Seed 7: sigma 150, and scale 20.
GOLDEN_GAUSSIAN = [-40, 27, -24, -76, 147]
GOLDEN_LAPLACE = [-3, 9, -1, -16, -10]


@pytest.mark.parametrize("sigma", ["150", "40", "3/2", "1", "1/2", "7/3", "12345/1000"])
def test_the_discrete_gaussian_has_its_law(sigma: str) -> None:
    s = Fraction(sigma)
    law = weights(lambda x: float(x * x / (2 * s * s)), math.ceil(12 * s) + 10)
    drawn = SystemNoise().gaussian(s, DRAWS)
    assert drawn.dtype == np.int64
    assert chi_square(drawn, law) > FALSE_ALARM


@pytest.mark.parametrize("scale", ["20", "1", "1/2", "7/3", "150", "3333/100"])
def test_the_discrete_laplace_has_its_law(scale: str) -> None:
    b = Fraction(scale)
    law = weights(lambda x: float(abs(x) / b), math.ceil(60 * b) + 10)
    drawn = SystemNoise().laplace(b, DRAWS)
    assert drawn.dtype == np.int64
    assert chi_square(drawn, law) > FALSE_ALARM


def test_the_chi_square_test_sees_a_wrong_law() -> None:
    # Rounded continuous noise of the same sigma: its variance is larger by 1/12.
    s = 1.5
    law = weights(lambda x: x * x / (2 * s * s), 40)
    rounded = np.rint(np.random.default_rng(0).normal(0.0, s, DRAWS)).astype(np.int64)
    assert chi_square(rounded, law) < FALSE_ALARM


def test_neighbouring_draws_are_uncorrelated() -> None:
    from scipy import stats

    drawn = SystemNoise().gaussian(Fraction(40), DRAWS).astype(np.float64)
    correlation = float(np.corrcoef(drawn[:-1], drawn[1:])[0, 1])
    assert abs(correlation) * math.sqrt(DRAWS) < stats.norm.isf(FALSE_ALARM / 2)


@pytest.mark.parametrize(("t", "s"), [(1, 1), (2, 1), (1, 2)])
def test_one_laplace_proposal_has_exact_probabilities(t: int, s: int) -> None:
    found, cut = enumerate_paths(lambda lanes: lanes.laplace(t, s, 1), 4e-6)
    assert sum(found.values()) + cut == 1
    # The mass of the paths that were cut off belongs somewhere: a bracket, no tolerance.
    for x in range(-3, 4):
        sizes = range(s * abs(x), s * abs(x) + s)
        exact = math.fsum(math.exp(-u / t) * (1 - math.exp(-1)) / t for u in sizes) / 2
        assert float(found[x]) <= exact <= float(found[x] + cut)
    assert cut < Fraction(1, 50)


@pytest.mark.parametrize(("z", "c"), [(1, 3), (0, 2), (2, 3), (3, 3), (4, 3)])
def test_the_coin_of_a_half_square_has_its_exact_probability(z: int, c: int) -> None:
    def toss(lanes: Lanes) -> NDArray[np.int64]:
        return lanes.half_square_coins(np.array([z], dtype=np.int64), c).astype(np.int64)

    found, cut = enumerate_paths(toss, 1e-6)
    exact = math.exp(-((z / c) ** 2) / 2)
    assert float(found[1]) <= exact * (1 + 1e-12)
    assert exact <= float(found[1] + cut)
    assert cut < Fraction(1, 100)


def test_a_fraction_of_a_coin_is_decided_without_rounding() -> None:
    # 2^64 = 4 * (2^62 - 1) + 4: the four highest words must be refused, the one below is kept.
    bound = 2**62 - 1
    queue = [2**64 - 4, 2**64 - 5, 7]

    def source(count: int) -> bytes:
        return b"".join(queue.pop(0).to_bytes(8, "little") for _ in range(count // 8))

    assert Lanes(source).below(bound, 2).tolist() == [7, (2**64 - 5) % bound]
    assert not queue


@pytest.mark.parametrize("broken", [b"\x00", b"\xff"])
@pytest.mark.parametrize("draw", [discrete_gaussian, discrete_laplace])
def test_stuck_bits_end_in_an_error_and_not_in_an_endless_loop(
    broken: bytes, draw: Callable[..., NDArray[np.int64]]
) -> None:
    with pytest.raises(AccountingError, match="random bits is broken"):
        draw(Fraction(7), 100, lambda count: broken * count)


def test_a_source_that_gives_too_little_is_refused() -> None:
    with pytest.raises(AccountingError, match="random bits is broken"):
        discrete_gaussian(Fraction(7), 1, lambda count: os.urandom(count - 1))


@pytest.mark.parametrize("value", [LEAST_SCALE, Fraction(LARGEST_TERM), Fraction(LARGEST_TERM, 3)])
def test_the_extremes_are_drawn_without_overflow(value: Fraction) -> None:
    for drawn in (SystemNoise().gaussian(value, 5000), SystemNoise().laplace(value, 5000)):
        assert abs(int(drawn.max())) < 2**36
        assert abs(int(drawn.min())) < 2**36
        # A wrapped integer would not be of the parameter's size; 5000 draws pass 50 times the
        # parameter with probability below 1e-17.
        assert int(np.abs(drawn).max()) <= 50 * value + 50


@pytest.mark.parametrize(
    "value",
    [
        Fraction(0), Fraction(-1), LEAST_SCALE - Fraction(1, 10**6), Fraction(LARGEST_TERM + 1),
        Fraction(0.1), Fraction(10) ** 400, 1.5, float("nan"), True, "2",
    ],
)  # fmt: skip
def test_parameters_that_cannot_be_drawn_exactly_are_refused(value: object) -> None:
    with pytest.raises(UsageError, match="sigma"):
        check_scale(value, "sigma")  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        SystemNoise().gaussian(value, 1)  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        SystemNoise().laplace(value, 1)  # type: ignore[arg-type]


def test_counts_that_make_no_sense_are_refused() -> None:
    noise = SystemNoise()
    assert noise.gaussian(Fraction(2), 0).shape == (0,)
    assert noise.laplace(Fraction(2), 0).shape == (0,)
    for count in (-1, 2**40):
        with pytest.raises(UsageError, match="at once"):
            noise.gaussian(Fraction(2), count)


def test_seeded_noise_is_the_same_everywhere_and_marked() -> None:
    noise = SimulatedNoise(7)
    first = noise.gaussian(Fraction(150), 5).tolist()
    assert first == SimulatedNoise(7).gaussian(Fraction(150), 5).tolist()
    assert first != noise.gaussian(Fraction(150), 5).tolist()
    assert first != SimulatedNoise(8).gaussian(Fraction(150), 5).tolist()
    # Written down: the samplers make the same of the same bits, on every machine.
    assert first == GOLDEN_GAUSSIAN
    assert SimulatedNoise(7).laplace(Fraction(20), 5).tolist() == GOLDEN_LAPLACE
    assert SystemNoise.production
    assert not SimulatedNoise.production


def test_large_requests_are_drawn_in_pieces() -> None:
    drawn = SystemNoise().gaussian(Fraction(150), 400_000)
    # Standard error of the mean is 0.24: 5 of them are passed with probability below 1e-6.
    assert abs(float(drawn.mean())) < 5 * 150 / math.sqrt(400_000)
