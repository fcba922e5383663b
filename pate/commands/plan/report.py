"""What ``pate plan`` shows: a table and a JSON object of the same figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table as Sheet

from pate.commands.plan.figures import OBSERVER
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
    from fractions import Fraction

    from pate.commands.plan.figures import PlanReport
    from pate.planning.plans import Plan
    from pate.planning.search import Frontier


def as_object(report: PlanReport) -> dict[str, Any]:
    """Return a JSON object."""
    found = report.findings
    return {
        "aggregator": report.aggregator,
        "teachers": report.population.teachers,
        "parties": report.parties,
        "noise": report.noise,
        "min_parties": report.min_parties,
        "colluders": report.colluders,
        "classes": report.population.classes,
        "delta": report.delta,
        "unit": report.unit,
        "votes_per_unit": report.votes_per_unit,
        "adjacency": ADJACENCY[report.unit],
        "observer": OBSERVER,
        "epsilon_wanted": report.wanted,
        "population": {
            "source": report.population.source,
            "histograms": len(report.population),
            "accuracy_of": report.population.meaning,
            "accuracy_without_noise": report.population.plurality_accuracy,
            "mean_share_of_votes": report.population.agreement,
            "assumptions": dict(report.assumptions),
        },
        "plans": {
            key: None if plan is None else _plan_dict(plan) for key, plan in report.plans.items()
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
        "notes": [*report.notes, *remarks(report)],
        "files": dict(report.files),
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
