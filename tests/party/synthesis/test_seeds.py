"""Mechanism 1 as it runs: its counts against the definition, its law against the exact one."""

from __future__ import annotations

import math
import random
from collections import Counter
from fractions import Fraction
from typing import ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from party.synthesis.deniability import COIN_DENOMINATOR, RandomizedTest, coin, theorem_1
from party.synthesis.network import Network
from party.synthesis.schema import Attribute, Domain
from party.synthesis.seeds import (
    LEAST_CONDITIONAL,
    PlausibleSeeds,
    PrefixIndex,
    SeededRelease,
    bucket_width,
    draw_candidates,
    release_seeded,
)
from pate.errors import InfeasibleError, SchemaError, UsageError
from pate.noise.exact import SystemNoise
from pate.noise.lanes import Lanes
from tests.support.party.domains import World, random_world
from tests.support.simulated_noise import SimulatedNoise

SIZES = (4, 6, 3, 9, 5, 2, 7)
M = len(SIZES)
ONE = Fraction(1)


def made_up_network(sizes: tuple[int, ...] = SIZES, *, seed: int = 1) -> Network:
    """Return a network in which each attribute depends on the two before it."""
    attributes = tuple(
        Attribute(f"a{i}", tuple(f"c{c}" for c in range(size)), tuple(c // 2 for c in range(size)))
        for i, size in enumerate(sizes)
    )
    domain = Domain(attributes, 1, None)
    draw = np.random.default_rng(seed)
    parents = tuple(tuple(range(max(0, i - 2), i)) for i in range(len(sizes)))
    tables = tuple(
        draw.dirichlet(np.full(size, 0.5), math.prod(domain.bucket_counts[p] for p in found))
        for size, found in zip(sizes, parents, strict=True)
    )
    return Network(domain, tuple(range(len(sizes))), parents, tables)


NETWORK = made_up_network()


def shuffled() -> Network:
    """A network whose order is not that of its columns."""
    order = (3, 0, 5, 2, 6, 1, 4)
    straight = made_up_network(tuple(SIZES[i] for i in order), seed=7)
    domain = made_up_network(SIZES).domain
    parents: list[tuple[int, ...]] = [()] * M
    tables: list[NDArray[np.float64]] = [np.zeros((1, 1))] * M
    for place, attribute in enumerate(order):
        parents[attribute] = tuple(order[p] for p in straight.parents[place])
        tables[attribute] = straight.tables[place].copy()
    return Network(domain, order, tuple(parents), tuple(tables))


def seeds_of(network: Network, count: int, seed: int = 1) -> NDArray[np.intp]:
    return network.sample(count, SimulatedNoise(seed).lanes)


def probabilities(
    network: Network, resampled: tuple[int, ...], seeds: NDArray[np.intp], y: NDArray[np.intp]
) -> NDArray[np.float64]:
    """Return (n,) the probability that each seed makes the candidate y, by the definition."""
    order = np.array(network.order)
    alike = seeds[:, order] == y[order]
    conditionals = network.conditionals(y[None])[0]
    found = np.zeros(len(seeds))
    for omega in sorted(resampled, reverse=True):
        kept = len(order) - omega
        found += alike[:, :kept].all(axis=1) * np.prod(conditionals[kept:]) / len(resampled)
    return found


def naive(
    network: Network,
    resampled: tuple[int, ...],
    gamma: Fraction,
    seeds: NDArray[np.intp],
    seed: NDArray[np.intp],
    y: NDArray[np.intp],
) -> int:
    """Return k' by Test 1: the seeds whose probability is in the bucket of the seed's."""
    width = bucket_width(gamma)
    of_seeds = probabilities(network, resampled, seeds, y)
    own = probabilities(network, resampled, seed[None], y)[0]
    positive = of_seeds[of_seeds > 0]
    return int((np.floor(-np.log(positive) / width) == math.floor(-math.log(own) / width)).sum())


@pytest.mark.parametrize("network", [NETWORK, shuffled()], ids=["straight", "shuffled"])
@pytest.mark.parametrize("resampled", [(3,), (7,), (1,), (2, 5), (3, 4, 5, 6, 7), (1, 7)], ids=str)
@pytest.mark.parametrize("gamma", ["1.5", "4", "20"])
def test_the_fast_count_is_the_definition(
    network: Network, resampled: tuple[int, ...], gamma: str
) -> None:
    rows = seeds_of(network, 1500)
    counter = PlausibleSeeds(rows, network, resampled, Fraction(gamma))
    chosen, made = draw_candidates(rows, network, resampled, 200, SimulatedNoise(2).lanes)
    counts, certain = counter.count(chosen, made)
    assert certain.all()
    defined = [
        naive(network, resampled, Fraction(gamma), rows, seed, y)
        for seed, y in zip(chosen, made, strict=True)
    ]
    assert counts.tolist() == defined
    assert (counts >= 1).all()  # the seed counts


def test_gamma_matters_for_a_mixture_alone() -> None:
    rows = seeds_of(NETWORK, 1500)
    found = {}
    for resampled in ((3,), (2, 3, 4, 5)):
        chosen, made = draw_candidates(rows, NETWORK, resampled, 500, SimulatedNoise(2).lanes)
        found[len(resampled)] = [
            PlausibleSeeds(rows, NETWORK, resampled, gamma).count(chosen, made)[0].tolist()
            for gamma in (Fraction("1.01"), Fraction(100))
        ]
    assert found[1][0] == found[1][1]
    assert found[4][0] != found[4][1]


def test_a_candidate_that_nothing_is_like_counts_nobody() -> None:
    rows = seeds_of(NETWORK, 50)
    absent = next(
        row for row in seeds_of(NETWORK, 500, seed=9) if not (rows[:, :3] == row[:3]).all(1).any()
    )
    index = PrefixIndex(rows, range(M), SIZES, M)
    assert index.counts(absent[None], range(M + 1))[0, 3:].tolist() == [0] * (M - 2)
    found = index.counts(rows, range(M + 1))
    for length in range(M + 1):
        alike = (rows[:, None, :length] == rows[None, :, :length]).all(axis=2).sum(axis=1)
        assert found[:, length].tolist() == alike.tolist()


def test_the_index_finds_groups_among_many_possible_keys() -> None:
    sizes = (4000, 4000, 3)
    draw = np.random.default_rng(5)
    rows = np.stack(
        [draw.integers(0, min(size, 40), 3000) for size in sizes[:2]] + [draw.integers(0, 3, 3000)],
        axis=1,
    ).astype(np.intp)
    index = PrefixIndex(rows, range(3), sizes, 3)
    asked = rows[:300] + np.array([0, 0, 1])
    asked[:, 2] %= 3
    asked[::3, 1] += 17
    expected = Counter(map(tuple, rows.tolist()))
    assert index.counts(asked, [3])[:, 0].tolist() == [expected[tuple(y)] for y in asked.tolist()]


@pytest.mark.parametrize("resampled", [(4,), (3, 4, 5), (2, 7)], ids=str)
def test_what_passes_test_1_is_plausible_for_k_seeds(resampled: tuple[int, ...]) -> None:
    """The paper's test, without noise, implies Definition 1: by the probabilities themselves."""
    rows, k, gamma = seeds_of(NETWORK, 1500), 40, Fraction(3)
    chosen, made = draw_candidates(rows, NETWORK, resampled, 600, SimulatedNoise(4).lanes)
    count, certain = PlausibleSeeds(rows, NETWORK, resampled, gamma).count(chosen, made)
    passed = made[certain & (count >= k)]
    assert 20 < len(passed) < 600
    for y in passed:
        positive = np.sort(probabilities(NETWORK, resampled, rows, y))
        positive = positive[positive > 0]
        # k seeds within gamma of each other lie next to each other in order.
        widest = positive[k - 1 :] / positive[: len(positive) - k + 1]
        assert widest.min() <= float(gamma)


def plan_for(world: World, rows: int, attempts: int, dropped: Fraction) -> SeededRelease:
    fixed = len(world.resampled) == 1
    test = RandomizedTest(world.k, world.gamma, ONE, rows, fixed)
    return SeededRelease(test, world.resampled, attempts, attempts, dropped)


@pytest.mark.parametrize("fixed", [True, False])
def test_what_comes_out_has_the_exact_law_of_the_proof(fixed: bool) -> None:
    """Chi-square over all outcomes, "nothing" among them; false alarm 1e-6 in each world.

    A noise that is shared by two attempts, a seed that counts itself twice, a coin that depends on
    the candidate: each changes this law.
    """
    from scipy import stats

    draw = random.Random(f"laws {fixed}")  # noqa: S311 -- worlds, no secrets
    attempts, coin_probability = 40_000, Fraction(1, 8)
    for number in range(3):
        world = random_world(draw, fixed=fixed)
        # exp(-1) to 17 digits: the chi-square does not see the rest.
        world = World(world.tables, world.resampled, world.k, world.gamma, Fraction(np.exp(-1.0)))
        data = Counter(draw.choices(world.universe, k=12))
        seeds = np.array(list(data.elements()), dtype=np.intp)
        released = release_seeded(
            seeds,
            world.network(),
            plan_for(world, 12, attempts, coin_probability),
            SimulatedNoise(number),
        )
        seen = Counter(tuple(row) for row in released.tolist())
        law = world.law(data, coin_probability)
        expected = {y: float(p) * attempts for y, p in law.items()}
        assert all(expected[y] > 0 for y in seen)
        observed = {y: seen[y] if y is not None else attempts - len(released) for y in law}
        common = [y for y in law if expected[y] >= 5]
        rare = [y for y in law if expected[y] < 5]
        statistic = sum((observed[y] - expected[y]) ** 2 / expected[y] for y in common)
        assert stats.chi2.sf(statistic, len(common) - 1) > 1e-6
        few = sum(expected[y] for y in rare)
        assert stats.poisson.sf(sum(observed[y] for y in rare) - 1, few) > 1e-6 or not few


def release(
    rows: NDArray[np.intp], *, resampled: tuple[int, ...], seed: int = 3
) -> list[list[int]]:
    test = RandomizedTest(50, Fraction(4), ONE, 1000, fixed=False)
    cost = theorem_1(test, Fraction(1, 10**9))
    plan = SeededRelease(test, resampled, 700, 500, coin(cost.epsilon, 1000))
    found = release_seeded(rows, NETWORK, plan, SimulatedNoise(seed))
    rows_out: list[list[int]] = found.tolist()
    return rows_out


def test_with_all_attributes_resampled_the_seeds_leave_no_trace() -> None:
    one = release(seeds_of(NETWORK, 1500), resampled=(M,))
    assert len(one) == 500
    assert one == release(seeds_of(NETWORK, 1500, seed=8), resampled=(M,))
    assert one == release(np.zeros((1200, M), dtype=np.intp), resampled=(M,))
    # The control: with seeds kept in part they do show.
    assert release(seeds_of(NETWORK, 1500), resampled=(4,)) != release(
        seeds_of(NETWORK, 1500, seed=8), resampled=(4,)
    )


def plan_of(k: int, seeds: int, *, attempts: int, rows: int) -> SeededRelease:
    test = RandomizedTest(k, Fraction(4), ONE, seeds, fixed=True)
    return SeededRelease(test, (4,), attempts, rows, Fraction(1, 8))


def test_two_releases_of_the_same_rows_differ() -> None:
    rows = seeds_of(NETWORK, 1500)
    plan = plan_of(5, 1000, attempts=300, rows=300)
    one, two = (release_seeded(rows, NETWORK, plan, SystemNoise()) for _ in range(2))
    assert one.tolist() != two.tolist()


class CountingNoise:
    """Hands out no noise and keeps how much of which scale was asked for."""

    production: ClassVar[bool] = False

    def __init__(self) -> None:
        self.asked: list[tuple[Fraction, int]] = []

    def gaussian(self, sigma: Fraction, count: int) -> NDArray[np.int64]:
        raise AssertionError("the test's noise is Laplace")

    def laplace(self, scale: Fraction, count: int) -> NDArray[np.int64]:
        self.asked.append((scale, count))
        return np.zeros(count, dtype=np.int64)

    @property
    def lanes(self) -> Lanes:
        return SimulatedNoise(1).lanes


def test_every_attempt_is_made_with_its_own_noise_however_few_rows_are_wanted() -> None:
    rows, noise = seeds_of(NETWORK, 1500), CountingNoise()
    test = RandomizedTest(5, Fraction(4), Fraction(1, 3), 1000, fixed=True)
    plan = SeededRelease(test, (4,), 70_000, 3, Fraction(1, 8))
    released = release_seeded(rows, NETWORK, plan, noise)
    assert released.shape == (3, M)
    assert noise.asked == [(Fraction(3), 70_000)]


def test_what_floats_cannot_judge_is_dropped() -> None:
    rare = np.array([[1 - LEAST_CONDITIONAL / 4, LEAST_CONDITIONAL / 4]])
    halves = np.full((1, 2), 0.5)
    network = Network(
        made_up_network((2, 2)).domain, (0, 1), ((), ()), (halves.copy(), rare.copy())
    )
    counter = PlausibleSeeds(np.zeros((9, 2), dtype=np.intp), network, (1, 2), Fraction(4))
    y = np.array([[0, 0], [0, 1]], dtype=np.intp)
    assert counter.count(y, y)[1].tolist() == [True, False]
    test = RandomizedTest(1, Fraction(4), Fraction(100), 60, fixed=False)  # next to no noise
    released = release_seeded(
        np.ones((60, 2), dtype=np.intp),
        Network(network.domain, (0, 1), ((), ()), (rare, halves)),
        SeededRelease(test, (1, 2), 200, 200, Fraction(1, 8)),
        SimulatedNoise(1),
    )
    assert len(released)
    assert (released[:, 0] == 0).all()


def test_fewer_seeds_than_were_charged_for_release_nothing() -> None:
    plan = plan_of(5, 1000, attempts=10, rows=10)
    with pytest.raises(InfeasibleError, match="fewer seeds than the cost assumes") as caught:
        release_seeded(seeds_of(NETWORK, 999), NETWORK, plan, SimulatedNoise(1))
    assert "999" not in str(caught.value)  # a party's record count stays there


def test_a_plan_that_makes_no_sense_is_refused() -> None:
    test = RandomizedTest(5, Fraction(4), ONE, 1000, fixed=True)
    for attempts, rows, dropped in (
        (0, 1, Fraction(1, 8)), (10, 0, Fraction(1, 8)), (10, 1, Fraction(0)), (10, 1, ONE),
        (10, 1, Fraction(1, 3)), (10, 1, Fraction(1, COIN_DENOMINATOR * 2)),
    ):  # fmt: skip
        with pytest.raises(UsageError):
            SeededRelease(test, (4,), attempts, rows, dropped)


def test_numbers_of_resampled_attributes_that_are_none_are_refused() -> None:
    for resampled in ((), (0,), (M + 1,), (3, 3), (-1, 2)):
        with pytest.raises(UsageError, match=f"from 1 to {M}"):
            release(seeds_of(NETWORK, 1500), resampled=resampled)


def test_seeds_of_another_domain_are_refused() -> None:
    with pytest.raises(SchemaError):
        release(np.full((1500, M), 99, dtype=np.intp), resampled=(4,))


def test_a_gamma_that_floats_cannot_tell_from_1_is_refused_for_a_mixture() -> None:
    rows = seeds_of(NETWORK, 100)
    with pytest.raises(UsageError, match=r"at least 1\.001"):
        PlausibleSeeds(rows, NETWORK, (3, 4), 1 + Fraction(1, 10**6))
    PlausibleSeeds(rows, NETWORK, (3,), 1 + Fraction(1, 10**6))
