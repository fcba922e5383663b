"""Models of rows of a table: boosted trees of class probabilities; a forest and a line in self-training.

From noisy counts boosted trees are fitted to the probabilities of all public rows, which are then moved to
agree with the counts, a few times: an expectation-maximisation in which the counts constrain the rows of a
cell jointly, and the trees distinguish them. Trees find the interactions that an additive first guess cannot.

From labels it is self-training (Scudder 1965; Blum and Mitchell's co-training, COLT 1998, is the form with
two views): a forest and a logistic model are fitted to the labels, then again to the labels and to those
public rows of whose class their average is confident, a few times. The forest finds interactions, the
logistic model does not collapse when labels are few; their average is better calibrated than either.
"""

from __future__ import annotations

import time
import warnings
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from student.chances.cells import LEAST_SHARE, of_sum_one, tilt

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from student.chances.evidence import Chances
    from student.lesson import Effort

    Rows = NDArray[np.float32]
    Floats = NDArray[np.float64]

TREES: Final = 100
_FAR: Final = 8.0  # trees times learning rate
#: The same where chances are a smooth function of the rows, with nothing random in them to stop short of.
_CLOSELY: Final = 20.0
#: A leaf holds enough rows to expect this many of the second most frequent class.
_SECOND_PER_LEAF: Final = 5
_LEAF: Final = (5, 200)  # rows, at least and at most
_IGNORED: Final = 0.01  # a smaller probability adds no row
#: Of self-training: fits after the first one, trees of the forest, confidence from which a row's own
#: prediction is learnt from, its weight where a label has 1, and the inverse regularisation of the logistic
#: model.
_AGAIN: Final = 2
_FOREST: Final = 200
_SURE: Final = 0.9
_WEIGHT: Final = 0.3
_SOFTNESS: Final = 0.1
#: Fits of self-training.
SELF_TRAINING: Final = 2 * (_AGAIN + 1)


class Model(Protocol):
    """The used part of a fitted scikit-learn classifier."""

    classes_: NDArray[np.int64]
    n_features_in_: int

    def fit(self, x: Rows, y: NDArray[np.int64], sample_weight: Floats) -> Model:
        """Fit."""

    def predict_proba(self, x: Rows) -> Floats:
        """Return probabilities of ``classes_``."""


def boost(rows: Rows, given: Chances, *, seed: int, effort: Effort) -> Model:
    """Return boosted trees fitted to chances of (n, d) rows, and made to agree with their cells, if any."""
    started = time.monotonic()
    trees = effort.steps or TREES
    chances, cells = given.matrix.astype(np.float64), given.cells
    if cells is None:
        return fit_chances(rows, chances, seed=seed, trees=trees, closely=given.smooth)
    for number in range(given.passes):
        wanted = tilt(cells, of_sum_one(np.maximum(chances, LEAST_SHARE)))
        model = fit_chances(rows, wanted, seed=seed + number, trees=trees)
        if effort.seconds is not None and time.monotonic() - started > effort.seconds:
            break
        chances = np.zeros_like(wanted)
        chances[:, model.classes_] = model.predict_proba(rows)
    return model


def fit_chances(
    rows: Rows, chances: Floats, *, seed: int, trees: int = TREES, closely: bool = False
) -> Model:
    """Return boosted trees fitted to each row once per class, weighted by the class's probability."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    row, label, weight = _repeated(chances)
    second = np.sort(np.bincount(label, weight))[-2] / len(rows)
    leaf = np.clip(_SECOND_PER_LEAF / second, *_LEAF)
    model: Model = HistGradientBoostingClassifier(
        max_iter=trees,
        # The total step length is fixed, whatever the number of trees.
        learning_rate=min(0.5, (_CLOSELY if closely else _FAR) / trees),
        max_leaf_nodes=8,
        min_samples_leaf=round(float(leaf)),
        l2_regularization=1.0,
        early_stopping=False,
        random_state=seed % 2**32,
    )
    return model.fit(rows[row], label, weight)


def _repeated(chances: Floats) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
    """Return row, class and weight of each row once per class that it may have."""
    kept = chances * (chances >= _IGNORED)
    # At least two classes are needed.
    two = np.argsort(-chances.sum(axis=0), kind="stable")[:2]
    kept[:, two] = np.maximum(chances[:, two], LEAST_SHARE)
    row, label = np.nonzero(kept)
    return row, label.astype(np.int64), kept[row, label]


def self_train(
    rows: Rows, known: Floats, *, seed: int, effort: Effort, step: Callable[[], None]
) -> dict[str, Model]:
    """Return a forest and a logistic model of (n, d) rows; ``known``, (n, m), is 1 at a known class."""
    labels, weights = _given(known)
    models: dict[str, Model] = {}
    started = time.monotonic()
    for _ in range(_AGAIN + 1):
        models = _fit_both(rows, labels, weights, seed, effort, step)
        if effort.seconds is not None and time.monotonic() - started > effort.seconds:
            break
        labels, weights = _with_guesses(known, mean_of(models, rows, known.shape[1]))
    return models


def mean_of(models: dict[str, Model], rows: Rows, classes: int) -> Floats:
    """Return (n, m) the mean of the models' probabilities, over all classes of the campaign."""
    total = np.zeros((len(rows), classes))
    if len(rows):
        for model in models.values():
            total[:, model.classes_] += model.predict_proba(rows)
    return total / len(models)


def _given(known: Floats) -> tuple[NDArray[np.int64], Floats]:
    """Return a label and a weight of each row, 0 for a row without a label."""
    return known.argmax(axis=1), np.asarray(known.any(axis=1), dtype=np.float64)


def _with_guesses(known: Floats, probabilities: Floats) -> tuple[NDArray[np.int64], Floats]:
    """Return labels and weights, confident rows added to the known ones.

    Per class at most the share that the class has among all predictions, so that an easy class
    does not push out the others.
    """
    labels, weights = _given(known)
    predicted = probabilities.argmax(axis=1)
    confidence = probabilities.max(axis=1)
    confidence[weights > 0] = 0.0
    share = np.bincount(predicted, minlength=known.shape[1]) / len(predicted)
    allowed = int((confidence >= _SURE).sum())
    for label in np.flatnonzero(share):
        mine = np.flatnonzero((predicted == label) & (confidence >= _SURE))
        most = max(1, round(share[label] * allowed))
        taken = mine[np.argsort(-confidence[mine], kind="stable")[:most]]
        labels[taken] = label
        weights[taken] = _WEIGHT
    return labels, weights


def _fit_both(
    rows: Rows,
    labels: NDArray[np.int64],
    weights: Floats,
    seed: int,
    effort: Effort,
    step: Callable[[], None],
) -> dict[str, Model]:
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    forest: Model = RandomForestClassifier(
        n_estimators=effort.steps or _FOREST,
        min_samples_leaf=2,
        max_features="sqrt",
        random_state=seed % 2**32,
    )
    logistic: Model = LogisticRegression(C=_SOFTNESS, max_iter=300)
    models, used = {"forest": forest, "logistic": logistic}, weights > 0
    with warnings.catch_warnings():
        # A logistic model that did not converge is still usable, thanks to its regularisation.
        warnings.simplefilter("ignore", ConvergenceWarning)
        for model in models.values():
            model.fit(rows[used], labels[used], sample_weight=weights[used])
            step()
    return models
