"""How good a student is on labelled data: accuracy, recall per class, confusion matrix.

The labelled data for this must be public too, or the numbers themselves are a release.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pate.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from pate.data.values import Dataset
    from student.trainers.base import Student


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What a student got right and wrong.

    Attributes:
        classes: class names.
        confusion: (classes, classes) int64; row: the true class, column: the predicted one.
    """

    classes: tuple[str, ...]
    confusion: NDArray[np.int64]

    def __post_init__(self) -> None:
        if self.confusion.shape != (len(self.classes), len(self.classes)):
            raise DataError(f"{len(self.classes)} classes but counts of {self.confusion.shape}")
        if not self.confusion.sum():
            raise DataError("there is nothing to evaluate on: the data has no rows")
        self.confusion.setflags(write=False)

    @property
    def count(self) -> int:
        """Number of inputs."""
        return int(self.confusion.sum())

    @property
    def accuracy(self) -> float:
        """Share of inputs that were told right."""
        return float(np.trace(self.confusion) / self.confusion.sum())

    @property
    def recalls(self) -> list[float | None]:
        """Per class the share of its inputs that were told right; None for an absent class."""
        totals = self.confusion.sum(axis=1).tolist()
        right = np.diag(self.confusion).tolist()
        return [r / t if t else None for r, t in zip(right, totals, strict=True)]

    @property
    def balanced_accuracy(self) -> float:
        """Mean of the recalls of the classes that are there."""
        return float(np.mean([recall for recall in self.recalls if recall is not None]))

    def to_json(self) -> dict[str, object]:
        """Return plain JSON values."""
        return {
            "count": self.count,
            "accuracy": self.accuracy,
            "balanced_accuracy": self.balanced_accuracy,
            "recall": dict(zip(self.classes, self.recalls, strict=True)),
            "confusion": self.confusion.tolist(),
            "classes": list(self.classes),
        }


def evaluate(student: Student, data: Dataset) -> Evaluation:
    """Return how a student does on labelled data.

    Args:
        student: to judge.
        data: its classes may be fewer than the student's, or in another order.

    Raises:
        SchemaError: if the data has classes that the student does not know, or other inputs.
        DataError: if there are no rows.
    """
    data = data.with_classes(student.classes)
    if not len(data):
        raise DataError("there is nothing to evaluate on: the data has no rows")
    size = len(student.classes)
    cells = data.labels * size + student.predict(data.inputs)
    confusion = np.bincount(cells, minlength=size * size).reshape(size, size)
    return Evaluation(student.classes, confusion.astype(np.int64))


def draw(evaluation: Evaluation, path: Path, *, title: str = "Student") -> None:
    """Draw the confusion matrix, with the recall of each class beside it, as a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    size = len(evaluation.classes)
    side = min(14.0, max(4.2, 0.52 * size + 1.8))
    figure = Figure(figsize=(side + 2.4, side), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, width_ratios=(4.2, 1), sharey=True)
    totals = evaluation.confusion.sum(axis=1, keepdims=True)
    shares = evaluation.confusion / np.maximum(totals, 1)

    left.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    if size <= 26:
        for row, column in np.ndindex(size, size):
            count = int(evaluation.confusion[row, column])
            if count:
                colour = "white" if shares[row, column] > 0.55 else "#1b2a3a"
                left.text(column, row, count, ha="center", va="center", color=colour, fontsize=9)
    left.set_xticks(range(size), _short(evaluation.classes), rotation=45 if size > 10 else 0)
    left.set_yticks(range(size), _short(evaluation.classes))
    left.set_xlabel("predicted")
    left.set_ylabel("true class")
    left.set_title(
        f"{title}: {evaluation.accuracy:.2%} of {evaluation.count} right", loc="left", fontsize=11
    )
    left.set_xticks(np.arange(size + 1) - 0.5, minor=True)
    left.set_yticks(np.arange(size + 1) - 0.5, minor=True)
    left.grid(which="minor", color="white", linewidth=1.2)
    left.tick_params(which="both", length=0)

    recalls = [0.0 if recall is None else recall for recall in evaluation.recalls]
    right.barh(range(size), recalls, color="#3b7dba", height=0.72)
    for row, recall in enumerate(evaluation.recalls):
        text = "none" if recall is None else f"{recall:.0%}"
        inside = recall is not None and recall > 0.5
        right.text(
            recalls[row] - 0.04 if inside else recalls[row] + 0.04,
            row,
            text,
            ha="right" if inside else "left",
            va="center",
            fontsize=8,
            color="white" if inside else "#1b2a3a",
        )
    right.set_xlim(0, 1)
    right.set_xticks([0, 1], ["0", "100 %"])
    right.set_title("recall", loc="left", fontsize=11)
    right.tick_params(which="both", length=0, labelleft=False)
    for axes in (left, right):
        for spine in axes.spines.values():
            spine.set_visible(False)
    figure.savefig(path)


def _short(names: tuple[str, ...]) -> list[str]:
    return [name if len(name) <= 14 else name[:13] + "…" for name in names]
