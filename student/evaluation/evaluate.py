"""Evaluation of a student on labelled data: of one class, of several labels, or of a number.

The labelled data must be public, too; otherwise the figures are themselves a release.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from pate.answers import ORDERED, points_of
from pate.errors import DataError, SchemaError
from pate.printable import listed
from student.evaluation.fairness import MOST_GROUPS, Coverage, Groups, by_group
from student.evaluation.figures import Figure, Rate, area_of, rate_of, units_or_rows
from student.evaluation.scores import Decision, Question, Scores, score
from student.lesson import answer_in, decided, has_classes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pate.data.values import Dataset
    from student.fit.rows import TableStudent
    from student.lesson import Student

    Units = NDArray[np.int64]

#: A table of text, its head first.
TextRows: TypeAlias = list[tuple[str, ...]]


@dataclass(frozen=True, eq=False)
class LabelledData:
    """Labelled public data to evaluate on."""

    records: Dataset  # inputs with their classes, labels or numbers
    name: str = ""
    patients: NDArray[np.str_] | None = None  # (n,) the patient of each input, or None


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The result for one class of each input."""

    classes: tuple[str, ...]
    # (classes, classes) int64; row: the true class, column: the predicted one
    confusion: NDArray[np.int64]
    groups: Groups | None = None  # rates of each group of the data, if any
    # distribution of the student's labels over the classes, if known
    coverage: Coverage | None = None
    data: str = ""
    scores: Scores | None = None
    positive: int = 1  # of two classes the index of the one that scores and groups are about
    decision: Decision | None = None  # predictions by a threshold, if asked for
    patients: int | None = None  # their number, if the data names them
    # then the number of independent inputs that all inputs are worth, and those of each class
    independent: tuple[float | None, ...] | None = None
    # mean distance of the predicted from the true class, in classes, if they are ordered
    apart: Figure | None = None

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
    def right(self) -> Rate:
        """Share of correctly predicted inputs, as a rate."""
        worth = None if self.independent is None else self.independent[0]
        return Rate(int(np.trace(self.confusion)), self.count, worth)

    @property
    def accuracy(self) -> float:
        """Share of correctly predicted inputs."""
        return float(np.trace(self.confusion) / self.confusion.sum())

    @property
    def commonest(self) -> tuple[str, float]:
        """Name of the most frequent class, and its share: the accuracy of always predicting it."""
        totals = self.confusion.sum(axis=1)
        at = int(totals.argmax())
        return self.classes[at], float(totals[at] / totals.sum())

    @property
    def rates(self) -> list[Rate]:
        """Recall per class, as a rate; without inputs for an absent class."""
        worth = (None,) * len(self.classes) if self.independent is None else self.independent[1:]
        found = zip(
            np.diag(self.confusion).tolist(),
            self.confusion.sum(axis=1).tolist(),
            worth,
            strict=True,
        )
        return [Rate(*each) for each in found]

    @property
    def recalls(self) -> list[float | None]:
        """Recall per class; None for an absent class."""
        return [rate.share for rate in self.rates]

    @property
    def balanced_accuracy(self) -> float:
        """Mean recall of the present classes."""
        return float(np.mean([recall for recall in self.recalls if recall is not None]))

    @property
    def missed(self) -> dict[str, Rate]:
        """Recall of the present classes of which less than half is found, the smallest first."""
        found = zip(self.classes, self.rates, strict=True)
        few = [(name, rate) for name, rate in found if rate.count and 2 * rate.hits < rate.count]
        return dict(sorted(few, key=lambda each: each[1].hits / each[1].count))

    @property
    def ranks(self) -> bool:
        """Whether the probabilities of two classes rank inputs better than chance, at 95 % confidence."""
        area = None if self.scores is None or len(self.classes) != 2 else self.scores.area
        return area is not None and area.interval is not None and area.interval[0] > 0.5

    @property
    def remarks(self) -> list[str]:
        """What the accuracy conceals, in words: classes that are missed, a constant answer as good."""
        made, few = [], self.missed
        if len(self.classes) == 2:
            though = ", though its probabilities rank better than chance" if self.ranks else ""
            for name, rate in few.items():
                made.append(
                    f"the student finds {rate.share:.1%} of {name!r} ({rate.hits} of {rate.count}){though}"
                )
        elif few:
            named = listed([f"{name!r}: {rate.share:.1%}" for name, rate in few.items()])
            made.append(
                f"the student finds less than half of {len(few)} of {len(self.classes)} classes ({named})"
            )
        (name, share), (low, _) = self.commonest, self.right.interval()
        if low <= share < 1:
            made.append(
                f"always saying {name!r} is as good{' or better' * (share > self.accuracy)}: right for "
                f"{share:.1%}, and the student for "
                f"{self.right}"
            )
        return made

    @property
    def in_words(self) -> str:
        """The result in one line."""
        apart = (
            "" if self.apart is None else f", {self.apart} places from the true class on average"
        )
        return (
            f"{self.accuracy:.2%} of {self.count} inputs right, mean recall of the classes "
            f"{self.balanced_accuracy:.2%}{apart}"
        )

    @property
    def rows(self) -> TextRows:
        """A table of text, its head first."""
        name, share = self.commonest
        made: TextRows = [
            ("measure", "value", "95 % interval", "for comparison"),
            ("accuracy", f"{self.accuracy:.1%}", self.right.ends, f"{share:.1%}: always {name}"),
        ]
        if self.scores is None:
            return made
        area, chance = self.scores.area, self.scores.error_by_chance
        if area is None:
            made.append(("AUC", "none", "", "all labels are of one class"))
        else:
            kind = "AUC" if len(self.classes) == 2 else "AUC, mean over classes"
            ends = area.interval
            told = "none" if ends is None else "{:.3f} to {:.3f}".format(*ends)
            made.append((kind, f"{area.value:.3f}", told, "0.5: chance"))
        brier, shares = self.scores.brier, self.scores.brier_of_shares
        among = "" if chance is None else f"about {chance:.3f}: chance"
        return [
            *made,
            ("Brier score", f"{brier:.3f}", "", f"{shares:.3f}: class shares"),
            ("calibration error", f"{self.scores.calibration_error:.3f}", "", among),
        ]

    @property
    def notes(self) -> list[str]:
        """What a reader of the table must know."""
        if self.scores is None:
            return []
        left_out = self.scores.left_out if self.scores.area is not None else ()
        absent = [f"AUC: without {listed(list(left_out))}, absent here"] if left_out else []
        return ["Brier score: sum over classes, from 0 to 2", *absent]

    def to_json(self) -> dict[str, object]:
        """Return plain JSON values."""
        return {
            "data": self.data,
            "count": self.count,
            "patients": self.patients,
            "accuracy": self.accuracy,
            "accuracy_interval": list(self.right.interval()),
            "commonest_class_share": self.commonest[1],
            "balanced_accuracy": self.balanced_accuracy,
            **({} if self.apart is None else {"mean_classes_apart": self.apart.to_json()}),
            "positive_class": self.classes[self.positive] if len(self.classes) == 2 else None,
            "scores": None if self.scores is None else self.scores.to_json(),
            "decision": None if self.decision is None else self.decision.to_json(),
            "recall": dict(zip(self.classes, self.recalls, strict=True)),
            "recall_interval": {
                name: list(rate.interval())
                for name, rate in zip(self.classes, self.rates, strict=True)
            },
            "remarks": self.remarks,
            "confusion": self.confusion.tolist(),
            "classes": list(self.classes),
            "groups": None if self.groups is None else self.groups.to_json(),
            "coverage": None if self.coverage is None else self.coverage.to_json(),
        }


@dataclass(frozen=True)
class AnswersEvaluation:
    """The result for several labels of each input, or for a number."""

    count: int
    in_words: str
    rows: TextRows
    figures: dict[str, Any]
    data: str = ""
    patients: int | None = None  # their number, if intervals count them
    notes: tuple[str, ...] = ()  # what a reader of the table must know

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        told = {"data": self.data, "count": self.count, "patients": self.patients}
        return told | self.figures


#: Of a student of any kind.
AnyEvaluation: TypeAlias = Evaluation | AnswersEvaluation


def _text(figure: Figure | None) -> str:
    return "none" if figure is None else str(figure)


def _json(figure: Figure | None) -> dict[str, object] | None:
    return None if figure is None else figure.to_json()


def evaluated(
    student: Student,
    test: LabelledData,
    *,
    coverage: Coverage | None = None,
    question: Question | None = None,
) -> AnyEvaluation:
    """Return the evaluation of a student of any kind; arguments and errors as of the two below."""
    if not has_classes(student):
        return evaluate_answers(cast("TableStudent", student), test)
    return evaluate(
        student,
        test.records,
        coverage=coverage,
        name=test.name,
        patients=test.patients,
        question=question,
    )


def evaluate(
    student: Student,
    # its classes may be fewer than the student's, or in another order. Its groups are compared if
    # they are too few to be single people; else they are the patients
    data: Dataset,
    *,
    coverage: Coverage | None = None,  # of the labels that the student learnt from
    name: str = "",
    # (n,) the patient of each input, if known; intervals then count patients
    patients: NDArray[np.str_] | None = None,
    question: Question | None = None,  # the positive class, and a threshold to judge
) -> Evaluation:
    """Return the evaluation of a student of one class: the most probable one, or if ordered the median."""
    asked = question or Question()
    classes, size = student.classes, len(student.classes)
    positive = asked.positive_of(classes)
    data = data.with_classes(classes)
    _require_rows(data)
    truth, units = data.labels, units_of(patients, data.groups)
    probabilities = student.predict_probabilities(data.inputs)
    scores = score(probabilities, truth, classes, positive=positive, units=units)
    predicted = decided(answer_in(student), probabilities)
    right, apart, independent = predicted == truth, None, None
    if units is not None:
        some = [None, *(truth == at for at in range(size))]
        independent = tuple(rate_of(right, units, rows).independent for rows in some)
    if answer_in(student) == ORDERED:
        apart = _mean(np.abs(predicted - truth), units)
    confusion = np.bincount(truth * size + predicted, minlength=size * size).reshape(size, size)
    return Evaluation(
        classes,
        confusion.astype(np.int64),
        by_group(data.groups, truth, predicted, classes, positive=positive, units=units),
        coverage,
        data=name,
        scores=scores,
        positive=positive,
        decision=asked.decision(probabilities, truth, classes, units),
        patients=_number_of(units),
        independent=independent,
        apart=apart,
    )


def evaluate_answers(student: TableStudent, test: LabelledData) -> AnswersEvaluation:
    """Return the evaluation of a student of several labels, or of a number.

    Of a label there are the area under the ROC curve, None if all or no inputs have it, and F1, the harmonic
    mean of precision and recall at the student's threshold, None if no input has it; and their means. Of a
    number there are the mean absolute error, R2, the share of the variance that is explained, and how many
    lie outside the campaign's range.
    """
    _require_rows(test.records)
    units = units_of(test.patients, test.records.groups)
    return (_labels if student.thresholds else _number)(student, test, units)


def units_of(patients: NDArray[np.str_] | None, groups: NDArray[np.str_] | None) -> Units | None:
    """Return (n,) a number for each patient; None if no patients are known."""
    if patients is None and groups is not None and len(np.unique(groups)) > MOST_GROUPS:
        patients = groups
    if patients is None:
        return None
    return np.unique(patients, return_inverse=True)[1].astype(np.int64)


def _require_rows(data: Dataset) -> None:
    if not len(data):
        raise DataError("there is nothing to evaluate on: the data has no rows")


def _number_of(units: Units | None) -> int | None:
    return None if units is None else int(units.max()) + 1


def _mean(values: NDArray[np.int64] | NDArray[np.float64], units: Units | None) -> Figure:
    """Return the mean of (n,) values of at least 0."""
    at = units_or_rows(units, len(values))
    return Figure.of(lambda rows: float(values[rows].mean()), at, within=(0.0, np.inf))


def _labels(student: TableStudent, test: LabelledData, units: Units | None) -> AnswersEvaluation:
    data = test.records.with_classes(student.classes)
    if data.kind != "labels" or data.answers is None:
        raise SchemaError("the student predicts several labels, and the data has other answers")
    truth = data.answers.astype(np.bool_)
    chances = student.predict_probabilities(data.inputs).astype(np.float64)
    rows: TextRows = [("label", "inputs", "AUC (95 %)", "F1 (95 %)", "threshold")]
    labels, found = {}, []
    for at, label in enumerate(student.classes):
        least, has = student.thresholds[at], truth[:, at]
        area, f1 = area_of(chances[:, at, None], has[:, None], units), None
        if has.any():
            f1 = _f1(chances[:, at] >= least, has, units)
            found.append(f1.value)
        count = int(has.sum())
        rows.append((label, str(count), _text(area), _text(f1), f"{least:.3g}"))
        labels[label] = {"count": count, "auc": _json(area), "f1": _json(f1), "threshold": least}
    macro, mean = area_of(chances, truth, units), float(np.mean(found)) if found else None
    said = "none" if mean is None else f"{mean:.3g}"
    return AnswersEvaluation(
        len(data),
        f"macro AUC {_text(macro)}, macro F1 {said}, over {len(labels)} labels of {len(data)} inputs",
        rows,
        {"macro_auc": _json(macro), "macro_f1": mean, "labels": labels},
        test.name,
        _number_of(units),
    )


def _f1(predicted: NDArray[np.bool_], has: NDArray[np.bool_], units: Units | None) -> Figure:
    at = units_or_rows(units, len(has))
    hits, said = predicted & has, predicted.astype(np.int64) + has

    def figure(rows: NDArray[np.intp]) -> float:
        total = int(said[rows].sum())
        return 2 * int(hits[rows].sum()) / total if total else float("nan")

    return Figure.of(figure, at, trials=len(np.unique(at[has])))


def _number(student: TableStudent, test: LabelledData, units: Units | None) -> AnswersEvaluation:
    data = test.records
    if data.kind != "number" or data.answers is None:
        raise SchemaError("the student predicts a number, and the data has other answers")
    truth = data.answers.astype(np.float64)
    points, at = points_of(student.classes), units_or_rows(units, len(data))
    said, mean = student.predict_numbers(data.inputs)
    rest = np.square(truth - mean)

    def explained(rows: NDArray[np.intp]) -> float:
        variance = float(truth[rows].var())
        return 1 - float(rest[rows].mean()) / variance if variance else float("nan")

    error = _mean(np.abs(truth - said), units)
    of_median = float(np.abs(truth - np.median(truth)).mean())
    r2 = Figure.of(explained, at, within=(-np.inf, 1.0)) if truth.var() > 0 else None
    outside = int(((truth < points[0]) | (truth > points[-1])).sum())
    return AnswersEvaluation(
        len(data),
        f"mean absolute error {error}, R2 {_text(r2)}, of {len(data)} inputs",
        [
            ("measure", "here (95 %)", "for comparison"),
            ("mean absolute error", str(error), f"{of_median:.3g}: always the median"),
            ("R2", _text(r2), "0: always the mean"),
            ("inputs outside the range", str(outside), f"of {len(data)}"),
        ],
        {
            "mean_absolute_error": error.to_json(),
            "mean_absolute_error_of_median": of_median,
            "r2": _json(r2),
            "outside_the_range": outside,
        },
        test.name,
        _number_of(units),
    )
