"""Pictures of an evaluation: confusion matrix and rates; calibration and ROC curve."""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.errors import DataError
from pate.printable import number_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Sheet
    from numpy.typing import NDArray

    from student.evaluation.evaluate import Evaluation
    from student.evaluation.fairness import Groups
    from student.evaluation.figures import Figure, Rate
    from student.evaluation.scores import Scores

_INK: Final = "#1b2a3a"
_BAR: Final = "#3b7dba"
_MARK: Final = "#d1731f"
_GREY: Final = "#9aa5b1"
_GRID: Final = "#dde3ea"
#: Width of a letter of 9 points, in inches, at most.
_LETTER: Final = 0.08
_INTERVAL: Final = "line: 95 % interval"
#: Ends of the scale of log odds, where probabilities nearer to 0 or 1 are drawn, and its marks.
_END: Final = 0.001
_TICKS: Final = (0.001, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 0.999)


def draw(evaluation: Evaluation, path: Path, *, promise: str = "") -> None:
    """Draw a PNG: the confusion matrix and rates per class, with groups below if there are any.

    Dark lines are 95 % confidence intervals of the true share. ``promise`` is the guarantee of the privacy
    statement, in one line; empty to omit it.
    """
    size, groups, covered = len(evaluation.classes), evaluation.groups, evaluation.coverage
    side = min(14.0, max(4.2, 0.52 * size + 1.8))
    below = 0.0 if groups is None else 1.6 + 0.34 * len(groups.names)
    columns = 2 if covered is None else 3
    width = max(side + 2.6 * (columns - 1), 7.6 if groups else 0.0)
    figure = _sheet((width, side + below), [promise] if promise else [])
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
    axes[1].set_xlabel(f"share of the class that is right\n({_INTERVAL})", fontsize=9)
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


def draw_curves(evaluation: Evaluation, path: Path, *, promise: str = "") -> None:
    """Draw a PNG: observed shares by probability, on the scale of log odds, and the ROC curve."""
    scores = evaluation.scores
    if scores is None:
        raise DataError("an evaluation without probabilities has no calibration to draw")
    lines = [f"{evaluation.count} inputs" + (f" of {evaluation.data}" if evaluation.data else "")]
    columns = 1 if scores.roc is None else 2
    figure = _sheet((5.4 if columns == 1 else 10.2, 5.8), lines + ([promise] if promise else []))
    panels = figure.subplots(1, columns, squeeze=False)[0]
    _draw_calibration(panels[0], evaluation, scores)
    if scores.area is not None and scores.roc is not None:
        _draw_roc(panels[1], evaluation, scores.roc, scores.area)
    for axes in panels:
        axes.tick_params(length=0)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color=_GRID)
        axes.set_axisbelow(True)
        axes.set_ylim(-0.02, 1.02)
    figure.savefig(path)


def _sheet(size: tuple[float, float], lines: Sequence[str]) -> Sheet:
    """Return a figure of so many inches, with lines above what will be drawn."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Sheet

    figure = Sheet(figsize=size, dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    figure.get_layout_engine().set(rect=(0.01, 0.01, 0.98, 0.98))  # type: ignore[union-attr,call-arg]
    if lines:
        most = int(size[0] / _LETTER)
        figure.suptitle("\n".join(textwrap.fill(line, most) for line in lines), fontsize=9)
    return figure


def _draw_confusion(axes: Axes, evaluation: Evaluation) -> None:
    size = len(evaluation.classes)
    totals = evaluation.confusion.sum(axis=1, keepdims=True)
    shares = evaluation.confusion / np.maximum(totals, 1)
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    if size <= 26:
        for row, column in np.ndindex(size, size):
            count = int(evaluation.confusion[row, column])
            if count:
                colour = "white" if shares[row, column] > 0.55 else _INK
                axes.text(
                    column, row, str(count), ha="center", va="center", color=colour, fontsize=9
                )
    axes.set_xticks(range(size), _short(evaluation.classes), rotation=45 if size > 10 else 0)
    axes.set_yticks(range(size), _short(evaluation.classes))
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
        axes.barh(row, rate.share or 0.0, color=_BAR, height=0.72)
        low, high = rate.interval() if rate.count else (0.0, 0.0)
        axes.plot((low, high), (row, row), color=_INK, linewidth=1.2)
        if len(rates) <= 40:
            text = "none" if rate.share is None else f"{rate.share:.1%}"
            axes.text(high + 0.05 * scale, row, text, va="center", fontsize=8, color=_INK)
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
    names = _short(groups.names, 34)
    left.set_xlabel(f"dot: accuracy\n{_INTERVAL}", fontsize=9)
    left.set_yticks(rows, [f"{name}  ({n})" for name, n in zip(names, counts, strict=True)])
    left.set_ylim(len(groups.names) - 0.5, -0.5)
    at = groups.positive
    if at is None:
        right.set_visible(False)
        return
    what = _short(groups.classes)[at]
    _draw_points(right, f"share that is {what}", list(groups.predictions[at].values()))
    truth = [rate.share or 0.0 for rate in groups.shares[at].values()]
    right.plot(truth, rows, "|", color=_MARK, markersize=13, markeredgewidth=2.2)
    right.set_xlabel(f"dot: predicted; orange: in truth\n{_INTERVAL}", fontsize=9)
    right.set_xlim(left=0)
    right.tick_params(labelleft=False)


def _draw_points(axes: Axes, title: str, rates: Sequence[Rate]) -> None:
    from matplotlib.ticker import PercentFormatter

    for row, rate in enumerate(rates):
        if rate.share is not None:
            axes.plot(rate.interval(), (row, row), color=_BAR, linewidth=1.6)
            axes.plot(rate.share, row, "o", color=_BAR, markersize=7)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.grid(axis="x", color=_GRID)
    axes.set_axisbelow(True)
    axes.set_title(title, loc="left", fontsize=11)


def _draw_calibration(axes: Axes, evaluation: Evaluation, scores: Scores) -> None:
    # Log odds: those of a good student lie near 0 and 1, where a straight scale shows one dot.
    line = np.linspace(_END, 1.0 - _END, 1_000)
    axes.plot(line, line, color=_GREY, linewidth=1, linestyle=(0, (4, 3)))
    means = [min(max(each.mean, _END), 1.0 - _END) for each in scores.bins]
    shares = [each.observed.share or 0.0 for each in scores.bins]
    for mean, each in zip(means, scores.bins, strict=True):
        axes.plot((mean, mean), each.observed.interval(), color=_BAR, linewidth=1.6)
    axes.plot(means, shares, "o-", color=_BAR, markersize=6, linewidth=0.8)
    axes.set_title(f"calibration error {scores.calibration_error:.3f}", loc="left", fontsize=11)
    name = _positive(evaluation)
    axes.set_ylabel("share that is right" if name is None else f"share that is {name}")
    axes.text(
        0.02, 0.98, f"dot: a bin; {_INTERVAL}\ndashed: perfect probabilities", va="top",
        transform=axes.transAxes, fontsize=9, color=_INK,
    )  # fmt: skip
    counts = [each.observed.count for each in scores.bins]
    what = number_of(len(counts), "bin")
    of = f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
    judged = "probability of the predicted class" if name is None else f"probability of {name}"
    axes.set_xlabel(f"{judged}\n({what} of {of} inputs)")
    axes.set_xscale("logit")
    # The predicted class of m has a probability of 1/m or more.
    least = _END if name is not None else max(_END, 0.8 / len(evaluation.classes))
    axes.set_xlim(least / 1.5, 1.0 - _END / 1.5)
    marks = [each for each in _TICKS if each >= least]
    axes.set_xticks(marks, [f"{each:g}" for each in marks])
    axes.minorticks_off()


def _draw_roc(axes: Axes, evaluation: Evaluation, roc: NDArray[np.float64], area: Figure) -> None:
    axes.plot((0, 1), (0, 1), color=_GREY, linewidth=1, linestyle=(0, (4, 3)))
    axes.plot(roc[:, 0], roc[:, 1], color=_BAR, linewidth=1.8)
    made = evaluation.decision
    if made is not None:  # both classes occur, or there were no curve
        found, kept = (made.rates[name].share or 0.0 for name in ("sensitivity", "specificity"))
        label = f"threshold {made.threshold.least:.4g}, {made.source}"
        axes.plot(1 - kept, found, "o", color=_MARK, markersize=8, label=label)
        axes.legend(frameon=False, fontsize=9, loc="lower right")
    axes.set_title(f"area under the curve {area}", loc="left", fontsize=11)
    name = _positive(evaluation)
    axes.set_xlabel(f"share of the others that is taken for {name}")
    axes.set_ylabel(f"share of {name} that is found")
    axes.set_xlim(-0.02, 1.02)


def _positive(evaluation: Evaluation) -> str | None:
    """Return the short name of the positive one of two classes, None among more."""
    if len(evaluation.classes) != 2:
        return None
    return _short(evaluation.classes)[evaluation.positive]


def _short(names: Sequence[str], most: int = 14) -> list[str]:
    """Return names cut to at most so many characters."""
    return [name if len(name) <= most else name[: most - 1] + "…" for name in names]
