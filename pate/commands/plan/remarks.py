"""What ``pate plan`` says below its table: what the figures rest on, and how to run the best plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pate.mechanisms import (
    ConfidentGNMax,
    DistributedConfidentGNMax,
    DistributedMechanism,
    GNMax,
    LNMax,
)
from pate.noise_shares import total_sigma

if TYPE_CHECKING:
    from pate.commands.plan.figures import PlanReport

CAUTION: Final = (
    "Choose from public data, assumptions or experience: tuning on private votes is itself a leak, "
    "which no epsilon here covers."
)
EXPECTED: Final = (
    "Expectations describe a typical run, and are as good as what they are made of. The guarantee "
    "holds whatever the votes are."
)
SERVER: Final = (
    "Towards the server nothing is guaranteed: it draws the noise, and sees exact sums of votes, or each "
    "party's with plain aggregation. The row on noisy histograms is for a server that saw no more than "
    "one per query, with noise sigma2: --noise distributed."
)
SHARES: Final = (
    "Every party adds a share of noise, and the server sees one noisy histogram of each query voted "
    "on, whatever the votes are: what it learns is guaranteed too. It counts the {honest} shares that "
    "at least are honest; labels carry those of all {most} parties, or of {fewest} at fewest. Check "
    "and label read the same histogram, so each query costs the same, answered or not."
)
INTERACTIVE: Final = (
    "Of interactive-gnmax this is the first round, with its share of the budget; later rounds depend "
    "on the student. The guarantee is that of all rounds together."
)


def remarks(report: PlanReport) -> list[str]:
    """Return what the figures rest on, a sentence or two a line."""
    seen = report.population
    without = f"{100 * seen.plurality_accuracy:.1f} %"
    if seen.source == "assumed":
        basis = (
            f"Assumed: a teacher is right with probability {report.assumptions['agreement']:g}, "
            f"which varies over queries by {report.assumptions['spread']:.2g} for all teachers "
            f"alike; {100 * report.assumptions['rival']:g} % of a query's wrong votes fall on one "
            f"class. {len(seen)} histograms, seed {report.assumptions['seed']}. Without noise "
            f"{without} of the labels would be right."
        )
    elif seen.meaning == "right":
        basis = (
            f"From {len(seen)} queries of a proxy, which must be public. Without noise {without} "
            f"of the labels would be right."
        )
    else:
        basis = (
            f"From {len(seen)} queries of a proxy, which must be public, without right labels: "
            f"agreement is with the noiseless vote, which gets {100 * seen.agreement:.1f} % of "
            f"the votes."
        )
    lines = [basis, EXPECTED, CAUTION]
    if report.findings is not None:
        part = report.findings.looked_at
        looked = "" if part == len(seen) else f" The search looked at {part} of the queries."
        lines.insert(1, f"Best found: {report.findings.goal}.{looked}")
    if report.aggregator == "interactive-gnmax":
        lines.append(INTERACTIVE)
    shown = next(plan for plan in report.plans.values() if plan is not None)
    if isinstance(shown.mechanism, DistributedMechanism) and shown.survivors is not None:
        lines.append(
            SHARES.format(
                honest=shown.mechanism.honest,
                most=shown.survivors.most,
                fewest=shown.survivors.fewest,
            )
        )
    elif any(
        plan is not None and plan.histogram_epsilon is not None for plan in report.plans.values()
    ):
        lines.append(SERVER)
    return [*lines, *_commands(report)]


def _commands(report: PlanReport) -> list[str]:
    """Return the server's command line for the best plan, if it was asked for by its epsilon."""
    plan = report.plans["best"]
    if plan is None or report.wanted is None:
        return []
    made = plan.mechanism
    options: dict[str, object] = {"aggregator": report.aggregator}
    if isinstance(made, ConfidentGNMax):
        options |= {"threshold": made.threshold, "sigma1": made.sigma1, "sigma2": made.sigma2}
    elif isinstance(made, GNMax):
        options["sigma2"] = made.sigma
    elif isinstance(made, LNMax):
        options["scale"] = made.scale
    elif isinstance(made, DistributedMechanism):
        if isinstance(made, DistributedConfidentGNMax):
            options["threshold"] = made.threshold
        options |= {"sigma2": total_sigma(made.share, made.honest), "noise": "distributed"}
        options |= {"parties": report.parties, "min-parties": report.min_parties}
        options["colluders"] = report.colluders
    if plan.limit < plan.cap:
        options["first-round-share"] = plan.limit / plan.cap
    options |= {"epsilon": report.wanted, "delta": report.delta, "unit": report.unit}
    return ["To run it: pate-server " + " ".join(f"--{k} {v}" for k, v in options.items())]
