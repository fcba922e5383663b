"""A threshold for two classes: which probability of the positive class is enough to predict it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pate.errors import DataError, UsageError
from student.evaluation.rates import Rate, rate_of

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Threshold:
    """The rule that predicts a class if its probability is large enough, and else the other one.

    Attributes:
        positive: index of the class, 0 or 1.
        least: its smallest probability that is enough, from 0 to 1. Probabilities are compared as
            float32, which is what students return: 0.7 is enough for 0.7.
    """

    positive: int
    least: float

    def predict(self, probabilities: NDArray[np.floating]) -> NDArray[np.int64]:
        """Return (n,) predicted classes of (n, 2) probabilities."""
        is_enough = probabilities[:, self.positive].astype(np.float32) >= np.float32(self.least)
        return np.where(is_enough, self.positive, 1 - self.positive).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Decision:
    """What predictions by a threshold are worth on labelled data.

    Attributes:
        threshold: the rule.
        classes: the two class names.
        confusion: (2, 2) int64; row: the true class, column: the predicted one.
        sensitivity: share of the positive inputs that are predicted as positive.
        specificity: share of the negative inputs that are predicted as negative.
        precision: share of the positive predictions that are right.
        wanted: the sensitivity for which the threshold was chosen on these same labels; None if it
            was given. Where it was chosen here, the shares are too good, and no test of the student.
    """

    threshold: Threshold
    classes: tuple[str, ...]
    confusion: NDArray[np.int64]
    sensitivity: Rate
    specificity: Rate
    precision: Rate
    wanted: float | None = None

    @property
    def rates(self) -> dict[str, Rate]:
        """The shares by name."""
        return {
            "sensitivity": self.sensitivity,
            "specificity": self.specificity,
            "precision": self.precision,
        }

    def to_json(self) -> dict[str, object]:
        """Return plain JSON values; shares on the labels that chose the threshold have no interval."""
        chosen = self.wanted is not None
        return {
            "positive_class": self.classes[self.threshold.positive],
            "threshold": self.threshold.least,
            "threshold_source": "chosen on this data" if chosen else "given",
            "wanted_sensitivity": self.wanted,
            **{
                name: {"share": rate.share, "of": rate.count} if chosen else rate.to_json()
                for name, rate in self.rates.items()
            },
            "confusion": self.confusion.tolist(),
        }


@dataclass(frozen=True)
class Question:
    """What a user wants to know about two classes.

    Attributes:
        positive: name of the positive class; None: the second.
        threshold: smallest probability of it that is enough to predict it, if one was given.
        at_sensitivity: choose the highest threshold with at least this sensitivity, on the very
            labels that it is then judged by.
    """

    positive: str | None = None
    threshold: float | None = None
    at_sensitivity: float | None = None

    def positive_of(self, classes: tuple[str, ...]) -> int:
        """Return the index of the positive class, after checking all options against the classes.

        Raises:
            UsageError: if they exclude each other, are no shares, or the student has not two classes.
        """
        options = {
            "--positive": self.positive,
            "--threshold": self.threshold,
            "--at-sensitivity": self.at_sensitivity,
        }
        asked = [name for name, value in options.items() if value is not None]
        if asked and len(classes) != 2:
            raise UsageError(f"{asked[0]} is for two classes, and this student has {len(classes)}")
        if self.threshold is not None and self.at_sensitivity is not None:
            raise UsageError("give either --threshold or --at-sensitivity, which chooses one")
        if self.threshold is not None and not 0 <= self.threshold <= 1:
            raise UsageError(f"--threshold {self.threshold}: give a probability from 0 to 1")
        if self.at_sensitivity is not None and not 0 < self.at_sensitivity <= 1:
            raise UsageError(
                f"--at-sensitivity {self.at_sensitivity}: give a share above 0, at most 1"
            )
        if self.positive is None:
            return 1
        if self.positive not in classes:
            raise UsageError(f"--positive {self.positive}: the classes are {' and '.join(classes)}")
        return classes.index(self.positive)

    def rule(self, classes: tuple[str, ...]) -> Threshold | None:
        """Return the threshold that was given, None without one.

        Raises:
            UsageError: as :meth:`positive_of`.
        """
        at = self.positive_of(classes)
        return None if self.threshold is None else Threshold(at, self.threshold)


def threshold_for(
    sensitivity: float,
    probabilities: NDArray[np.floating],
    truth: NDArray[np.int64],
    positive: int,
) -> Threshold:
    """Return the highest threshold with at least this sensitivity on labelled data.

    Args:
        sensitivity: above 0, at most 1.
        probabilities: (n, 2).
        truth: (n,) true classes.
        positive: index of the class, 0 or 1.

    Raises:
        DataError: if the data has no positive input.
    """
    judged = np.sort(probabilities[truth == positive, positive].astype(np.float32))[::-1]
    if not len(judged):
        raise DataError("--at-sensitivity: the data has no input of the positive class")
    needed = math.ceil(sensitivity * len(judged))
    if (needed - 1) / len(judged) >= sensitivity:
        needed -= 1  # the product was rounded up
    # The shortest decimals that are this float32, so that a printed threshold is the same one.
    return Threshold(positive, min(1.0, float(str(judged[needed - 1]))))


def decide(
    threshold: Threshold,
    probabilities: NDArray[np.floating],
    truth: NDArray[np.int64],
    classes: tuple[str, ...],
    *,
    units: NDArray[np.int64] | None = None,
    wanted: float | None = None,
) -> Decision:
    """Return what a threshold is worth on labelled data.

    Args:
        threshold: the rule.
        probabilities: (n, 2).
        truth: (n,) true classes.
        classes: of the student.
        units: (n,) whole numbers, equal for inputs of one patient; None if all are independent.
        wanted: as in :class:`Decision`.
    """
    predicted = threshold.predict(probabilities)
    right, at = predicted == truth, threshold.positive

    def among(rows: NDArray[np.bool_]) -> Rate:
        return rate_of(right[rows], None if units is None else units[rows])

    return Decision(
        threshold,
        classes,
        np.bincount(truth * 2 + predicted, minlength=4).reshape(2, 2).astype(np.int64),
        sensitivity=among(truth == at),
        specificity=among(truth != at),
        precision=among(predicted == at),
        wanted=wanted,
    )
