"""What a campaign may be expected to give, before anyone trains a teacher.

A plan is what a mechanism gives on queries that are drawn independently from a population of vote
histograms: expected answers, expected accuracy, and the privacy that is guaranteed whatever happens.

The guarantee of a plan depends on no votes; its expectations are as good as the population. A
population made of private votes would leak through the choice that it leads to.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.accounting.composition import COMPOSITIONS, tightest, total_cost
from pate.accounting.events import GaussianMax
from pate.errors import BudgetError, UsageError
from pate.mechanisms import (
    ConfidentGNMax,
    DistributedConfidentGNMax,
    DistributedGNMax,
    GNMax,
    LNMax,
    Mechanism,
)
from pate.noise_shares import total_sigma
from pate.planning.chances import (
    chance_of_label,
    chance_passed,
    chances_of_one_view,
    expected_asked,
    gaussian_law,
    laplace_law,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pate.accounting.arrays import Floats
    from pate.accounting.events import Event
    from pate.planning.population import Population

#: More queries than that are no plan.
_MOST_QUERIES: Final = 10**6


@dataclass(frozen=True, eq=False)
class Prospect:
    """What a mechanism does with each query of a population.

    Attributes:
        answered: (queries,) P[a label is released].
        right: (queries,) P[a label is released, and is the one that counts].
    """

    answered: Floats
    right: Floats

    @property
    def answer(self) -> float:
        """P[answer] of a query drawn from the population."""
        return min(1.0, float(self.answered.mean()))

    @property
    def accuracy(self) -> float | None:
        """P[right, given an answer], or None where nothing is ever answered."""
        total = float(self.answered.sum())
        return float(self.right.sum()) / total if total > 0.0 else None

    @property
    def accuracy_error(self) -> float | None:
        """One standard error of ``accuracy``, for the queries of the population are a sample."""
        if self.accuracy is None:
            return None
        residuals = self.right - self.accuracy * self.answered
        return float(np.sqrt(np.mean(residuals**2) / len(residuals)) / self.answered.mean())

    @property
    def answer_error(self) -> float:
        """One standard error of ``answer``."""
        return float(self.answered.std() / math.sqrt(len(self.answered)))


@dataclass(frozen=True)
class Survivors:
    """How many parties' noise shares are in a sum.

    Attributes:
        most: all of the roster, if none drops out.
        fewest: t, of which no sum has fewer.

    Raises:
        UsageError: for numbers that make no sense.
    """

    most: int
    fewest: int

    def __post_init__(self) -> None:
        if not 1 <= self.fewest <= self.most:
            raise UsageError(f"of {self.most} parties {self.fewest} cannot be the fewest in a sum")


def prospect(
    mechanism: Mechanism, population: Population, *, shares: int | None = None
) -> Prospect:
    """Return what a mechanism does with each query of a population.

    Args:
        mechanism: with all its parameters.
        population: of votes.
        shares: how many parties' noise is in a sum; None for the honest ones that the mechanism
            counts on. For a mechanism over noisy sums.

    Raises:
        UsageError: for a mechanism whose answers depend on more than the votes.
    """
    votes, labels = population.votes, population.labels
    if isinstance(mechanism, DistributedGNMax | DistributedConfidentGNMax):
        number = mechanism.honest if shares is None else shares
        law = gaussian_law(total_sigma(mechanism.share, number))
        if isinstance(mechanism, DistributedGNMax):
            return Prospect(np.ones(len(votes)), chance_of_label(votes, labels, law))
        threshold = np.array([mechanism.threshold])
        answered, right = chances_of_one_view(votes, labels, threshold, law)
        return Prospect(answered[0], right[0])
    if isinstance(mechanism, LNMax):
        right = chance_of_label(votes, labels, laplace_law(mechanism.scale))
        return Prospect(np.ones(len(votes)), right)
    if isinstance(mechanism, GNMax):
        right = chance_of_label(votes, labels, gaussian_law(mechanism.sigma))
        return Prospect(np.ones(len(votes)), right)
    if isinstance(mechanism, ConfidentGNMax):
        passed = chance_passed(votes, mechanism.threshold, gaussian_law(mechanism.sigma1))
        right = chance_of_label(votes, labels, gaussian_law(mechanism.sigma2))
        return Prospect(passed, passed * right)
    raise UsageError(
        f"what {mechanism.name} answers depends on the student: plan the first round, "
        f"which is confident-gnmax with a share of the budget"
    )


def check_and_label(mechanism: Mechanism) -> tuple[tuple[Event, ...], tuple[Event, ...]]:
    """Return the events that every query costs, and those that an answer costs on top.

    A noisy sum costs what it costs with an answer or without: it is among the latter, and every
    query counts as answered.
    """
    return mechanism.worst[:-1], mechanism.worst[-1:]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What may be expected of a mechanism and a budget, and what is guaranteed.

    Attributes:
        mechanism: with all its parameters.
        queries: unlabelled queries that there are.
        delta: at which each epsilon holds.
        composition: in which the filter counts.
        limit: what these queries may cost in all, in that composition.
        cap: what the whole campaign may cost; more than ``limit`` if other rounds follow.
        epsilon: the guarantee: what ``cap`` is worth, whatever the votes are.
        asked: expected number of queries asked before the budget or the queries end.
        answered: expected number of labels.
        right: expected number of labels that are right.
        accuracy: expected share of right ones among the labels; None if there are none.
        accuracy_error: one standard error of it, from the size of the population.
        answered_error: the same of ``answered``, at ``asked`` queries.
        expected_epsilons: by composition, what the expected cost is worth. A description of a
            typical run, not a guarantee.
        worst_answered: labels if every query were answered.
        worst_epsilons: by composition, what those would cost.
        histogram_epsilon: what all queries that may be asked would cost towards a server that saw
            one noisy histogram of each, with noise sigma2, for check and label together; None
            for LNMax. With noise shares it is what the server does see, and guaranteed: of each of
            the ``voted`` queries, with the noise of the honest parties.
        voted: with noise shares, how many queries the parties vote on: what the budget pays for,
            and no more, since each shows the server a noisy histogram. Else all.
        survivors: with noise shares, whose noise is in the sums. The expectations are those with
            most of it, when nobody drops out.
        with_fewest: expected accuracy with the least noise, when as many drop out as may.
    """

    mechanism: Mechanism
    queries: int
    delta: float
    composition: str
    limit: Fraction
    cap: Fraction
    epsilon: float
    asked: float
    answered: float
    right: float
    accuracy: float | None
    accuracy_error: float | None
    answered_error: float
    expected_epsilons: Mapping[str, float]
    worst_answered: int
    worst_epsilons: Mapping[str, float]
    histogram_epsilon: float | None
    voted: int
    survivors: Survivors | None = None
    with_fewest: float | None = None


def make_plan(
    mechanism: Mechanism,
    population: Population,
    *,
    queries: int,
    delta: float,
    cap: Fraction | None = None,
    rounds: int = 1,
    share: Fraction = Fraction(1),
    survivors: Survivors | None = None,
) -> Plan:
    """Return what may be expected of a mechanism.

    >>> from pate.planning.population import proxy_population
    >>> public = proxy_population(np.array([[200, 50]] * 3))
    >>> plan = make_plan(GNMax(Fraction(40), 1), public, queries=100, delta=1e-5)
    >>> round(plan.epsilon, 3), plan.composition, plan.answered
    (1.357, 'gdp', 100.0)

    Args:
        mechanism: of the round; for the first of several rounds, that one's.
        population: which the queries are drawn from.
        queries: how many there are.
        delta: at which to state each epsilon.
        cap: budget in the tightest composition of the mechanism; None for all that can be spent.
        rounds: of the campaign, in each of which all queries may be asked; the plan is of the
            first.
        share: of the cap that the first of several rounds may spend.
        survivors: whose noise is in the sums, for a mechanism over noisy sums, and only for one.

    Raises:
        UsageError: for a mechanism that cannot be planned, or a number of queries of no sense.
        BudgetError: if not a single query fits.
    """
    if not 1 <= queries <= _MOST_QUERIES:
        raise UsageError(f"a plan needs from 1 to {_MOST_QUERIES} queries, got {queries}")
    if (survivors is not None) != mechanism.noise_inside:
        raise UsageError(
            "a plan says whose noise is in the sums if, and only if, it is noise shares"
        )
    composition = tightest(mechanism.worst)
    worst = total_cost(composition, mechanism.worst)
    most = rounds * queries * worst
    cap = most if cap is None else min(cap, most)
    limit = cap * share if rounds > 1 else cap
    if worst > limit:
        raise BudgetError(
            f"one answer may cost epsilon {composition.epsilon(worst, delta):.3g} at delta "
            f"{delta:g}, more than there is: use more teachers, more noise, or a larger budget"
        )
    seen = prospect(mechanism, population, shares=None if survivors is None else survivors.most)
    checks, labels = check_and_label(mechanism)
    check, label = total_cost(composition, checks), total_cost(composition, labels)
    pays = 1.0 if mechanism.noise_inside else seen.answer
    asked = expected_asked(queries, pays, check, label, limit)
    fits = min(queries, limit // worst)
    voted, histogram = queries, None
    if mechanism.noise_inside:
        voted = min(queries, cap // worst)
        histogram = composition.epsilon(voted * worst, delta)
    elif isinstance(labels[0], GaussianMax):
        # A vector costs what its arg max costs.
        seen_by_server = queries if check == 0 else min(queries, (limit - worst) // check + 1)
        alone = tightest(labels)
        histogram = alone.epsilon(seen_by_server * total_cost(alone, labels), delta)
    return Plan(
        mechanism=mechanism,
        queries=queries,
        delta=delta,
        composition=composition.name,
        limit=limit,
        cap=cap,
        epsilon=composition.epsilon(cap, delta),
        asked=asked,
        answered=asked * seen.answer,
        right=asked * float(seen.right.mean()),
        accuracy=seen.accuracy,
        accuracy_error=seen.accuracy_error,
        answered_error=asked * seen.answer_error,
        expected_epsilons=_epsilons(mechanism, asked, asked * pays, delta),
        worst_answered=fits,
        worst_epsilons=_epsilons(mechanism, fits, fits, delta),
        histogram_epsilon=histogram,
        voted=voted,
        survivors=survivors,
        with_fewest=None
        if survivors is None
        else prospect(mechanism, population, shares=survivors.fewest).accuracy,
    )


def _epsilons(mechanism: Mechanism, asked: float, paid: float, delta: float) -> Mapping[str, float]:
    """Return by composition what checks of ``asked`` queries and labels of ``paid`` are worth."""
    checks, labels = check_and_label(mechanism)
    found = {}
    for each in COMPOSITIONS:
        if all(each.supports(event) for event in mechanism.worst):
            cost = Fraction(asked) * total_cost(each, checks)
            found[each.name] = each.epsilon(cost + Fraction(paid) * total_cost(each, labels), delta)
    return found
