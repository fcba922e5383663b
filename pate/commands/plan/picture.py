"""The picture of ``pate plan``: what other budgets, and other accuracies, would give."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Final

from pate.commands.plan.figures import OBSERVER
from pate.runtime.home import write_file
from pate.statement import in_words, neighbours_of, rounded_up

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from matplotlib.axes import Axes

    from pate.commands.plan.figures import Findings, PlanReport
    from pate.planning.plans import Plan

#: Of the curves, for rising accuracy; shapes too, for those who do not see colours.
_CURVES: Final = (("#0b3c5d", "o"), ("#d1731f", "s"), ("#3a9a5b", "^"))
_PLANS: Final = {"given": ("X", "#7a1f1f"), "best": ("*", "#000000")}


def draw(path: Path, report: PlanReport, found: Findings) -> None:
    """Draw a plan's surroundings as a PNG.

    Raises:
        DiskError: if the file cannot be written.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.5, 5.4), dpi=120, layout="constrained")
    among = neighbours_of(report.unit, records_vote=False)
    promise = in_words(found.epsilon, report.delta, report.unit, OBSERVER, neighbours=among)
    figure.suptitle(f"{report.title}: {promise}", fontsize=10)
    left, right = figure.subplots(1, 2)
    _draw_budgets(left, report, found)
    _draw_trade(right, report, found)
    content = io.BytesIO()
    figure.savefig(content, format="png")
    write_file(path, content.getvalue(), mode=0o644)


def _draw_budgets(axes: Axes, report: PlanReport, found: Findings) -> None:
    from matplotlib.ticker import FixedLocator, NullLocator, StrMethodFormatter

    for (colour, marker), (level, each) in zip(_CURVES, found.frontiers.items(), strict=False):
        if len(each.epsilons):
            axes.plot(
                each.epsilons,
                each.right,
                color=colour,
                marker=marker,
                markersize=4,
                label=f"accuracy {100 * level:.0f} % or more",
            )
    axes.axvline(found.epsilon, color="#888888", linestyle="--", linewidth=1)
    _mark_plans(axes, report, lambda plan: (plan.epsilon, plan.right))
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator([found.epsilon * 2.0**n for n in range(-2, 3)]))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:.3g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_ylim(bottom=0)
    axes.set_xlabel(f"epsilon guaranteed, at delta {report.delta:g}")
    axes.set_ylabel(
        "right labels, expected"
        if report.population.meaning == "right"
        else "labels agreeing with the plurality, expected"
    )
    axes.set_title("what a budget buys, at the best settings", loc="left", fontsize=11)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, fontsize=9, loc="upper left")


def _draw_trade(axes: Axes, report: PlanReport, found: Findings) -> None:
    axes.plot(
        found.trade.answered, 100 * found.trade.accuracy, color=_CURVES[0][0], marker=".",
        label="best settings",
    )  # fmt: skip
    without = 100 * report.population.plurality_accuracy
    axes.axhline(without, color="#888888", linestyle=":", label="all labels, without noise")
    _mark_plans(axes, report, lambda plan: (plan.answered, 100 * (plan.accuracy or 0.0)))
    axes.set_xlim(left=0)
    axes.set_xlabel("labels, expected")
    axes.set_ylabel(f"{report.adjective}, % of the labels, expected")
    axes.set_title(
        f"more labels, or better ones, at epsilon {rounded_up(found.epsilon)}", loc="left",
        fontsize=11,
    )  # fmt: skip
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, fontsize=9, loc="lower left")


def _mark_plans(
    axes: Axes, report: PlanReport, place: Callable[[Plan], tuple[float, float]]
) -> None:
    for key, heading in report.headings.items():
        plan = report.plans[key]
        if plan is not None and plan.accuracy is not None:
            marker, colour = _PLANS[key]
            x, y = place(plan)
            axes.plot(
                [x], [y], linestyle="", marker=marker, markersize=12, color=colour,
                markeredgecolor="w", label=heading, zorder=5,
            )  # fmt: skip
