"""Reference implementation of the privacy test: one probability per candidate and seed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from party.synthesis.seeds.plausible_rows import bucket_width

if TYPE_CHECKING:
    from fractions import Fraction

    from numpy.typing import NDArray

    from party.synthesis.table.network import Network


def probabilities(
    network: Network,
    resampled: tuple[int, ...],
    seeds: NDArray[np.intp],
    candidate: NDArray[np.intp],
) -> NDArray[np.float64]:
    """Return (n,) the probability that each seed makes the candidate."""
    order, m = np.array(network.order), len(network.order)
    alike = seeds[:, order] == candidate[order]
    conditionals = network.conditionals(candidate[None])[0]
    found = np.zeros(len(seeds))
    for omega in sorted(resampled, reverse=True):
        kept = m - omega
        found += alike[:, :kept].all(axis=1) * np.prod(conditionals[kept:]) / len(resampled)
    return found


def plausible_seeds(
    network: Network,
    resampled: tuple[int, ...],
    gamma: Fraction,
    seeds: NDArray[np.intp],
    seed: NDArray[np.intp],
    candidate: NDArray[np.intp],
) -> int:
    """Return k' by Test 1: the seeds whose probability is in the bucket of the seed's."""
    width = bucket_width(gamma)
    of_seeds = probabilities(network, resampled, seeds, candidate)
    own = probabilities(network, resampled, seed[None], candidate)[0]
    positive = of_seeds[of_seeds > 0]
    return int((np.floor(-np.log(positive) / width) == math.floor(-math.log(own) / width)).sum())
