"""What ``pate plan`` shows: a table and a JSON object of the same figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.table import Table as Sheet

from pate.commands.plan.remarks import remarks
from pate.mechanisms import (
    ConfidentGNMax,
    DistributedConfidentGNMax,
    DistributedMechanism,
    GNMax,
    LNMax,
)
from pate.noise_shares import total_sigma
from pate.statement import ADJACENCY, NEIGHBOURS, rounded_up

if TYPE_CHECKING:
    from collections.abc import Mapping
    from fractions import Fraction

    from pate.planning.plans import Plan
    from pate.planning.population import Population
    from pate.planning.search import Frontier

OBSERVER: Final = "public"


@dataclass(frozen=True, eq=False)
class Findings:
    """What a search for settings found.

    Attributes:
        epsilon: the budget of the best plan.
        goal: what was searched for, in words.
        looked_at: queries of the population that were looked at.
        frontiers: by least accuracy of the labels, the most right ones for each of several budgets.
        trade: at ``epsilon``, the most right labels for each of several least accuracies.
    """

    epsilon: float
    goal: str
    looked_at: int
    frontiers: Mapping[float, Frontier]
    trade: Frontier


@dataclass(frozen=True, kw_only=True, eq=False)
class PlanReport:
    """A plan in numbers.

    Attributes:
        plans: ``given`` (what was typed, the rest as the server has it) and ``best`` (what was
            found); None where there is none.
        given_is: heading of the former.
        findings: of the search, or None if there was none.
        wanted: epsilon that was asked for, or None.
        aggregator: name of the mechanism of the campaign.
        delta: at which each epsilon holds.
        unit: what is protected.
        votes_per_unit: k.
        population: what the expectations are made of.
        assumptions: under which it was drawn; empty for a proxy.
        parties: how many, or None if it was not said.
        noise: ``central`` or ``distributed``.
        min_parties: t, with noise shares; else None.
        colluders: c, with noise shares; else None.
        notes: what went wrong, for people.
        files: what was written, by what it is.
    """

    plans: Mapping[str, Plan | None]
    given_is: str
    findings: Findings | None
    wanted: float | None
    aggregator: str
    delta: float
    unit: str
    votes_per_unit: int
    population: Population
    assumptions: Mapping[str, float]
    parties: int | None
    noise: str
    min_parties: int | None
    colluders: int | None
    notes: tuple[str, ...]
    files: Mapping[str, str]

    @property
    def headings(self) -> dict[str, str]:
        """Plans that there are, and what to call them."""
        names = {"given": self.given_is, "best": "best found"}
        return {key: name for key, name in names.items() if self.plans[key] is not None}

    @property
    def title(self) -> str:
        """One line on what was planned."""
        parties = "" if self.parties is None else f" at {self.parties} parties"
        shares = ", noise from the parties" if self.noise == "distributed" else ""
        return (
            f"{self.aggregator}, {self.population.teachers} teachers{parties}, "
            f"{self.population.classes} classes{shares}"
        )

    @property
    def adjective(self) -> str:
        """What an accurate label is."""
        return "right" if self.population.meaning == "right" else "agreeing"

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON object."""
        found = self.findings
        return {
            "aggregator": self.aggregator,
            "teachers": self.population.teachers,
            "parties": self.parties,
            "noise": self.noise,
            "min_parties": self.min_parties,
            "colluders": self.colluders,
            "classes": self.population.classes,
            "delta": self.delta,
            "unit": self.unit,
            "votes_per_unit": self.votes_per_unit,
            "adjacency": ADJACENCY[self.unit],
            "observer": OBSERVER,
            "epsilon_wanted": self.wanted,
            "population": {
                "source": self.population.source,
                "histograms": len(self.population),
                "accuracy_of": self.population.meaning,
                "accuracy_without_noise": self.population.plurality_accuracy,
                "mean_share_of_votes": self.population.agreement,
                "assumptions": dict(self.assumptions),
            },
            "plans": {
                key: None if plan is None else _plan_dict(plan) for key, plan in self.plans.items()
            },
            "search": None
            if found is None
            else {
                "epsilon": found.epsilon,
                "goal": found.goal,
                "looked_at": found.looked_at,
                "frontiers": [
                    {"least_accuracy": level, **_frontier_dict(each)}
                    for level, each in found.frontiers.items()
                ],
                "trade": _frontier_dict(found.trade),
            },
            "notes": [*self.notes, *remarks(self)],
            "files": dict(self.files),
        }


def _plan_dict(plan: Plan) -> dict[str, Any]:
    return {
        "mechanism": plan.mechanism.to_dict(),
        "queries": plan.queries,
        "guarantee": {
            "epsilon": plan.epsilon,
            "composition": plan.composition,
            "cap": str(plan.cap),
            "limit_of_round": str(plan.limit),
        },
        "expected": {
            "asked": plan.asked,
            "answered": plan.answered,
            "answered_error": plan.answered_error,
            "right": plan.right,
            "accuracy": plan.accuracy,
            "accuracy_error": plan.accuracy_error,
            "epsilon_of_cost": dict(plan.expected_epsilons),
        },
        "all_answered": {
            "answered": plan.worst_answered,
            "epsilon_of_cost": dict(plan.worst_epsilons),
        },
        "server_of_noisy_histograms": plan.histogram_epsilon,
        "noise_shares": _shares_dict(plan),
    }


def _shares_dict(plan: Plan) -> dict[str, Any] | None:
    made, survivors = plan.mechanism, plan.survivors
    if not isinstance(made, DistributedMechanism) or survivors is None:
        return None
    return {
        "share": str(made.share),
        "honest": made.honest,
        "sigma_guaranteed": float(total_sigma(made.share, made.honest)),
        "sigma_of_all": float(total_sigma(made.share, survivors.most)),
        "sigma_of_fewest": float(total_sigma(made.share, survivors.fewest)),
        "accuracy_of_fewest": plan.with_fewest,
        "voted_on": plan.voted,
    }


def _frontier_dict(frontier: Frontier) -> dict[str, Any]:
    return {
        "epsilon": frontier.epsilons.tolist(),
        "asked": frontier.asked.tolist(),
        "answered": frontier.answered.tolist(),
        "right": frontier.right.tolist(),
        "accuracy": frontier.accuracy.tolist(),
        "settings": [each.to_dict() for each in frontier.mechanisms],
    }


def show(report: PlanReport) -> None:
    """Print the plans side by side, and what they rest on."""
    sheet = Sheet(
        title=report.title, title_justify="left", caption=_terms(report), caption_justify="left"
    )
    sheet.add_column("")
    for heading in report.headings.values():
        sheet.add_column(heading, justify="right")
    plans = [plan for key in report.headings if (plan := report.plans[key]) is not None]
    columns = [_rows(plan, report) for plan in plans]
    for name in columns[0]:
        sheet.add_row(name, *(column.get(name, "") for column in columns))
    console = Console(highlight=False)
    console.print(sheet)
    for line in (*report.notes, *remarks(report)):
        console.print(line, markup=False)
    for what, where in report.files.items():
        console.print(f"{what}: {where}", markup=False)


def _terms(report: PlanReport) -> str:
    return (
        f"Each epsilon is at delta {report.delta:g}; unit: {report.unit}; adjacency: "
        f"{NEIGHBOURS[report.unit]}, which changes up to {report.votes_per_unit} of a query's "
        f"votes; observer: {OBSERVER}, but for the row on a server."
    )


def _rows(plan: Plan, report: PlanReport) -> dict[str, str]:
    """Return one column of the table by the names of its rows."""
    what = "accuracy" if report.population.meaning == "right" else "agreement with the plurality"
    rows = {name: value for name, value in _settings(plan).items() if value}
    rows |= {
        "queries asked, expected": f"{_count(plan.asked)} of {plan.queries}",
        "labels, expected": _count(plan.answered),
        f"  {what}": _share(plan.accuracy, plan.accuracy_error),
    }
    if plan.survivors is not None:
        with_fewest = "no labels" if plan.with_fewest is None else f"{100 * plan.with_fewest:.1f} %"
        rows[f"  the same with {plan.survivors.fewest} parties' noise"] = with_fewest
    rows |= {
        f"  {report.adjective} ones": _count(plan.right),
        "epsilon guaranteed": rounded_up(plan.epsilon),
        "  labels it pays for, if all are answered": f"{plan.worst_answered}",
        "epsilon of the expected cost, no guarantee": "",
    }
    names = {"gdp": "exact Gaussian", "zcdp": "zCDP, improved"}
    for key, name in names.items():
        if key in plan.expected_epsilons:
            rows[f"  {name}"] = rounded_up(plan.expected_epsilons[key])
    rows["epsilon if all are answered"] = ""
    for key, name in names.items():
        if key in plan.worst_epsilons:
            rows[f"  {name} "] = rounded_up(plan.worst_epsilons[key])
    if plan.histogram_epsilon is not None and plan.survivors is not None:
        rows["epsilon guaranteed towards the server"] = rounded_up(plan.histogram_epsilon)
        rows["  queries voted on"] = f"{plan.voted} of {plan.queries}"
    elif plan.histogram_epsilon is not None:
        rows["epsilon if a server saw noisy histograms"] = rounded_up(plan.histogram_epsilon)
    return rows


def _settings(plan: Plan) -> dict[str, str]:
    made = plan.mechanism
    if isinstance(made, DistributedMechanism) and plan.survivors is not None:
        threshold = made.threshold if isinstance(made, DistributedConfidentGNMax) else ""
        return {
            "threshold, votes": str(threshold),
            "noise share of a party, votes": f"{float(made.share):g}",
            f"  sigma2 of {made.honest} honest ones": _sigma(made.share, made.honest),
            f"  sigma2 of all {plan.survivors.most}": _sigma(made.share, plan.survivors.most),
        }
    if isinstance(made, ConfidentGNMax):
        return {
            "threshold, votes": str(made.threshold),
            "sigma1, votes": f"{float(made.sigma1):g}",
            "sigma2, votes": f"{float(made.sigma2):g}",
        }
    if isinstance(made, GNMax):
        return {"sigma2, votes": f"{float(made.sigma):g}"}
    return {"scale, votes": f"{float(made.scale):g}"} if isinstance(made, LNMax) else {}


def _sigma(share: Fraction, parties: int) -> str:
    return f"{float(total_sigma(share, parties)):.2f}"


def _count(expected: float) -> str:
    return f"{expected:.0f}" if expected >= 20.0 else f"{expected:.1f}"


def _share(accuracy: float | None, error: float | None) -> str:
    if accuracy is None or error is None:
        return "no labels"
    return f"{100 * accuracy:.1f} ± {100 * error:.1f} %"
