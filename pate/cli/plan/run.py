"""From the options of ``pate plan`` to its report. Defaults are the server's, from its own code."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.accounting.composition import tightest
from pate.accounting.conversion import check_delta
from pate.campaign.options import MechanismOptions
from pate.campaign.parameters import PARAMETERS
from pate.campaign.settings import spec_of
from pate.campaign.terms import resolve
from pate.cli.plan.figures import PlanReport
from pate.cli.plan.picture import draw
from pate.data.values import Table
from pate.data.votes_file import read_label_vector, read_vote_matrix
from pate.errors import BudgetError, UsageError
from pate.planning.plans import Campaign, Planned, make_plan
from pate.planning.population import MOST_TEACHERS, assumed_population, proxy_population
from pate.planning.search import Goal, Search

if TYPE_CHECKING:
    from pathlib import Path

    from pate.campaign.spec import CampaignSpec
    from pate.cli.plan.options import PlanRequest
    from pate.mechanisms import Mechanism
    from pate.planning.plans import Plan
    from pate.planning.population import Population
    from pate.runtime.screen import Screen

#: Of the accuracy without noise: the floor of the search, if none was asked for.
_FLOOR: Final = 0.9
#: Options of assumptions.
_ASSUMED: Final = ("agreement", "spread", "rival")


def run_plan(request: PlanRequest, screen: Screen) -> PlanReport:
    """Return what a campaign may be expected to give and cost.

    Raises:
        UsageError: for options that make no sense together.
        DataError: for a proxy that cannot be read.
        BudgetError: if not a single label fits the budget, whatever the settings.
    """
    # Everything that can be wrong with what was typed is found before the work begins.
    check_delta(request.delta)
    spec = _spec(request)
    population = _population(request)
    votes_per_unit = _votes_per_unit(request, population.teachers)
    campaign = Campaign(
        queries=request.queries,
        delta=request.delta,
        rounds=spec.rounds,
        part=spec.first_round_share if spec.interactive else Fraction(1),
        most=spec.wanted_parties if spec.sums.distributed else None,
        fewest=spec.sums.min_parties if spec.sums.distributed else None,
    )
    usual = resolve(spec, population.teachers, votes_per_unit)[0]

    def planned(mechanism: Mechanism, epsilon: float | None) -> Plan:
        cap = None
        if epsilon is not None:
            cap = tightest(mechanism.worst).budget(epsilon, request.delta)
        return make_plan(mechanism, population, campaign, cap)

    plans: dict[str, Plan | None] = {"given": None, "best": None}
    notes: list[str] = []
    try:
        plans["given"] = given = planned(usual, request.epsilon)
    except BudgetError as error:
        given = None
        notes.append(f"with these settings nothing can be answered: {error}")
    search: Search | None = None
    target = request.epsilon or (given.epsilon if given is not None and request.png else None)
    if target is not None and isinstance(usual, Planned):
        with screen.bar("looking at settings") as bar:
            goal = _goal(request, population)
            search = Search(usual, population, campaign, target, goal, bar)
        if (best := search.best(target, goal)) is not None:
            plans["best"] = planned(best.at.mechanism, target)
        else:
            notes.append(f"no settings were found that give {goal} at this budget")
    if not any(plans.values()):
        raise BudgetError(
            f"{'; '.join(notes)}; use more teachers, a larger budget, or ask for less"
        )
    report = PlanReport(
        request=request,
        spec=spec,
        population=population,
        votes_per_unit=votes_per_unit,
        plans=plans,
        search=search,
        notes=tuple(notes),
    )
    if request.png is not None and search is not None:
        draw(request.png, report, search)
    return report


def _goal(request: PlanRequest, population: Population) -> Goal:
    if request.at_least is not None:
        return Goal(request.least_accuracy or 0.0, request.at_least)
    usual = _FLOOR * population.plurality_accuracy
    return Goal(usual if request.least_accuracy is None else request.least_accuracy)


def _spec(request: PlanRequest) -> CampaignSpec:
    """Return the campaign that a server would make of the same options."""
    if request.mechanism == "neighbour":
        raise UsageError("neighbour votes have no teachers to plan: use `pate plan-neighbour`")
    for name in ("threshold", "sigma1", "sigma2", "scale"):
        if name not in PARAMETERS.get(request.mechanism, (name,)):
            _refuse(request, (name,), f"has no meaning for {request.mechanism}: leave it out")
    if request.mechanism != "interactive-gnmax" and request.first_round_share != "1/2":
        raise UsageError("--first-round-share is for interactive-gnmax")
    if request.noise != "distributed":
        _refuse(request, ("min_parties", "colluders"), "is for --noise distributed")
    elif request.parties is None:
        raise UsageError("--noise distributed needs --parties: each of them adds a share")
    asked = MechanismOptions(
        campaign="plan",
        aggregator=request.mechanism,
        parties=str(request.parties or 1),
        min_parties=request.min_parties,
        epsilon=1.0 if request.epsilon is None else request.epsilon,
        delta=request.delta,
        unit=request.unit,
        first_round_share=request.first_round_share,
        threshold=request.threshold,
        sigma1=request.sigma1,
        sigma2=request.sigma2,
        scale=request.scale,
        aggregation="masked" if request.noise == "distributed" else "plain",
        noise=request.noise,
        colluders=request.colluders,
    )
    made = spec_of(asked, Table(("input",), (np.zeros(1),)))  # how many there are is set below
    return replace(made, queries=request.queries)


def _refuse(request: PlanRequest, options: tuple[str, ...], why: str) -> None:
    for option in options:
        if getattr(request, option) is not None:
            raise UsageError(f"--{option.replace('_', '-')} {why}")


def _population(request: PlanRequest) -> Population:
    """Return the votes that are expected, drawn under the assumptions or read from a proxy."""
    if request.proxy_votes is not None:
        _refuse(request, _ASSUMED, "is an assumption, --proxy-votes takes its place")
        return _proxy(request, request.proxy_votes)
    if request.proxy_labels is not None:
        raise UsageError("--proxy-labels needs --proxy-votes")
    if request.teachers is None:
        raise UsageError("say how many teachers all parties have together: --teachers")
    given = {name: getattr(request, name) for name in ("classes", *_ASSUMED)}
    assumed = {name: value for name, value in given.items() if value is not None}
    return assumed_population(teachers=request.teachers, **assumed)


def _proxy(request: PlanRequest, path: Path) -> Population:
    votes = read_vote_matrix(path)
    teachers, classes = int(votes[0].sum()), votes.shape[1]
    if teachers > MOST_TEACHERS:
        raise UsageError(f"{path} has more than {MOST_TEACHERS} votes in a query")
    for option, wanted, found, what in (
        ("--teachers", request.teachers, teachers, "votes in every query"),
        ("--classes", request.classes, classes, "classes"),
    ):
        if wanted not in (None, found):
            raise UsageError(
                f"{path} has {found} {what}, not {wanted}: leave {option} out, or use another proxy"
            )
    labels = None
    if request.proxy_labels is not None:
        labels = read_label_vector(request.proxy_labels, queries=len(votes), classes=classes)
    return proxy_population(votes, labels)


def _votes_per_unit(request: PlanRequest, teachers: int) -> int:
    """Return k, as the server counts it: one, or the most teachers that a party has."""
    made = request.votes_per_unit
    if teachers < (request.parties or 1):
        raise UsageError(
            f"{request.parties} parties have a teacher each or more, here are {teachers}: --teachers "
            "counts those of all parties together"
        )
    if request.unit != "party":
        if made not in (None, 1):
            raise UsageError(
                f"a {request.unit} is in one shard of one teacher: --votes-per-unit is for --unit party"
            )
        return 1
    if made is None:
        if request.parties is None:
            raise UsageError(
                "--unit party needs --parties, or --votes-per-unit for the largest party"
            )
        made = -(-teachers // request.parties)
    if made > teachers:
        raise UsageError(f"a party cannot have {made} of {teachers} teachers")
    return made
