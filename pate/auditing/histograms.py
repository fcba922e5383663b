"""The audit of visible noisy counts: neighbour votes, noise shares.

The attacker sees the counts instead of labels. For one Gaussian release the sum of the counts, each
times its change, is a sufficient statistic, so an audit comes close to the claim; a bug may show only
in a single count, in its parity, or in the largest noise of a run. A run is several releases of the
same small matrix; neighbours differ by votes that move from one cell to another, or by what else a
record's votes may change.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from functools import reduce
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.accounting.units import Neighbours
from pate.auditing import laws
from pate.auditing.attack import learn_range
from pate.auditing.bugs import bugs_of
from pate.auditing.experiment import attack, runs_together
from pate.auditing.mechanism import claimed, claimed_with, reach_of, too_wide
from pate.auditing.neighbours import Pair
from pate.auditing.power import level_events, seen_from
from pate.mechanisms import DistributedNeighbour, Neighbour
from pate.noise.share_laws import GeometricShares

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pate.accounting.arrays import Floats
    from pate.auditing.attack import Readings
    from pate.auditing.bugs import Bug
    from pate.auditing.experiment import Progress
    from pate.auditing.result import Audit, Seen
    from pate.mechanisms import DistributedMechanism
    from pate.mechanisms.contract import Votes
    from pate.noise.exact import NoiseInShares

#: Rows and classes of the matrix: the smallest in which both can be equal, or differ.
_SHAPE: Final = (2, 2)
#: Matrices per call.
_TOGETHER: Final = 2048
_STEP: Final = 2**14
#: Source and destination of votes: (row, class).
_MOVES: Final = (
    ("within a query, class 0 to 1", (0, 0), (0, 1)),
    ("within a query, class 1 to 0", (1, 1), (1, 0)),
    ("to another query", (0, 0), (1, 0)),
    ("to another query and class", (0, 1), (1, 0)),
)


def cell_pairs(votes: int) -> tuple[Pair, ...]:
    """Return neighbours that differ by ``votes`` votes, or one of them, in two cells of a matrix."""
    moves = [(f"votes go {name}", start, end, votes) for name, start, end in _MOVES]
    if votes > 1:  # an even number of votes leaves all parities as they are
        moves.append((f"one of {votes} votes goes {_MOVES[0][0]}", *_MOVES[0][1:], 1))
    pairs = []
    for name, start, end, moved in moves:
        given = np.full(_SHAPE, 4 * votes, np.int64)
        other = given.copy()
        other[start] -= moved
        other[end] += moved
        pairs.append(Pair(given, other, None, name))
    return tuple(pairs)


def noisy_counts(
    mechanism: Neighbour | DistributedMechanism, rows: Votes, noise: NoiseInShares
) -> Votes:
    """Return the visible noisy counts of (queries, classes) votes.

    With noise shares the attacker may know those of colluding parties, and sees the sum less
    theirs.
    """
    if isinstance(mechanism, Neighbour):
        return mechanism.released(rows, noise)
    total = rows
    for _ in range(mechanism.honest):
        total = total + mechanism.shares.draw(noise, rows.size).reshape(rows.shape)
    return (
        mechanism.released(total, noise) if isinstance(mechanism, DistributedNeighbour) else total
    )


def run_counts(
    mechanism: Neighbour | DistributedMechanism,
    noise: NoiseInShares,
    queries: int,
    pair: Pair,
    world: int,
    runs: int,
) -> Readings:
    """Return (runs, 5): the attacker's statistics of a run.

    Summed over its releases: all cells, each times its change (of one move: the difference of two
    cells); the cells that lose and gain most, each by itself; how often the parity of the cell that loses
    most is not that of the world D. Then the largest distance of a cell that changes from its votes in D.
    With geometric noise also the log likelihood ratio, see :func:`_score`: (runs, 6).
    """
    weights, start, end = _weights(pair)
    changed = np.flatnonzero(weights)
    geometric = isinstance(mechanism.shares, GeometricShares)
    given, other = pair.votes.ravel(), pair.neighbour.ravel()
    made = np.empty((runs, 6 if geometric else 5), np.int64)
    step = runs_together(runs, _TOGETHER // queries)
    for first in range(0, runs, step):
        number = min(step, runs - first)
        rows = np.tile(pair.rows(world, len(pair.votes)), (number * queries, 1))
        each = noisy_counts(mechanism, rows, noise).reshape(number, queries, -1)
        seen, some = each.sum(axis=1), made[first : first + number]
        some[:, 0] = seen @ weights
        some[:, 1] = seen[:, start]
        some[:, 2] = seen[:, end]
        some[:, 3] = ((each[:, :, start] - given[start]) & 1).sum(axis=1)
        some[:, 4] = np.abs(each[:, :, changed] - given[changed]).max(axis=(1, 2))
        if geometric:
            some[:, 5] = sum(
                _score(each[:, :, cell], given[cell], other[cell]).sum(axis=1)
                for cell in changed.tolist()
            )
    return made


def _score(seen: Votes, given: int, other: int) -> Votes:
    """Return the log likelihood ratio of geometric noise on a cell, in units of 1/scale.

    Differences of counts discard what matters: beyond both worlds' counts the ratio is constant.
    """
    made: Votes = np.abs(seen - other) - np.abs(seen - given)
    return made


def _weights(pair: Pair) -> tuple[Votes, int, int]:
    """Return what each cell loses, in the largest unit that all have; and who loses and gains most."""
    lost = (pair.votes - pair.neighbour).ravel()
    return lost // max(1, int(np.gcd.reduce(lost))), int(lost.argmax()), int(lost.argmin())


def audit_counts(
    mechanism: Neighbour | DistributedMechanism,
    noise: NoiseInShares,
    *,
    queries: int,
    runs: int,
    delta: float,
    confidence: float,
    votes: int | None = None,
    pairs: Sequence[Pair] | None = None,
    progress: Progress = lambda *_: None,
) -> Audit:
    """Attack a mechanism with visible noisy counts, ``queries`` releases in each run.

    Args:
        mechanism: with noise by the server, or with noise shares.
        noise: the shipped source.
        queries: releases of a run: queries, or whole matrices of neighbour votes.
        runs: counted runs in each of the two worlds.
        delta: of the claim and the bound.
        confidence: with which the lower bounds hold.
        votes: k, reached by one unit; default: the mechanism's own.
        pairs: matrices of records' votes to choose from; default: :func:`cell_pairs`.
        progress: called with runs done and runs in all.

    Raises:
        UsageError: for numbers that make no sense.
    """
    reach = reach_of(mechanism) if votes is None else votes
    claim = claimed(mechanism, queries, delta)
    pairs = cell_pairs(reach) if pairs is None else pairs
    foretold = foresee_counts(mechanism, queries, runs, delta, confidence, pairs)
    found = attack(
        lambda pair, world, number: run_counts(mechanism, noise, queries, pair, world, number),
        pairs,
        claim,
        runs=runs,
        confidence=confidence,
        step=_STEP,
        learner=learn_range,
        progress=progress,
    )
    subject, unit = mechanism.name, f"a unit with {reach} of the votes of a query"
    adjacency, matrix = Neighbours(reach).in_words, False
    if isinstance(mechanism, Neighbour | DistributedNeighbour):
        unit, matrix = f"a unit with {reach} votes", True
        adjacency = f"{reach} of the votes of a matrix, cast otherwise"
        if pairs[0].of_records:
            subject += f" {mechanism.code}"
            unit = f"a patient with {reach} votes"
            adjacency = "one patient added, removed or altered"
    return found.audit(
        claim,
        subject=subject,
        kind="mechanism",
        bugs=foretold,
        confidence=confidence,
        queries=queries,
        unit=unit,
        adjacency=adjacency,
        observer="public" if matrix else "server",
    )


def foresee_counts(
    mechanism: Neighbour | DistributedMechanism,
    queries: int,
    runs: int,
    delta: float,
    confidence: float,
    pairs: Sequence[Pair],
) -> tuple[Seen, ...]:
    """Return which bugs an audit will find, by exact laws; see :func:`audit_counts`."""
    if too_wide(mechanism):
        return ()
    return tuple(
        seen_from(
            bug.name,
            {
                pair.name: np.vstack(
                    [level_events(each) for each in count_laws(mechanism, pair, queries, bug)]
                )
                for pair in pairs
            },
            claimed_with(bug, mechanism, queries, delta),
            runs=runs,
            confidence=confidence,
        )
        for bug in bugs_of(mechanism)
    )


def count_laws(
    mechanism: Neighbour | DistributedMechanism, pair: Pair, queries: int, bug: Bug
) -> list[tuple[Floats, Floats]]:
    """Return the laws of each of the attacker's statistics in the two worlds.

    They are relative to the statistic's value in the world D without noise.
    """
    weights, start, end = _weights(pair)
    lost = (pair.votes - pair.neighbour).ravel()
    shape, classes = pair.votes.shape, pair.votes.shape[1]
    noises = [_noise(mechanism, bug, place) for place in range(min(2, classes))]
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
    """Return the law of :func:`_score` in the world D of a cell that ``votes`` votes leave."""
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


def _noise(mechanism: Neighbour | DistributedMechanism, bug: Bug, at: int) -> Floats:
    factor = bug.label[at % 2]
    if factor == 0:
        return laws.NOTHING
    if bug.even:
        half = replace(bug, even=False, label=(factor / 2, factor / 2))
        return laws.stretched(_noise(mechanism, half, at), 2)
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
