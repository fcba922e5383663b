"""Figures of a model on test records, with intervals that include the sampling of these records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from benchmarks.data import units_of
from benchmarks.record import Estimate
from student.evaluation.figures import area, ranks, spread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from pate.data.values import Dataset

    Floats = NDArray[np.floating]
    #: Labels (n,), several labels (n, labels), or numbers (n,).
    Truth = NDArray[np.int64] | NDArray[np.bool_] | NDArray[np.float64]
    #: Of scores and truth: (n, classes) of one label, (n, labels), or (n, 2) predicted numbers and means.
    Figure = Callable[[Floats, Truth], float]

#: Figures that are no percentages, and those of which less is better.
PLAIN: Final = ("auc", "macro_auc", "mae", "r2", "auc_others", "auc_next")
ERRORS: Final = ("mae",)
#: Above so many classes the area under each one's curve is not computed: it takes long.
_MOST_CLASSES: Final = 10
_NORMAL: Final = 1.959964


def accuracy(scores: Floats, labels: Truth) -> float:
    """Return the share of rows whose largest score is that of their label; of several models the mean."""
    return float((scores.argmax(axis=-1) == labels).mean())


def balanced_accuracy(scores: Floats, labels: Truth) -> float:
    """Return the mean over the classes that occur of the share of their rows that is right."""
    right = scores.argmax(axis=-1) == labels
    return float(np.mean([right[..., labels == label].mean() for label in np.unique(labels)]))


def auc(scores: Floats, labels: Truth) -> float:
    """Return the area under the ROC curve; of more than two classes the mean of each against the rest."""
    if scores.ndim == 3:
        return float(np.mean([auc(one, labels) for one in scores]))
    if scores.shape[1] == 2:
        return macro_auc(scores[:, 1:] - scores[:, :1], labels[:, None] == 1)
    return macro_auc(scores, labels[:, None] == np.arange(scores.shape[1]))


def macro_auc(scores: Floats, truth: Truth) -> float:
    """Return the mean area under the ROC curve of the labels that some rows have and some have not."""
    found = area(ranks(scores), truth.astype(np.bool_))
    return 0.5 if np.isnan(found) else found


def mae(said: Floats, truth: Truth) -> float:
    """Return the mean absolute error of predicted numbers."""
    return float(np.abs(truth - said[:, 0]).mean())


def r2(said: Floats, truth: Truth) -> float:
    """Return the share of the numbers' variance that the predicted means explain."""
    from sklearn.metrics import r2_score

    return float(r2_score(truth, said[:, -1]))


def figures_of(test: Dataset) -> dict[str, Figure]:
    """Return the figures for a kind of answer by name, the first the most telling one."""
    if test.kind == "labels":
        return {"macro_auc": macro_auc}
    if test.kind == "number":
        return {"mae": mae, "r2": r2}
    found: dict[str, Figure] = {"accuracy": accuracy, "balanced_accuracy": balanced_accuracy}
    if len(test.classes) <= _MOST_CLASSES and len(np.unique(test.labels)) > 1:
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
    assert test.answers is not None
    return test.answers


def estimates(scores: Sequence[Floats], test: Dataset) -> dict[str, Estimate]:
    """Return every figure's mean over dealings with its interval, by name."""
    return {name: estimate(figure, scores, test) for name, figure in figures_of(test).items()}


def estimate(figure: Figure, scores: Sequence[Floats], test: Dataset) -> Estimate:
    """Return the mean of a figure over dealings, with both sources of its uncertainty.

    The test records are the same in all dealings, so their sampling does not shrink with the number of
    dealings: test units are drawn again together for all of them. The spread over dealings has
    Student's t. Both half-widths are added as squares.
    """
    from scipy.stats import t

    truth = truth_of(test)
    each = [figure(one, truth) for one in scores]
    half = _NORMAL * spread(
        lambda rows: float(np.mean([figure(one[..., rows, :], truth[rows]) for one in scores])),
        units_of(test),
    )
    if len(each) > 1:
        error = float(np.std(each, ddof=1)) / np.sqrt(len(each))
        half = float(np.hypot(half, t.ppf(0.975, len(each) - 1) * error))
    mean = float(np.mean(each))
    most = np.inf if figure is mae else 1.0
    least = -np.inf if figure is r2 else 0.0
    return Estimate(mean, max(mean - half, least), min(mean + half, most))
