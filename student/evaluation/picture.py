"""Pictures of an evaluation: confusion matrix, rates per class and group."""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from student.evaluation.evaluate import Evaluation
    from student.evaluation.fairness import Groups
    from student.evaluation.rates import Rate

INK: Final = "#1b2a3a"
BAR: Final = "#3b7dba"
MARK: Final = "#d1731f"
#: Width of a letter of 9 points, in inches, at most.
LETTER: Final = 0.08
INTERVAL: Final = "line: 95 % interval"


def draw(evaluation: Evaluation, path: Path, *, promise: str = "") -> None:
    """Draw a PNG: the confusion matrix and rates per class, with groups below if there are any.

    Dark lines are 95 % confidence intervals of the true share.

    Args:
        evaluation: to draw.
        path: of the picture.
        promise: the guarantee of its privacy statement, in one line; empty to omit it.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    size, groups, covered = len(evaluation.classes), evaluation.groups, evaluation.coverage
    side = min(14.0, max(4.2, 0.52 * size + 1.8))
    below = 0.0 if groups is None else 1.4 + 0.34 * len(groups.names)
    columns = 2 if covered is None else 3
    width = max(side + 2.6 * (columns - 1), 7.6 if groups else 0.0)
    figure = Figure(figsize=(width, side + below), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    figure.get_layout_engine().set(rect=(0.01, 0.01, 0.98, 0.98))  # type: ignore[union-attr,call-arg]
    if promise:
        figure.suptitle(textwrap.fill(promise, int(width / LETTER)), fontsize=9)
    # One part, or two: groups are drawn below.
    parts = figure.subfigures(
        1 if groups is None else 2,
        1,
        squeeze=False,
        height_ratios=(side,) if groups is None else (side, below),
    )
    top, bottom = parts[0, 0], parts[-1, 0]
    axes = top.subplots(1, columns, width_ratios=(side - 0.6, *[2.0] * (columns - 1)), sharey=True)
    _draw_confusion(axes[0], evaluation)
    _draw_bars(axes[1], "recall", evaluation.rates)
    axes[1].set_xlabel(f"share of the class that is right\n({INTERVAL})", fontsize=9)
    if covered is not None:
        rates = [covered.rates[name] for name in evaluation.classes]
        scale = max([rate.interval()[1] for rate in rates if rate.count], default=1.0)
        _draw_bars(axes[2], "with a label", rates, math.ceil(20 * scale) / 20)
        axes[2].set_xlabel("share of the public inputs\npredicted as this class", fontsize=9)
    if groups is not None:
        _draw_groups(bottom.subplots(1, 2, sharey=True), groups)
    for each in figure.get_axes():
        each.tick_params(which="both", length=0)
        for spine in each.spines.values():
            spine.set_visible(False)
    figure.savefig(path)


def _draw_confusion(axes: Axes, evaluation: Evaluation) -> None:
    size = len(evaluation.classes)
    totals = evaluation.confusion.sum(axis=1, keepdims=True)
    shares = evaluation.confusion / np.maximum(totals, 1)
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    if size <= 26:
        for row, column in np.ndindex(size, size):
            count = int(evaluation.confusion[row, column])
            if count:
                colour = "white" if shares[row, column] > 0.55 else INK
                axes.text(
                    column, row, str(count), ha="center", va="center", color=colour, fontsize=9
                )
    axes.set_xticks(range(size), short(evaluation.classes), rotation=45 if size > 10 else 0)
    axes.set_yticks(range(size), short(evaluation.classes))
    axes.set_xlabel("predicted")
    axes.set_ylabel("true class")
    axes.set_title(
        f"Student: {evaluation.accuracy:.2%} of {evaluation.count} right", loc="left", fontsize=11
    )
    axes.set_xticks(np.arange(size + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(size + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="white", linewidth=1.2)


def _draw_bars(axes: Axes, title: str, rates: Sequence[Rate], scale: float = 1.0) -> None:
    """Draw a bar per class, its interval, and its share as a number."""
    for row, rate in enumerate(rates):
        axes.barh(row, rate.share or 0.0, color=BAR, height=0.72)
        low, high = rate.interval() if rate.count else (0.0, 0.0)
        axes.plot((low, high), (row, row), color=INK, linewidth=1.2)
        if len(rates) <= 40:
            text = "none" if rate.share is None else f"{rate.share:.1%}"
            axes.text(high + 0.05 * scale, row, text, va="center", fontsize=8, color=INK)
    axes.set_xlim(0, 1.5 * scale)
    axes.set_xticks([0, scale], ["0", f"{scale:.0%}"])
    axes.set_title(title, loc="left", fontsize=11)
    axes.tick_params(labelleft=False)


def _draw_groups(panels: Sequence[Axes], groups: Groups) -> None:
    """Draw each group's accuracy and, for two classes, its rate of positive predictions."""
    left, right = panels
    rows = range(len(groups.names))
    _draw_points(left, "accuracy by group", list(groups.accuracy.values()))
    counts = [rate.count for rate in groups.accuracy.values()]
    names = short(groups.names, 34)
    left.set_xlabel(f"dot: accuracy; {INTERVAL}", fontsize=9)
    left.set_yticks(rows, [f"{name}  ({n})" for name, n in zip(names, counts, strict=True)])
    left.set_ylim(len(groups.names) - 0.5, -0.5)
    at = groups.positive
    if at is None:
        right.set_visible(False)
        return
    what = short(groups.classes)[at]
    _draw_points(right, f"share that is {what}", list(groups.predicted(at).values()))
    truth = [rate.share or 0.0 for rate in groups.present(at).values()]
    right.plot(truth, rows, "|", color=MARK, markersize=13, markeredgewidth=2.2)
    right.set_xlabel(f"dot: predicted; orange: in truth; {INTERVAL}", fontsize=9)
    right.set_xlim(left=0)
    right.tick_params(labelleft=False)


def _draw_points(axes: Axes, title: str, rates: Sequence[Rate]) -> None:
    from matplotlib.ticker import PercentFormatter

    for row, rate in enumerate(rates):
        if rate.share is not None:
            axes.plot(rate.interval(), (row, row), color=BAR, linewidth=1.6)
            axes.plot(rate.share, row, "o", color=BAR, markersize=7)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.grid(axis="x", color="#dde3ea")
    axes.set_axisbelow(True)
    axes.set_title(title, loc="left", fontsize=11)


def short(names: Sequence[str], most: int = 14) -> list[str]:
    """Return names cut to at most so many characters."""
    return [name if len(name) <= most else name[: most - 1] + "…" for name in names]
