"""Scores of a student's probabilities, and predictions of one of two classes by a threshold."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.errors import DataError, UsageError
from student.evaluation.figures import Figure, Rate, area_of, rate_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Probabilities = NDArray[np.floating]

#: Bins of the calibration, if each gets at least this many inputs.
_BINS: Final = 10
_LEAST_IN_BIN: Final = 10
#: By how much a row of probabilities may miss a sum of 1.
_SLACK: Final = 1e-3


@dataclass(frozen=True)
class Bin:
    """Inputs with similar probabilities: their least, most and mean, and how many it happened for."""

    low: float
    high: float
    mean: float
    observed: Rate

    def to_json(self) -> dict[str, object]:
        """Return plain JSON values."""
        ends = {"least": self.low, "most": self.high, "mean": self.mean}
        return {**ends, "observed": self.observed.to_json()}


@dataclass(frozen=True, eq=False)
class Scores:
    """How well probabilities fit the true classes."""

    # under the ROC curve; with more than two classes the mean of one against the rest; None if the
    # labels are of one class
    area: Figure | None
    left_out: tuple[str, ...]  # names of the classes without an input, which have no area
    # Brier score: the squared differences between probabilities and truth, summed over all classes
    # and averaged over inputs, from 0 to 2. For two classes it is twice the score of one class
    brier: float
    brier_of_shares: float  # the same for always predicting each class's share of these inputs
    # for two classes of the positive one's probability; for more of the largest probability, and
    # whether its class is right
    bins: tuple[Bin, ...]
    # mean calibration error of perfect probabilities with as many inputs in these bins; None if
    # inputs come in patients
    error_by_chance: float | None
    # (k, 2) false and true positive rates of two classes; None otherwise
    roc: NDArray[np.float64] | None

    @property
    def calibration_error(self) -> float:
        """Expected calibration error: mean distance of the bins from the truth, by their inputs."""
        count = sum(each.observed.count for each in self.bins)
        apart = [abs(each.mean * each.observed.count - each.observed.hits) for each in self.bins]
        return sum(apart) / count

    def to_json(self) -> dict[str, object]:
        """Return plain JSON values."""
        area = Figure(math.nan, None) if self.area is None else self.area
        return {
            "auc": None if self.area is None else area.value,
            "auc_interval": area.to_json()["interval"],
            "auc_left_out": list(self.left_out),
            "brier": self.brier,
            "brier_of_shares": self.brier_of_shares,
            "brier_convention": "sum over classes, mean over inputs: 0 to 2",
            "calibration_error": self.calibration_error,
            "calibration_error_by_chance": self.error_by_chance,
            "calibration": [each.to_json() for each in self.bins],
        }


def score(
    probabilities: Probabilities,  # each row a distribution over the classes
    truth: NDArray[np.int64],  # (n,) the true classes
    classes: tuple[str, ...],
    *,
    positive: int = 1,  # of two classes the one whose probability is judged
    # (n,) from 0 without a gap, a number for each patient; None if all are independent
    units: NDArray[np.int64] | None = None,
) -> Scores:
    """Return the scores of (n, m) probabilities of m classes."""
    from sklearn.metrics import roc_curve

    size, count = len(classes), len(truth)
    _require_distributions(probabilities, (count, size))
    known = np.clip(probabilities.astype(np.float64), 0.0, 1.0)  # float32 may round above 1
    is_of = truth[:, None] == np.arange(size)
    if size == 2:
        judged, happened = known[:, positive], truth == positive
        area = area_of(judged[:, None], happened[:, None], units)
    else:
        judged, happened = known.max(axis=1), known.argmax(axis=1) == truth
        area = area_of(known, is_of, units)
    bins, by_chance = _calibration(judged, happened, units)
    present = is_of.any(axis=0)
    drawn = size == 2 and area is not None
    return Scores(
        area=area,
        left_out=tuple(name for name, here in zip(classes, present, strict=True) if not here),
        brier=float(((known - is_of) ** 2).sum(axis=1).mean()),
        brier_of_shares=float(1.0 - (is_of.mean(axis=0) ** 2).sum()),
        bins=bins,
        error_by_chance=by_chance if units is None else None,
        roc=np.column_stack(roc_curve(happened, judged)[:2]) if drawn else None,
    )


def _require_distributions(probabilities: Probabilities, shape: tuple[int, int]) -> None:
    if probabilities.shape != shape:
        raise DataError(
            f"the student returned probabilities of shape {probabilities.shape} for {shape[0]} inputs "
            f"and {shape[1]} classes"
        )
    sums = probabilities.sum(axis=1, dtype=np.float64)
    if not (np.all(probabilities >= 0) and np.all(np.abs(sums - 1.0) <= _SLACK)):
        raise DataError("the student returned probabilities that are negative or do not sum to 1")


def _calibration(
    judged: NDArray[np.float64], happened: NDArray[np.bool_], units: NDArray[np.int64] | None
) -> tuple[tuple[Bin, ...], float]:
    """Return bins of about equally many inputs, and the error that chance makes of their sizes.

    Inputs with equal probabilities share a bin, so that their order does not count. scikit-learn's
    curve has neither the sizes of bins nor their rows.
    """
    wanted = min(_BINS, max(1, len(judged) // _LEAST_IN_BIN))
    inner = np.quantile(judged, np.arange(1, wanted) / wanted, method="inverted_cdf")
    at = np.searchsorted(np.unique(inner), judged, side="left")
    order = np.argsort(at, kind="stable")
    starts = np.flatnonzero(np.diff(at[order], prepend=-1))
    bins, by_chance = [], 0.0
    for start, stop in pairwise([*starts.tolist(), len(order)]):
        rows = order[start:stop]
        some = judged[rows]
        rate = rate_of(happened, units, rows)
        bins.append(Bin(float(some.min()), float(some.max()), float(some.mean()), rate))
        # Mean distance of a normal variable from its mean is sqrt(2 / pi) standard deviations.
        by_chance += float(np.sqrt(2 / np.pi * (some * (1 - some)).sum()))
    return tuple(bins), by_chance / len(judged)


@dataclass(frozen=True)
class Threshold:
    """The rule that predicts a class if its probability is large enough, and else the other one."""

    positive: int
    # its smallest probability that is enough, from 0 to 1. Probabilities are compared as float32,
    # which is what students return: 0.7 is enough for 0.7
    least: float

    def predict(self, probabilities: Probabilities) -> NDArray[np.int64]:
        """Return (n,) predicted classes of (n, 2) probabilities."""
        is_enough = probabilities[:, self.positive].astype(np.float32) >= np.float32(self.least)
        return np.where(is_enough, self.positive, 1 - self.positive).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Decision:
    """What predictions by a threshold are worth on labelled data."""

    threshold: Threshold
    classes: tuple[str, ...]
    confusion: NDArray[np.int64]  # (2, 2) int64; row: the true class, column: the predicted one
    # ``sensitivity``, the share of the positive inputs that are predicted as such; ``specificity``,
    # of the others; ``precision``, the share of positive predictions that are right
    rates: dict[str, Rate]
    # the sensitivity for which the threshold was chosen on these same labels; None if it was given.
    # Where it was chosen here, the shares are too good, and no test of the student
    wanted: float | None = None

    @property
    def source(self) -> str:
        """Where the threshold is from."""
        return "given" if self.wanted is None else "chosen on this data"

    def to_json(self) -> dict[str, object]:
        """Return plain JSON values; shares on the labels that chose the threshold have no interval."""
        chosen = self.wanted is not None
        return {
            "positive_class": self.classes[self.threshold.positive],
            "threshold": self.threshold.least,
            "threshold_source": self.source,
            "wanted_sensitivity": self.wanted,
            **{
                name: {"share": rate.share, "of": rate.count} if chosen else rate.to_json()
                for name, rate in self.rates.items()
            },
            "confusion": self.confusion.tolist(),
        }


@dataclass(frozen=True)
class Question:
    """What a user wants to know about two classes."""

    positive: str | None = None  # name of the positive class; None: the second
    # smallest probability of it that is enough to predict it, if one was given
    threshold: float | None = None
    # choose the highest threshold with at least this sensitivity, on the very labels that it is
    # then judged by
    at_sensitivity: float | None = None

    def positive_of(self, classes: tuple[str, ...]) -> int:
        """Return the index of the positive class, after checking all options against the classes."""
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
        """Return the threshold that was given, None without one; errors as of :meth:`positive_of`."""
        at = self.positive_of(classes)
        return None if self.threshold is None else Threshold(at, self.threshold)

    def decision(
        self,
        probabilities: Probabilities,
        truth: NDArray[np.int64],
        classes: tuple[str, ...],
        units: NDArray[np.int64] | None = None,
    ) -> Decision | None:
        """Return what the threshold that is given, or chosen, is worth; None if none is asked for."""
        rule, wanted = self.rule(classes), self.at_sensitivity
        if wanted is not None:
            rule = threshold_for(wanted, probabilities, truth, self.positive_of(classes))
        if rule is None:
            return None
        predicted, at = rule.predict(probabilities), rule.positive
        of = {"sensitivity": truth == at, "specificity": truth != at, "precision": predicted == at}
        right = predicted == truth
        return Decision(
            rule,
            classes,
            np.bincount(truth * 2 + predicted, minlength=4).reshape(2, 2).astype(np.int64),
            {name: rate_of(right, units, rows) for name, rows in of.items()},
            wanted,
        )


def threshold_for(
    sensitivity: float, probabilities: Probabilities, truth: NDArray[np.int64], positive: int
) -> Threshold:
    """Return the highest threshold with at least this sensitivity on labelled data."""
    judged = np.sort(probabilities[truth == positive, positive].astype(np.float32))[::-1]
    if not len(judged):
        raise DataError("--at-sensitivity: the data has no input of the positive class")
    needed = math.ceil(sensitivity * len(judged))
    if (needed - 1) / len(judged) >= sensitivity:
        needed -= 1  # the product was rounded up
    # The shortest decimals that are this float32, so that a printed threshold is the same one.
    return Threshold(positive, min(1.0, float(str(judged[needed - 1]))))
