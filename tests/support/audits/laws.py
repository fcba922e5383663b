"""Exact laws of noise and of answers, for predicting what an audit will find.

A law is a float array of odd length: entry i is the probability of the integer i - (length - 1) /
2. Tails below 1e-30 are cut off.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Final

import numpy as np

from pate.accounting.arrays import Floats
from pate.mechanisms.contract import Votes

#: The law of no noise.
NOTHING: Final = np.ones(1)
#: Smaller probabilities are cut off at the ends.
_LEAST: Final = 1e-30


def gaussian(sigma: Fraction) -> Floats:
    """Return the law of N_Z(0, sigma^2)."""
    x = np.arange(-_reach(12 * sigma), _reach(12 * sigma) + 1, dtype=np.float64)
    return _scaled(-(x**2) / (2 * float(sigma) ** 2))


def laplace(scale: Fraction) -> Floats:
    """Return the discrete Laplace law, P[x] ~ exp(-|x| / scale)."""
    x = np.arange(-_reach(70 * scale), _reach(70 * scale) + 1, dtype=np.float64)
    return _scaled(-np.abs(x) / float(scale))


def geometric(scale: Fraction, part: Fraction) -> Floats:
    """Return the law of X - Y, X and Y of NB(part), a = exp(-1/scale): of noise shares.

    Shares of which h sum to the discrete Laplace law have part 1/h each; the parts of a sum add up.
    """
    from scipy import stats  # slow to import
    from scipy.signal import convolve

    side = stats.nbinom.pmf(
        np.arange(_reach(70 * scale) + 1.0), float(part), -math.expm1(-1 / float(scale))
    )
    made = np.maximum(convolve(side, side[::-1]), 0.0)
    law: Floats = made / made.sum()
    return law


def total(law: Floats, times: int) -> Floats:
    """Return the law of the sum of ``times`` independent draws; for 0, :data:`NOTHING`."""
    made, doubled = NOTHING, law
    while times:
        if times % 2:
            made = joined(made, doubled)
        times //= 2
        if times:
            doubled = joined(doubled, doubled)
    return made


def joined(first: Floats, second: Floats) -> Floats:
    """Return the law of the sum of two independent draws."""
    from scipy.signal import convolve

    made: Floats = np.maximum(convolve(first, second), 0.0)
    inner = np.flatnonzero(made > _LEAST)
    cut = min(inner[0], len(made) - 1 - inner[-1])
    return made[cut : len(made) - cut]


def stretched(law: Floats, times: int) -> Floats:
    """Return the law of ``times`` one draw, ``times`` at least 1."""
    made = np.zeros((len(law) - 1) * times + 1)
    made[::times] = law
    return made


def clipped(law: Floats, most: int) -> Floats:
    """Return the law of a draw that is cut to ``most`` on either side."""
    at = np.clip(np.arange(len(law)) - len(law) // 2, -most, most)
    made: Floats = np.bincount(at + most, weights=law, minlength=2 * most + 1).astype(np.float64)
    return made


def at_least(law: Floats, level: int) -> float:
    """Return the probability that a draw is ``level`` or more."""
    start = level + len(law) // 2
    return float(law[max(0, start) :].sum())


def argmax(row: Votes, noises: Sequence[Floats]) -> Floats:
    """Return (classes,) probabilities of most noisy votes, with ties to the lowest index.

    ``row``: (classes,) int64, votes; ``noises``: the law of the noise on each count, independent of
    each other.
    """
    reach = max(len(noise) // 2 for noise in noises)
    low, high = int(row.min()) - reach, int(row.max()) + reach
    size = high - low + 1
    mass = np.zeros((len(row), size))
    for count, noise, place in zip(row.tolist(), noises, mass, strict=True):
        first = count - len(noise) // 2 - low
        place[first : first + len(noise)] = noise
    at_most = mass.cumsum(axis=1)
    below = at_most - mass
    chances = np.empty(len(row))
    for label in range(len(row)):
        others = mass[label]
        for other in range(len(row)):
            if other != label:
                others = others * (below if other < label else at_most)[other]
        chances[label] = others.sum()
    return chances


def _reach(width: Fraction) -> int:
    return max(1, math.ceil(width))


def _scaled(logs: Floats) -> Floats:
    mass = np.exp(logs)
    law: Floats = mass / mass.sum()
    return law
