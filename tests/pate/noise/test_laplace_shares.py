"""Shares of discrete Laplace noise: their law, that of their sum, and what a sum reaches.

Statistical tests fail a correct sampler with probability at most 1e-6 each.
"""

from __future__ import annotations

import itertools
import math
import os
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from pate.errors import AccountingError, UsageError
from pate.noise.exact import LARGEST_SHARED, SystemNoise, discrete_laplace_share
from pate.noise.lanes import Lanes
from pate.noise.share_laws import GeometricShares
from tests.support.noise_laws import FALSE_ALARM, chi_square, enumerate_paths, weights
from tests.support.simulated_noise import SimulatedNoise

DRAWS = 25_000
# Seed 7, scale 20, one of three shares.
GOLDEN = [5, 11, 6, -7, -10, 0, -6, 5]

LAWS = [("20", 1), ("20", 3), ("20", 20), ("1/2", 5), ("7/3", 2), ("60", 4), ("7", 700)]


def side(scale: Fraction, ratio: float, reach: int) -> NDArray[np.float64]:
    """NB(ratio) on 0 .. reach: that of one side of a share, or of several."""
    from scipy import stats

    law: NDArray[np.float64] = stats.nbinom.pmf(
        np.arange(reach + 1), ratio, -math.expm1(-1 / float(scale))
    )
    return law


def difference(scale: Fraction, ratio: float, reach: int) -> dict[int, float]:
    """The law of X - Y, X and Y of NB(ratio): of a sum of shares, without the sampler's formulas."""
    one = side(scale, ratio, 2 * reach)
    whole = np.convolve(one, one[::-1])
    middle = len(one) - 1
    return {x: float(whole[middle + x]) for x in range(-reach, reach + 1)}


# --- the law ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "shares"), [*itertools.product(range(6), (1, 2, 3)), (2, 7), (3, 7), (2, 20), (3, 20)]
)
def test_a_proposal_is_kept_with_exactly_its_probability(x: int, shares: int) -> None:
    """By enumeration of all choices, in fractions; nothing is cut off."""

    def toss(lanes: Lanes) -> NDArray[np.int64]:
        return lanes.binomial_coins(np.array([x], dtype=np.int64), shares).astype(np.int64)

    found, cut = enumerate_paths(toss, 0.0)
    wanted = Fraction(1)  # of C(x + r - 1, x) less its first factor, r
    for i in range(2, x + 1):
        wanted *= (i - 1 + Fraction(1, shares)) / i
    assert cut == 0
    assert found[1] == wanted
    assert found[0] == 1 - wanted


@pytest.mark.parametrize(("t", "s"), [(1, 1), (2, 1), (3, 2), (1, 2), (2, 5)])
def test_the_coin_of_zero_has_its_exact_probability(t: int, s: int) -> None:
    def toss(lanes: Lanes) -> NDArray[np.int64]:
        whole, rest = (np.array([each]) for each in divmod(s, t))
        return lanes.decay_coins(whole, rest, t).astype(np.int64)

    found, cut = enumerate_paths(toss, 1e-6)
    assert float(found[1]) <= math.exp(-s / t) * (1 + 1e-12)
    assert math.exp(-s / t) <= float(found[1] + cut)
    assert cut < Fraction(1, 50)


@pytest.mark.parametrize(("scale", "shares"), LAWS)
def test_a_share_has_its_law(scale: str, shares: int) -> None:
    t = Fraction(scale)
    drawn = SystemNoise().laplace_share(t, shares, DRAWS)
    assert drawn.dtype == np.int64
    assert chi_square(drawn, difference(t, 1 / shares, math.ceil(60 * t) + 10)) > FALSE_ALARM


@pytest.mark.parametrize(("scale", "shares"), [("20", 3), ("5", 20), ("1/2", 5), ("7/3", 2)])
def test_the_shares_sum_to_the_discrete_laplace(scale: str, shares: int) -> None:
    t = Fraction(scale)
    noise = SystemNoise()
    total = sum(noise.laplace_share(t, shares, DRAWS) for _ in range(shares))
    law = weights(lambda x: float(abs(x) / t), math.ceil(60 * t) + 10)
    assert chi_square(np.asarray(total), law) > FALSE_ALARM


@pytest.mark.parametrize("wrong", ["fewer", "more", "one side"])
def test_shares_of_another_law_are_seen(wrong: str) -> None:
    t, shares = Fraction(5), 4
    noise = SystemNoise()
    made = {"fewer": shares - 1, "more": shares + 1, "one side": shares}[wrong]

    def share() -> NDArray[np.int64]:
        drawn = noise.laplace_share(t, made, DRAWS)
        return np.abs(drawn) if wrong == "one side" else drawn

    law = weights(lambda x: float(abs(x) / t), 60 * 5 + 1000)
    assert chi_square(np.asarray(sum(share() for _ in range(shares))), law) < FALSE_ALARM


def test_seeded_shares_are_the_same_everywhere() -> None:
    assert SimulatedNoise(7).laplace_share(Fraction(20), 3, 8).tolist() == GOLDEN


# --- a broken source, and parameters ------------------------------------------------------------


@pytest.mark.parametrize("broken", [b"\x00", b"\xff", b"\x01", b"\x80"])
@pytest.mark.parametrize("scale", [Fraction(7), Fraction(64), Fraction(1, 3)])
@pytest.mark.parametrize("shares", [1, 3, 4])
def test_stuck_bits_give_no_usable_noise(broken: bytes, scale: Fraction, shares: int) -> None:
    """They end in an error, in bounded time."""
    with pytest.raises(AccountingError, match="random bits is broken"):
        discrete_laplace_share(scale, shares, 100, lambda count: broken * count)


def test_a_source_that_gives_too_little_is_refused() -> None:
    with pytest.raises(AccountingError, match="random bits is broken"):
        discrete_laplace_share(Fraction(7), 3, 1, lambda count: os.urandom(count - 1))


@pytest.mark.parametrize(
    ("scale", "shares", "count"),
    [
        (Fraction(LARGEST_SHARED + 1), 3, 1), (Fraction(1, 101), 3, 1), (7.0, 3, 1),
        (Fraction(7), 0, 1), (Fraction(7), 2**16 + 1, 1), (Fraction(7), True, 1),
        (Fraction(7), 3.0, 1), (Fraction(7), 3, -1), (Fraction(7), 3, 2**26),
    ],
)  # fmt: skip
def test_parameters_that_make_no_sense_are_refused(
    scale: object, shares: object, count: int
) -> None:
    with pytest.raises(UsageError):
        SystemNoise().laplace_share(scale, shares, count)  # type: ignore[arg-type]


def test_the_extremes_are_drawn() -> None:
    noise = SystemNoise()
    for scale, shares in ((Fraction(LARGEST_SHARED), 1), (Fraction(1, 100), 2**16)):
        drawn = noise.laplace_share(scale, shares, 500)
        # 500 draws pass 60 times the scale with probability below 1e-20.
        assert int(np.abs(drawn).max()) <= 60 * scale + 60
    assert noise.laplace_share(Fraction(7), 3, 0).shape == (0,)


# --- what a sum reaches -------------------------------------------------------------------------


SUMS = [("20", 3, 3), ("20", 3, 5), ("20", 20, 25), ("1/2", 2, 3), ("7/3", 1, 1), ("3", 4, 40)]


@pytest.mark.parametrize(("scale", "honest", "parties"), SUMS)
def test_spread_and_tail_bounds_hold_for_the_exact_law(
    scale: str, honest: int, parties: int
) -> None:
    t = Fraction(scale)
    shares, ratio = GeometricShares(t, honest), parties / honest
    law = difference(t, ratio, math.ceil(80 * t * max(1.0, ratio / 4)) + 40)
    variance = math.fsum(x * x * mass for x, mass in law.items())
    assert shares.spread(parties) == pytest.approx(math.sqrt(variance), rel=1e-9)

    def beyond(reach: int) -> float:
        return math.fsum(mass for x, mass in law.items() if abs(x) > reach)

    for failure, cells in itertools.product((Fraction(1, 5), Fraction(1, 2**20)), (1, 1000)):
        reach = shares.reach(parties, cells, failure)
        assert cells * beyond(reach) <= failure
        # Not loose: half of it is passed more often.
        assert failure > Fraction(1, 1000) or cells * beyond(reach // 2) > failure
    two = difference(t, 2 * ratio, math.ceil(80 * t * max(1.0, ratio / 2)) + 40)
    for lead in range(0, math.ceil(20 * t), max(1, math.ceil(t))):
        exact = math.fsum(mass for x, mass in two.items() if x >= lead)
        assert exact <= shares.overturns(lead, parties) * (1 + 1e-9)


def test_one_share_is_the_discrete_laplace_itself() -> None:
    drawn = GeometricShares(Fraction(20)).draw(SimulatedNoise(3), 50)
    assert drawn.tolist() == SimulatedNoise(3).laplace(Fraction(20), 50).tolist()
    with pytest.raises(UsageError, match="too wide for shares"):
        GeometricShares(Fraction(LARGEST_SHARED + 1), 2)
    assert GeometricShares(Fraction(LARGEST_SHARED + 1), 1).honest == 1


def test_the_order_in_which_proposals_are_kept_says_nothing_of_their_values() -> None:
    """The first ones are taken, so they must not be the small ones."""
    lanes = Lanes(SimulatedNoise(5)._bits)
    drawn = lanes.negative_binomial(20, 1, 3, 50_000)
    half = len(drawn) // 2
    law = dict(enumerate(side(Fraction(20), 1 / 3, 1300).tolist()))
    # A fixed experiment: both halves pass, so it fails only if the sampler changes.
    assert min(chi_square(drawn[:half], law), chi_square(drawn[half:], law)) > 1e-4
