"""The picture of a student's probabilities: calibration, and for two classes the ROC curve."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

from pate.errors import DataError
from student.evaluation.picture import BAR, INK, INTERVAL, LETTER, MARK, short

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

    from student.evaluation.evaluate import Evaluation
    from student.evaluation.scores import Area, Scores

_GREY: Final = "#9aa5b1"
_GRID: Final = "#dde3ea"
#: Least width of a bin's bar, as a probability.
_THIN: Final = 0.008


def draw_curves(evaluation: Evaluation, path: Path, *, promise: str = "") -> None:
    """Draw a PNG: observed shares by probability with the bins' inputs below, and the ROC curve.

    Args:
        evaluation: with scores.
        path: of the picture.
        promise: the guarantee of the student's privacy statement, in one line; empty to omit it.

    Raises:
        DataError: if the evaluation has no scores.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    scores = evaluation.scores
    if scores is None:
        raise DataError("an evaluation without probabilities has no calibration to draw")
    width = 5.4 if scores.roc is None else 10.2
    figure = Figure(figsize=(width, 5.8), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    figure.get_layout_engine().set(rect=(0.01, 0.01, 0.98, 0.98))  # type: ignore[union-attr,call-arg]
    lines = [f"{evaluation.count} inputs" + (f" of {evaluation.data}" if evaluation.data else "")]
    lines += [promise] if promise else []
    most = int(width / LETTER)
    figure.suptitle("\n".join(textwrap.fill(line, most) for line in lines), fontsize=9)
    columns = 1 if scores.roc is None else 2
    grid = figure.add_gridspec(2, columns, height_ratios=(4, 1))
    upper = figure.add_subplot(grid[0, 0])
    lower = figure.add_subplot(grid[1, 0], sharex=upper)
    _draw_calibration(upper, evaluation, scores)
    _draw_bins(lower, evaluation, scores)
    if scores.area is not None and scores.roc is not None:
        _draw_roc(figure.add_subplot(grid[:, 1]), evaluation, scores, scores.area)
    for axes in figure.get_axes():
        axes.tick_params(length=0)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)


def _draw_calibration(axes: Axes, evaluation: Evaluation, scores: Scores) -> None:
    axes.plot((0, 1), (0, 1), color=_GREY, linewidth=1, linestyle=(0, (4, 3)))
    means = [each.mean for each in scores.bins]
    shares = [each.observed.share or 0.0 for each in scores.bins]
    for mean, each in zip(means, scores.bins, strict=True):
        axes.plot((mean, mean), each.observed.interval(), color=BAR, linewidth=1.6)
    axes.plot(means, shares, "o-", color=BAR, markersize=6, linewidth=0.8)
    axes.set_title(f"calibration error {scores.calibration_error:.3f}", loc="left", fontsize=11)
    name = _positive(evaluation)
    axes.set_ylabel("share that is right" if name is None else f"share that is {name}")
    axes.text(
        0.02, 0.98, f"dot: a bin; {INTERVAL}\ndashed: perfect probabilities", va="top",
        transform=axes.transAxes, fontsize=9, color=INK,
    )  # fmt: skip
    axes.tick_params(labelbottom=False)
    axes.grid(color=_GRID)
    axes.set_axisbelow(True)
    axes.set_xlim(-0.02, 1.02)
    axes.set_ylim(-0.02, 1.02)


def _draw_bins(axes: Axes, evaluation: Evaluation, scores: Scores) -> None:
    """Draw the number of inputs of each bin over the probabilities that it spans."""
    from matplotlib.ticker import MaxNLocator

    for each in scores.bins:
        width = max(each.high - each.low, _THIN)
        middle = (each.low + each.high) / 2
        axes.bar(middle, each.observed.count, width, color=BAR, edgecolor="white", linewidth=0.6)
    counts = [each.observed.count for each in scores.bins]
    least, most = min(counts), max(counts)
    what = "1 bin" if len(counts) == 1 else f"{len(counts)} bins"
    of = f"{most}" if least == most else f"{least} to {most}"
    name = _positive(evaluation)
    judged = "probability of the predicted class" if name is None else f"probability of {name}"
    axes.set_xlabel(f"{judged}\n({what} of {of} inputs)")
    axes.set_ylabel("inputs")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=3))
    axes.set_ylim(0, 1.1 * most)


def _draw_roc(axes: Axes, evaluation: Evaluation, scores: Scores, area: Area) -> None:
    axes.plot((0, 1), (0, 1), color=_GREY, linewidth=1, linestyle=(0, (4, 3)))
    if scores.roc is not None:
        axes.plot(scores.roc[:, 0], scores.roc[:, 1], color=BAR, linewidth=1.8)
    made = evaluation.decision
    if (
        made is not None
        and made.sensitivity.share is not None
        and made.specificity.share is not None
    ):
        at = (1 - made.specificity.share, made.sensitivity.share)
        source = "given" if made.wanted is None else "chosen on this data"
        label = f"threshold {made.threshold.least:.4g}, {source}"
        axes.plot(*at, "o", color=MARK, markersize=8, label=label)
        axes.legend(frameon=False, fontsize=9, loc="lower right")
    interval = "" if area.interval is None else " ({:.3f} to {:.3f})".format(*area.interval)
    axes.set_title(f"area under the curve {area.value:.3f}{interval}", loc="left", fontsize=11)
    name = _positive(evaluation)
    axes.set_xlabel(f"share of the others that is taken for {name}")
    axes.set_ylabel(f"share of {name} that is found")
    axes.grid(color=_GRID)
    axes.set_axisbelow(True)
    axes.set_xlim(-0.02, 1.02)
    axes.set_ylim(-0.02, 1.02)


def _positive(evaluation: Evaluation) -> str | None:
    """Return the short name of the positive one of two classes, None among more."""
    if len(evaluation.classes) != 2:
        return None
    return short(evaluation.classes)[evaluation.positive]
