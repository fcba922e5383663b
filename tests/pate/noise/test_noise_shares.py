"""Noise shares: their size exactly, their sums against the real sampler, and what row totals show."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pate.errors import ProtocolError, UsageError
from pate.noise.exact import SystemNoise
from pate.noise.shares import (
    FAILURE,
    LEAST_SHARE,
    _bounds,
    check_row_totals,
    largest_noise,
    ripple,
    share_sigma,
    total_sigma,
)
from tests.support.simulated_noise import SimulatedNoise

#: Of all statistical tests of this file together.
FALSE_ALARM = 1e-6

sigmas = st.fractions(min_value=Fraction(1, 100), max_value=2000, max_denominator=1000)
shares = st.integers(64, 64 * 500).map(lambda parts: Fraction(parts, 64))
crowds = st.integers(1, 2000)


def law_of(share: Fraction, number: int) -> NDArray[np.float64]:
    """Masses of a sum of discrete Gaussians on -R .. R, by convolution."""
    reach = math.ceil(12 * share)
    one = np.exp(-(np.arange(-reach, reach + 1.0) ** 2) / (2 * float(share) ** 2))
    law = one = one / one.sum()
    for _ in range(number - 1):
        law = np.convolve(law, one)
    made: NDArray[np.float64] = law
    return made


@given(sigmas, crowds)
def test_a_share_is_the_least_of_its_grid_that_will_do(sigma: Fraction, honest: int) -> None:
    share = share_sigma(sigma, honest)
    assert share >= LEAST_SHARE
    assert (64 * share).denominator == 1
    assert honest * share**2 >= sigma**2
    if share > LEAST_SHARE:
        assert honest * (share - Fraction(1, 64)) ** 2 < sigma**2


@given(shares, crowds)
def test_the_noise_of_all_is_the_root_rounded_down(share: Fraction, parties: int) -> None:
    total = total_sigma(share, parties)
    assert total**2 <= parties * share**2 < (total + Fraction(1, 64)) ** 2
    # So the sigma that a plan names is the one that leads a server to the same share.
    assert share_sigma(total, parties) == share


def test_by_hand() -> None:
    assert share_sigma(Fraction(40), 16) == 10
    assert share_sigma(Fraction(40), 1) == 40
    assert share_sigma(Fraction(1, 2), 100) == 1
    assert total_sigma(Fraction(10), 25) == 50


@pytest.mark.parametrize("share", [Fraction(1), Fraction(65, 64), Fraction(5, 4), Fraction(3, 2)])
@pytest.mark.parametrize("honest", [1, 2, 3, 7, 20])
def test_the_ripple_is_above_that_of_the_true_law(share: Fraction, honest: int) -> None:
    law = law_of(share, honest)
    x = np.arange(len(law)) - (len(law) - 1) // 2
    variance = honest * float(share) ** 2
    near = np.abs(x) <= 4 * math.sqrt(variance)  # further out convolution has no digits left
    wave = np.log(law[near]) + x[near] ** 2 / (2 * variance)
    found = float(wave.max() - wave.min())
    bound = float(ripple(share, honest))
    assert found <= bound + 1e-12
    if honest == 2 and share == 1:
        assert bound < 10 * found, "a bound that is worth something where there is a wave"
    exact = 0.0
    for j in range(1, honest):
        w = float(share) ** 2 * j / (j + 1)
        e = 2 * sum(math.exp(-2 * math.pi**2 * i * i * w) for i in range(1, 6))
        exact += math.log1p(e) - math.log1p(-e)
    assert exact <= bound
    assert bound <= 3 * exact


def test_the_ripple_falls_with_the_share_and_stays_short() -> None:
    sizes = [Fraction(n, 64) for n in range(64, 300, 9)]
    found = [ripple(share, 12) for share in sizes]
    assert found == sorted(found, reverse=True)
    assert all(ripple(Fraction(2), h) <= ripple(Fraction(2), h + 1) for h in range(1, 200))
    assert ripple(Fraction(1), 1) == 0
    for share, honest in ((Fraction(1), 2**16), (Fraction(40), 2**16), (Fraction(9000), 3)):
        assert len(str(ripple(share, honest))) < 60
    # Beyond the 64 that are summed one by one, as many terms as there are shares.
    assert ripple(Fraction(1), 2000) - ripple(Fraction(1), 1999) == Fraction(5, 2**28)


@settings(max_examples=30)
@given(st.sampled_from([Fraction(1), Fraction(2), Fraction(7, 2)]), st.integers(1, 12),
       st.integers(1, 10**6), st.floats(1e-9, 0.05))  # fmt: skip
def test_noise_beyond_the_largest_is_as_rare_as_it_says(
    share: Fraction, parties: int, cells: int, failure: float
) -> None:
    most = largest_noise(share, parties, cells, failure)
    law = law_of(share, parties)
    x = np.arange(len(law)) - (len(law) - 1) // 2
    beyond = float(law[np.abs(x) > most].sum())
    assert cells * beyond <= failure * (1 + 1e-6) + 1e-13
    # Not far from where it begins to be so: as far as Gaussian tails let one see.
    assert cells * float(law[np.abs(x) > 0.5 * most - 1].sum()) > failure


def test_more_counts_parties_and_certainty_reach_further() -> None:
    plain = largest_noise(Fraction(10), 25, 10_000)
    assert plain == 509
    assert largest_noise(Fraction(10), 26, 10_000) > plain
    assert largest_noise(Fraction(10), 25, 100_000) > plain
    assert largest_noise(Fraction(10), 25, 10_000, 2.0**-80) > plain
    assert largest_noise(Fraction(10), 25, 10_000, Fraction(1, 2)) < plain


def test_sums_of_real_shares_have_the_variance_that_is_stated() -> None:
    """The sampler that parties use. Mean square of 40,000 sums of five shares of 3/2.

    Above: squares of sums whose tails are below Gaussian ones, as Laurent and Massart have it for
    squares of Gaussians. Below: Bernstein's inequality for squares, which are not negative.
    """
    share, parties, number = Fraction(3, 2), 5, 40_000
    drawn = SystemNoise().gaussian(share, parties * number).reshape(parties, number).sum(axis=0)
    law = law_of(share, parties)
    x = np.arange(len(law)) - (len(law) - 1) // 2
    variance, fourth = float(law @ x**2.0), float(law @ x**4.0)
    assert variance == pytest.approx(parties * float(share) ** 2, rel=1e-6)
    level = math.log(4 / FALSE_ALARM)
    mean = float((drawn.astype(np.float64) ** 2).mean())
    above = parties * float(share) ** 2 * (1 + 2 * math.sqrt(level / number) + 2 * level / number)
    below = variance - math.sqrt(2 * fourth * level / number)
    assert below < mean < above
    assert above / below < 1.12, "it could not fail otherwise"
    bound = largest_noise(share, parties, number, FALSE_ALARM / 4)
    assert 0.5 * bound < np.abs(drawn).max() <= bound


class TestRowTotals:
    ROWS, CLASSES, PARTIES, TEACHERS = 300, 5, 6, 90
    SHARE = Fraction(4)

    def noisy(self, seed: int = 1) -> NDArray[np.int64]:
        rng = np.random.default_rng(seed)
        votes = rng.multinomial(self.TEACHERS, np.full(self.CLASSES, 1 / self.CLASSES), self.ROWS)
        noise = SimulatedNoise(seed).gaussian(self.SHARE, self.PARTIES * votes.size)
        made: NDArray[np.int64] = votes + noise.reshape(self.PARTIES, *votes.shape).sum(axis=0)
        return made

    def check(self, noisy: NDArray[np.int64], **changes: Any) -> None:
        asked: dict[str, Any] = {
            "teachers": self.TEACHERS, "share": self.SHARE, "parties": self.PARTIES
        }  # fmt: skip
        check_row_totals(noisy, **asked | changes)

    def test_honest_noise_passes(self) -> None:
        for seed in range(20):
            self.check(self.noisy(seed))
            self.check(self.noisy(seed), failure=FALSE_ALARM / 1000)
        self.check(np.zeros((0, 5), np.int64))

    def test_what_is_above_the_stated_power_is_found_and_its_row_named(self) -> None:
        bounds = _bounds(self.SHARE, self.PARTIES, self.ROWS, self.CLASSES, FAILURE)
        row, each = 2 * bounds[0], 2 * bounds[1] / self.ROWS
        for sign in (1, -1):
            noisy = self.noisy()
            noisy[37, 2] += sign * (row + 1)
            with pytest.raises(ProtocolError, match=r"90 teachers: the worst is row 37, off by "):
                self.check(noisy)
            spread = self.noisy()
            spread[:, 0] += sign * (math.floor(each) + 1)
            assert (np.abs(spread.sum(axis=1) - self.TEACHERS) < row / 2).all()
            with pytest.raises(ProtocolError, match="all 300 rows are off by"):
                self.check(spread)
        assert each < row / 8

    def test_the_bounds_are_those_of_the_sums(self) -> None:
        """Half the failure for each, and one more vote is one too many."""
        one = largest_noise(self.SHARE, self.PARTIES * self.CLASSES, self.ROWS, 2.0**-61)
        row = np.full((self.ROWS, self.CLASSES), self.TEACHERS // self.CLASSES)
        row[0, 0] += one
        self.check(row)
        row[0, 0] += 1
        with pytest.raises(ProtocolError, match="row 0"):
            self.check(row)
        every = self.PARTIES * self.CLASSES * self.ROWS
        whole = largest_noise(self.SHARE, every, 1, 2.0**-61)
        spread = np.full((self.ROWS, self.CLASSES), self.TEACHERS // self.CLASSES)
        spread[:, 1] += whole // self.ROWS
        spread[: whole % self.ROWS, 1] += 1
        self.check(spread)
        spread[-1, 1] += 1
        with pytest.raises(ProtocolError, match=f"off by {whole + 1} where it explains {whole}"):
            self.check(spread)

    def test_votes_moved_within_a_row_are_not_its_business(self) -> None:
        noisy = self.noisy()
        noisy[:, 0] += 1000
        noisy[:, 1] -= 1000
        self.check(noisy)

    @pytest.mark.parametrize(
        "noisy",
        [
            np.zeros((2, 3)), np.zeros((2, 3), np.int32), np.zeros(3, np.int64),
            np.zeros((2, 1), np.int64), np.full((2, 3), 2**62), np.full((2, 3), -(2**63)),
        ],
    )  # fmt: skip
    def test_counts_that_cannot_be_are_refused(self, noisy: NDArray[np.int64]) -> None:
        with pytest.raises(ProtocolError, match="noisy votes"):
            self.check(noisy)


@pytest.mark.parametrize(
    "call",
    [
        lambda: share_sigma(Fraction(0), 3),
        lambda: share_sigma(40.0, 3),  # type: ignore[arg-type]
        lambda: share_sigma(Fraction(40), 0),
        lambda: share_sigma(Fraction(40), 2**17),
        lambda: share_sigma(Fraction(40), True),
        lambda: share_sigma(Fraction(2**24), 3),
        lambda: total_sigma(Fraction(1, 2), 3),
        lambda: total_sigma(Fraction(3), 0),
        lambda: ripple(Fraction(63, 64), 3),
        lambda: ripple(Fraction(3), 0),
        lambda: largest_noise(Fraction(3), 2, 0),
        lambda: largest_noise(Fraction(3), 2, 2**61),
        lambda: largest_noise(Fraction(3), 2, 1.5),  # type: ignore[arg-type]
        lambda: largest_noise(Fraction(3), 2, 5, 0.0),
        lambda: largest_noise(Fraction(3), 2, 5, 1.0),
        lambda: largest_noise(Fraction(3), 2, 5, math.nan),
    ],
)
def test_what_makes_no_sense_is_refused(call: Callable[[], object]) -> None:
    with pytest.raises(UsageError):
        call()
