"""The audit of a mechanism that answers with labels: shipped code and noise on neighbouring votes.

Each row of a call of ``answer_all`` is answered by itself, so one call makes several independent
runs: as many as in a campaign, so that noise which is drawn too rarely shows between calls.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from pate.accounting.budget import PrivacyFilter
from pate.accounting.composition import tightest, total_cost
from pate.accounting.conversion import float_up
from pate.accounting.events import GeometricHistogram, LaplaceMax, NoisyCounts
from pate.accounting.units import Neighbours
from pate.auditing.attack import learn_answers
from pate.auditing.bugs import bugs_of, label_runs
from pate.auditing.experiment import attack, runs_together
from pate.auditing.neighbours import distinguishing_pairs
from pate.auditing.power import events_of, seen_from
from pate.auditing.result import Audit, Claim
from pate.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pate.auditing.attack import Counts
    from pate.auditing.bugs import Bug
    from pate.auditing.experiment import Progress
    from pate.auditing.neighbours import Pair
    from pate.auditing.result import Seen
    from pate.mechanisms import Mechanism, Outcome
    from pate.noise.exact import Noise

    Places = NDArray[np.int64]

#: Most rows per call of a mechanism, about as in a campaign.
_ROWS = 128
#: Runs between two progress reports.
_STEP = 2**14
#: Wider noise is audited, too, but predictions for it would take too long.
_WIDEST = 2000


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

    Raises:
        UsageError: for a number of queries below 1.
        AccountingError: for a delta outside (0, 1).
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


def run_mechanism(
    mechanism: Mechanism, noise: Noise, queries: int, pair: Pair, world: int, runs: int
) -> Counts:
    """Return (runs, kinds + 1) counts of the answers in ``runs`` runs of ``queries`` queries each.

    Kinds are counted separately for each row of the pair. The last count is that of :func:`differing`.
    """
    sorts, classes = pair.votes.shape
    width = sorts * kinds(classes)
    counts = np.zeros((runs, width + 1), np.int64)
    step = 1 if pair.apart else runs_together(runs, _ROWS // queries)
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

    Args:
        seen: (runs, queries) kinds of answers.
    """
    couples = seen[:, : seen.shape[1] // 2 * 2].reshape(len(seen), -1, 2)
    found: Places = (couples[:, :, 0] != couples[:, :, 1]).sum(axis=1)
    return found


def audit_mechanism(
    mechanism: Mechanism,
    noise: Noise,
    *,
    queries: int,
    runs: int,
    delta: float,
    confidence: float,
    votes: int | None = None,
    pairs: Sequence[Pair] | None = None,
    claim: Claim | None = None,
    progress: Progress = lambda *_: None,
) -> Audit:
    """Attack a mechanism that answers ``queries`` queries in each run.

    All queries of a run have the same votes, or take two rows in turn: a unit has most effect by
    voting alike on all, and composition treats equal and different queries alike. So all pairs of
    classes are tried in no more runs, and queries that change one at a time.

    Args:
        mechanism: the shipped one.
        noise: the shipped source.
        queries: of a run.
        runs: counted runs in each of the two worlds.
        delta: of the claim and the bound. Events rarer than 1/runs are never seen.
        confidence: with which the lower bounds hold.
        votes: k, reached by one unit; default: the mechanism's own.
        pairs: neighbours to choose from; default: :func:`~pate.auditing.neighbours.distinguishing_pairs`.
        claim: the claim to test; default: :func:`claimed`.
        progress: called with runs done and runs in all.

    Raises:
        UsageError: for numbers that make no sense.
    """
    claim = claimed(mechanism, queries, delta) if claim is None else claim
    unit = Neighbours(reach_of(mechanism) if votes is None else votes)
    foretold = (
        foresee(mechanism, queries, runs, claim.delta, confidence, unit.votes)
        if pairs is None
        else ()
    )
    pairs = distinguishing_pairs(mechanism, unit.votes, queries) if pairs is None else pairs
    if any(pair.moved > unit.votes for pair in pairs):
        raise UsageError(f"a pair moves more than the {unit.votes} votes of a unit")
    found = attack(
        lambda pair, world, number: run_mechanism(mechanism, noise, queries, pair, world, number),
        pairs,
        claim,
        runs=runs,
        confidence=confidence,
        step=_STEP,
        learner=learn_answers,
        progress=progress,
    )
    return found.audit(
        claim,
        subject=mechanism.name,
        kind="mechanism",
        bugs=foretold,
        confidence=confidence,
        queries=queries,
        unit=f"a unit with {unit.votes} of the votes of a query",
        adjacency=unit.in_words,
        observer="public",
    )


def reach_of(mechanism: Mechanism) -> int:
    """Return the k of the mechanism itself, whatever its events contain."""
    return mechanism.votes_per_unit


def foresee(
    mechanism: Mechanism, queries: int, runs: int, delta: float, confidence: float, votes: int
) -> tuple[Seen, ...]:
    """Return which bugs of a mechanism an audit will find, by exact laws of its answers.

    Args:
        mechanism: the one under audit.
        queries: of a run.
        runs: that count, in each world.
        delta: at which epsilon is claimed.
        confidence: of the audit.
        votes: k.
    """
    if too_wide(mechanism):
        return ()
    pairs = distinguishing_pairs(mechanism, votes, queries)
    return tuple(
        seen_from(
            bug.name,
            {pair.name: events_of(label_runs(mechanism, pair, queries, bug)) for pair in pairs},
            claimed_with(bug, mechanism, queries, delta),
            runs=runs,
            confidence=confidence,
            apart=[pair.apart for pair in pairs],
            together=max(1, _ROWS // queries) if bug.of_batch else 1,
        )
        for bug in bugs_of(mechanism)
    )


def too_wide(mechanism: Mechanism) -> bool:
    """Return whether the noise is so wide that computing its exact laws takes too long."""
    widths = [
        float(event.scale)
        if isinstance(event, LaplaceMax | GeometricHistogram)
        else math.sqrt(event.variance)
        if isinstance(event, NoisyCounts)
        else float(event.sigma)
        for event in mechanism.worst
    ]
    return max(widths) > _WIDEST


def claimed_with(bug: Bug, mechanism: Mechanism, queries: int, delta: float) -> Claim:
    """Return the claim of an accountant with that bug for ``queries`` answers."""
    if bug.one_vote:
        mechanism = replace(mechanism, votes_per_unit=1)  # type: ignore[type-var]  # a dataclass
    return claimed(mechanism, -(-queries // 2) if bug.free else queries, delta)
