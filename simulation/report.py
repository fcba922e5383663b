"""The report of a campaign: figures, the closing table, and one picture."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import IO, TYPE_CHECKING, Any, Final, Self

import numpy as np
from rich.table import Table as Sheet

from pate.data.values import Dataset, Images
from pate.formats.privacy_statement import in_words, rounded_up
from pate.runtime.screen import Display

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from matplotlib.axes import Axes

    from pate.data.values import Inputs
    from pate.formats.labels import LabelSet
    from pate.formats.privacy_statement import PrivacyStatement
    from student.evaluation.evaluate import AnyEvaluation

#: Of a diagram.
_HEADING: Final[dict[str, Any]] = {"loc": "left", "fontsize": 11}
_OWN: Final = "#1f6f9f"
_OTHER: Final = "#808080"
_MOST_BARS: Final = 12


@dataclass(frozen=True)
class Report:
    """One campaign in numbers."""

    parties: int
    teachers: int  # M, teachers in all; 0 if records vote
    labels_asked: int  # queries put to the mechanism; one asked in two rounds counts twice
    labels_answered: int
    # share of released labels that are right; None if noisy counts were released, or the truth is
    # unknown
    label_accuracy: float | None
    student_accuracy: float | None  # on held-back records, or None without a student
    # of a non-private classifier trained on all parties' pooled records; or None if it was not
    # trained
    nonprivate_accuracy: float | None
    # of always predicting the most frequent class of the test records; None if there are none, or
    # they have other answers than a class
    majority_accuracy: float | None
    epsilon: float  # the guarantee towards ``observer``, data-independent
    delta: float
    unit: str
    adjacency: str
    observer: str
    mechanism: str
    seconds: float
    files: dict[str, str] = field(default_factory=dict)
    student_scores: str | None = None  # of a student of several labels or of a number, in one line
    # the same, as in ``evaluation.json``; empty for a student of classes
    student_figures: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        statement: PrivacyStatement,
        labels: LabelSet,
        *,
        parties: int,
        truth: Dataset | None,
        test: Dataset | None,
        mechanism: str,
        teachers: int,
        seconds: float,
        files: dict[str, str],
        student_accuracy: float | None = None,
        evaluation: AnyEvaluation | None = None,
        nonprivate_accuracy: float | None = None,
    ) -> Self:
        """Return the numbers of a finished campaign; arguments are named as the attributes.

        ``truth`` is the public set with its true labels, ``test`` are labelled records that judged the
        student, by ``evaluation`` or with a known accuracy; None: there are none.
        """
        of_classes = evaluation is None or hasattr(evaluation, "accuracy")
        return cls(
            parties=parties,
            teachers=teachers,
            labels_asked=statement.queries_asked,
            labels_answered=len(labels.rows),
            label_accuracy=(
                label_accuracy(labels, truth)
                if truth is not None
                and labels.answer.labelled
                and (labels.rows or labels.noisy is None)
                else None
            ),
            student_accuracy=getattr(evaluation, "accuracy", student_accuracy),
            nonprivate_accuracy=nonprivate_accuracy,
            majority_accuracy=(
                majority_accuracy(test) if test is not None and test.kind == "class" else None
            ),
            epsilon=statement.epsilon,
            delta=statement.delta,
            unit=statement.unit,
            adjacency=statement.adjacency,
            observer=statement.observer,
            mechanism=mechanism,
            seconds=round(seconds, 1),
            files=files,
            student_scores=None if of_classes else evaluation.in_words,  # type: ignore[union-attr]
            student_figures=dict(getattr(evaluation, "figures", {})),
        )

    def to_dict(self) -> dict[str, object]:
        """Return a JSON object."""
        return asdict(self)


def label_accuracy(labels: LabelSet, public: Dataset) -> float:
    """Return the share of released labels that equal the true ones; 0 if there are none."""
    if not labels.rows:
        return 0.0
    right = [
        labels.classes[row.label] == public.classes[int(public.labels[row.query])]
        for row in labels.rows
    ]
    return sum(right) / len(right)


def majority_accuracy(test: Dataset) -> float:
    """Return the accuracy of always predicting the most frequent class of ``test``."""
    return float(np.bincount(test.labels).max() / len(test))


def show(*reports: Report) -> None:
    """Print the closing table, one column per campaign, and below it the values too long for a cell."""
    many = len(reports) > 1
    sheet = Sheet(
        title="The two campaigns" if many else f"The campaign: {reports[0].mechanism}",
        title_justify="left",
        show_header=many,
    )
    sheet.add_column("", style="bold")
    for report in reports:
        sheet.add_column(report.mechanism)
    for cells in zip(*map(_rows, reports), strict=True):
        sheet.add_row(cells[0][0], *(text for _, text in cells))
    console = Display()
    console.print(sheet)
    for report in reports:
        named = f" of {report.mechanism}" if many else ""
        console.print(f"adjacency{named}: {report.adjacency}")
    for name in reports[0].files:
        console.print(
            f"{name}: {', '.join(report.files[name] for report in reports)}", soft_wrap=True
        )


def _rows(report: Report) -> list[tuple[str, str]]:
    return [
        ("parties, teachers", _who(report)),
        *_of_labels(report),
        ("epsilon", f"{rounded_up(report.epsilon)} at delta {report.delta:g}"),
        ("  unit", report.unit),
        ("  adjacency", report.adjacency.partition(":")[0]),
        ("  observer", report.observer),
        *_of_student(report),
        ("seconds", f"{report.seconds:.0f}"),
    ]


def _of_labels(report: Report) -> list[tuple[str, str]]:
    if report.label_accuracy is None:
        return [("labels", "none: noisy sums are released")]
    return [
        ("labels asked", f"{report.labels_asked}"),
        ("labels answered", f"{report.labels_answered}"),
        ("label accuracy", _percent(report.label_accuracy)),
    ]


def _of_student(report: Report) -> list[tuple[str, str]]:
    if report.majority_accuracy is None:
        return [("student", report.student_scores or "not trained")]
    return [
        ("student accuracy", _percent(report.student_accuracy)),
        ("  all records pooled (not private)", _percent(report.nonprivate_accuracy)),
        ("  always the commonest class", _percent(report.majority_accuracy)),
    ]


def _who(report: Report) -> str:
    return f"{report.parties}, {report.teachers or 'records vote themselves'}"


def _percent(share: float | None) -> str:
    return "not trained" if share is None else f"{100 * share:.1f} %"


def draw(
    path: Path | IO[bytes],
    report: Report,
    labels: LabelSet,
    public: Inputs,
    truth: Dataset | None = None,  # the same with its true labels; None: they are unknown
) -> None:
    """Draw the campaign as a PNG: accuracies, labels by class, and examples of released labels."""
    from matplotlib.figure import Figure

    images = isinstance(public, Images)
    # Without examples both diagrams are in one row; without labels there is only one.
    columns = 2 if images or labels.rows else 1
    figure = Figure(figsize=(11, 6.4 if images else 3.6), dpi=120, layout="constrained")
    figure.get_layout_engine().set(rect=(0.01, 0.01, 0.98, 0.98))  # type: ignore[union-attr,call-arg]
    voters = f"{report.teachers} teachers" if report.teachers else "whose records vote themselves"
    promise = in_words(
        report.epsilon,
        report.delta,
        report.unit,
        report.observer,
        neighbours=report.adjacency.partition(":")[0],
    )
    figure.suptitle(
        f"{report.parties} parties, {voters}; {report.mechanism}\n{promise}", fontsize=10
    )
    grid = figure.add_gridspec(1 + images, columns, width_ratios=(1, 1.25)[:columns])

    _draw_bars(figure.add_subplot(grid[0, 0]), report)
    if columns > 1:
        _draw_labels(figure.add_subplot(grid[1, 0] if images else grid[0, 1]), report, labels)
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    if isinstance(public, Images):
        _draw_examples(figure.add_subfigure(grid[:, 1]), labels, public, truth)
    figure.savefig(path, format="png")


def _draw_bars(bars: Axes, report: Report) -> None:
    """Draw accuracies; of several labels the area under the curve of each, of a number its error."""
    title, below, most, held = _bars(report)
    places = np.arange(len(held))[::-1]
    bars.barh(places, [value for _, value, _ in held], color=[colour for *_, colour in held])
    bars.set_yticks(places, [name for name, *_ in held])
    for place, (_, value, _) in zip(places, held, strict=True):
        inside = value > most / 10
        bars.text(
            value - most / 100 if inside else value + most / 100, place, f"{value:.3g}", va="center",
            ha="right" if inside else "left", color="w" if inside else "k",
        )  # fmt: skip
    bars.set_xlim(0, most)
    bars.set_title(title, **_HEADING)
    bars.set_xlabel(below, fontsize=9)


def _bars(report: Report) -> tuple[str, str, float, list[tuple[str, float, str]]]:
    """Return the title of a diagram, what is below it, the end of its axis, and its bars."""
    found, of_tests = report.student_figures, "of test inputs"
    if "labels" in found:
        areas = {name: each["auc"] for name, each in found["labels"].items()}
        made = [(name, each["value"], _OWN) for name, each in areas.items() if each is not None]
        made = made[:_MOST_BARS]
        if found["macro_auc"] is not None:
            made.append(("mean of all", found["macro_auc"]["value"], _OTHER))
        return "area under the ROC curve, by label", of_tests, 1.0, made
    if found:
        error, usual = (
            found["mean_absolute_error"]["value"],
            found["mean_absolute_error_of_median"],
        )
        made = [("always the\nmedian", usual, _OTHER), ("the student,\npublished", error, _OWN)]
        return "mean absolute error", of_tests, max(error, usual) or 1.0, made
    shares = [
        ("always the\ncommonest class", report.majority_accuracy, _OTHER),
        (f"the {report.labels_answered} labels", report.label_accuracy, "#5b8db0"),
        ("the student,\npublished", report.student_accuracy, _OWN),
        ("all records pooled,\nnot private", report.nonprivate_accuracy, "#9a7a10"),
    ]
    made = [(name, 100 * share, colour) for name, share, colour in shares if share is not None]
    return "accuracy, in %", "labels: of public inputs; all else: of test inputs", 100.0, made


def _draw_labels(classes: Axes, report: Report, labels: LabelSet) -> None:
    from matplotlib.ticker import MaxNLocator

    names = list(labels.classes)
    taught = np.bincount(
        [r.label for r in labels.rows if r.source != "reinforced"], minlength=len(names)
    )
    agreed = np.bincount(
        [r.label for r in labels.rows if r.source == "reinforced"], minlength=len(names)
    )
    who = "teachers" if report.teachers else "records"
    classes.bar(names, taught, color="#1f6f9f", label=f"by the {who}' noisy vote")
    if agreed.any():
        own = "the student's own"
        classes.bar(names, agreed, bottom=taught, color="#9fc5dc", label=own)
    # Room for the legend above the bars.
    classes.margins(y=0.25)
    classes.legend(frameon=False, fontsize=8, loc="upper left", ncols=2)
    classes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
    classes.set_title(
        f"labels by class: {report.labels_answered} for {report.labels_asked} queries asked",
        **_HEADING,
    )
    classes.set_xlabel("class")


def _draw_examples(area: object, labels: LabelSet, public: Images, truth: Dataset | None) -> None:
    from matplotlib.figure import SubFigure

    if not isinstance(area, SubFigure):
        return
    chosen = labels.rows[:48]
    # Few labels are drawn larger, so that they fill their half.
    columns = max(1, math.ceil(math.sqrt(1.3 * len(chosen))))
    rows = max(1, math.ceil(len(chosen) / columns))
    area.suptitle(
        f"{'the first' if len(chosen) < len(labels.rows) else 'all'} {len(chosen)} labels, in the "
        f"order of their release{'' if truth is None else ' (red: wrong)'}",
        x=0.02,
        ha="left",
        fontsize=11,
    )
    axes = np.atleast_1d(area.subplots(rows, columns)).ravel()
    for axis in axes:
        axis.axis("off")
        # Else ticks that are not drawn have their places worked out for the layout.
        axis.xaxis.set_visible(False)
        axis.yaxis.set_visible(False)
    for axis, row in zip(axes, chosen, strict=False):
        given = labels.classes[row.label]
        right = truth is None or given == truth.classes[int(truth.labels[row.query])]
        axis.imshow(public.pixels[row.query].squeeze(), cmap="gray_r")
        axis.set_title(given, fontsize=10, pad=2, color="black" if right else "crimson")
