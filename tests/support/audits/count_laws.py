"""The exact laws of the figures of a run with visible noisy counts, with a bug or without, in both worlds."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

from pate.auditing.mechanism import weights_of
from pate.mechanisms import DistributedMechanism, Neighbour
from pate.noise.share_laws import GeometricShares
from tests.support.audits import laws

if TYPE_CHECKING:
    from pate.accounting.arrays import Floats
    from pate.auditing.neighbours import Pair
    from tests.support.audits.bugs import Bug

    Counted = Neighbour | DistributedMechanism


def count_laws(
    mechanism: Counted, pair: Pair, queries: int, bug: Bug
) -> list[tuple[Floats, Floats]]:
    """Return the laws of each of the attacker's statistics in the two worlds.

    They are relative to the statistic's value in the world D without noise.
    """
    weights, start, end = weights_of(pair)
    lost = (pair.votes - pair.neighbour).ravel()
    shape, classes = pair.votes.shape, pair.votes.shape[1]
    noises = [noise_of(mechanism, bug, place) for place in range(min(2, classes))]
    # One draw for a whole row or column counts once, times the sum of what it is multiplied by.
    joint = weights.reshape(shape)
    if bug.one_draw is not None:
        joint = joint.sum(axis=1 if bug.one_draw == "classes" else 0, keepdims=True)
    parts = [
        laws.total(laws.stretched(noises[place % 2], abs(int(weight))), queries)
        for (_, place), weight in np.ndenumerate(joint)
        if weight
    ]
    apart = reduce(laws.joined, parts, laws.NOTHING)
    cells = [laws.total(noises[cell % classes % 2], queries) for cell in (start, end)]
    moved = (-int(weights @ lost) * queries, *(-int(lost[at]) * queries for at in (start, end)))
    made = [_moved(law, by) for law, by in zip((apart, *cells), moved, strict=True)]
    if bug.one_draw is not None:
        return made
    made.append(_odd_law(noises[start % classes % 2], int(lost[start]), queries))
    made.append(
        _largest_law(
            [(noises[at % classes % 2], int(lost[at])) for at in np.flatnonzero(lost)], queries
        )
    )
    if isinstance(mechanism.shares, GeometricShares):
        scores = [
            laws.total(_score_law(noises[cell % classes % 2], abs(int(lost[cell]))), queries)
            for cell in np.flatnonzero(lost).tolist()
        ]
        there = reduce(laws.joined, scores, laws.NOTHING)
        # The noise is symmetric, so the other world's law is the mirror image.
        made.append((there, there[::-1]))
    return made


def _score_law(noise: Floats, votes: int) -> Floats:
    """Return the law of the log likelihood ratio in the world D of a cell that ``votes`` votes leave."""
    reach = len(noise) // 2
    values = np.arange(-reach, reach + 1)
    at = np.abs(values + votes) - np.abs(values) + votes
    law: Floats = np.bincount(at, weights=noise, minlength=2 * votes + 1).astype(np.float64)
    return law


def _odd_law(noise: Floats, lost: int, queries: int) -> tuple[Floats, Floats]:
    """Return the laws of how many of ``queries`` noisy counts have another parity than votes in D."""
    from scipy import stats  # slow to import

    odd = float(noise[(np.arange(len(noise)) - len(noise) // 2) % 2 == 1].sum())
    times = np.arange(queries + 1)
    here, there = (
        stats.binom.pmf(times, queries, min(1.0, each))
        for each in (odd, 1 - odd if lost % 2 else odd)
    )
    return here, there


def _largest_law(cells: list[tuple[Floats, int]], queries: int) -> tuple[Floats, Floats]:
    """Return the laws of the largest distance from votes in D of noisy counts that lose some of them."""
    reach = max(len(noise) // 2 + abs(lost) for noise, lost in cells)
    worlds = []
    for world in (0, 1):
        at_most = np.ones(reach + 1)
        for noise, lost in cells:
            away = np.abs(np.arange(len(noise)) - len(noise) // 2 - world * lost)
            at_most *= np.bincount(away, weights=noise, minlength=reach + 1).cumsum()
        worlds.append(np.maximum(np.diff(at_most**queries, prepend=0.0), 0.0))
    here, there = worlds
    return here, there


def noise_of(mechanism: Counted, bug: Bug, at: int) -> Floats:
    factor = bug.label[at % 2]
    if factor == 0:
        return laws.NOTHING
    if bug.even:
        half = replace(bug, even=False, label=(factor / 2, factor / 2))
        return laws.stretched(noise_of(mechanism, half, at), 2)
    honest = 1 if isinstance(mechanism, Neighbour) else mechanism.honest
    missing = {None: 0, "one": 1, "half": honest // 2}[bug.shares_missing]
    shares = mechanism.shares
    if isinstance(shares, GeometricShares):
        if bug.cut is not None:
            share = laws.geometric(shares.scale, Fraction(1, shares.honest))
            return laws.total(laws.clipped(share, math.ceil(bug.cut * shares.scale)), honest)
        return laws.geometric(shares.scale * factor, Fraction(honest - missing, shares.honest))
    return laws.total(laws.gaussian(shares.share * factor), honest - missing)


def _moved(law: Floats, by: int) -> tuple[Floats, Floats]:
    """Return the law and the law shifted by ``by``, on the same values."""
    room = abs(by)
    here = np.pad(law, room)
    return here, np.roll(here, by)
