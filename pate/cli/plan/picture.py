"""The picture of ``pate plan``: more labels, or better ones, at each of several budgets."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Final

from pate.cli.plan.report import OBSERVER
from pate.formats.privacy_statement import in_words, neighbours_of, rounded_up
from pate.planning.search import BUDGETS
from pate.runtime.home import write_file

if TYPE_CHECKING:
    from pathlib import Path

    from pate.cli.plan.figures import PlanReport
    from pate.planning.search import Search

#: Of the curves, the largest budget first; shapes too, for those who do not see colours.
_STYLES: Final = (
    ("#b9a44c", "v"), ("#3a9a5b", "^"), ("#0b3c5d", "o"), ("#d1731f", "s"), ("#8e4585", "D"),
)  # fmt: skip
_PLANS: Final = {"given": ("X", "#7a1f1f"), "best": ("*", "#000000"), "enough": ("P", "#5b3a8e")}


def draw(path: Path, report: PlanReport, search: Search) -> None:
    """Draw a plan's surroundings as a PNG.

    Raises:
        DiskError: if the file cannot be written.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.5, 6.2), dpi=120, layout="constrained")
    figure.get_layout_engine().set(rect=(0.01, 0.01, 0.98, 0.98))  # type: ignore[union-attr,call-arg]
    axes, spec, among = figure.subplots(), report.spec, report.population
    neighbours = neighbours_of(spec.unit, records_vote=False)
    promise = in_words(search.epsilon, spec.delta, spec.unit, OBSERVER, neighbours=neighbours)
    figure.suptitle(f"{report.title}\n{promise}", fontsize=10)
    for part, (colour, marker) in zip(BUDGETS, _STYLES, strict=True):
        if curve := search.trade(part * search.epsilon):
            axes.plot(
                [each.answered for each in curve], [100 * each.accuracy for each in curve],
                color=colour, marker=marker, markersize=3, linewidth=2 if part == 1.0 else 1,
                label=f"epsilon {rounded_up(part * search.epsilon)}, best settings",
            )  # fmt: skip
    without = 100 * among.plurality_accuracy
    axes.axhline(without, color="#888888", linestyle=":", label="all labels, without noise")
    for key, heading in report.headings.items():
        plan, (marker, colour) = report.plans[key], _PLANS[key]
        if plan is not None and plan.accuracy is not None:
            axes.plot(
                [plan.answered], [100 * plan.accuracy], linestyle="", marker=marker, markersize=12,
                color=colour, markeredgecolor="w", zorder=5,
                label=f"{heading}, epsilon {rounded_up(plan.epsilon)}",
            )  # fmt: skip
    axes.set_xlim(left=0)
    axes.set_xlabel("labels, expected")
    axes.set_ylabel(f"{report.adjective}, % of the labels, expected")
    if "best" in report.headings:
        # It may lie below the line without noise: many labels of which some are wrong, not a few.
        figure.supxlabel(
            f"Best found, the star: {search.goal}.\nAll points of a curve cost the same epsilon, at the "
            "same delta: further left are fewer labels, and more of them are right.",
            fontsize=9,
        )
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, fontsize=9, loc="best")
    content = io.BytesIO()
    figure.savefig(content, format="png")
    write_file(path, content.getvalue(), mode=0o644)
