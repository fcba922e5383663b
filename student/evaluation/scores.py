"""Scores of a student's probabilities: area under the ROC curve, Brier score, calibration."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.errors import DataError
from student.evaluation.rates import CONFIDENCE, Rate, rate_of, wilson

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

#: Bins of the calibration, if each gets at least this many inputs.
_BINS: Final = 10
_LEAST_IN_BIN: Final = 10
#: A standard error below this is zero but for rounding.
_NOTHING: Final = 1e-12
#: By how much a row of probabilities may miss a sum of 1.
_SLACK: Final = 1e-3


@dataclass(frozen=True)
class Area:
    """Area under the ROC curve: how well a probability ranks inputs of a class above the others.

    Attributes:
        value: probability that an input of the class ranks above one of another class, ties
            counting half; with more than two classes the mean over classes, one against the rest.
        interval: (low, high) at 95 % confidence; None if a class has inputs of one patient only.
        left_out: names of the classes without an input, which have no area.
    """

    value: float
    interval: tuple[float, float] | None
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class Bin:
    """Inputs with similar probabilities of what is observed.

    Attributes:
        low: smallest probability.
        high: largest one.
        mean: of the probabilities.
        observed: share of the inputs for which it happened.
    """

    low: float
    high: float
    mean: float
    observed: Rate

    def to_json(self) -> dict[str, object]:
        """Return plain JSON values."""
        return {
            "least": self.low,
            "most": self.high,
            "mean": self.mean,
            "observed": self.observed.to_json(),
        }


@dataclass(frozen=True, eq=False)
class Scores:
    """How well probabilities fit the true classes.

    Attributes:
        area: under the ROC curve; None if the labels are of one class.
        brier: Brier score: the squared differences between probabilities and truth, summed over all
            classes and averaged over inputs, from 0 to 2. For two classes it is twice the score of one class.
        brier_of_shares: the same for always predicting each class's share of these inputs.
        bins: for two classes of the positive one's probability; for more of the largest probability,
            and whether its class is right.
        error_by_chance: mean calibration error of perfect probabilities with as many inputs in these
            bins; None if inputs come in patients.
        roc: (k, 2) false and true positive rates of two classes; None otherwise.
    """

    area: Area | None
    brier: float
    brier_of_shares: float
    bins: tuple[Bin, ...]
    error_by_chance: float | None
    roc: NDArray[np.float64] | None

    @property
    def calibration_error(self) -> float:
        """Expected calibration error: mean distance of the bins from the truth, by their inputs."""
        count = sum(each.observed.count for each in self.bins)
        apart = [abs(each.mean * each.observed.count - each.observed.hits) for each in self.bins]
        return sum(apart) / count

    def to_json(self) -> dict[str, object]:
        """Return plain JSON values."""
        area = self.area
        return {
            "auc": None if area is None else area.value,
            "auc_interval": None if area is None or area.interval is None else list(area.interval),
            "auc_left_out": [] if area is None else list(area.left_out),
            "brier": self.brier,
            "brier_of_shares": self.brier_of_shares,
            "brier_convention": "sum over classes, mean over inputs: 0 to 2",
            "calibration_error": self.calibration_error,
            "calibration_error_by_chance": self.error_by_chance,
            "calibration": [each.to_json() for each in self.bins],
        }


def score(
    probabilities: NDArray[np.floating],
    truth: NDArray[np.int64],
    classes: tuple[str, ...],
    *,
    positive: int = 1,
    units: NDArray[np.int64] | None = None,
) -> Scores:
    """Return the scores of probabilities.

    Args:
        probabilities: (n, m), n at least 1, each row a distribution over the classes.
        truth: (n,) the true classes.
        classes: m class names.
        positive: of two classes the one whose probability is judged.
        units: (n,) whole numbers, equal for inputs of one patient; None if all are independent.

    Raises:
        DataError: if the probabilities are none.
    """
    check_probabilities(probabilities, len(truth), len(classes))
    known = np.clip(probabilities.astype(np.float64), 0.0, 1.0)  # float32 may round above 1
    binary = len(classes) == 2
    if binary:
        judged, happened = known[:, positive], truth == positive
    else:
        judged, happened = known.max(axis=1), known.argmax(axis=1) == truth
    shares = np.bincount(truth, minlength=len(classes)) / len(truth)
    bins, by_chance = _calibration(judged, happened, units)
    area = _area(known, truth, classes, positive, units)
    return Scores(
        area=area,
        brier=float(((known - np.eye(len(classes))[truth]) ** 2).sum(axis=1).mean()),
        brier_of_shares=float(1.0 - (shares**2).sum()),
        bins=bins,
        error_by_chance=by_chance,
        roc=_roc(judged, happened) if binary and area is not None else None,
    )


def check_probabilities(probabilities: NDArray[np.floating], count: int, classes: int) -> None:
    """Check that each of ``count`` rows is a distribution over the classes.

    Raises:
        DataError: if not; a student of a plugin can return anything.
    """
    if probabilities.shape != (count, classes):
        raise DataError(
            f"the student returned probabilities of shape {probabilities.shape} for {count} inputs "
            f"and {classes} classes"
        )
    sums = probabilities.sum(axis=1, dtype=np.float64)
    if not (np.all(probabilities >= 0) and np.all(np.abs(sums - 1.0) <= _SLACK)):
        raise DataError("the student returned probabilities that are negative or do not sum to 1")


def _area(
    known: NDArray[np.float64],
    truth: NDArray[np.int64],
    classes: tuple[str, ...],
    positive: int,
    units: NDArray[np.int64] | None,
) -> Area | None:
    """Return the area under the curve; None for labels of one class."""
    present = np.unique(truth).tolist()
    if len(present) < 2:
        return None
    left_out = tuple(name for at, name in enumerate(classes) if at not in present)
    judged = [positive] if len(classes) == 2 else present
    return mean_area([(known[:, each], truth == each) for each in judged], units, left_out)


def mean_area(
    judged: Sequence[tuple[NDArray[np.float64], NDArray[np.bool_]]],
    units: NDArray[np.int64] | None,
    left_out: tuple[str, ...] = (),
) -> Area:
    """Return the mean of the areas under some curves over the same inputs.

    Args:
        judged: for each curve (n,) probabilities, and (n,) what is true; both truths occur.
        units: (n,) whole numbers, equal for inputs of one patient; None if all are independent.
        left_out: names of what has no area.
    """
    count = len(judged[0][1])
    at = np.arange(count) if units is None else np.unique(units, return_inverse=True)[1]
    parts: list[float] = []
    pairs = count
    influence: NDArray[np.float64] | None = np.zeros(int(at.max()) + 1)
    for known, is_true in judged:
        area, moved, fewest = _placements(known, is_true, at)
        parts.append(area)
        pairs = min(pairs, fewest)
        influence = None if influence is None or moved is None else influence + moved / len(judged)
    value = float(np.mean(parts))
    if influence is None:
        return Area(value, None, left_out)
    error = float(np.sqrt((influence**2).sum()))
    if error < _NOTHING:
        # All are ranked rightly, say. Disjoint pairs of patients are independent trials of that.
        return Area(value, wilson(value, pairs), left_out)
    patients = None if units is None else int(at.max()) + 1
    return Area(value, _logit_interval(value, error, patients), left_out)


def _placements(
    judged: NDArray[np.float64], is_positive: NDArray[np.bool_], units: NDArray[np.int64]
) -> tuple[float, NDArray[np.float64] | None, int]:
    """Return the area under one curve, what each unit adds to its error, and disjoint pairs.

    The variance of the area is the sum of squares of the second: an input's placement is the share
    of the inputs of the other side that it ranks on the right side of, and its distance from the
    mean is its influence. None if one side has a single unit, whose variance is unknown.

    Source: DeLong, DeLong and Clarke-Pearson, "Comparing the areas under two or more correlated
    receiver operating characteristic curves", Biometrics 1988; for patients Obuchowski,
    "Nonparametric analysis of clustered ROC curve data", Biometrics 1997.
    """
    from scipy.stats import rankdata

    sides = (is_positive, ~is_positive)
    high, low = judged[is_positive], judged[~is_positive]
    ranks = rankdata(np.concatenate([high, low]))  # midranks: ties count half
    above = (ranks[: len(high)] - rankdata(high)) / len(low)
    below = 1.0 - (ranks[len(high) :] - rankdata(low)) / len(high)
    area = float(above.mean())
    most = int(units.max()) + 1
    influence = np.zeros(most)
    counts = []
    for side, placements in zip(sides, (above, below), strict=True):
        own = units[side]
        number = len(np.unique(own))
        counts.append(number)
        moved = np.bincount(own, weights=placements - area, minlength=most) / len(own)
        influence += moved * np.sqrt(number / max(1, number - 1))
    pairs = min(*counts, len(np.unique(units)) // 2)
    return area, (None if min(counts) < 2 else influence), pairs


def _logit_interval(value: float, error: float, patients: int | None) -> tuple[float, float]:
    """Return the interval of a value within 0 and 1, symmetric in its log odds.

    Few patients estimate an error badly, for which Student's t pays.
    """
    from scipy.special import expit, logit, ndtri, stdtrit

    tail = 1.0 - (1.0 - CONFIDENCE) / 2.0
    errors = float(ndtri(tail) if patients is None else stdtrit(patients - 1, tail))
    half = errors * error / (value * (1.0 - value))
    return float(expit(logit(value) - half)), float(expit(logit(value) + half))


def _calibration(
    judged: NDArray[np.float64], happened: NDArray[np.bool_], units: NDArray[np.int64] | None
) -> tuple[tuple[Bin, ...], float | None]:
    """Return bins of about equally many inputs, and the error that chance makes of their sizes.

    Inputs with equal probabilities share a bin, so that their order does not count.
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
        rate = rate_of(happened[rows], None if units is None else units[rows])
        bins.append(Bin(float(some.min()), float(some.max()), float(some.mean()), rate))
        # Mean distance of a normal variable from its mean is sqrt(2 / pi) standard deviations.
        by_chance += float(np.sqrt(2 / np.pi * (some * (1 - some)).sum()))
    return tuple(bins), (by_chance / len(judged) if units is None else None)


def _roc(judged: NDArray[np.float64], happened: NDArray[np.bool_]) -> NDArray[np.float64]:
    from sklearn.metrics import roc_curve

    false, true, _ = roc_curve(happened, judged)
    return np.column_stack([false, true])
