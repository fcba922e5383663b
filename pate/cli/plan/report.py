"""Output of ``pate plan``: a table and a JSON object of the same figures, and their assumptions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rich.table import Table as Sheet

from pate.campaign.terms import noise_of
from pate.formats.privacy_statement import ADJACENCY, NEIGHBOURS, rounded_up
from pate.mechanisms import DistributedTeachers
from pate.noise.shares import total_sigma
from pate.planning.forecast import ENOUGH, one_in
from pate.planning.plans import settings_of
from pate.runtime.screen import Display

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pate.cli.plan.teachers import PlanReport
    from pate.planning.plans import Plan

OBSERVER: Final = "public"
_RECORDS: Final = "`pate plan --aggregator neighbour`"
#: Figures of a plan that its JSON calls by the same names.
_EXPECTED: Final = (
    "asked", "answered", "answered_error", "right", "accuracy", "accuracy_error",
)  # fmt: skip
_CAUTION: Final = (
    "Choose from public data, assumptions or experience: tuning on private votes is itself a leak, "
    "which no epsilon here covers."
)
_DESCRIBED: Final = (
    "Expectations describe a typical run, and are as good as what they are made of. The guarantee "
    "holds whatever the votes are."
)
_SERVER: Final = (
    "Towards the server nothing is guaranteed: it draws the noise, and sees exact sums of votes, or each "
    "party's with plain aggregation. With --noise distributed something is."
)
_SHARES: Final = (
    "Every party adds a share of noise, and the server sees one noisy histogram of each query voted "
    "on, whatever the votes are: what it learns is guaranteed too. It counts the {honest} shares that "
    "at least are honest; labels carry those of all {most} parties, or of {fewest} at fewest. Check "
    "and label read the same histogram, so each query costs the same, answered or not."
)
_INTERACTIVE: Final = (
    "Of interactive-gnmax this is the first round, with its share of the budget; later rounds depend "
    "on the student. The guarantee is that of all rounds together."
)


def as_object(report: PlanReport) -> dict[str, Any]:
    """Return a JSON object."""
    options, spec, population = report.options, report.spec, report.population
    found = report.search
    return {
        "aggregator": spec.aggregator,
        "teachers": population.teachers,
        "parties": options.parties,
        "noise": spec.sums.noise,
        "min_parties": spec.sums.min_parties if spec.sums.distributed else None,
        "colluders": spec.sums.colluders if spec.sums.distributed else None,
        "classes": population.classes,
        "delta": spec.delta,
        "unit": spec.unit,
        "votes_per_unit": report.votes_per_unit,
        "adjacency": ADJACENCY[spec.unit],
        "observer": OBSERVER,
        "epsilon_wanted": options.epsilon,
        "population": {
            "source": population.source,
            "histograms": len(population),
            "accuracy_of": population.meaning,
            "accuracy_without_noise": population.plurality_accuracy,
            "mean_share_of_votes": population.agreement,
            "assumptions": dict(population.assumptions),
        },
        "plans": {
            key: None if plan is None else _plan_dict(plan) | {"between": report.between(key)}
            for key, plan in report.plans.items()
        },
        "search": None
        if found is None
        else {"epsilon": found.epsilon, "goal": str(found.goal), "looked_at": found.looked_at},
        "notes": [*report.notes, *remarks(report)],
    }


def _plan_dict(plan: Plan) -> dict[str, Any]:
    return {
        "mechanism": plan.mechanism.to_dict(),
        "queries": plan.campaign.queries,
        "guarantee": {
            "epsilon": plan.epsilon,
            "composition": plan.composition,
            "cap": str(plan.cap),
            "limit_of_round": str(plan.limit),
        },
        "expected": {name: getattr(plan, name) for name in _EXPECTED},
        "epsilon_towards_server": plan.server_epsilon,
        "noise_shares": _shares_dict(plan),
    }


def _shares_dict(plan: Plan) -> dict[str, Any] | None:
    made, campaign = plan.mechanism, plan.campaign
    if not isinstance(made, DistributedTeachers) or not campaign.most or not campaign.fewest:
        return None
    return {
        "share": str(made.share),
        "honest": made.honest,
        "sigma_guaranteed": float(total_sigma(made.share, made.honest)),
        "sigma_of_all": float(total_sigma(made.share, campaign.most)),
        "sigma_of_fewest": float(total_sigma(made.share, campaign.fewest)),
        "accuracy_of_fewest": plan.with_fewest,
        "voted_on": plan.voted,
    }


def show(report: PlanReport) -> None:
    """Print the plans side by side, and their assumptions."""
    spec = report.spec
    terms = (
        f"Each epsilon is at delta {spec.delta:g}; unit: {spec.unit}; adjacency: "
        f"{NEIGHBOURS[spec.unit]}, which changes up to {report.votes_per_unit} of a query's "
        f"votes; observer: {OBSERVER}, but for the row on a server."
    )
    sheet = Sheet(title=report.title, title_justify="left", caption=terms, caption_justify="left")
    sheet.add_column("")
    columns = []
    for key, heading in report.headings.items():
        if (plan := report.plans[key]) is not None:
            sheet.add_column(heading, justify="right")
            columns.append(dict(_rows(key, plan, report)))
    for name in columns[0]:
        sheet.add_row(name, *(column.get(name, "") for column in columns))
    console = Display()
    console.print(sheet)
    for line in (*report.notes, *remarks(report)):
        console.print(line, markup=False)


def _rows(key: str, plan: Plan, report: PlanReport) -> Iterable[tuple[str, str]]:
    """Yield one column of the table, each figure with the name of its row."""
    made, campaign = plan.mechanism, plan.campaign
    settings = settings_of(made)
    if isinstance(made, DistributedTeachers):
        del settings["sigma2"]  # it is that of the honest shares, below
    for name, value in settings.items():
        yield f"{name}, votes", str(value) if isinstance(value, int) else f"{float(value):g}"
    if isinstance(made, DistributedTeachers) and campaign.most:
        yield "noise share of a party, votes", f"{float(made.share):g}"
        for number, who in ((made.honest, "{} honest ones"), (campaign.most, "all {}")):
            sigma2 = float(total_sigma(made.share, number))
            yield f"  sigma2 of {who.format(number)}", f"{sigma2:.2f}"
    yield "queries asked, expected", f"{_count(plan.asked)} of {campaign.queries}"
    yield "labels, expected", _count(plan.answered)
    between = report.between(key)
    if between:
        yield "  in one campaign", " to ".join(map(_count, between["answered"]))
    what = "accuracy" if report.population.meaning == "right" else "agreement with the plurality"
    yield f"  {what}", _percent(plan.accuracy, plan.accuracy_error)
    if between:
        low, high = between["accuracy"]
        yield "  in one campaign ", f"{100 * low:.0f} to {100 * high:.0f} %"
    if campaign.most:
        yield f"  the same with {campaign.fewest} parties' noise", _percent(plan.with_fewest)
    yield f"  {report.adjective} ones", _count(plan.right)
    if (rarest := report.options.rarest) is not None:
        yield f"  of the rarest class, {one_in(rarest)}", _count(rarest * plan.answered)
    yield "epsilon guaranteed", rounded_up(plan.epsilon)
    if plan.server_epsilon is not None:
        yield "epsilon guaranteed towards the server", rounded_up(plan.server_epsilon)
        yield "  queries voted on", f"{plan.voted} of {campaign.queries}"


def remarks(report: PlanReport) -> list[str]:
    """Return the assumptions of the figures, one or two sentences per line."""
    seen, spec = report.population, report.spec
    if seen.source == "assumed":
        basis = (
            f"Assumed: a teacher is right with probability {seen.assumptions['agreement']:g}, "
            f"which varies over queries by {seen.assumptions['spread']:.2g} for all teachers "
            f"alike; {100 * seen.assumptions['rival']:g} % of a query's wrong votes fall on one "
            f"class. {len(seen)} histograms, seed {seen.assumptions['seed']}. In one campaign: by a "
            "spread of 0.2 to 0.6 of the largest too, and 25 to 75 % of wrong votes on one class, and two "
            "standard deviations of so many labels beyond. "
        )
    else:
        basis = f"From {len(seen)} queries of a proxy, which must be public"
        basis += ". " if seen.meaning == "right" else ", without right labels: "
    if seen.meaning == "right":
        without = f"{100 * seen.plurality_accuracy:.1f} %"
        lines = [f"{basis}Without noise {without} of the labels would be right."]
    else:
        share = f"{100 * seen.agreement:.1f} %"
        lines = [f"{basis}agreement is with the noiseless vote, which gets {share} of the votes."]
    if (found := report.search) is not None:
        part = found.looked_at
        looked = "" if part == len(seen) else f" The search looked at {part} of the queries."
        lines.append(f"Best found: {found.goal}.{looked}")
        if report.plans["enough"] is not None:
            lines.append(
                f"{report.enough} labels or more: the most accurate settings that are expected to give as "
                f"many, {ENOUGH} for each class{_of_rarest(report)}."
            )
        elif report.options.at_least is None:
            lines.append(
                f"No settings are expected to give {report.enough} labels, which a student needs to learn "
                f"all classes{_of_rarest(report)}: more teachers or more epsilon would."
            )
    if report.options.epsilon is None:
        lines.append("Without --epsilon the noise left out is the least that a server chooses.")
    lines += _of_noise(report)
    lines += [_DESCRIBED, _CAUTION]
    if spec.interactive:
        lines.append(_INTERACTIVE)
    if spec.sums.distributed:
        who = {"most": spec.parties, "fewest": spec.sums.min_parties, "honest": spec.sums.honest}
        lines.append(_SHARES.format(**who))
    else:
        lines.append(_SERVER)
    for key in ("best", "enough"):
        plan, epsilon = report.plans[key], report.options.epsilon
        if plan is None or epsilon is None:
            continue
        if report.is_noise(plan):
            wanted = report.enough if key == "enough" else f"{plan.answered:.0f}"
            lines.append(
                f"{seen.teachers} teachers and epsilon {epsilon:g} cannot give {wanted} good "
                f"labels: {_percent(plan.accuracy)} of them would be {report.adjective}, of labels without "
                f"noise {100 * seen.plurality_accuracy:.1f} %. What helps: more teachers or more epsilon"
                + (
                    "."
                    if spec.unit == "party"
                    else ", or neighbour votes (`pate plan --aggregator neighbour`)."
                )
            )
        else:
            lines.append(f"To run {report.headings[key]}: {_command(report, plan)}")
    return lines


def _of_rarest(report: PlanReport) -> str:
    """Return who the rarest class is, if its share is stated."""
    rarest = report.options.rarest
    return "" if rarest is None else f", the rarest of which is {one_in(rarest)}"


def _command(report: PlanReport, plan: Plan) -> str:
    spec = report.spec
    typed: dict[str, object] = {"aggregator": spec.aggregator, **settings_of(plan.mechanism)}
    if spec.sums.distributed:
        typed |= {"noise": spec.sums.noise, "parties": spec.parties}
        typed |= {"min-parties": spec.sums.min_parties, "colluders": spec.sums.colluders}
    if spec.interactive:
        typed["first-round-share"] = spec.first_round_share
    typed |= {"epsilon": spec.epsilon, "delta": spec.delta, "unit": spec.unit}
    return "pate-server " + " ".join(f"--{name} {value}" for name, value in typed.items())


def _of_noise(report: PlanReport) -> list[str]:
    """Return the reasons for the server's noise, and for a threshold above M."""
    spec, seen = report.spec, report.population
    noise = noise_of(spec, seen.teachers, report.votes_per_unit, seen.classes)
    lines = []
    if report.options.epsilon is not None and noise is not None and report.plans["given"]:
        lines.append(f"The noise that the server chooses: {noise.reason}.")
    above = [
        heading
        for key, heading in report.headings.items()
        if (plan := report.plans[key]) is not None
        and settings_of(plan.mechanism).get("threshold", 0) > seen.teachers
    ]
    if above:
        lines.append(
            f"A threshold above the {seen.teachers} teachers ({', '.join(above)}): noise has to lift every "
            "vote over it, and does so more often where teachers agree. Each query asked costs a little, "
            "so that needs many queries."
        )
    return lines


def _count(expected: float) -> str:
    return f"{expected:.0f}" if expected >= 20.0 else f"{expected:.1f}"


def _percent(accuracy: float | None, error: float | None = None) -> str:
    if accuracy is None:
        return "no labels"
    about = "" if error is None else f" ± {100 * error:.1f}"
    return f"{100 * accuracy:.1f}{about} %"
