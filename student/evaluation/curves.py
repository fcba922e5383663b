"""The picture of a student's probabilities: calibration, and for two classes the ROC curve."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.errors import DataError
from student.evaluation.picture import BAR, INK, INTERVAL, LETTER, MARK, short

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

    from student.evaluation.evaluate import Evaluation
    from student.evaluation.scores import Area, Scores

_GREY: Final = "#9aa5b1"
_GRID: Final = "#dde3ea"
#: Ends of the scale of log odds, where probabilities nearer to 0 or 1 are drawn, and its marks.
_END: Final = 0.001
_TICKS: Final = (0.001, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 0.999)


def draw_curves(evaluation: Evaluation, path: Path, *, promise: str = "") -> None:
    """Draw a PNG: observed shares by probability, on the scale of log odds, and the ROC curve.

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
    panels = figure.subplots(1, columns, squeeze=False)[0]
    _draw_calibration(panels[0], evaluation, scores)
    if scores.area is not None and scores.roc is not None:
        _draw_roc(panels[1], evaluation, scores, scores.area)
    for axes in figure.get_axes():
        axes.tick_params(length=0)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)


def _draw_calibration(axes: Axes, evaluation: Evaluation, scores: Scores) -> None:
    # Log odds: those of a good student lie near 0 and 1, where a straight scale shows one dot.
    line = np.linspace(_END, 1.0 - _END, 1_000)
    axes.plot(line, line, color=_GREY, linewidth=1, linestyle=(0, (4, 3)))
    means = [min(max(each.mean, _END), 1.0 - _END) for each in scores.bins]
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
    counts = [each.observed.count for each in scores.bins]
    what = "1 bin" if len(counts) == 1 else f"{len(counts)} bins"
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
    axes.grid(color=_GRID)
    axes.set_axisbelow(True)
    axes.set_ylim(-0.02, 1.02)


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
