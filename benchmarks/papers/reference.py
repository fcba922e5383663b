"""Non-private reference models, trained on the pooled records of all parties."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from benchmarks.papers import network_reference
from pate.data.embeddings import Embeddings
from pate.data.values import Table
from pate.errors import UsageError
from pate.features.space import space_over
from student.evaluation.answers import LabelsEvaluation, NumberEvaluation, evaluate_answers
from student.evaluation.evaluate import Evaluation, LabelledData
from student.trainers.encoding import learn_encoding
from student.trainers.head import fit_head
from student.trainers.selftraining import TableStudent

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from benchmarks.papers.row import Row
    from benchmarks.papers.split import Split
    from pate.data.values import Dataset, Inputs
    from pate.features.contract import FeatureSpace
    from student.trainers.base import Progress, Student

#: One record in this many is held out to choose the regularisation of the ridge.
_HELD: Final = 10
#: Networks of this many seeds are trained where validation records choose among them.
_SEEDS: Final = 3
_PENALTIES: Final = (1e-5, 3e-5, 1e-4, 3e-4)  # of softmax regression
_STRENGTHS: Final = tuple(10.0**power for power in range(-7, 0))
#: Measures of a model on validation and on test records.
Judged: TypeAlias = tuple[dict[str, float], dict[str, float]]
_NETWORK: Final = "the student's network, with every label"
#: Of boosted trees.
_TREES: Final = {
    "learning_rate": 0.05, "max_iter": 1_000, "early_stopping": True, "n_iter_no_change": 20,
}  # fmt: skip
#: Records whose features are computed at a time, which bounds memory.
_AT_ONCE: Final = 2048


def measures(probabilities: NDArray[np.floating], test: Dataset) -> dict[str, float]:
    """Return accuracy, balanced accuracy, and with two classes the area under the ROC curve.

    Args:
        probabilities: (n, classes), or scores in the same order.
        test: n labelled records, classes in the order of the columns.
    """
    from sklearn.metrics import roc_auc_score

    size = len(test.classes)
    cells = test.labels * size + probabilities.argmax(axis=1)
    confusion = np.bincount(cells, minlength=size * size).reshape(size, size).astype(np.int64)
    evaluation = Evaluation(test.classes, confusion)
    found = {
        "accuracy": evaluation.accuracy,
        "balanced_accuracy": evaluation.balanced_accuracy,
    }
    if size == 2 and len(np.unique(test.labels)) == 2:
        found["auc"] = float(roc_auc_score(test.labels, probabilities[:, 1] - probabilities[:, 0]))
    return found


def of_answers(found: LabelsEvaluation | NumberEvaluation) -> dict[str, float]:
    """Return the measures of several labels, or of a number."""
    if isinstance(found, NumberEvaluation):
        told = {"mae": found.error, "r2": found.explained}
    else:
        told = {"macro_auc": found.area}
    return {name: figure.value for name, figure in told.items() if figure is not None}


def judge(student: Student, test: Dataset) -> dict[str, float]:
    """Return the measures of a student on the test set.

    Of several labels macro_auc, of a number mae and r2.
    """
    if test.kind != "class":
        assert isinstance(student, TableStudent)  # no other student has such answers
        return of_answers(evaluate_answers(student, LabelledData(test)))
    known = test.with_classes(student.classes)
    return measures(student.predict_probabilities(known.inputs), known)


def pooled(row: Row, split: Split, *, seed: int, progress: Progress) -> dict[str, float | str]:
    """Train the row's non-private model and return its measures, with its name under ``model``."""
    if row.reference == "ridge":
        return {"model": "ridge regression on scattering features", **_ridge(split)}
    if row.reference == "linear":
        return {"model": "softmax regression on the embeddings", **_linear(split)}
    if row.reference == "boosting":
        made = _boosting if split.private.kind == "class" else _boosting_answers
        return {"model": "boosted trees", **made(split, seed)}
    if split.validation is not None:
        return chosen_network(split, split.validation, seed=seed, progress=progress)
    trained = network_reference.train(split.private, seed=seed, progress=progress)
    return {"model": _NETWORK, **judge(trained, split.test)}


def chosen_network(
    split: Split, validation: Dataset, *, seed: int, progress: Progress, steps: int | None = None
) -> dict[str, float | str]:
    """Return the measures of the network, calibrated or not, as validation records choose.

    Test labels choose nothing; the figures of the form that was not chosen are returned too.

    Args:
        split: of the row.
        validation: labelled records that no network learns from; the form with the higher mean accuracy
            on them is chosen, on a tie the one that is not calibrated.
        seed: of the first network of three.
        progress: called after every step.
        steps: of each training; None: according to the number of images.

    Returns:
        Means over the seeds by name, their ranges under ``spread.``, means of the other form under
        ``other.``, and one line about the choice under ``chosen``.
    """
    forms: dict[str, list[Judged]] = {"as trained": [], "calibrated": []}
    for number in range(_SEEDS):

        def move(step: int, total: int, loss: float, before: int = number) -> None:
            progress(before * total + step, _SEEDS * total, loss)

        network = network_reference.train(
            split.private, seed=seed + number, progress=move, steps=steps
        )
        forms["as trained"].append((judge(network, validation), judge(network, split.test)))
        network_reference.calibrate(network, split.private)
        forms["calibrated"].append((judge(network, validation), judge(network, split.test)))
    return choice(forms, len(validation))


def choice(forms: dict[str, list[Judged]], count: int) -> dict[str, float | str]:
    """Return what :func:`chosen_network` returns, from the measures of two forms.

    Args:
        forms: by name, measures of each seed on validation and on test records; the first on a tie.
        count: number of validation records.
    """
    best = max(forms, key=lambda form: sum(there["accuracy"] for there, _ in forms[form]))
    (other,) = set(forms) - {best}
    told: dict[str, float | str] = {"model": f"{_NETWORK}, {best}"}
    for name in forms[best][0][1]:
        values = [on_test[name] for _, on_test in forms[best]]
        told |= {name: float(np.mean(values)), f"spread.{name}": float(np.ptp(values))}
        told[f"other.{name}"] = float(np.mean([on_test[name] for _, on_test in forms[other]]))
    seeds = len(forms[best])
    told["chosen"] = (
        f"{best}, by accuracy on {count} validation records, means of {seeds} seeds: "
        + "; ".join(
            f"{form} {_accuracy(found, 0)} there and {_accuracy(found, 1)} on test"
            for form, found in forms.items()
        )
    )
    return told


def _accuracy(found: list[Judged], which: int) -> str:
    """Return mean and range over the seeds, on validation (0) or test (1) records."""
    values = [100 * pair[which]["accuracy"] for pair in found]
    return f"{np.mean(values):.2f} % ({np.ptp(values):.2f})"


def _ridge(split: Split) -> dict[str, float]:
    """Return the scores of one linear model on the fixed features.

    Least squares on targets of +1 and -1 by the normal equations; a tenth of the records chooses the
    regularisation. Memory is a few times the squared width, for any number of records.
    """
    from scipy.linalg import cho_factor, cho_solve

    space = space_over(split.queries, "scattering")
    held = np.arange(len(split.private)) % _HELD == 0
    told = split.private.take(np.flatnonzero(held))
    gram, target = _moments(space, split.private.take(np.flatnonzero(~held)))
    held_gram, held_target = _moments(space, told)
    known = _with_one(space, told.inputs)
    best = (-1.0, 1.0)
    # In units of the mean squared feature: independent of the space and number of records.
    unit = float(np.trace(gram)) / len(gram)
    for strength in _STRENGTHS:
        factor = cho_factor(gram + strength * unit * np.eye(len(gram)))
        right = (known @ cho_solve(factor, target)).argmax(axis=1) == told.labels
        best = max(best, (float(right.mean()), strength))
    whole = gram + held_gram + best[1] * unit * np.eye(len(gram))
    weights = cho_solve(cho_factor(whole), target + held_target)
    return measures(_with_one(space, split.test.inputs) @ weights, split.test)


def _linear(split: Split) -> dict[str, float]:
    """Return the scores of softmax regression; a tenth of the records chooses the penalty."""
    private, test = split.private, split.test
    if not isinstance(private.inputs, Embeddings) or not isinstance(test.inputs, Embeddings):
        raise UsageError("the linear model is for embeddings")
    rows, targets = private.inputs.points(), np.eye(len(private.classes))[private.labels]
    held = np.arange(len(rows)) % _HELD == 0

    def right(penalty: float) -> float:
        model = fit_head(rows[~held], targets[~held], penalty=penalty)
        found = model.predict_proba(rows[held]).argmax(axis=1)
        return float((found == private.labels[held]).mean())

    best = max(_PENALTIES, key=right)
    model = fit_head(rows, targets, penalty=best)
    return measures(model.predict_proba(test.inputs.points()), test)


def _moments(space: FeatureSpace, data: Dataset) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return X'X and X'Y of the features X, with a constant column, and targets Y of +1 and -1."""
    width = space.width + 1
    gram = np.zeros((width, width))
    target = np.zeros((width, len(data.classes)))
    for start in range(0, len(data), _AT_ONCE):
        some = data.take(range(start, min(start + _AT_ONCE, len(data))))
        rows = _with_one(space, some.inputs)
        signs = 2.0 * (some.labels[:, None] == np.arange(len(data.classes))) - 1.0
        gram += rows.T @ rows
        target += rows.T @ signs
    return gram, target


def _with_one(space: FeatureSpace, inputs: Inputs) -> NDArray[np.float32]:
    """Return the features with a constant column of ones."""
    features = space.embed(inputs)
    return np.hstack([features, np.ones((len(features), 1), dtype=np.float32)])


def _boosting(split: Split, seed: int) -> dict[str, float]:
    """Return the scores of boosted trees; early stopping uses a tenth of the people."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    rows, of_test, fitted, stop = _encoded(split, seed)
    labels = split.private.labels
    model = HistGradientBoostingClassifier(**_TREES, random_state=seed)
    model.fit(rows[fitted], labels[fitted], X_val=rows[stop], y_val=labels[stop])
    return measures(model.predict_proba(of_test), split.test)


def _boosting_answers(split: Split, seed: int) -> dict[str, float]:
    """Return the same for several labels, with trees for each, or for a number, by absolute error."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.metrics import r2_score, roc_auc_score

    rows, of_test, fitted, stop = _encoded(split, seed)
    known, truth = split.private.answers, split.test.answers
    assert known is not None  # the caller asked
    assert truth is not None
    if split.private.kind == "number":
        model = HistGradientBoostingRegressor(loss="absolute_error", **_TREES, random_state=seed)
        model.fit(rows[fitted], known[fitted], X_val=rows[stop], y_val=known[stop])
        said = model.predict(of_test)
        return {"mae": float(np.abs(said - truth).mean()), "r2": float(r2_score(truth, said))}
    areas = []
    for label, wanted in zip(known.T, truth.T, strict=True):
        trees = HistGradientBoostingClassifier(**_TREES, random_state=seed)
        trees.fit(rows[fitted], label[fitted], X_val=rows[stop], y_val=label[stop])
        areas.append(roc_auc_score(wanted, trees.predict_proba(of_test)[:, 1]))
    return {"macro_auc": float(np.mean(areas))}


def _encoded(
    split: Split, seed: int
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.int64], NDArray[np.int64]]:
    """Return the private and the test rows, and which private ones are fitted and stop the fit."""
    from sklearn.model_selection import GroupShuffleSplit

    private = split.private
    if not isinstance(private.inputs, Table):
        raise UsageError("boosted trees are for tables; choose ridge or student")
    encoding = learn_encoding(private.inputs)
    rows = encoding.encode(private.inputs)
    units = np.arange(len(rows)) if private.groups is None else private.groups
    held = GroupShuffleSplit(1, test_size=0.1, random_state=seed)
    fitted, stop = next(held.split(rows, private.labels, units))
    return rows, encoding.encode(split.test.inputs), fitted, stop
