"""The audit of a mechanism: shipped code and noise on neighbouring votes.

**Labels.** All queries of a run have the same votes, or take two rows in turn: a unit has most effect by
voting alike on all, and composition treats equal and different queries alike. So all pairs of classes are
tried in no more runs, and queries that change one at a time. Each row of a call of ``answer_all`` is
answered by itself, so one call makes several independent runs: as many as in a campaign, so that noise
which is drawn too rarely shows between calls.

**Noisy counts**, of neighbour votes and noise shares. A run is several releases of the same small matrix.
For one Gaussian release the sum of the counts, each times its change, is a sufficient statistic, so an audit
comes close to the claim; a bug may show only in a single count, in its parity, or in the largest noise of
a run.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.accounting.composition import tightest, total_cost
from pate.accounting.conversion import float_up
from pate.accounting.events import LaplaceMax
from pate.accounting.filters import PrivacyFilter
from pate.accounting.units import Neighbours
from pate.auditing.harness import Audit, Claim, Progress, Subject, audit, runs_together
from pate.auditing.neighbours import cell_pairs, distinguishing_pairs
from pate.errors import UsageError
from pate.mechanisms import DistributedMechanism, DistributedNeighbour, Neighbour
from pate.noise.share_laws import GeometricShares

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pate.auditing.harness import Runs
    from pate.auditing.neighbours import Pair
    from pate.mechanisms import Mechanism, Outcome
    from pate.mechanisms.contract import Votes
    from pate.noise.exact import Noise, NoiseInShares

    Places = NDArray[np.int64]
    Counted = Neighbour | DistributedMechanism

#: Most rows per call of a mechanism, about as in a campaign; and most matrices.
ROWS = 128
_TOGETHER: Final = 2048
#: Runs between two progress reports.
_STEP: Final = 2**14


def audit_mechanism(
    mechanism: Mechanism,
    noise: NoiseInShares,
    *,
    queries: int,  # of a run: queries, or whole matrices of neighbour votes
    runs: int,  # counted runs in each of the two worlds
    delta: float,  # of the claim and the bound. Events rarer than 1/runs are never seen
    confidence: float,
    votes: int | None = None,  # k, reached by one unit; default: the mechanism's own
    # neighbours to choose from; default: all that are known of such a mechanism
    pairs: Sequence[Pair] | None = None,
    claim: Claim | None = None,  # the claim to test; default: :func:`claimed`
    progress: Progress = lambda *_: None,  # called with runs done and runs in all
) -> Audit:
    """Attack a mechanism that answers ``queries`` queries, or makes as many releases, in each run."""
    claim = claimed(mechanism, queries, delta) if claim is None else claim
    reach = mechanism.votes_per_unit if votes is None else votes
    unit, adjacency = f"a unit with {reach} of the votes of a query", Neighbours(reach).in_words
    name, observer = mechanism.name, "public"
    if isinstance(mechanism, Neighbour | DistributedMechanism):
        pairs = cell_pairs(reach) if pairs is None else pairs
        sample = partial(run_counts, mechanism, noise, queries)
        observer = "server"
        figures: int | None = None
        if isinstance(mechanism, Neighbour | DistributedNeighbour):
            unit, observer = f"a unit with {reach} votes", "public"
            adjacency = f"{reach} of the votes of a matrix, cast otherwise"
            if pairs[0].of_records:
                name = f"{name} {mechanism.code}"
                unit = f"a patient with {reach} votes"
                adjacency = "one patient added, removed or altered"
    else:
        pairs = distinguishing_pairs(mechanism, reach, queries) if pairs is None else pairs
        if any(pair.moved > reach for pair in pairs):
            raise UsageError(f"a pair moves more than the {reach} votes of a unit")
        sample, figures = partial(run_mechanism, mechanism, noise, queries), 1
    subject = Subject(
        name=name, kind="mechanism", claim=claim, pairs=pairs, sample=sample, queries=queries,
        figures=figures, step=_STEP, unit=unit, adjacency=adjacency, observer=observer,
    )  # fmt: skip
    return audit(subject, runs=runs, confidence=confidence, progress=progress)


def claimed(mechanism: Mechanism, queries: int, delta: float) -> Claim:
    """Return the accountant's claim for ``queries`` answers, whatever the votes are.

    The worst cost of each query goes through the filter that campaigns use, in their composition.
    Laplace noise is also pure epsilon-DP, by the sum over the queries; the smaller figure is
    claimed.

    >>> from fractions import Fraction
    >>> from pate.mechanisms import GNMax, LNMax
    >>> round(claimed(GNMax(Fraction(40), 1), 286, 1e-5).epsilon, 2)
    2.44
    >>> claimed(LNMax(Fraction(4), 1), 2, 1e-5).epsilon
    1.0
    """
    if queries < 1:
        raise UsageError(f"a run asks at least one query, got {queries}")
    composition = tightest(mechanism.worst)
    cost = total_cost(composition, mechanism.worst)
    budget = PrivacyFilter(cost * queries)
    for _ in range(queries):
        budget.settle(budget.reserve(cost), cost)
    epsilon = composition.epsilon(budget.spent, delta)
    outright = [event.epsilon for event in mechanism.worst if isinstance(event, LaplaceMax)]
    if len(outright) == len(mechanism.worst):
        charged = budget.spent / cost  # the number of answers that the filter counted
        epsilon = min(epsilon, float_up(sum(outright, Fraction(0)) * charged))
    return Claim(epsilon, delta, gaussian_mu(composition.name, float_up(2 * budget.spent)))


def gaussian_mu(composition: str, squared: float) -> float | None:
    """Return the mu of a cost, rounded up; None for a composition without mu."""
    return math.nextafter(math.sqrt(squared), math.inf) if composition == "gdp" else None


def kinds(classes: int) -> int:
    """Return the number of kinds of answers: each teachers' label, none, and reinforced."""
    return classes + 2


def kind_of(outcome: Outcome, classes: int) -> int:
    """Return the kind of an answer, from 0: all that an observer of the labels sees.

    Which label is reinforced follows from the public prediction, so only the fact is informative.
    """
    if outcome.label is None:
        return classes
    return outcome.label if outcome.source == "teachers" else classes + 1


def run_mechanism(
    mechanism: Mechanism, noise: Noise, queries: int, pair: Pair, world: int, runs: int
) -> Runs:
    """Return (runs, kinds + 1) counts of answers by the rows of the pair, and :func:`differing`."""
    sorts, classes = pair.votes.shape
    width = sorts * kinds(classes)
    counts = np.zeros((runs, width + 1), np.int64)
    step = 1 if pair.apart else runs_together(runs, ROWS // queries)
    sort = np.arange(queries) % sorts * kinds(classes)
    one, expecting = pair.rows(world, queries), pair.expected(queries)
    for start in range(0, runs, step):
        number = min(step, runs - start)
        rows = np.tile(one, (number, 1))
        expected = None if expecting is None else np.tile(expecting, (number, 1))
        outcomes = mechanism.answer_all(rows, noise, expected)
        seen = np.fromiter((kind_of(each, classes) for each in outcomes), np.int64, len(rows))
        places = np.repeat(np.arange(number), queries) * width + np.tile(sort, number) + seen
        some = counts[start : start + number]
        some[:, :width] = np.bincount(places, minlength=number * width).reshape(number, width)
        some[:, width] = differing(seen.reshape(number, queries))
    return counts


def differing(seen: Places) -> Places:
    """Return (runs,) how many couples of neighbouring queries got different answers.

    Answers whose noise is shared differ in other runs than those of independent noise, though each by
    itself may have the right law.

    ``seen``: (runs, queries) kinds of answers.
    """
    couples = seen[:, : seen.shape[1] // 2 * 2].reshape(len(seen), -1, 2)
    found: Places = (couples[:, :, 0] != couples[:, :, 1]).sum(axis=1)
    return found


def noisy_counts(mechanism: Counted, rows: Votes, noise: NoiseInShares) -> Votes:
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
    mechanism: Counted, noise: NoiseInShares, queries: int, pair: Pair, world: int, runs: int
) -> Runs:
    """Return (runs, 5): the attacker's statistics of a run.

    Summed over its releases: all cells, each times its change (of one move: the difference of two
    cells); the cells that lose and gain most, each by itself; how often the parity of the cell that loses
    most is not that of the world D. Then the largest distance of a cell that changes from its votes in D.
    With geometric noise also the log likelihood ratio in units of 1/scale, (runs, 6): differences of counts
    discard what matters, for beyond both worlds' counts the ratio is constant.
    """
    weights, start, end = weights_of(pair)
    changed = np.flatnonzero(weights)
    given, other = (each.ravel()[changed] for each in (pair.votes, pair.neighbour))
    geometric = isinstance(mechanism.shares, GeometricShares)
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
        some[:, 3] = ((each[:, :, start] - pair.votes.flat[start]) & 1).sum(axis=1)
        apart = np.abs(each[:, :, changed] - given)
        some[:, 4] = apart.max(axis=(1, 2))
        if geometric:
            some[:, 5] = (np.abs(each[:, :, changed] - other) - apart).sum(axis=(1, 2))
    return made


def weights_of(pair: Pair) -> tuple[Votes, int, int]:
    """Return what each cell loses, in the largest unit that all have; and who loses and gains most."""
    lost = (pair.votes - pair.neighbour).ravel()
    return lost // max(1, int(np.gcd.reduce(lost))), int(lost.argmax()), int(lost.argmin())
