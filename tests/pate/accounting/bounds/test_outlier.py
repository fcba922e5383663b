"""q against plain loops, against the exact chance of losing in small worlds, and at its edges."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from pate.accounting.bounds.laws import DiscreteGaussian, Gaussian
from pate.accounting.bounds.outlier import gnmax_log_q, lnmax_log_q
from pate.errors import AccountingError

histograms = st.lists(st.integers(0, 300), min_size=2, max_size=12)


def plain(row: list[int], tail: Callable[[float], float]) -> float:
    """The definition, one class at a time."""
    best = row.index(max(row))
    total = sum(tail(row[best] - votes) for j, votes in enumerate(row) if j != best)
    return math.log(min(total, 1 - 1 / len(row)))


def erfc_tail(sigma: float) -> Callable[[float], float]:
    return lambda gap: math.erfc(gap / (2 * sigma)) / 2


def laplace_tail(gamma: float) -> Callable[[float], float]:
    return lambda gap: (2 + gamma * gap) / (4 * math.exp(gamma * gap))


def geometric_tail(gamma: float) -> Callable[[float], float]:
    """P[Z_j - Z_i >= gap] with both noises summed over, P[z] ~ exp(-gamma |z|)."""
    reach = math.ceil(45 / gamma) + 40
    z = np.arange(-reach, reach + 1)
    mass = np.exp(-gamma * np.abs(z))
    mass /= mass.sum()
    above = np.append(np.cumsum(mass[::-1])[::-1], 0.0)

    def tail(gap: float) -> float:
        places = np.clip(z + math.ceil(gap) + reach, 0, above.size - 1)
        return float(mass @ above[places])

    return tail


@given(histograms, st.sampled_from((5.0, 40.0, 100.0)))
def test_gaussian_q_is_the_sum_of_its_tails(row: list[int], sigma: float) -> None:
    got = gnmax_log_q([row], Gaussian(sigma))[0]
    if max(row) - sorted(row)[-2] < 50 * sigma:  # where the loop does not underflow
        assert got == pytest.approx(plain(row, erfc_tail(sigma)), rel=1e-12, abs=1e-15)


@given(histograms, st.sampled_from((0.01, 0.05, 0.7)))
def test_laplace_q_is_the_sum_of_its_tails(row: list[int], gamma: float) -> None:
    got = lnmax_log_q([row], gamma)[0]
    assert got == pytest.approx(plain(row, laplace_tail(gamma)), rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("gamma", [0.05, 0.3, 1.0, 5.0])
def test_geometric_q_is_the_sum_over_the_integers(gamma: float) -> None:
    tail = geometric_tail(gamma)
    for row in ([30, 5, 30], [12, 0], [7, 6, 5, 4], [3, 3], [20, 19]):
        got = lnmax_log_q([row], gamma, discrete=True)[0]
        assert got == pytest.approx(plain(row, tail), rel=1e-11, abs=1e-13)


@given(histograms, st.sampled_from((0.01, 0.05, 0.3, 1.0)))
def test_the_continuous_laplace_tail_is_too_small_for_geometric_noise(
    row: list[int], gamma: float
) -> None:
    smooth, discrete = lnmax_log_q([row], gamma)[0], lnmax_log_q([row], gamma, discrete=True)[0]
    cap = math.log1p(-1 / len(row))
    assert discrete > smooth or discrete == cap


def chance_of_losing(row: tuple[int, ...], noise: NDArray[np.float64], reach: int) -> float:
    """P[label is not the first plurality], exactly, with ties to the lowest class."""
    best = row.index(max(row))
    wins = 0.0
    for z in itertools.product(range(-reach, reach + 1), repeat=len(row)):
        scores = [n + x for n, x in zip(row, z, strict=True)]
        if scores.index(max(scores)) == best:
            wins += math.prod(noise[x + reach] for x in z)
    return 1.0 - wins


@pytest.mark.parametrize(
    "row", [(3, 0), (0, 3), (2, 2), (1, 2), (3, 2, 0), (0, 2, 3), (1, 1, 1), (0, 1, 1), (2, 0, 2)]
)
def test_q_covers_the_exact_chance_whichever_class_ties_favour(row: tuple[int, ...]) -> None:
    reach = 8
    z = np.arange(-reach, reach + 1)
    gaussian = np.exp(-(z**2) / (2 * 1.2**2))
    laplace = np.exp(-1.5 * np.abs(z))
    for mass, log_q in (
        (gaussian, gnmax_log_q([row], DiscreteGaussian(1.2))),
        (laplace, lnmax_log_q([row], 1.5, discrete=True)),
    ):
        exact = chance_of_losing(row, mass / mass.sum(), reach)
        lost = 3e-5  # beyond the reach
        assert math.exp(log_q[0]) >= exact - lost
        assert exact <= 1 - 1 / len(row) + lost
        if len(row) == 2 and row.index(max(row)) == 1 and row[0] != row[1]:
            # The plurality loses every tie: then q is the chance itself.
            assert math.exp(log_q[0]) == pytest.approx(exact, abs=lost)


def test_continuous_tails_do_not_cover_discrete_noise() -> None:
    z = np.arange(-8, 9)
    mass = np.exp(-(z**2) / (2 * 1.2**2))
    exact = chance_of_losing((0, 3), mass / mass.sum(), 8)
    assert math.exp(gnmax_log_q([(0, 3)], Gaussian(1.2))[0]) < exact - 0.02


def test_ties_and_the_cap() -> None:
    for classes in (2, 3, 10, 1000):
        votes = np.full((1, classes), 5)
        cap = math.log1p(-1 / classes)
        for law in (Gaussian(40.0), DiscreteGaussian(40.0)):
            assert gnmax_log_q(votes, law)[0] == pytest.approx(cap, rel=1e-12)
        assert lnmax_log_q(votes, 0.05)[0] == pytest.approx(cap, rel=1e-12)
        assert lnmax_log_q(votes, 0.05, discrete=True)[0] == pytest.approx(cap, rel=1e-12)
    # Just below the cap: the sum, not the cap.
    got = gnmax_log_q([[101, 100]], Gaussian(40.0))[0]
    assert got == pytest.approx(math.log(math.erfc(1 / 80) / 2), rel=1e-13)


@pytest.mark.parametrize("classes", [2, 10, 1000])
def test_unanimous_votes_far_beyond_floats(classes: int) -> None:
    votes = np.zeros((3, classes), np.int64)
    votes[:, 1] = [5000, 2500, 10**6]
    others = math.log(classes - 1)
    for law in (Gaussian(1.0), DiscreteGaussian(1.0)):
        want = law.log_gap_tail([5000.0, 2500.0, 1e6]) + others
        assert gnmax_log_q(votes, law) == pytest.approx(want, rel=1e-14)
        assert want[0] < -6e6
    gap = 200.0 * votes.max(axis=1)
    want = np.log((2 + gap) / 4) - gap + others
    assert lnmax_log_q(votes, 200.0) == pytest.approx(want, rel=1e-14)


@given(histograms, st.floats(-0.4, 0.4), st.sampled_from((3.0, 40.0)))
def test_fractions_of_votes_take_the_same_way(row: list[int], shift: float, sigma: float) -> None:
    # Moved by a fraction, the gaps are the same up to rounding, and no table is used.
    moved = np.array([row]) + 1000.0 + 0.25 * round(4 * shift) + 0.125
    for law in (Gaussian(sigma), DiscreteGaussian(sigma)):
        got = gnmax_log_q(moved, law)
        assert got == pytest.approx(gnmax_log_q([row], law), rel=1e-11, abs=1e-15)
    assert lnmax_log_q(moved, 0.1) == pytest.approx(lnmax_log_q([row], 0.1), rel=1e-11, abs=1e-15)


@given(histograms)
def test_the_order_of_classes_does_not_matter(row: list[int]) -> None:
    turned = row[::-1]
    for law in (Gaussian(20.0), DiscreteGaussian(20.0)):
        assert gnmax_log_q([row], law) == pytest.approx(
            gnmax_log_q([turned], law), rel=1e-13, abs=1e-15
        )


@given(histograms, st.integers(1, 100), st.integers(1, 11))
def test_a_vote_less_for_the_plurality_raises_q(row: list[int], lead: int, to: int) -> None:
    before = [max(row) + lead, *row]
    after = list(before)
    after[0] -= 1
    after[1 + to % len(row)] += 1
    for law in (Gaussian(20.0), DiscreteGaussian(20.0)):
        before_q, after_q = gnmax_log_q([before, after], law)
        assert after_q >= before_q * (1 + 1e-13) - 1e-15
    for discrete in (False, True):
        before_q, after_q = lnmax_log_q([before, after], 0.1, discrete=discrete)
        assert after_q >= before_q * (1 + 1e-13) - 1e-15


def test_many_queries_in_blocks_are_as_one_by_one() -> None:
    rng = np.random.default_rng(0)
    votes = rng.multinomial(
        250, rng.dirichlet(np.full(7, 0.2), size=10_000)
    )  # of which 9,362 are a block
    votes[0] = [250, 0, 0, 0, 0, 0, 0]
    law = Gaussian(2.0)  # some rows within floats, some beyond
    got = gnmax_log_q(votes, law)
    assert got.min() < -1000 < -10 < got.max()
    chosen = rng.integers(0, len(votes), 200)
    one_by_one = [gnmax_log_q(votes[i : i + 1], law)[0] for i in chosen]
    assert got[chosen] == pytest.approx(one_by_one, rel=1e-13)
    # Integers, floats and unsigned integers go ways of their own.
    for other in (votes.astype(np.float64), votes.astype(np.uint16), votes.astype(np.int16)):
        assert gnmax_log_q(other, law) == pytest.approx(got, rel=1e-13)


def test_counts_too_large_for_a_table() -> None:
    votes = np.array([[2**40, 2**40 - 90, 0]])
    want = math.log(math.erfc(90 / 80) / 2)
    assert gnmax_log_q(votes, Gaussian(40.0))[0] == pytest.approx(want, rel=1e-13)
    assert gnmax_log_q([[1e300, 0.0]], Gaussian(1.0))[0] == -1e300


def test_no_queries() -> None:
    assert gnmax_log_q(np.zeros((0, 4), np.int64), Gaussian(1.0)).shape == (0,)


@pytest.mark.parametrize(
    "votes",
    [
        [[1, -1]], [[1.0, math.nan]], [[1.0, math.inf]], [[1], [2]], [1, 2], 3, [[]], [["a", "b"]],
        [[True, False]], np.zeros((2, 2, 2)), [[5, 0]] * 40_000 + [[5, -1]],
    ],
)  # fmt: skip
def test_what_are_no_votes_is_refused(votes: object) -> None:
    with pytest.raises(AccountingError):
        gnmax_log_q(votes, Gaussian(1.0))  # type: ignore[arg-type]
    with pytest.raises(AccountingError):
        lnmax_log_q(votes, 0.1)  # type: ignore[arg-type]


@pytest.mark.parametrize("gamma", [0.0, -1.0, math.nan, math.inf])
def test_a_gamma_that_makes_no_sense_is_refused(gamma: float) -> None:
    with pytest.raises(AccountingError, match="gamma"):
        lnmax_log_q([[1, 2]], gamma)
