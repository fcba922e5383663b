"""A plan: expected utility and guaranteed privacy of a mechanism's settings.

A plan describes a mechanism on queries drawn independently from a population of vote histograms:
expected answers, expected accuracy, and the privacy guarantee, which holds in any case.

The guarantee of a plan depends on no votes; its expectations are only as good as the population. A
population of private votes would leak through the choice of settings.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Final, Self

import numpy as np

from pate.accounting.composition import tightest, too_dear, total_cost
from pate.answers import CLASS
from pate.campaign.defaults import CLASSES
from pate.campaign.terms import matrix_mechanism
from pate.codes import AXES, code_of
from pate.errors import UsageError
from pate.mechanisms import (
    ConfidentGNMax,
    DistributedConfidentGNMax,
    DistributedGNMax,
    DistributedTeachers,
    GNMax,
    LNMax,
    Mechanism,
)
from pate.noise.shares import total_sigma
from pate.planning.chances import chances, expected_asked, gaussian_law, laplace_law
from pate.planning.records import law_of

if TYPE_CHECKING:
    from pate.accounting.arrays import Floats
    from pate.accounting.composition import Composition
    from pate.campaign.spec import CampaignSpec
    from pate.mechanisms import MatrixMechanism
    from pate.planning.chances import Check, Integers, NoiseLaw
    from pate.planning.population import Population

#: The mechanisms whose answers depend only on the votes.
Planned = LNMax | GNMax | ConfidentGNMax | DistributedGNMax | DistributedConfidentGNMax
#: Most queries of a plan.
_MOST_QUERIES: Final = 10**6
#: Of a query in one release, the classes with most votes that may lead clearly: others hardly ever do.
_LEADING: Final = 4


@dataclass(frozen=True, kw_only=True)
class Campaign:
    """A campaign's settings other than its mechanism."""

    queries: int
    delta: float
    rounds: int = 1  # number of rounds, each of which may ask all queries; a plan is of the first
    # of the budget that the first round may spend; below 1 if there are others
    part: Fraction = Fraction(1)
    # noise shares in a sum if no party drops out; None if the server draws the noise
    most: int | None = None
    fewest: int | None = None  # noise shares in any sum, t; None likewise

    def __post_init__(self) -> None:
        if not 1 <= self.queries <= _MOST_QUERIES:
            raise UsageError(f"a plan needs from 1 to {_MOST_QUERIES} queries, got {self.queries}")
        if self.rounds < 1 or not 0 < self.part <= 1:
            raise UsageError("a plan needs a round, and a share of the budget up to 1")
        if not (self.most is self.fewest is None or 1 <= (self.fewest or 0) <= (self.most or 0)):
            raise UsageError(f"of {self.most} parties {self.fewest} cannot be the fewest in a sum")

    @classmethod
    def of(cls, spec: CampaignSpec) -> Self:
        """Return the settings of a campaign of teachers."""
        return cls(
            queries=min(spec.queries, spec.max_queries or spec.queries),
            delta=spec.delta,
            rounds=spec.rounds,
            part=spec.first_round_share if spec.interactive else Fraction(1),
            most=spec.wanted_parties if spec.sums.distributed else None,
            fewest=spec.sums.min_parties if spec.sums.distributed else None,
        )

    def limits(self, worst: Fraction, cap: Fraction | None) -> tuple[Fraction, Fraction]:
        """Return the budgets of the campaign, whose cap may be None, and of the planned round."""
        most = self.rounds * self.queries * worst
        cap = most if cap is None else min(cap, most)
        return cap, cap * self.part


def settings_of(mechanism: Mechanism) -> dict[str, Fraction | int]:
    """Return the parameters by option; with shares ``sigma2`` is of the honest ones together."""
    names = ("threshold", "sigma1", "sigma2", "scale")
    made = {name: getattr(mechanism, name) for name in names if hasattr(mechanism, name)}
    if isinstance(mechanism, GNMax):
        made["sigma2"] = mechanism.sigma
    if isinstance(mechanism, DistributedTeachers):
        made["sigma2"] = total_sigma(mechanism.share, mechanism.honest)
    return made


def laws_of(mechanism: Mechanism, shares: int | None = None) -> tuple[NoiseLaw, Check]:
    """Return the law of the noise on each count, and the check before a label.

    ``shares``: noise shares in a sum; None for the honest ones that the mechanism relies on.
    """
    if not isinstance(mechanism, Planned):
        raise UsageError(
            f"what {mechanism.name} answers depends on more than votes, such as the student: plan "
            "the first round, which is confident-gnmax with a share of the budget"
        )
    given = settings_of(mechanism)
    if "scale" in given:
        return laplace_law(Fraction(given["scale"])), (None, None)
    sigma2 = Fraction(given["sigma2"])
    if isinstance(mechanism, DistributedTeachers) and shares is not None:
        sigma2 = total_sigma(mechanism.share, shares)
    own = gaussian_law(Fraction(given["sigma1"])) if "sigma1" in given else None
    return gaussian_law(sigma2), (own, int(given["threshold"]) if "threshold" in given else None)


def costs_of(mechanism: Mechanism) -> tuple[Composition, Fraction, Fraction]:
    """Return the tightest composition, the cost of every query, and an answer's additional cost.

    A noisy sum costs the same with an answer or without: then the whole cost is the additional one, and
    every query counts as answered.
    """
    *checks, label = mechanism.worst
    composition = tightest(mechanism.worst)
    return composition, total_cost(composition, checks), composition.cost(label)


@dataclass(frozen=True, eq=False)
class Prospect:
    """A mechanism's outcome probabilities for each query of a population."""

    answered: Floats  # (queries,) P[a label is released]
    right: Floats  # (queries,) P[a label is released, and equals the query's label]

    @classmethod
    def of(
        cls, mechanism: Mechanism, population: Population, *, shares: int | None = None
    ) -> Prospect:
        """Return the outcome probabilities of a mechanism; see :func:`laws_of`."""
        law, check = laws_of(mechanism, shares)
        answered, right = chances(population.votes, population.labels, law, [check])
        return cls(answered[0], right[0])

    @classmethod
    def of_counts(cls, mechanism: MatrixMechanism, population: Population, adding: int) -> Prospect:
        """Return the same of noisy counts in one release: a label is a class that leads clearly."""
        votes, labels = population.votes, population.labels
        law = law_of(mechanism.shares, adding)

        def leads(place: Integers) -> Floats:
            found: Floats = chances(votes, place, law, [(None, None)], mechanism.threshold)[1][0]
            return found

        right = leads(labels)
        most = np.argsort(-votes, axis=1, kind="stable")[:, :_LEADING]
        wrong = [np.where(place == labels, 0.0, leads(place)) for place in most.T]
        return cls(np.minimum(right + np.sum(wrong, axis=0), 1.0), right)

    @property
    def answer(self) -> float:
        """P[answer] of a query drawn from the population."""
        return min(1.0, float(self.answered.mean()))

    @property
    def accuracy(self) -> float | None:
        """P[right, given an answer], or None if no query is ever answered."""
        total = float(self.answered.sum())
        return float(self.right.sum()) / total if total > 0.0 else None

    @property
    def accuracy_error(self) -> float | None:
        """One standard error of ``accuracy``, since the queries of the population are a sample."""
        if self.accuracy is None:
            return None
        residuals = self.right - self.accuracy * self.answered
        return float(np.sqrt(np.mean(residuals**2) / len(residuals)) / self.answered.mean())

    @property
    def answer_error(self) -> float:
        """One standard error of ``answer``."""
        return float(self.answered.std() / math.sqrt(len(self.answered)))


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Expected utility and guaranteed privacy of a mechanism with a budget."""

    mechanism: Mechanism
    campaign: Campaign
    composition: str  # currency of the filter, and of ``cap`` and ``limit``
    limit: Fraction  # largest total cost of this round's queries
    cap: Fraction  # largest cost of the whole campaign; more than ``limit`` if other rounds follow
    epsilon: float  # the guarantee, converted from ``cap``; it does not depend on the votes
    asked: float  # expected number of queries asked before the budget or the queries end
    answered: float
    right: float  # expected number of labels that are right
    accuracy: float | None  # expected share of right labels; None if there are no labels
    accuracy_error: float | None  # one standard error of it, since the population is a sample
    answered_error: float  # the same of ``answered``, at ``asked`` queries
    # with noise shares, epsilon of all queries voted on towards the server, which sees a noisy
    # histogram of each; guaranteed. Else None
    server_epsilon: float | None
    voted: int  # queries that the parties vote on; with noise shares only what the budget pays for
    # with noise shares, expected accuracy with the fewest of them; the other expectations are with
    # the most. Else None
    with_fewest: float | None


def make_plan(
    mechanism: Mechanism,  # of the round; for the first of several rounds, that one's
    population: Population,
    campaign: Campaign,
    # budget in the tightest composition of the mechanism; None for the worst cost of all queries
    cap: Fraction | None = None,
) -> Plan:
    """Return the plan of a mechanism.

    >>> from pate.planning.population import proxy_population
    >>> public = proxy_population(np.array([[200, 50]] * 3))
    >>> plan = make_plan(GNMax(Fraction(40), 1), public, Campaign(queries=100, delta=1e-5))
    >>> round(plan.epsilon, 3), plan.composition, plan.answered
    (1.357, 'gdp', 100.0)
    """
    queries, delta = campaign.queries, campaign.delta
    if (campaign.most is not None) != mechanism.noise_inside:
        raise UsageError("with noise shares, and only then, a plan says whose noise is in the sums")
    composition, check, label = costs_of(mechanism)
    worst = check + label
    cap, limit = campaign.limits(worst, cap)
    if worst > limit:
        whose = "budget" if campaign.part == 1 else "first round's budget"
        there = composition.epsilon(limit, delta)
        raise too_dear(composition, worst, delta, there, "answer", whose)
    seen = Prospect.of(mechanism, population, shares=campaign.most)
    pays = 1.0 if mechanism.noise_inside else seen.answer
    asked = expected_asked(queries, pays, check, label, limit)
    voted, towards_server, with_fewest = queries, None, None
    if mechanism.noise_inside:
        voted = min(queries, cap // worst)
        towards_server = composition.epsilon(voted * worst, delta)
        with_fewest = Prospect.of(mechanism, population, shares=campaign.fewest).accuracy
    return Plan(
        mechanism=mechanism,
        campaign=campaign,
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
        server_epsilon=towards_server,
        voted=voted,
        with_fewest=with_fewest,
    )


@dataclass(frozen=True, kw_only=True)
class ReleasePlan:
    """What is expected of teachers' votes in one release, which is charged once."""

    mechanism: MatrixMechanism
    teachers: int
    noise: float  # standard deviation on each count if no party drops out, in votes
    # of arrays, how long all noise is, as a share of the sum of teachers that agree; else None
    length: float | None = None
    labels: float | None = (
        None  # expected number; None where no query gets one, and of balanced votes
    )
    accuracy: float | None = None  # expected share of them that are right


def plan_release(
    spec: CampaignSpec,
    teachers: int,
    reached: int,  # teachers of one unit
    classes: int | None,  # None: as many as the specification states, or a guess
    population: Population | None = None,  # of the teachers' votes; None: no labels are expected
) -> ReleasePlan:
    """Return what a campaign whose teachers vote in one release is expected to give."""
    code, mechanism = code_of(spec.code), matrix_mechanism(spec, reached)
    adding = spec.wanted_parties if spec.sums.distributed else 1
    noise = mechanism.shares.spread(adding) / code.grid
    made = ReleasePlan(mechanism=mechanism, teachers=teachers, noise=noise)
    if code.name == AXES:
        columns = classes or len(spec.classes or ()) or CLASSES
        return replace(made, length=noise * math.sqrt(code.places * (columns - 1)) / teachers)
    if population is None or code.answer.name != CLASS:
        return made
    seen = Prospect.of_counts(mechanism, population, adding)
    return replace(made, labels=code.places * seen.answer, accuracy=seen.accuracy)
