"""The default student for tables: a forest and a logistic model in co-training.

Self-training (Scudder 1965; Blum and Mitchell's co-training, COLT 1998, is the form with two
views): both are fitted to the labels, then again to the labels and to those public rows of whose
class their average is confident, a few times. The forest finds interactions, the logistic model
does not collapse when labels are few; their average is better calibrated than either.

If the noisy counts behind the labels are public, they are more informative than the labels, which are
then unused. The counts are learnt by an additive model (:mod:`student.trainers.proportions`) and by
smoothing over similar rows (:mod:`student.trainers.smoothing`); boosted trees are fitted to the mean of
both, adjusted to agree with the counts (:mod:`student.trainers.boosting`). The errors of the two differ, so
their mean is better than either. ``--model smoothing`` has the second one only, which is better if no column
separates the classes well. From dense sums trees are fitted to the chances of :mod:`student.trainers.linear`.

Embeddings of a public encoder are rows already; their student is a softmax head
(:mod:`student.trainers.head`), in place of forest and trees.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.answers import (
    ARRAY,
    BALANCED,
    CLASS,
    LABELS,
    NONE,
    NUMBER,
    RESIDUAL,
    answer_of,
    points_of,
)
from pate.codes import code_of
from pate.data.embeddings import Embeddings
from pate.data.values import Table
from pate.errors import DataError
from student.trainers.arrays import teachers_chances
from student.trainers.base import Effort, Lesson, Progress, by_model, decided, silent
from student.trainers.boosting import CLOSELY, TREES, fit_chances, train_on_counts
from student.trainers.counts import cells_of
from student.trainers.encoding import EmbeddedRows, Encoding, learn_encoding
from student.trainers.head import (
    COPIED,
    PENALTY,
    SMOOTHED,
    fit_head,
    head_chances,
    is_clear,
    smoothed_rows,
)
from student.trainers.labels import (
    HEADS,
    ONLY_NOISE,
    TREES_OF_LABELS,
    chances_of_labels,
    train_on_labels,
    train_on_points,
    train_on_teachers,
)
from student.trainers.linear import linear_chances
from student.trainers.numbers import means, medians, shares_below
from student.trainers.proportions import guess_shares
from student.trainers.smoothing import WIDTHS

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from pate.data.values import Inputs
    from student.trainers.model import Model

KIND: Final = "selftraining"
#: Of a student of embeddings.
HEAD: Final = "head"
#: One of so many rows is left out when copies of a model are compared, and the least chance there.
_LEFT_OUT: Final = 5
_LEAST: Final = 1e-9


@dataclass(frozen=True)
class Settings:
    """Parameters of the training.

    Attributes:
        rounds: fits after the first one.
        trees: in the forest.
        threshold: confidence from which a row's own prediction is learnt from.
        weight: of such a row, where a row with a label has 1.
        softness: inverse regularisation of the logistic model, ``C`` of scikit-learn.
        smoothed: whether noisy counts, if any, are only smoothed over similar rows.
    """

    rounds: int = 2
    trees: int = 200
    threshold: float = 0.9
    weight: float = 0.3
    softness: float = 0.1
    smoothed: bool = False


@dataclass(frozen=True, eq=False)
class TableStudent:
    """Fitted models and the encoding of their rows.

    Attributes:
        encoding: of the columns.
        models: fitted classifiers by name; their average decides. None for a constant student.
        constant: the only class of all its labels, or None.
        classes: class names; of several labels their names, of a number the points of its range.
        answer: text of an :class:`~pate.answers.Answer`.
        thresholds: of several labels the probability from which each is predicted.
    """

    encoding: Encoding | EmbeddedRows
    models: dict[str, Model]
    constant: int | None
    classes: tuple[str, ...]
    kind: str = KIND
    answer: str = CLASS
    thresholds: tuple[float, ...] = ()

    @property
    def has_classes(self) -> bool:
        """Whether it tells classes apart; else it predicts several labels, or a number."""
        return answer_of(self.answer).one_hot

    @property
    def schema(self) -> str:
        """Return the line of the tables that it accepts."""
        return self.encoding.schema

    def predict_probabilities(self, inputs: Inputs) -> NDArray[np.float32]:
        """Return (n, classes) probabilities; of several labels each row has any sum.

        Of a number they are the shares of the points of its range.

        A student whose labels were all of one class gives that class probability 1.

        Raises:
            SchemaError: if the inputs are images, or columns are missing.
        """
        rows = self.encoding.encode(inputs)
        if self.thresholds:
            return chances_of_labels(list(self.models.values()), rows)
        if self.answer == NUMBER and len(self.classes) > 2:
            below = chances_of_labels(list(self.models.values()), rows)
            return shares_below(below.astype(np.float64)).astype(np.float32)
        return _average(self.models, self.constant, rows, len(self.classes)).astype(np.float32)

    def predict_numbers(self, inputs: Inputs) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return (n,) predictions of a number, within its range, and its means; errors as above.

        A prediction is the median; if the campaign's range has its two ends only, the mean.
        """
        points = points_of(self.classes)
        shares = self.predict_probabilities(inputs).astype(np.float64)
        mean = means(shares, points)
        return (mean if len(points) == 2 else medians(shares, points)), mean

    def predict(self, inputs: Inputs) -> NDArray[np.int64]:
        """Return (n,) indices into the classes."""
        return decided(self.answer, self.predict_probabilities(inputs))


def train(
    lesson: Lesson,
    *,
    seed: int,
    effort: Effort | None = None,
    settings: Settings | None = None,
    progress: Progress = silent,
) -> TableStudent:
    """Train a student on labelled and unlabelled rows.

    Args:
        lesson: rows of a table, or embeddings; labels of a few, perhaps of one class only; noisy
            counts, or none.
        seed: of the forest; no global generator is read or moved.
        effort: ``steps`` is the number of trees; ``seconds`` ends the training early.
        settings: parameters of the training.
        progress: called after every model.

    Raises:
        DataError: if the inputs are images.
    """
    effort, settings = effort or Effort(), settings or Settings()
    encoding: Encoding | EmbeddedRows
    if isinstance(lesson.public, Embeddings):
        encoding, kind, makes = EmbeddedRows(lesson.public.schema()), HEAD, HEADS
    elif isinstance(lesson.public, Table):
        encoding, kind, makes = learn_encoding(lesson.public), KIND, TREES_OF_LABELS
    else:
        raise DataError("self-training is for tables; use --model propagation for images")
    answer = CLASS if lesson.noisy is None else str(code_of(lesson.noisy.code).answer)
    answer = CLASS if answer in (RESIDUAL, BALANCED, ARRAY) else answer
    if lesson.noisy is not None and answer.startswith(LABELS):
        rows = encoding.encode(lesson.public)
        if lesson.teachers:
            several, least = train_on_teachers(
                rows,
                lesson.noisy,
                lesson.teachers,
                seed=seed,
                effort=effort,
                makes=makes,
                progress=progress,
            )
        else:
            none = lesson.classes.index(NONE)
            several, least = train_on_labels(
                lesson.public,
                rows,
                lesson.noisy,
                none,
                seed=seed,
                effort=effort,
                makes=makes,
                progress=progress,
            )
        names = tuple(name for name in lesson.classes if name != NONE)
        models = {f"label-{at}": model for at, model in enumerate(several)}
        return TableStudent(encoding, models, None, names, kind, answer, least)
    if lesson.noisy is not None and answer == NUMBER and len(lesson.classes) > 2:
        rows = encoding.encode(lesson.public)
        several = train_on_points(
            lesson.public,
            rows,
            lesson.noisy,
            seed=seed,
            effort=effort,
            makes=makes,
            progress=progress,
        )
        models = {f"label-{at}": model for at, model in enumerate(several)}
        return TableStudent(encoding, models, None, lesson.classes, kind, answer)
    if isinstance(encoding, EmbeddedRows):
        return _head(lesson, encoding, answer, seed, effort, progress)
    if lesson.noisy is not None and lesson.noisy.of_teachers:
        step = by_model(progress, 2)
        chances = teachers_chances(lesson.public, lesson.noisy, lesson.teachers)
        step()
        return _fitted_to(lesson, encoding, chances, seed, effort, step, line=True)
    cells = None if lesson.noisy is None else cells_of(lesson.public, lesson.noisy)
    if cells is not None:
        rows = encoding.encode(lesson.public)
        step = by_model(progress, len(WIDTHS) + 1 + (not settings.smoothed))
        guess = smoothed_rows(lesson.public, cells, seed, step)
        if not settings.smoothed:
            guess = (guess + guess_shares(rows, cells)) / 2
            step()
        model = train_on_counts(rows, cells, seed=seed, effort=effort, guess=guess)
        step()
        return TableStudent(encoding, {"boosting": model}, None, lesson.classes, answer=answer)
    if lesson.noisy is not None and lesson.noisy.dense:
        step = by_model(progress, 2)
        summed = linear_chances(lesson.public, lesson.noisy)
        step()
        if summed is not None:
            line = None if lesson.noisy.model is not None else False
            return _fitted_to(lesson, encoding, summed, seed, effort, step, answer, line=line)
    if answer == NUMBER or not len(lesson.labels):
        raise DataError(ONLY_NOISE)
    present = np.unique(lesson.labels)
    if len(present) == 1:
        progress(1, 1, float("nan"))
        return TableStudent(encoding, {}, int(present[0]), lesson.classes, answer=answer)
    rows = encoding.encode(lesson.public)
    guesses, weights = _labels_alone(lesson)
    models = {}
    started = time.monotonic()
    step = by_model(progress, 2 * (settings.rounds + 1))
    for _ in range(settings.rounds + 1):
        chosen = weights > 0
        models = _fit(rows[chosen], guesses[chosen], weights[chosen], effort, settings, seed, step)
        if effort.seconds is not None and time.monotonic() - started > effort.seconds:
            break
        probabilities = _average(models, None, rows, len(lesson.classes))
        guesses, weights = _with_guesses(lesson, probabilities, settings)
    return TableStudent(encoding, models, None, lesson.classes, answer=answer)


def _fitted_to(
    lesson: Lesson,
    encoding: Encoding,
    chances: NDArray[np.float64],
    seed: int,
    effort: Effort,
    step: Callable[[], None],
    answer: str = CLASS,
    *,
    line: bool | None = False,
) -> TableStudent:
    """Return boosted trees fitted to class probabilities of all public rows, and on request a linear model.

    It is smoother than trees are, which of a small public set say less; their mean is better than either.
    ``line`` says whether; None: where both together copy rows left out better than trees.
    """
    rows, trees = encoding.encode(lesson.public), effort.steps or TREES
    found = {"boosting": fit_chances(rows, chances, seed=seed, trees=trees, far=CLOSELY)}
    if line or (line is None and _is_smooth(rows, chances, seed, trees)):
        found["logistic"] = fit_head(rows, chances, steps=effort.steps)
    step()
    return TableStudent(encoding, found, None, lesson.classes, answer=answer)


def _head(
    lesson: Lesson,
    encoding: EmbeddedRows,
    answer: str,
    seed: int,
    effort: Effort,
    progress: Progress,
) -> TableStudent:
    """Return the student of embeddings; arguments as :func:`train`."""
    step = by_model(progress, 2)
    chances = head_chances(lesson, seed)
    step()
    if chances is None and not len(lesson.labels):
        raise DataError(ONLY_NOISE)
    present = np.unique(lesson.labels)
    if lesson.noisy is None and len(present) == 1:
        chances = None
    if chances is None:
        models, constant = {}, int(np.bincount(lesson.labels).argmax())
    else:
        rows = encoding.encode(lesson.public)
        # With many classes each has few rows, and a softer penalty.
        penalty = PENALTY * min(1.0, SMOOTHED / len(lesson.classes))
        if is_clear(lesson.noisy):
            penalty *= COPIED
        head = fit_head(rows, chances, steps=effort.steps, penalty=penalty)
        models, constant = {HEAD: head}, None
    step()
    return TableStudent(encoding, models, constant, lesson.classes, HEAD, answer)


def _is_smooth(
    rows: NDArray[np.float32], chances: NDArray[np.float64], seed: int, trees: int
) -> bool:
    """Return whether trees copy a model better together with a linear model.

    Every fifth row is left out when both are fitted, and says so by its cross-entropy.
    """
    left = np.arange(len(rows)) % _LEFT_OUT == 0
    if left.all():
        return False
    given, wanted = rows[~left], chances[~left]
    by_trees, by_line = (
        model.predict_proba(rows[left])
        for model in (
            fit_chances(given, wanted, seed=seed, trees=trees, far=CLOSELY),
            fit_head(given, wanted),
        )
    )
    apart, joined = (
        float((chances[left] * np.log(np.maximum(each, _LEAST))).sum())
        for each in (by_trees, (by_trees + by_line) / 2)
    )
    return joined > apart


def _labels_alone(lesson: Lesson) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    guesses = np.zeros(len(lesson.public), dtype=np.int64)
    weights = np.zeros(len(lesson.public))
    guesses[lesson.queries] = lesson.labels
    weights[lesson.queries] = 1.0
    return guesses, weights


def _with_guesses(
    lesson: Lesson, probabilities: NDArray[np.float64], settings: Settings
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Add the confident rows.

    Per class at most the share that the class has among all predictions, so that an easy class
    does not push out the others.
    """
    guesses, weights = _labels_alone(lesson)
    predicted = probabilities.argmax(axis=1)
    confidence = probabilities.max(axis=1)
    confidence[lesson.queries] = 0.0
    share = np.bincount(predicted, minlength=len(lesson.classes)) / len(predicted)
    allowed = int((confidence >= settings.threshold).sum())
    for label in np.flatnonzero(share):
        mine = np.flatnonzero((predicted == label) & (confidence >= settings.threshold))
        most = max(1, round(share[label] * allowed))
        taken = mine[np.argsort(-confidence[mine], kind="stable")[:most]]
        guesses[taken] = label
        weights[taken] = settings.weight
    return guesses, weights


def _fit(
    rows: NDArray[np.float32],
    labels: NDArray[np.int64],
    weights: NDArray[np.float64],
    effort: Effort,
    settings: Settings,
    seed: int,
    step: Callable[[], None],
) -> dict[str, Model]:
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    forest: Model = RandomForestClassifier(
        n_estimators=effort.steps or settings.trees,
        min_samples_leaf=2,
        max_features="sqrt",
        random_state=seed % 2**32,
    )
    logistic: Model = LogisticRegression(C=settings.softness, max_iter=300)
    models = {"forest": forest, "logistic": logistic}
    with warnings.catch_warnings():
        # A logistic model that did not converge is still usable, thanks to its regularisation.
        warnings.simplefilter("ignore", ConvergenceWarning)
        for model in models.values():
            model.fit(rows, labels, sample_weight=weights)
            step()
    return models


def _average(
    models: dict[str, Model], constant: int | None, rows: NDArray[np.float32], classes: int
) -> NDArray[np.float64]:
    """Return the mean of the models' probabilities, over all classes of the campaign."""
    total = np.zeros((len(rows), classes))
    if constant is not None:
        total[:, constant] = 1.0
        return total
    if not len(rows):
        return total
    for model in models.values():
        total[:, model.classes_] += model.predict_proba(rows)
    return total / len(models)
