"""Evaluation of a student of several labels, or of a number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from pate.answers import points_of
from pate.errors import DataError, SchemaError
from student.evaluation.evaluate import Evaluation, units_of
from student.evaluation.figures import Figure
from student.evaluation.scores import Area, mean_area

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pate.data.values import Dataset
    from student.evaluation.evaluate import LabelledData
    from student.trainers.selftraining import TableStudent

    Floats = NDArray[np.float64]


def _of_area(area: Area) -> Figure:
    return Figure(area.value, area.interval)


@dataclass(frozen=True)
class LabelScores:
    """How well one label is predicted.

    Attributes:
        name: of the label.
        count: inputs that have it.
        area: under the ROC curve; None if all or no inputs have it.
        f1: harmonic mean of precision and recall at the student's threshold; None if no input has it.
        threshold: probability from which the student predicts it.
    """

    name: str
    count: int
    area: Figure | None
    f1: Figure | None
    threshold: float


@dataclass(frozen=True)
class LabelsEvaluation:
    """The result for several labels.

    Attributes:
        count: number of inputs.
        labels: the scores of each.
        area: mean of their areas under the ROC curve; None if there is none.
        f1: mean F1 of the labels that occur, None if none does.
        data: name of the labelled data, or "".
        patients: their number, if intervals count them.
    """

    count: int
    labels: tuple[LabelScores, ...]
    area: Figure | None
    f1: float | None
    data: str = ""
    patients: int | None = None

    @property
    def in_words(self) -> str:
        """The result in one line."""
        area = "none" if self.area is None else str(self.area)
        f1 = "none" if self.f1 is None else f"{self.f1:.3g}"
        return f"macro AUC {area}, macro F1 {f1}, over {len(self.labels)} labels of {self.count} inputs"

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """A table of text, its head first."""
        head = ("label", "inputs", "AUC (95 %)", "F1 (95 %)", "threshold")
        return [head, *map(self._row, self.labels)]

    @staticmethod
    def _row(each: LabelScores) -> tuple[str, ...]:
        return (
            each.name,
            str(each.count),
            "none" if each.area is None else str(each.area),
            "none" if each.f1 is None else str(each.f1),
            f"{each.threshold:.3g}",
        )

    def to_json(self) -> dict[str, object]:
        """Return plain JSON values."""
        return {
            "data": self.data,
            "count": self.count,
            "patients": self.patients,
            "macro_auc": None if self.area is None else self.area.to_json(),
            "macro_f1": self.f1,
            "labels": {
                each.name: {
                    "count": each.count,
                    "auc": None if each.area is None else each.area.to_json(),
                    "f1": None if each.f1 is None else each.f1.to_json(),
                    "threshold": each.threshold,
                }
                for each in self.labels
            },
        }


@dataclass(frozen=True)
class NumberEvaluation:
    """The result for a number.

    Attributes:
        count: number of inputs.
        error: mean absolute error.
        of_median: that of always saying the median of these inputs.
        explained: R2, the share of the variance that is explained; None if there is none.
        outside: inputs whose number is not in the range of the campaign.
        data: name of the labelled data, or "".
        patients: their number, if intervals count them.
    """

    count: int
    error: Figure
    of_median: float
    explained: Figure | None
    outside: int
    data: str = ""
    patients: int | None = None

    @property
    def in_words(self) -> str:
        """The result in one line."""
        explained = "none" if self.explained is None else str(self.explained)
        return f"mean absolute error {self.error}, R2 {explained}, of {self.count} inputs"

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """A table of text, its head first."""
        explained = "none" if self.explained is None else str(self.explained)
        return [
            ("measure", "here (95 %)", "for comparison"),
            (
                "mean absolute error",
                str(self.error),
                f"{self.of_median:.3g} by always saying the median",
            ),
            ("R2", explained, "0 by always saying the mean"),
            ("inputs outside the range", str(self.outside), f"of {self.count}"),
        ]

    def to_json(self) -> dict[str, object]:
        """Return plain JSON values."""
        return {
            "data": self.data,
            "count": self.count,
            "patients": self.patients,
            "mean_absolute_error": self.error.to_json(),
            "mean_absolute_error_of_median": self.of_median,
            "r2": None if self.explained is None else self.explained.to_json(),
            "outside_the_range": self.outside,
        }


#: Of a student of any kind.
AnyEvaluation: TypeAlias = Evaluation | LabelsEvaluation | NumberEvaluation


def evaluate_answers(
    student: TableStudent, test: LabelledData
) -> LabelsEvaluation | NumberEvaluation:
    """Return the evaluation of a student of several labels, or of a number.

    Args:
        student: to evaluate.
        test: labelled data with the same labels, or with a number.

    Raises:
        SchemaError: if the data has other labels, or other inputs.
        DataError: if there are no rows.
    """
    data = test.records
    if not len(data):
        raise DataError("there is nothing to evaluate on: the data has no rows")
    units = units_of(test.patients, data.groups)
    patients = None if units is None else int(units.max()) + 1
    if student.thresholds:
        return _labels(student, data, units, test.name, patients)
    return _number(student, data, units, test.name, patients)


def _labels(
    student: TableStudent,
    data: Dataset,
    units: NDArray[np.int64] | None,
    name: str,
    patients: int | None,
) -> LabelsEvaluation:
    data = data.with_classes(student.classes)
    if data.kind != "labels" or data.answers is None:
        raise SchemaError("the student predicts several labels, and the data has other answers")
    truth = data.answers.astype(np.bool_)
    chances = student.predict_probabilities(data.inputs).astype(np.float64)
    judged, scores = [], []
    for at, label in enumerate(student.classes):
        known, has = chances[:, at], truth[:, at]
        area = None
        if 0 < has.sum() < len(has):
            judged.append((known, has))
            area = _of_area(mean_area([judged[-1]], units))
        least = student.thresholds[at]
        scores.append(
            LabelScores(label, int(has.sum()), area, _f1(known >= least, has, units), least)
        )
    found = [each.f1.value for each in scores if each.f1 is not None]
    return LabelsEvaluation(
        len(data),
        tuple(scores),
        _of_area(mean_area(judged, units)) if judged else None,
        float(np.mean(found)) if found else None,
        name,
        patients,
    )


def _f1(
    predicted: NDArray[np.bool_], has: NDArray[np.bool_], units: NDArray[np.int64] | None
) -> Figure | None:
    if not has.any():
        return None
    hits = 2.0 * (predicted & has)
    said = predicted.astype(np.float64) + has
    value = float(hits.sum() / said.sum())
    return Figure.of(value, (hits - value * said) / said.sum(), units)


def _number(
    student: TableStudent,
    data: Dataset,
    units: NDArray[np.int64] | None,
    name: str,
    patients: int | None,
) -> NumberEvaluation:
    if data.kind != "number" or data.answers is None:
        raise SchemaError("the student predicts a number, and the data has other answers")
    truth = data.answers.astype(np.float64)
    points = points_of(student.classes)
    said, mean = student.predict_numbers(data.inputs)
    apart = truth - mean
    missed, centred = np.abs(truth - said), truth - truth.mean()
    explained = None
    if (whole := float(np.square(centred).sum())) > 0:
        rest = float(np.square(apart).sum()) / whole
        explained = Figure.of(
            1 - rest, (rest * np.square(centred) - np.square(apart)) / whole, units
        )
    return NumberEvaluation(
        len(data),
        Figure.of(float(missed.mean()), (missed - missed.mean()) / len(missed), units),
        float(np.abs(truth - np.median(truth)).mean()),
        explained,
        int(((truth < points[0]) | (truth > points[-1])).sum()),
        name,
        patients,
    )
