"""The picture of ``pate plan``: what other budgets, and other accuracies, would give."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Final, Literal

from pate.commands.plan.report import OBSERVER
from pate.runtime.home import write_file
from pate.statement import in_words, neighbours_of, rounded_up

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from matplotlib.axes import Axes

    from pate.commands.plan.run import PlanReport
    from pate.planning.plans import Plan
    from pate.planning.search import Search

#: Of the curves, for rising accuracy; shapes too, for those who do not see colours.
_CURVES: Final = (("#0b3c5d", "o"), ("#d1731f", "s"), ("#3a9a5b", "^"))
_PLANS: Final = {"given": ("X", "#7a1f1f"), "best": ("*", "#000000")}


def draw(path: Path, report: PlanReport, found: Search) -> None:
    """Draw a plan's surroundings as a PNG.

    Raises:
        DiskError: if the file cannot be written.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.5, 5.4), dpi=120, layout="constrained")
    spec = report.spec
    among = neighbours_of(spec.unit, records_vote=False)
    promise = in_words(found.epsilon, spec.delta, spec.unit, OBSERVER, neighbours=among)
    figure.suptitle(f"{report.title}: {promise}", fontsize=10)
    left, right = figure.subplots(1, 2)
    _draw_budgets(left, report, found)
    _draw_trade(right, report, found)
    content = io.BytesIO()
    figure.savefig(content, format="png")
    write_file(path, content.getvalue(), mode=0o644)


def _draw_budgets(axes: Axes, report: PlanReport, found: Search) -> None:
    from matplotlib.ticker import FixedLocator, NullLocator, StrMethodFormatter

    for (colour, marker), (level, each) in zip(_CURVES, found.frontiers.items(), strict=False):
        if each:
            axes.plot(
                [choice.epsilon for choice in each], [choice.right for choice in each],
                color=colour, marker=marker, markersize=4,
                label=f"accuracy {100 * level:.0f} % or more",
            )  # fmt: skip
    axes.axvline(found.epsilon, color="#888888", linestyle="--", linewidth=1)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator([found.epsilon * 2.0**n for n in range(-2, 3)]))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:.3g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(f"epsilon guaranteed, at delta {report.spec.delta:g}")
    right = report.population.meaning == "right"
    what = "right labels" if right else "labels agreeing with the plurality"
    axes.set_ylabel(f"{what}, expected")
    title = "what a budget buys, at the best settings"
    _finish(axes, report, lambda plan: (plan.epsilon, plan.right), title, "upper left")
    axes.set_ylim(bottom=0)


def _draw_trade(axes: Axes, report: PlanReport, found: Search) -> None:
    axes.plot(
        [choice.answered for choice in found.trade],
        [100 * choice.accuracy for choice in found.trade],
        color=_CURVES[0][0], marker=".", label="best settings",
    )  # fmt: skip
    without = 100 * report.population.plurality_accuracy
    axes.axhline(without, color="#888888", linestyle=":", label="all labels, without noise")
    axes.set_xlabel("labels, expected")
    axes.set_ylabel(f"{report.adjective}, % of the labels, expected")
    title = f"more labels, or better ones, at epsilon {rounded_up(found.epsilon)}"
    place = lambda plan: (plan.answered, 100 * (plan.accuracy or 0.0))  # noqa: E731
    _finish(axes, report, place, title, "lower left")
    axes.set_xlim(left=0)


def _finish(
    axes: Axes,
    report: PlanReport,
    place: Callable[[Plan], tuple[float, float]],
    title: str,
    corner: Literal["upper left", "lower left"],
) -> None:
    """Mark the plans, and add what both sides have."""
    for key, heading in report.headings.items():
        plan = report.plans[key]
        if plan is not None and plan.accuracy is not None:
            marker, colour = _PLANS[key]
            axes.plot(
                *([each] for each in place(plan)), linestyle="", marker=marker, markersize=12,
                color=colour, markeredgecolor="w", label=heading, zorder=5,
            )  # fmt: skip
    axes.set_title(title, loc="left", fontsize=11)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, fontsize=9, loc=corner)
