"""Mechanisms over noisy histograms: rules by hand, no noise of their own, and exact small worlds."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from functools import cache
from typing import ClassVar, NoReturn

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from pate.accounting.composition import Gdp, Zcdp, tightest, total_cost
from pate.accounting.events import GaussianMax, NoisyHistogram
from pate.accounting.gdp import squared_step_of
from pate.errors import AccountingError, UsageError
from pate.mechanisms import (
    ConfidentGNMax,
    DistributedConfidentGNMax,
    DistributedGNMax,
    DistributedInteractiveGNMax,
    GNMax,
    InteractiveGNMax,
    LNMax,
    over_noisy_sums,
)
from pate.noise.exact import Noise, SystemNoise
from pate.noise.shares import ripple

Integers = NDArray[np.int64]
Masses = NDArray[np.float64]


class NoNoise:
    """Fails the test that asks for noise."""

    production: ClassVar[bool] = False

    def gaussian(self, sigma: Fraction, count: int) -> NoReturn:
        raise AssertionError(f"{count} draws of {sigma} were asked for: the noise is in the rows")

    def laplace(self, scale: Fraction, count: int) -> NoReturn:
        raise AssertionError(f"{count} draws of {scale} were asked for: the noise is in the rows")


NONE: Noise = NoNoise()
SHARE = Fraction(10)
EVENT = NoisyHistogram(SHARE, 16, 1)
PLAIN = DistributedGNMax(SHARE, 16, 1)
CONFIDENT = DistributedConfidentGNMax(10, SHARE, 16, 1)
INTERACTIVE = DistributedInteractiveGNMax(5, SHARE, 16, Fraction(3, 5), 1)


def test_the_rule_of_a_central_mechanism_at_its_noise() -> None:
    assert over_noisy_sums(GNMax(Fraction(40), 2), 16) == DistributedGNMax(SHARE, 16, 2)
    confident = over_noisy_sums(ConfidentGNMax(10, Fraction(150), Fraction(40), 1), 16)
    assert confident == CONFIDENT
    central = InteractiveGNMax(5, Fraction(150), Fraction(40), Fraction(3, 5), 1)
    assert over_noisy_sums(central, 16) == INTERACTIVE
    for other in (LNMax(Fraction(20), 1), PLAIN):
        with pytest.raises(UsageError, match="does not support noise shares"):
            over_noisy_sums(other, 16)


noisy_histograms = st.builds(
    NoisyHistogram,
    st.integers(64, 64 * 200).map(lambda parts: Fraction(parts, 64)),
    st.integers(1, 300),
    st.integers(1, 20),
)


def ripple_in_floats(event: NoisyHistogram) -> float:
    """tau of docs/proofs/discrete-gaussian.md, section 6."""
    added = np.arange(1.0, event.honest)
    exponent = 2.0 * math.pi**2 * float(event.share) ** 2 * added / (added + 1.0)
    waves = 2.0 * sum(np.exp(-(j**2) * exponent) for j in range(1, 6))
    return float((np.log1p(waves) - np.log1p(-waves)).sum())


class TestCost:
    def test_by_hand(self) -> None:
        assert EVENT.rho == Fraction(1, 1600) + 2 * ripple(SHARE, 16)
        assert float(EVENT.rho * 1600 - 1) < 1e-24
        alone = NoisyHistogram(Fraction(40), 1, 3)
        assert alone.rho == GaussianMax(Fraction(40), 3).rho
        assert Gdp().cost(alone) == Gdp().cost(GaussianMax(Fraction(40), 3))
        # Narrow shares pay for their lattice.
        narrow = NoisyHistogram(Fraction(1), 10, 1)
        assert 6e-4 < float(narrow.rho - Fraction(1, 10)) < 7e-4

    @given(noisy_histograms)
    def test_it_is_no_less_than_the_bound_in_floats(self, event: NoisyHistogram) -> None:
        orders = [1.0001, 1.5, 2.0, 14.0, 100.0]
        k, share = event.votes_per_unit, float(event.share) ** 2
        for order in orders:
            least = order * k**2 / (event.honest * share) + 2 * k * ripple_in_floats(event)
            assert float(event.rho) * order >= least * (1 - 1e-12)
        assert len(str(event.rho)) < 160, "a ledger holds it"

    @given(noisy_histograms)
    def test_more_honest_shares_and_wider_ones_cost_less(self, event: NoisyHistogram) -> None:
        k = event.votes_per_unit
        others = [NoisyHistogram(event.share + Fraction(1, 64), event.honest, k)]
        if event.share >= 2:  # ripples of many narrow shares add up, if to little
            others.append(NoisyHistogram(event.share, event.honest + 1, k))
        for other in others:
            assert other.rho < event.rho
            if Gdp().supports(event):
                assert Gdp().cost(other) < Gdp().cost(event)
        assert NoisyHistogram(event.share, event.honest, k + 1).rho > event.rho

    @given(noisy_histograms)
    def test_in_gdp_it_is_that_of_one_draw_and_its_ripple(self, event: NoisyHistogram) -> None:
        assert Zcdp().supports(event)
        if not Gdp().supports(event):
            assert event.variance < 4 or event.ripple > Fraction(1, 8)
            with pytest.raises(AccountingError, match="Gaussian-DP"):
                Gdp().cost(event)
            return
        mu = math.sqrt(2 * event.votes_per_unit**2 * squared_step_of(event.variance))
        wanted = (mu + 3 * float(event.ripple)) ** 2 / 2
        cost = float(Gdp().cost(event))
        assert cost >= wanted * (1 - 1e-12)
        assert cost <= wanted + 1.5 * float(event.ripple) * (1 + mu**2) + 1e-12 * wanted

    def test_one_view_is_cheaper_than_two(self) -> None:
        """k^2/sigma^2 of one, and of a check and a label on histograms of their own."""
        one = NoisyHistogram(Fraction(40), 1, 1).rho
        two = one + NoisyHistogram(Fraction(150), 1, 1).rho
        assert float(two / one) == pytest.approx(1 + (40 / 150) ** 2)
        same = 1 / math.sqrt(1 / 40**2 + 1 / 150**2)
        assert same == pytest.approx(38.65, abs=0.01)
        assert NoisyHistogram(Fraction(387, 10), 1, 1).rho < two

    def test_campaigns_of_wide_shares_count_in_gdp(self) -> None:
        assert tightest(CONFIDENT.worst).name == "gdp"
        assert tightest(DistributedGNMax(Fraction(1), 2, 1).worst).name == "zcdp"
        assert total_cost(Gdp(), CONFIDENT.worst) == Gdp().cost(EVENT)


# Exact laws of small worlds: all noisy histograms of three classes, cell by cell.

ROWS = [row for row in itertools.product(range(4), repeat=3) if sum(row) == 3]
#: The votes that a student's predictions lead one to expect.
EXPECTED = np.array([1, 2, 0])


@cache
def sums_of_shares(share: Fraction, honest: int) -> Masses:
    reach = math.ceil(9 * share)
    one = np.exp(-(np.arange(-reach, reach + 1.0) ** 2) / (2 * float(share) ** 2))
    law = one = one / one.sum()
    for _ in range(honest - 1):
        law = np.convolve(law, one)
    middle = (len(law) - 1) // 2
    far = min(middle, math.ceil(6.5 * float(share) * math.sqrt(honest)))
    made: Masses = law[middle - far : middle + far + 1]
    return made


def world(share: Fraction, honest: int) -> tuple[Integers, dict[tuple[int, ...], Masses]]:
    """Return all noisy histograms that matter, and the law of each row's over them."""
    law = sums_of_shares(share, honest)
    far = (len(law) - 1) // 2
    cells = np.arange(-far, far + 4)
    grid = np.stack(np.meshgrid(cells, cells, cells, indexing="ij"), axis=-1).reshape(-1, 3)
    laws = {}
    for row in ROWS:
        each = []
        for count in row:
            placed = np.zeros(len(cells))
            placed[count : count + len(law)] = law
            each.append(placed)
        laws[row] = np.einsum("i,j,k->ijk", *each).ravel()
    return grid, laws


def divergence(p: Masses, q: Masses, order: float) -> float:
    both = (p > 0) & (q > 0)
    return math.log(float((p[both] ** order * q[both] ** (1 - order)).sum())) / (order - 1)


def pairs_within(unit: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    return [
        (a, b)
        for a, b in itertools.permutations(ROWS, 2)
        if sum(abs(x - y) for x, y in zip(a, b, strict=True)) <= 2 * unit
    ]


def test_labels_tell_no_more_than_the_histogram() -> None:
    """The shipped rules on all noisy histograms: exact laws of what comes out."""
    share, honest = Fraction(1), 4
    grid, laws = world(share, honest)
    for mechanism in (
        DistributedGNMax(share, honest, 1),
        DistributedConfidentGNMax(3, share, honest, 1),
        DistributedInteractiveGNMax(2, share, honest, Fraction(1, 2), 1),
    ):
        outcomes = mechanism.answer_all(grid, NONE, np.tile(EXPECTED, (len(grid), 1)))
        kinds = {kind: at for at, kind in enumerate({(o.label, o.source) for o in outcomes})}
        places = np.array([kinds[o.label, o.source] for o in outcomes])
        seen: dict[tuple[int, ...], Masses] = {
            row: np.array([law[places == kind].sum() for kind in range(len(kinds))])
            for row, law in laws.items()
        }
        for order in (1.5, 2.0, 12.0):
            worst = max(divergence(seen[a], seen[b], order) for a, b in pairs_within(1))
            bound = float(mechanism.worst[0].rho) * order
            assert 0.05 * bound < worst <= bound


def test_real_shares_give_what_the_rules_say() -> None:
    """Sums of shares from the shipped sampler: right labels of 30,000, Bernstein's inequality."""
    share, honest, number = Fraction(1), 4, 30_000
    mechanism = DistributedConfidentGNMax(3, share, honest, 1)
    grid, laws = world(share, honest)
    row = (1, 2, 0)
    of_grid = mechanism.answer_all(grid, NONE)
    drawn = SystemNoise().gaussian(share, honest * number * 3).reshape(honest, number, 3)
    outcomes = mechanism.answer_all(np.array(row) + drawn.sum(axis=0), NONE)
    for label in (None, 0, 1, 2):
        chance = float(laws[row][[each.label == label for each in of_grid]].sum())
        seen = sum(each.label == label for each in outcomes)
        level = math.log(2 * 4 / 1e-6)
        allowed = level / 3 + math.sqrt((level / 3) ** 2 + 2 * number * chance * level)
        assert abs(seen - number * chance) <= allowed
        assert allowed < 0.14 * number * chance, "it could not fail otherwise"
