"""From the options of ``pate plan`` to its report. Defaults are the server's, from its own code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

from aggregator_server.settings import exact
from aggregator_server.spec import PARAMETERS, CampaignSpec
from aggregator_server.terms import budget, composition_of, resolve
from pate.accounting.composition import tightest
from pate.accounting.conversion import check_delta
from pate.commands.plan.figures import Findings, PlanReport
from pate.commands.plan.picture import draw
from pate.data.votes_file import read_label_vector, read_vote_matrix
from pate.errors import BudgetError, UsageError
from pate.masking.context import most_colluders, threshold_for
from pate.planning.plans import Survivors, make_plan
from pate.planning.population import MOST_TEACHERS, assumed_population, proxy_population
from pate.planning.search import Goal, Search
from pate.planning.survey import LOOK, Scene

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pate.planning.plans import Plan
    from pate.planning.population import Population
    from pate.planning.survey import Kind
    from pate.runtime.screen import Screen

#: Of the accuracy without noise: the floor of the search, if none was asked for.
FLOOR = 0.9
#: The same for the curves of a frontier.
_LEVELS = (0.8, 0.9, 0.97)
#: Budgets of a frontier: a quarter of the wanted one to four times it.
_BUDGETS = tuple(2.0 ** (step / 4) for step in range(-8, 9))
_TRADES = 33


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What was typed; each field is the option of that name.

    Attributes:
        settings: text of each parameter of the mechanism, or None.
    """

    teachers: int | None
    parties: int | None
    teachers_each: int | None
    classes: int | None
    agreement: float | None
    spread: float | None
    rival: float | None
    mechanism: str
    noise: str
    min_parties: int | None
    colluders: int | None
    settings: Mapping[str, str | None]
    queries: int
    epsilon: float | None
    delta: float
    unit: str
    votes_per_unit: int | None
    at_least: int | None
    least_accuracy: float | None
    first_round_share: str
    proxy_votes: Path | None
    proxy_labels: Path | None
    histograms: int
    seed: int
    png: Path | None


def run_plan(wish: Wish, screen: Screen) -> PlanReport:
    """Return what a campaign may be expected to give and cost.

    Raises:
        UsageError: for options that make no sense together.
        DataError: for a proxy that cannot be read.
        BudgetError: if not a single label fits the budget, whatever the settings.
    """
    # Everything that can be wrong with what was typed is found before the work begins.
    check_delta(wish.delta)
    if wish.mechanism == "neighbour":
        raise UsageError("neighbour votes have no teachers to plan: use `pate plan-neighbour`")
    spec = _spec(wish)
    teachers = _teachers(wish)
    population, assumptions = _population(wish, teachers)
    votes_per_unit = _votes_per_unit(wish, population.teachers)
    survivors = Survivors(spec.wanted_parties, spec.min_parties) if spec.distributed else None
    mechanisms = resolve(spec, population.teachers, votes_per_unit)
    plans: dict[str, Plan | None] = {"given": None, "best": None}
    notes: list[str] = []
    try:
        plans["given"] = make_plan(
            mechanisms[0],
            population,
            queries=wish.queries,
            delta=wish.delta,
            cap=budget(spec, mechanisms, composition_of(spec, mechanisms))
            if wish.epsilon
            else None,
            rounds=spec.rounds,
            share=spec.first_round_share,
            survivors=survivors,
        )
    except BudgetError as error:
        notes.append(f"with these settings nothing can be answered: {error}")
    findings: Findings | None = None
    given = plans["given"]
    target = wish.epsilon or (given.epsilon if given is not None and wish.png else None)
    if target is not None:
        scene = Scene(
            kind=cast("Kind", mechanisms[0].name.removeprefix("distributed-")),
            queries=wish.queries,
            delta=wish.delta,
            votes_per_unit=votes_per_unit,
            rounds=spec.rounds,
            share=spec.first_round_share,
            honest=spec.honest if spec.distributed else None,
            survivors=survivors,
        )
        plans["best"], findings = _searched(wish, population, scene, target, screen)
        if plans["best"] is None:
            notes.append(f"no settings were found that give {findings.goal} at this budget")
    if given is None and plans["best"] is None:
        raise BudgetError(
            f"{'; '.join(notes)}; use more teachers, a larger budget, or ask for less"
        )
    report = PlanReport(
        plans=plans,
        given_is="as given" if any(wish.settings.values()) else "server's defaults",
        findings=findings,
        wanted=wish.epsilon,
        aggregator=wish.mechanism,
        delta=wish.delta,
        unit=wish.unit,
        votes_per_unit=votes_per_unit,
        population=population,
        assumptions=assumptions,
        parties=wish.parties,
        noise=wish.noise,
        min_parties=spec.min_parties if spec.distributed else None,
        colluders=spec.colluders if spec.distributed else None,
        notes=tuple(notes),
        files={} if wish.png is None else {"picture": str(wish.png)},
    )
    if wish.png is not None and findings is not None:
        draw(wish.png, report, findings)
    return report


def _spec(wish: Wish) -> CampaignSpec:
    """Return the campaign that a server would be asked for; ids and names do not matter here."""
    known = PARAMETERS.get(wish.mechanism, ())
    fractions = {
        name: None if text is None else exact(name, text) for name, text in wish.settings.items()
    }
    if wish.mechanism in PARAMETERS and (
        odd := [name for name, value in fractions.items() if value and name not in known]
    ):
        raise UsageError(f"--{odd[0]} has no meaning for {wish.mechanism}: leave it out")
    interactive = wish.mechanism == "interactive-gnmax"
    if not interactive and wish.first_round_share != "1/2":
        raise UsageError("--first-round-share is for interactive-gnmax")
    fewest, colluders = _fewest_and_colluders(wish)
    return CampaignSpec(
        name="plan",
        id="0" * 32,
        aggregator=wish.mechanism,
        parties=wish.parties or 1,
        min_parties=fewest,
        aggregation="plain" if wish.noise == "central" else "masked",
        noise=wish.noise,
        colluders=colluders,
        public_set="0" * 64,
        queries=wish.queries,
        schema="plan",
        epsilon=1.0 if wish.epsilon is None else wish.epsilon,
        delta=wish.delta,
        unit=wish.unit,
        rounds=2 if interactive else 1,
        first_round_share=exact("first_round_share", wish.first_round_share),
        threshold=fractions["threshold"],
        sigma1=fractions["sigma1"],
        sigma2=fractions["sigma2"],
        scale=fractions["scale"],
    )


def _fewest_and_colluders(wish: Wish) -> tuple[int, int]:
    """Return t and c of a campaign with noise shares, as the server has them; else 1 and 0."""
    if wish.noise != "distributed":
        for option in ("min_parties", "colluders"):
            if getattr(wish, option) is not None:
                raise UsageError(f"--{option.replace('_', '-')} is for --noise distributed")
        return 1, 0
    if wish.parties is None:
        raise UsageError("--noise distributed needs --parties: each of them adds a share")
    n, fewest = wish.parties, wish.min_parties
    if fewest is None:
        return threshold_for(n, wish.colluders)
    if wish.colluders is not None:
        return fewest, wish.colluders
    return fewest, most_colluders(n, fewest)


def _teachers(wish: Wish) -> int | None:
    if wish.teachers_each is None:
        return wish.teachers
    if wish.parties is None:
        raise UsageError("--teachers-each needs --parties")
    made = wish.parties * wish.teachers_each
    if wish.teachers not in (None, made):
        raise UsageError(
            f"{wish.parties} parties of {wish.teachers_each} have {made} teachers, "
            f"--teachers says {wish.teachers}: leave one out"
        )
    return made


def _population(wish: Wish, teachers: int | None) -> tuple[Population, dict[str, float]]:
    """Return the population, and the assumptions that it was drawn under."""
    if wish.proxy_votes is not None:
        for option in ("agreement", "spread", "rival"):
            if getattr(wish, option) is not None:
                raise UsageError(f"--{option} is an assumption, --proxy-votes takes its place")
        votes = read_vote_matrix(wish.proxy_votes)
        if votes[0].sum() > MOST_TEACHERS:
            raise UsageError(f"{wish.proxy_votes} has more than {MOST_TEACHERS} votes in a query")
        if teachers not in (None, int(votes[0].sum())):
            raise UsageError(
                f"{wish.proxy_votes} has {votes[0].sum()} votes in every query, "
                f"the plan is for {teachers} teachers: leave --teachers out, or use another proxy"
            )
        if wish.classes not in (None, votes.shape[1]):
            raise UsageError(
                f"{wish.proxy_votes} has {votes.shape[1]} classes, not {wish.classes}: "
                "leave --classes out, or use another proxy"
            )
        labels = None
        if wish.proxy_labels is not None:
            labels = read_label_vector(
                wish.proxy_labels, queries=len(votes), classes=votes.shape[1]
            )
        return proxy_population(votes, labels), {}
    if wish.proxy_labels is not None:
        raise UsageError("--proxy-labels needs --proxy-votes")
    if teachers is None:
        raise UsageError("say how many: --teachers, or --parties and --teachers-each")
    population = assumed_population(
        np.random.default_rng(wish.seed),
        teachers=teachers,
        classes=10 if wish.classes is None else wish.classes,
        agreement=0.85 if wish.agreement is None else wish.agreement,
        spread=wish.spread,
        rival=0.5 if wish.rival is None else wish.rival,
        size=wish.histograms,
    )
    agreement = 0.85 if wish.agreement is None else wish.agreement
    largest = (agreement * (1.0 - agreement)) ** 0.5
    return population, {
        "agreement": agreement,
        "spread": largest / 2.0 if wish.spread is None else wish.spread,
        "rival": 0.5 if wish.rival is None else wish.rival,
        "seed": wish.seed,
    }


def _votes_per_unit(wish: Wish, teachers: int) -> int:
    """Return k, as the server counts it: one, or the most teachers that a party has."""
    if wish.unit != "party":
        if wish.votes_per_unit not in (None, 1):
            raise UsageError(
                f"a {wish.unit} is in one shard of one teacher: --votes-per-unit is for --unit party"
            )
        return 1
    each = wish.teachers_each
    if each is None and wish.parties is not None:
        each = -(-teachers // wish.parties)
    made = wish.votes_per_unit if wish.votes_per_unit is not None else each
    if made is None:
        raise UsageError("--unit party needs --parties, or --votes-per-unit for the largest party")
    if made > teachers:
        raise UsageError(f"a party cannot have {made} of {teachers} teachers")
    return made


def _searched(
    wish: Wish, population: Population, scene: Scene, epsilon: float, screen: Screen
) -> tuple[Plan | None, Findings]:
    """Return the best plan for a budget, and what other budgets and accuracies would give."""
    full = population.plurality_accuracy
    if wish.at_least is not None:
        goal = Goal(at_least=wish.at_least, least_accuracy=wish.least_accuracy or 0.0)
        words = f"the most accurate labels, {wish.at_least} of them or more"
        if wish.least_accuracy is not None:
            words += f", at an accuracy of {100 * wish.least_accuracy:.1f} % or more"
    else:
        floor = FLOOR * full if wish.least_accuracy is None else wish.least_accuracy
        goal = Goal(least_accuracy=floor)
        words = f"the most right labels at an accuracy of {100 * floor:.1f} % or more"
    with screen.bar("looking at settings") as progress:
        search = Search(
            population, scene, epsilon, goal, largest=epsilon * _BUDGETS[-1], progress=progress
        )
    best = search.best(epsilon, goal)
    plan = None
    if best is not None:
        composition = tightest(best.mechanism.worst)
        plan = make_plan(
            best.mechanism,
            population,
            queries=wish.queries,
            delta=wish.delta,
            cap=composition.budget(epsilon, wish.delta),
            rounds=scene.rounds,
            share=scene.share,
            survivors=scene.survivors,
        )
    levels = [round(full * level, 2) for level in _LEVELS]
    return plan, Findings(
        epsilon=epsilon,
        goal=words,
        looked_at=min(len(population), LOOK[scene.kind]),
        frontiers={
            level: search.frontier(
                [epsilon * step for step in _BUDGETS], Goal(least_accuracy=level)
            )
            for level in levels
        },
        trade=search.trade(epsilon, np.linspace(0.5 * full, 0.999, _TRADES).tolist()),
    )
