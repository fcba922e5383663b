"""Candidates per second of the privacy test, compared with its reference implementation.

A synthetic domain of 11 attributes (the shape of census data), 40,000 seeds, and omega drawn from
5..11 for every candidate: a whole release is timed, from the seeds to the rows.
"""

from __future__ import annotations

import math
import time
from fractions import Fraction

import numpy as np

from benchmarks.synthesis.naive import plausible_seeds
from party.synthesis.seeds.deniability import RandomizedTest, Seeds, coin, theorem_1
from party.synthesis.seeds.mechanism import SeededRelease, draw_candidates, release_seeded
from party.synthesis.seeds.plausible_rows import PlausibleSeeds
from party.synthesis.table.domain import Attribute, Domain
from party.synthesis.table.network import Network
from party.synthesis.table.randomness import SimulatedRandomness
from pate.noise.exact import SystemNoise

SIZES = (9, 16, 7, 15, 6, 5, 2, 41, 9, 10, 2)
OMEGAS = tuple(range(5, 12))
GAMMA = Fraction(4)


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


def measure(
    *, seeds: int = 40_000, attempts: int = 200_000, sample: int = 480
) -> dict[str, object]:
    """Return the rates, and on how many sampled candidates both implementations agree."""
    network, randomness = made_up_network(), SimulatedRandomness(1)
    rows = network.sample(seeds, randomness)
    test = RandomizedTest(50, GAMMA, Fraction(1))
    cost = theorem_1(test, Fraction(1, 10**9), Seeds(seeds, fixed=False))
    plan = SeededRelease(test, OMEGAS, attempts, attempts, coin(cost.epsilon, seeds), seeds)
    release_seeded(rows, network, plan, SystemNoise(), randomness)  # warm
    started = time.perf_counter()
    release_seeded(rows, network, plan, SystemNoise(), randomness)
    whole = time.perf_counter() - started

    plausible = PlausibleSeeds(rows, network, OMEGAS, GAMMA)
    chosen, made = draw_candidates(rows, network, OMEGAS, sample, randomness)
    counts, _ = plausible.count(chosen, made)
    started = time.perf_counter()
    naive = [
        plausible_seeds(network, OMEGAS, GAMMA, rows, seed, candidate)
        for seed, candidate in zip(chosen, made, strict=True)
    ]
    slow = time.perf_counter() - started
    return {
        "seeds": seeds,
        "attempts": attempts,
        "omegas": [OMEGAS[0], OMEGAS[-1]],
        "candidates_per_second": round(attempts / whole),
        "naive_candidates_per_second": round(sample / slow),
        "sample": sample,
        "agree": int((counts == np.array(naive)).sum()),
    }
