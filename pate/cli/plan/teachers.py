"""The plan of a campaign with teachers. Defaults are the server's, from its own code."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pate.accounting.composition import tightest
from pate.campaign.choices import BY_LABEL, check_delta
from pate.campaign.options import MechanismOptions, ParameterOptions, QuorumOptions
from pate.campaign.settings import spec_of
from pate.campaign.terms import budget, composition_of, resolve
from pate.codes import AXES, code_of
from pate.data.values import Table
from pate.errors import BudgetError, UsageError
from pate.formats.privacy_statement import in_words, neighbours_of
from pate.formats.votes_file import read_label_vector, read_vote_matrix
from pate.planning.forecast import labels_for_all, release_in_words, teachers_wanted
from pate.planning.plans import Campaign, Planned, make_plan, plan_release
from pate.planning.population import (
    MOST_TEACHERS,
    assumed_population,
    others_assumed,
    proxy_population,
)
from pate.planning.search import Goal, Search
from pate.runtime.screen import Display

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pate.campaign.spec import CampaignSpec
    from pate.cli.plan.options import PlanOptions
    from pate.mechanisms import Mechanism
    from pate.planning.plans import Plan, ReleasePlan
    from pate.planning.population import Population
    from pate.runtime.screen import Screen

#: Of the accuracy without noise: the floor of the search, if none was asked for, and of what is recommended.
_FLOOR: Final = 0.9
#: Without a budget: with it a server chooses the least noise that it ever chooses.
_ANY: Final = 1e6
#: Defaults: size of the public set; of one release, whose noise depends on both, a server's.
_QUERIES: Final = 1000
_PARTIES, _EPSILON = 3, 2.0
#: Options of assumptions.
_ASSUMED: Final = ("agreement", "spread", "rival")
#: Options that a server has too.
_QUORUM: Final = tuple(each.name for each in fields(QuorumOptions))
_NUMBERS: Final = tuple(each.name for each in fields(ParameterOptions))
#: Options of labels that each cost.
_OF_LABELS: Final = ("at_least", "least_accuracy", "rarest")


@dataclass(frozen=True, kw_only=True, eq=False)
class PlanReport:
    """A plan in numbers."""

    options: PlanOptions
    spec: CampaignSpec  # the campaign that a server would have of it
    population: Population
    votes_per_unit: int
    # ``given`` (what was typed, the rest as the server has it), ``best`` (what was found) and
    # ``enough`` (the most accurate of that many labels); None where there is none
    plans: Mapping[str, Plan | None]
    enough: int  # number of labels sufficient for all classes, at most the size of the public set
    floor: float  # accuracy below which labels are taken for noise
    search: Search | None  # for the best settings, or None if there was none
    notes: tuple[str, ...]
    # what the plans give by other assumptions that are as likely; none for a proxy
    others: Mapping[str, tuple[Plan, ...]]

    @property
    def headings(self) -> dict[str, str]:
        """Existing plans, and their titles."""
        asked = self.options
        settings = (asked.threshold, asked.sigma1, asked.sigma2, asked.scale)
        given = "as given" if any(settings) else "server's defaults"
        names = {"given": given, "best": "best found", "enough": f"{self.enough} labels or more"}
        return {key: name for key, name in names.items() if self.plans[key] is not None}

    def is_noise(self, plan: Plan) -> bool:
        """Whether too few of a plan's labels are expected to be right."""
        return plan.accuracy is None or plan.accuracy < self.floor

    @property
    def title(self) -> str:
        """One line about the planned campaign."""
        parties = "" if self.options.parties is None else f" at {self.options.parties} parties"
        shares = ", noise from the parties" if self.spec.sums.distributed else ""
        return (
            f"{self.spec.aggregator}, {self.population.teachers} teachers{parties}, "
            f"{self.population.classes} classes{shares}"
        )

    def between(self, key: str) -> dict[str, tuple[float, float]]:
        """Return from what to what labels and accuracy of one campaign are; empty without other assumptions.

        By all assumptions, and two standard deviations of so many queries and labels beyond.
        """
        others = self.others.get(key, ())
        plans = [each for each in (self.plans[key], *others) if each is not None]
        if not others or not all(each.answered for each in plans):
            return {}
        ends: dict[str, list[float]] = {"answered": [], "accuracy": []}
        for each in plans:
            right = each.accuracy or 0.0
            labels = 2 * math.sqrt(max(0.0, each.answered * (1 - each.answered / each.asked)))
            shares = 2 * math.sqrt(right * (1 - right) / each.answered)
            ends["answered"] += [each.answered - labels, each.answered + labels]
            ends["accuracy"] += [max(0.0, right - shares), min(1.0, right + shares)]
        return {name: (min(values), max(values)) for name, values in ends.items()}

    @property
    def adjective(self) -> str:
        """The definition of an accurate label, in words."""
        return "right" if self.population.meaning == "right" else "agreeing"


def run_plan(options: PlanOptions, screen: Screen) -> PlanReport:
    """Return the expected utility and privacy cost of a campaign."""
    # All invalid options are found before the work begins.
    check_delta(options.delta, records_vote=False)
    spec = _spec(options)
    population = _population(options)
    votes_per_unit = _votes_per_unit(options, population.teachers)
    campaign = Campaign.of(spec)
    usual = resolve(spec, population.teachers, votes_per_unit, population.classes)[0]

    def planned(mechanism: Mechanism, epsilon: float | None) -> Plan:
        cap = None
        if epsilon is not None:
            cap = tightest(mechanism.worst).budget(epsilon, options.delta)
        return make_plan(mechanism, population, campaign, cap)

    plans: dict[str, Plan | None] = dict.fromkeys(("given", "best", "enough"))
    floor = _FLOOR * population.plurality_accuracy
    enough = min(labels_for_all(population.classes, options.rarest), spec.queries)
    notes: list[str] = []
    try:
        plans["given"] = planned(usual, options.epsilon)
    except BudgetError as error:
        notes.append(f"with these settings nothing can be answered: {error}")
    search: Search | None = None
    if (target := options.epsilon) is not None and isinstance(usual, Planned):
        with screen.bar("looking at settings") as bar:
            goal = _goal(options, floor)
            search = Search(usual, population, campaign, target, goal, bar)
        if (best := search.best(target, goal)) is not None:
            plans["best"] = planned(best.at.mechanism, target)
        else:
            notes.append(f"no settings were found that give {goal} at this budget")
        found = None if options.at_least else search.best(target, Goal(at_least=enough))
        if found is not None:
            plans["enough"] = planned(found.at.mechanism, target)
    if not any(plans.values()):
        raise BudgetError(
            f"{'; '.join(notes)}; use more teachers, a larger budget, or ask for less"
        )
    others = {
        key: tuple(
            make_plan(found.mechanism, each, campaign, found.cap) for each in _others(options)
        )
        for key, found in plans.items()
        if found is not None
    }
    return PlanReport(
        options=options,
        spec=spec,
        population=population,
        votes_per_unit=votes_per_unit,
        plans=plans,
        enough=enough,
        floor=floor,
        search=search,
        notes=tuple(notes),
        others=others,
    )


def _goal(options: PlanOptions, floor: float) -> Goal:
    if options.at_least is not None:
        return Goal(options.least_accuracy or 0.0, options.at_least)
    return Goal(floor if options.least_accuracy is None else options.least_accuracy)


def _spec(options: PlanOptions) -> CampaignSpec:
    """Return the campaign that a server would make of the same options."""
    if options.aggregator != "interactive-gnmax" and options.first_round_share != "1/2":
        raise UsageError("--first-round-share is for interactive-gnmax")
    if options.noise != "distributed":
        _refuse(options, _QUORUM, "is for --noise distributed")
    elif options.parties is None:
        raise UsageError("--noise distributed needs --parties: each of them adds a share")
    asked = MechanismOptions(
        campaign="plan",
        aggregator=options.aggregator,
        parties=str(options.parties or 1),
        epsilon=_ANY if options.epsilon is None else options.epsilon,
        delta=options.delta,
        unit=options.unit,
        first_round_share=options.first_round_share,
        aggregation="masked" if options.noise == "distributed" else "plain",
        noise=options.noise,
        **{name: getattr(options, name) for name in (*_QUORUM, *_NUMBERS)},
    )
    made = spec_of(asked, Table(("input",), (np.zeros(1),)))  # how many there are is set below
    return replace(made, queries=options.queries or _QUERIES)


def _refuse(options: PlanOptions, names: tuple[str, ...], why: str) -> None:
    for option in names:
        if getattr(options, option) is not None:
            raise UsageError(f"--{option.replace('_', '-')} {why}")


def _population(options: PlanOptions) -> Population:
    """Return the votes that are expected, drawn under the assumptions or read from a proxy."""
    if options.proxy_votes is not None:
        _refuse(options, _ASSUMED, "is an assumption, --proxy-votes takes its place")
        return _proxy(options, options.proxy_votes)
    if options.proxy_labels is not None:
        raise UsageError("--proxy-labels needs --proxy-votes")
    if options.teachers is None:
        raise UsageError("say how many teachers all parties have together: --teachers")
    return assumed_population(teachers=options.teachers, **_assumptions(options))


def _others(options: PlanOptions) -> list[Population]:
    if options.proxy_votes is not None or options.teachers is None:
        return []
    return others_assumed(teachers=options.teachers, **_assumptions(options))


def _assumptions(options: PlanOptions) -> dict[str, Any]:
    given = {name: getattr(options, name) for name in ("classes", *_ASSUMED)}
    return {name: value for name, value in given.items() if value is not None}


def _proxy(options: PlanOptions, path: Path) -> Population:
    votes = read_vote_matrix(path)
    teachers, classes = int(votes[0].sum()), votes.shape[1]
    if teachers > MOST_TEACHERS:
        raise UsageError(f"{path} has more than {MOST_TEACHERS} votes in a query")
    for option, wanted, found, what in (
        ("--teachers", options.teachers, teachers, "votes in every query"),
        ("--classes", options.classes, classes, "classes"),
    ):
        if wanted not in (None, found):
            raise UsageError(
                f"{path} has {found} {what}, not {wanted}: leave {option} out, or use another proxy"
            )
    labels = None
    if options.proxy_labels is not None:
        labels = read_label_vector(options.proxy_labels, queries=len(votes), classes=classes)
    return proxy_population(votes, labels)


def _votes_per_unit(options: PlanOptions, teachers: int) -> int:
    """Return k, as the server counts it: one, or the most teachers that a party has."""
    made = options.votes_per_unit
    if teachers < (options.parties or 1):
        raise UsageError(
            f"{options.parties} parties have a teacher each or more, here are {teachers}: --teachers "
            "counts those of all parties together"
        )
    if options.unit != "party":
        if made not in (None, 1):
            raise UsageError(
                f"a {options.unit} is in one shard of one teacher: --votes-per-unit is for --unit party"
            )
        return 1
    if made is None:
        if options.parties is None:
            raise UsageError(
                "--unit party needs --parties, or --votes-per-unit for the largest party"
            )
        made = -(-teachers // options.parties)
    if made > teachers:
        raise UsageError(f"a party cannot have {made} of {teachers} teachers")
    return made


@dataclass(frozen=True)
class ReleaseReport:
    """The plan of teachers' votes in one release."""

    spec: CampaignSpec  # the campaign that a server would have of it
    plan: ReleasePlan
    epsilon: float  # the guarantee
    source: str  # what expected labels rest on; empty without

    @classmethod
    def of(cls, options: PlanOptions) -> ReleaseReport:
        """Return the plan of these options."""
        _refuse(options, _OF_LABELS, f"is for --release {BY_LABEL}")
        check_delta(options.delta, records_vote=False)
        queries = options.queries or _QUERIES
        asked = MechanismOptions(
            campaign="plan",
            aggregator=options.aggregator,
            parties=str(options.parties or _PARTIES),
            epsilon=_EPSILON if options.epsilon is None else options.epsilon,
            classes=(
                None
                if options.classes is None
                else ",".join(f"class {at}" for at in range(options.classes))
            ),
            expected_records=options.expected_records,
            **{
                name: getattr(options, name)
                for name in ("release", "delta", "unit", "noise", *_QUORUM, *_NUMBERS)
            },
        )
        spec = spec_of(asked, Table(("input",), (np.arange(queries, dtype=np.float64),)))
        population, source = None, ""
        if code_of(spec.code).name == AXES:
            _refuse(
                options,
                (*_ASSUMED, "proxy_votes", "proxy_labels"),
                "is for labels, which arrays lack",
            )
        elif options.teachers is not None or options.proxy_votes is not None:
            population = _population(options)
            source = "if teachers vote as in the proxy"
            if population.assumptions:
                agreement = population.assumptions["agreement"]
                source = f"if each teacher is right on {100 * agreement:g} % of the inputs"
        teachers = options.teachers or teachers_wanted(spec) * spec.wanted_parties
        if population is not None:
            teachers = population.teachers
        reached = _votes_per_unit(replace(options, parties=spec.wanted_parties), teachers)
        mechanisms = resolve(spec, teachers, reached, options.classes)
        composition = composition_of(spec, mechanisms)
        epsilon = composition.epsilon(budget(spec, mechanisms, composition), spec.delta)
        plan = plan_release(spec, teachers, reached, options.classes, population)
        return cls(spec, plan, epsilon, source)

    @property
    def lines(self) -> list[str]:
        """The plan in words."""
        spec, plan = self.spec, self.plan
        neighbours = neighbours_of(spec.unit, records_vote=False, code=spec.code)
        made = [
            in_words(self.epsilon, spec.delta, spec.unit, neighbours=neighbours),
            release_in_words(spec, plan),
        ]
        if plan.labels is not None:
            right = "" if plan.accuracy is None else f", {100 * plan.accuracy:.1f} % of them right"
            made.append(f"{self.source}, expect {plan.labels:.0f} labels{right}")
        return made

    def show(self) -> None:
        """Print the plan."""
        console = Display()
        for line in self.lines:
            console.print(line, markup=False)

    def to_dict(self) -> dict[str, object]:
        """Return a JSON object."""
        spec, plan = self.spec, self.plan
        return {
            "aggregator": spec.aggregator,
            "code": spec.code,
            "teachers": plan.teachers,
            "parties": spec.wanted_parties,
            "noise": spec.sums.noise,
            "guarantee": {"epsilon": self.epsilon, "delta": spec.delta, "unit": spec.unit},
            "mechanism": plan.mechanism.to_dict(),
            "expected": {
                "noise_on_each_count": plan.noise,
                "noise_to_sum": plan.length,
                "answered": plan.labels,
                "accuracy": plan.accuracy,
            },
            "in_words": self.lines,
        }
