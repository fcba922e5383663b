"""Standard models of scikit-learn without privacy, three for each kind of rows.

For tables boosted trees, a forest and a linear model; for embeddings softmax regression, a perceptron of one
hidden layer and nearest neighbours; for features of images the perceptron, to which
:mod:`benchmarks.papers.reference` adds a network and ridge regression.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from student.trainers.head import fit_head

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from benchmarks.measure import Truth

Floats: TypeAlias = "NDArray[np.floating]"
#: Gives the scores of rows: (n, d) to (n, classes), (n, labels), or (n, 1) of a number.
Fitted: TypeAlias = Callable[[Floats], Floats]
#: Of softmax regression.
_PENALTIES: Final = (1e-5, 3e-5, 1e-4, 3e-4)
_TREES: Final = {
    "learning_rate": 0.05, "max_iter": 1_000, "early_stopping": True, "n_iter_no_change": 20,
}  # fmt: skip
_FOREST: Final = {"n_estimators": 300, "min_samples_leaf": 5, "max_features": "sqrt"}
_PERCEPTRON: Final = {"hidden_layer_sizes": (256,), "alpha": 1e-4, "max_iter": 60, "tol": 1e-4}
#: Of nearest neighbours.
_NEAREST: Final = 15


@dataclass(frozen=True)
class Lesson:
    """What a model learns from.

    Attributes:
        rows: (n, d).
        truth: (n,) labels, (n, labels) or (n,) numbers.
        kind: of the answers: class, labels or number.
        classes: number of classes; of other answers unused.
        held: (n,) whether a row chooses a model's own parameters or stops it, and is not fitted: a tenth of
            the units.
        seed: of all randomness.
    """

    rows: Floats
    truth: Truth
    kind: str
    classes: int
    held: NDArray[np.bool_]
    seed: int


Fit: TypeAlias = Callable[[Lesson], Fitted]


def trees(lesson: Lesson) -> Fitted:
    """Fit boosted trees; the held rows stop them."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    def fit(make: Any, truth: Truth) -> Any:
        fitted, held = ~lesson.held, lesson.held
        return make(**_TREES, random_state=lesson.seed).fit(
            lesson.rows[fitted], truth[fitted], X_val=lesson.rows[held], y_val=truth[held]
        )

    number = partial(HistGradientBoostingRegressor, loss="absolute_error")
    return _for_each_answer(
        lesson, partial(fit, HistGradientBoostingClassifier), partial(fit, number)
    )


def forest(lesson: Lesson) -> Fitted:
    """Fit a random forest on all rows."""
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    def fit(make: Any, truth: Truth) -> Any:
        return make(**_FOREST, random_state=lesson.seed, n_jobs=2).fit(lesson.rows, truth)

    return _for_each_answer(
        lesson, partial(fit, RandomForestClassifier), partial(fit, RandomForestRegressor)
    )


def linear(lesson: Lesson) -> Fitted:
    """Fit logistic regression, or ridge regression of a number, on standardised rows."""
    from sklearn.linear_model import LogisticRegression, RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    def fit(make: Any, truth: Truth) -> Any:
        return make_pipeline(StandardScaler(), make()).fit(lesson.rows, truth)

    return _for_each_answer(
        lesson,
        partial(fit, partial(LogisticRegression, max_iter=2_000)),
        partial(fit, partial(RidgeCV, alphas=np.logspace(-2, 4, 7))),
    )


def softmax(lesson: Lesson) -> Fitted:
    """Fit softmax regression on embeddings; the held rows choose the penalty."""
    targets = np.eye(lesson.classes)[lesson.truth]
    rows = lesson.rows.astype(np.float32)

    def right(penalty: float) -> float:
        model = fit_head(rows[~lesson.held], targets[~lesson.held], penalty=penalty)
        found = model.predict_proba(rows[lesson.held]).argmax(axis=1)
        return float((found == lesson.truth[lesson.held]).mean())

    return fit_head(rows, targets, penalty=max(_PENALTIES, key=right)).predict_proba


def perceptron(lesson: Lesson) -> Fitted:
    """Fit a network of one hidden layer on standardised rows; a tenth of them stops it."""
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    network = MLPClassifier(**_PERCEPTRON, early_stopping=True, random_state=lesson.seed)
    model = make_pipeline(StandardScaler(), network)
    model.fit(lesson.rows.astype(np.float32), lesson.truth)
    return _in_order(model, lesson.classes)


def nearest(lesson: Lesson) -> Fitted:
    """Fit the vote of the nearest rows by cosine."""
    from sklearn.neighbors import KNeighborsClassifier

    model = KNeighborsClassifier(_NEAREST, weights="distance", metric="cosine")
    return _in_order(model.fit(lesson.rows, lesson.truth), lesson.classes)


FOR_TABLES: Final[Mapping[str, Fit]] = {
    "boosted trees": trees, "a forest": forest, "a linear model": linear,
}  # fmt: skip
FOR_EMBEDDINGS: Final[Mapping[str, Fit]] = {
    "softmax regression on the embeddings": softmax,
    "a perceptron on the embeddings": perceptron,
    "nearest neighbours of the embeddings": nearest,
}


def _for_each_answer(
    lesson: Lesson, classify: Callable[[Truth], Any], regress: Callable[[Truth], Any]
) -> Fitted:
    """Fit one model of classes or of a number, or one for each of several labels."""
    if lesson.kind == "number":
        model = regress(lesson.truth)
        return lambda rows: model.predict(rows)[:, None]
    if lesson.kind == "class":
        return _in_order(classify(lesson.truth), lesson.classes)
    models = [classify(label.astype(np.int64)) for label in lesson.truth.T]
    return lambda rows: np.stack([_in_order(one, 2)(rows)[:, 1] for one in models], axis=1)


def _in_order(model: Any, classes: int) -> Fitted:
    """Return the model's probabilities with a column for every class, also for those that it never met."""

    def scores(rows: Floats) -> Floats:
        found = np.zeros((len(rows), classes))
        found[:, model.classes_] = model.predict_proba(rows)
        return found

    return scores
