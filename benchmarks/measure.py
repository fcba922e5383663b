"""Figures of a model on test records, with intervals that include the sampling of these records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from pate.data.values import Dataset

    Floats = NDArray[np.floating]
    #: Labels (n,), several labels (n, labels), or numbers (n,).
    Truth = NDArray[np.int64] | NDArray[np.bool_] | NDArray[np.float64]
    #: Of scores and what is true.
    Figure = Callable[[Floats, Truth], float]

#: Figures that are no percentages, and those of which less is better.
PLAIN: Final = ("auc", "macro_auc", "mae", "r2")
ERRORS: Final = ("mae",)
#: Times that the test units are drawn again.
_DRAWN: Final = 200
_NORMAL: Final = 1.959964


@dataclass(frozen=True)
class Estimate:
    """A mean over dealings with its 95 % interval.

    Attributes:
        mean: of the dealings.
        low: end of the interval.
        high: other end.
        dealings: the figure of each.
    """

    mean: float
    low: float
    high: float
    dealings: tuple[float, ...]


def accuracy(scores: Floats, labels: Truth) -> float:
    """Return the share of rows whose largest score is that of their label.

    Args:
        scores: (n, classes); or (models, n, classes), for the mean of several models.
        labels: (n,).
    """
    return float((scores.argmax(axis=-1) == labels).mean())


def auc(scores: Floats, labels: Truth) -> float:
    """Return the area under the ROC curve; of more than two classes the mean of each against the rest.

    Arguments as of :func:`accuracy`.
    """
    if scores.ndim == 3:
        return float(np.mean([auc(one, labels) for one in scores]))
    if scores.shape[1] == 2:
        return _area(scores[:, 1] - scores[:, 0], labels == 1)
    there = np.unique(labels)
    return float(np.mean([_area(scores[:, label], labels == label) for label in there]))


def balanced_accuracy(scores: Floats, labels: Truth) -> float:
    """Return the mean over the classes that occur of the share of their rows that is right.

    Args:
        scores: (n, classes).
        labels: (n,).
    """
    right = scores.argmax(axis=1) == labels
    return float(np.mean([right[labels == label].mean() for label in np.unique(labels)]))


def macro_auc(scores: Floats, truth: Truth) -> float:
    """Return the mean area under the ROC curve of the labels that some rows have and some have not.

    Args:
        scores: (n, labels).
        truth: (n, labels), which labels a row has.
    """
    has = truth.astype(np.bool_)
    told = [at for at in range(has.shape[1]) if 0 < has[:, at].sum() < len(has)]
    return float(np.mean([_area(scores[:, at], has[:, at]) for at in told])) if told else 0.5


def mae(said: Floats, truth: Truth) -> float:
    """Return the mean absolute error of predicted numbers.

    Args:
        said: (n, 2), predictions and means; or (n, 1).
        truth: (n,).
    """
    return float(np.abs(truth - said[:, 0]).mean())


def r2(said: Floats, truth: Truth) -> float:
    """Return the share of the numbers' variance that the predicted means explain; 0 without variance.

    Arguments as of :func:`mae`.
    """
    whole = float(np.square(truth - truth.mean()).sum())
    return 1.0 - float(np.square(truth - said[:, -1]).sum()) / whole if whole else 0.0


def figures_of(test: Dataset) -> dict[str, Figure]:
    """Return the figures for a kind of answer by name, the first the most telling one."""
    if test.kind == "labels":
        return {"macro_auc": macro_auc}
    if test.kind == "number":
        return {"mae": mae, "r2": r2}
    found: dict[str, Figure] = {"accuracy": accuracy, "balanced_accuracy": balanced_accuracy}
    if len(test.classes) == 2 and len(np.unique(test.labels)) == 2:
        found["auc"] = auc
    return found


def judged(scores: Floats, test: Dataset) -> dict[str, float]:
    """Return the figures of scores on test records, by name."""
    truth = truth_of(test)
    return {name: figure(scores, truth) for name, figure in figures_of(test).items()}


def truth_of(test: Dataset) -> Truth:
    """Return what figures compare with: labels, several labels, or numbers."""
    if test.kind == "class":
        return test.labels
    assert test.answers is not None  # of every other kind
    return test.answers


def _area(score: Floats, positive: NDArray[np.bool_]) -> float:
    from scipy.stats import rankdata

    first = int(positive.sum())
    if not 0 < first < len(positive):
        return 0.5
    ranks = rankdata(score)
    return float((ranks[positive].sum() - first * (first + 1) / 2) / (first * (len(ranks) - first)))


def estimate(figure: Figure, scores: Sequence[Floats], test: Dataset) -> Estimate:
    """Return the mean of a figure over dealings, with both sources of its uncertainty.

    The test records are the same in all dealings, so their sampling does not shrink with the number of
    dealings: test units are drawn again together for all of them. The spread over dealings has
    Student's t. Both half-widths are added as squares.

    Args:
        figure: of scores and labels.
        scores: (n, classes) of each dealing, or (models, n, classes); of a number (n, 1) or (n, 2).
        test: the n records.
    """
    from scipy.stats import t

    truth = truth_of(test)
    each = [figure(one, truth) for one in scores]
    random = np.random.default_rng(0)
    units = np.arange(len(test)) if test.groups is None else test.groups
    names, unit = np.unique(units, return_inverse=True)
    order = np.argsort(unit, kind="stable")
    ends = np.cumsum(np.bincount(unit))
    rows = np.split(order, ends[:-1])
    drawn = []
    for _ in range(_DRAWN):
        some = random.integers(len(names), size=len(names))
        picked = some if len(rows) == len(test) else np.concatenate([rows[at] for at in some])
        drawn.append(np.mean([figure(one[..., picked, :], truth[picked]) for one in scores]))
    half = _NORMAL * float(np.std(drawn))
    if len(each) > 1:
        spread = float(np.std(each, ddof=1)) / np.sqrt(len(each))
        half = float(np.hypot(half, t.ppf(0.975, len(each) - 1) * spread))
    mean = float(np.mean(each))
    most = np.inf if figure is mae else 1.0
    least = -np.inf if figure is r2 else 0.0
    return Estimate(mean, max(mean - half, least), min(mean + half, most), tuple(each))
