"""Models without privacy: of all records in one place, and of each party by itself."""

from __future__ import annotations

import time
import warnings
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from benchmarks.versus.method import Cost, Fitted, Method, Setting, product

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from benchmarks.versus.problem import Problem

    Floats = NDArray[np.floating]


def _settings(problem: Problem) -> list[Setting]:
    made = [
        *product(model=("logistic",), kind=problem.kinds, c=(1.0,)),
        *product(model=("network",), kind=problem.kinds[-1:], alpha=(1e-3,)),
    ]
    if "columns" in problem.kinds:
        made += product(model=("trees",), kind=("columns",), leaves=(8,))
    return made


def _trained(setting: Setting, rows: Floats, labels: NDArray[np.int64], seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPClassifier

    few = min(np.bincount(labels)[np.unique(labels)]) < 10
    if setting["model"] == "logistic":
        model: Any = LogisticRegression(C=float(setting["c"]), max_iter=500)
    elif setting["model"] == "network":
        model = MLPClassifier(
            (64,), alpha=float(setting["alpha"]), early_stopping=not few, max_iter=60,
            random_state=seed,
        )  # fmt: skip
    else:
        model = HistGradientBoostingClassifier(
            learning_rate=0.06, max_iter=300, max_leaf_nodes=int(setting["leaves"]),
            early_stopping=not few, random_state=seed,
        )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that more iterations would converge further
        return model.fit(rows, labels)


def _scores(model: Any, rows: Floats, classes: int) -> NDArray[np.float64]:
    """Return (n, classes) probabilities; a class that the model never saw has 0."""
    made = np.zeros((len(rows), classes))
    made[:, model.classes_] = model.predict_proba(rows)
    return made


def _fit(problem: Problem, setting: Setting, parts: list[NDArray[np.int64]], seed: int) -> Fitted:
    """Return the model of records; of several parts the scores side by side, one above the other."""
    rows, labels = problem.rows(str(setting["kind"])), problem.split.private.labels
    found, longest = [], 0.0
    for part in parts:
        began = time.process_time()
        model = _trained(setting, rows.private[part], labels[part], seed)
        longest = max(longest, time.process_time() - began)
        found.append(
            [_scores(model, each, problem.classes) for each in (rows.validation, rows.test)]
        )
    validation, test = (np.stack(each) for each in zip(*found, strict=True))
    return Fitted(validation, test, Cost(0, 0, 0, longest))


def _pooled(problem: Problem, setting: Setting, _epsilon: float | None, seed: int) -> Fitted:
    whole = np.arange(len(problem.split.private))
    fitted = _fit(problem, setting, [whole], seed)
    largest = max(len(part) for part in problem.parts(0))
    up = largest * (problem.rows(str(setting["kind"])).private.shape[1] + 1) * 4
    cost = Cost(1, up, 0, 0.0, fitted.cost.seconds)
    return Fitted(fitted.validation[0], fitted.test[0], cost)


def _alone(problem: Problem, setting: Setting, _epsilon: float | None, seed: int) -> Fitted:
    return _fit(problem, setting, list(problem.parts(seed)), seed)


METHODS: Final = (
    Method(
        name="alone",
        settings=_settings,
        fit=_alone,
        private=False,
        widens={"c": 10, "alpha": 10, "leaves": 2},
    ),
    Method(
        name="pooled",
        settings=_settings,
        fit=_pooled,
        private=False,
        widens={"c": 10, "alpha": 10, "leaves": 2},
    ),
)
