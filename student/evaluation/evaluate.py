"""Evaluation of a student on labelled data: accuracy, scores of probabilities, rates per class and group.

The labelled data must be public, too; otherwise the numbers are themselves a release.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pate.answers import ORDERED
from pate.errors import DataError
from pate.runtime.screen import listed
from student.evaluation.fairness import MOST_GROUPS, Coverage, Groups, by_group
from student.evaluation.figures import Figure
from student.evaluation.rates import Rate, rate_of
from student.evaluation.scores import Scores, score
from student.evaluation.threshold import Decision, Question, decide, threshold_for
from student.trainers.base import answer_in, decided

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pate.data.values import Dataset
    from student.trainers.base import Student


@dataclass(frozen=True, eq=False)
class LabelledData:
    """Labelled public data to evaluate on; the arguments of :func:`evaluate` that are about it.

    Attributes:
        records: inputs with their classes.
        name: of the file or folder.
        patients: (n,) the patient of each input, or None.
    """

    records: Dataset
    name: str = ""
    patients: NDArray[np.str_] | None = None


@dataclass(frozen=True)
class ByPatient:
    """Rates of data in which inputs of one patient are no independent inputs.

    Attributes:
        patients: their number.
        right: share of correctly predicted inputs.
        recalls: recall of each class.
    """

    patients: int
    right: Rate
    recalls: tuple[Rate, ...]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The result of an evaluation.

    Attributes:
        classes: class names.
        confusion: (classes, classes) int64; row: the true class, column: the predicted one.
        groups: the same for each group of the data, if any.
        coverage: distribution of the student's labels over the classes, if known.
        data: name of the labelled data, or "".
        scores: of the probabilities, if known.
        positive: of two classes the index of the one that scores and groups are about.
        decision: predictions by a threshold, if asked for.
        by_patient: rates that count patients, if the data names them.
        apart: mean distance of the predicted from the true class, in classes, if they are ordered.
    """

    classes: tuple[str, ...]
    confusion: NDArray[np.int64]
    groups: Groups | None = None
    coverage: Coverage | None = None
    data: str = ""
    scores: Scores | None = None
    positive: int = 1
    decision: Decision | None = None
    by_patient: ByPatient | None = None
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
        if self.by_patient is not None:
            return self.by_patient.right
        return Rate(int(np.trace(self.confusion)), self.count)

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
        if self.by_patient is not None:
            return list(self.by_patient.recalls)
        totals = self.confusion.sum(axis=1).tolist()
        right = np.diag(self.confusion).tolist()
        return [Rate(r, t) for r, t in zip(right, totals, strict=True)]

    @property
    def recalls(self) -> list[float | None]:
        """Recall per class; None for an absent class."""
        return [rate.share for rate in self.rates]

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
        (name, share), (low, high) = self.commonest, self.right.interval()
        if low <= share < 1:
            made.append(
                f"always saying {name!r} is as good: right for {share:.1%}, and the student for "
                f"{self.accuracy:.1%} ({low:.1%} to {high:.1%})"
            )
        return made

    @property
    def balanced_accuracy(self) -> float:
        """Mean recall of the present classes."""
        return float(np.mean([recall for recall in self.recalls if recall is not None]))

    def to_json(self) -> dict[str, object]:
        """Return plain JSON values."""
        two, counted = len(self.classes) == 2, self.by_patient
        return {
            "data": self.data,
            "count": self.count,
            "patients": None if counted is None else counted.patients,
            "accuracy": self.accuracy,
            "accuracy_interval": list(self.right.interval()),
            "commonest_class_share": self.commonest[1],
            "balanced_accuracy": self.balanced_accuracy,
            **({} if self.apart is None else {"mean_classes_apart": self.apart.to_json()}),
            "positive_class": self.classes[self.positive] if two else None,
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


def evaluate(
    student: Student,
    data: Dataset,
    *,
    coverage: Coverage | None = None,
    name: str = "",
    patients: NDArray[np.str_] | None = None,
    question: Question | None = None,
) -> Evaluation:
    """Return the evaluation of a student on labelled data.

    The predicted class is the most probable one; of ordered classes the median.

    Args:
        student: to evaluate.
        data: its classes may be fewer than the student's, or in another order. Its groups are compared
            if they are too few to be single people; else they are the patients.
        coverage: of the labels that the student learnt from.
        name: of the data.
        patients: (n,) the patient of each input, if known; intervals then count patients.
        question: the positive class, and a threshold to judge.

    Raises:
        SchemaError: if the data has classes that the student does not know, or other inputs.
        UsageError: if the question does not fit the student's classes.
        DataError: if there are no rows, none of a class that the question is about, or the student
            returns something else than probabilities.
    """
    asked = question or Question()
    classes, size = student.classes, len(student.classes)
    positive = asked.positive_of(classes)
    data = data.with_classes(classes)
    if not len(data):
        raise DataError("there is nothing to evaluate on: the data has no rows")
    truth, units = data.labels, units_of(patients, data.groups)
    probabilities = student.predict_probabilities(data.inputs)
    scores = score(probabilities, truth, classes, positive=positive, units=units)
    predicted = decided(answer_in(student), probabilities)
    apart = np.abs(predicted - truth)
    confusion = np.bincount(truth * size + predicted, minlength=size * size).reshape(size, size)
    threshold, wanted, decision = asked.rule(classes), asked.at_sensitivity, None
    if wanted is not None:
        threshold = threshold_for(wanted, probabilities, truth, positive)
    if threshold is not None:
        decision = decide(threshold, probabilities, truth, classes, units=units, wanted=wanted)
    return Evaluation(
        classes,
        confusion.astype(np.int64),
        by_group(data.groups, truth, predicted, classes, positive=positive, units=units),
        coverage,
        data=name,
        scores=scores,
        positive=positive,
        decision=decision,
        by_patient=_by_patient(truth, predicted, size, units),
        apart=Figure.of(float(apart.mean()), (apart - apart.mean()) / len(apart), units)
        if answer_in(student) == ORDERED
        else None,
    )


def units_of(
    patients: NDArray[np.str_] | None, groups: NDArray[np.str_] | None
) -> NDArray[np.int64] | None:
    """Return (n,) a number for each patient; None if no patients are known."""
    if patients is None and groups is not None and len(np.unique(groups)) > MOST_GROUPS:
        patients = groups
    if patients is None:
        return None
    return np.unique(patients, return_inverse=True)[1].astype(np.int64)


def _by_patient(
    truth: NDArray[np.int64],
    predicted: NDArray[np.int64],
    size: int,
    units: NDArray[np.int64] | None,
) -> ByPatient | None:
    if units is None:
        return None
    right = truth == predicted
    rows = [truth == at for at in range(size)]
    return ByPatient(
        int(units.max()) + 1,
        rate_of(right, units),
        tuple(rate_of(right[each], units[each]) for each in rows),
    )
