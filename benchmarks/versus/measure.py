"""Accuracy and AUC with intervals that include the sampling of the test records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from pate.data.values import Dataset

    Floats = NDArray[np.floating]
    Ints = NDArray[np.int64]

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


def accuracy(scores: Floats, labels: Ints) -> float:
    """Return the share of rows whose largest score is that of their label.

    Args:
        scores: (n, classes); or (models, n, classes), for the mean of several models.
        labels: (n,).
    """
    return float((scores.argmax(axis=-1) == labels).mean())


def auc(scores: Floats, labels: Ints) -> float:
    """Return the area under the ROC curve; of more than two classes the mean of each against the rest.

    Arguments as of :func:`accuracy`.
    """
    if scores.ndim == 3:
        return float(np.mean([auc(one, labels) for one in scores]))
    if scores.shape[1] == 2:
        return _area(scores[:, 1] - scores[:, 0], labels == 1)
    there = np.unique(labels)
    return float(np.mean([_area(scores[:, label], labels == label) for label in there]))


def _area(score: Floats, positive: NDArray[np.bool_]) -> float:
    from scipy.stats import rankdata

    first = int(positive.sum())
    if not 0 < first < len(positive):
        return 0.5
    ranks = rankdata(score)
    return float((ranks[positive].sum() - first * (first + 1) / 2) / (first * (len(ranks) - first)))


def estimate(
    figure: Callable[[Floats, Ints], float], scores: Sequence[Floats], test: Dataset
) -> Estimate:
    """Return the mean of a figure over dealings, with both sources of its uncertainty.

    The test records are the same in all dealings, so their sampling does not shrink with the number of
    dealings: test units are drawn again together for all of them. The spread over dealings has
    Student's t. Both half-widths are added as squares.

    Args:
        figure: of scores and labels.
        scores: (n, classes) of each dealing, or (models, n, classes).
        test: the n records.
    """
    from scipy.stats import t

    each = [figure(one, test.labels) for one in scores]
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
        drawn.append(np.mean([figure(one[..., picked, :], test.labels[picked]) for one in scores]))
    half = _NORMAL * float(np.std(drawn))
    if len(each) > 1:
        spread = float(np.std(each, ddof=1)) / np.sqrt(len(each))
        half = float(np.hypot(half, t.ppf(0.975, len(each) - 1) * spread))
    mean = float(np.mean(each))
    return Estimate(mean, max(mean - half, 0.0), min(mean + half, 1.0), tuple(each))
