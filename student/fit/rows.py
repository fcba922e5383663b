"""Students of rows: of tables and of embeddings, of one class, of several labels, or of a number.

A table's student is trees (:mod:`student.fit.trees`). That of embeddings of a public encoder is softmax
regression on them, its *head*: they are rows that a linear model suits already. From chances that are a
smooth function of the rows a table's student may have such a linear model, too: of a small public set trees
say less, and the mean of both copies better.

Several labels have a model each. A label is predicted from the probability on that makes the expected F1 of
the public rows largest. A number has a model for each point of its range but the last, of whether it lies at
or below it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.answers import (
    ARRAY,
    BALANCED,
    CLASS,
    LABELS,
    MOST_LABELS,
    NONE,
    NUMBER,
    RESIDUAL,
    RESIDUAL_LABELS,
    answer_of,
    points_of,
)
from pate.codes import code_of
from pate.data.embeddings import Embeddings
from pate.data.values import Table
from pate.errors import DataError
from student.chances.cells import LEAST_SHARE, shares_below
from student.chances.evidence import SMOOTHED, has_points
from student.fit.encoding import EmbeddedRows, Encoding, learn_encoding
from student.fit.trees import SELF_TRAINING, TREES, boost, fit_chances, mean_of, self_train
from student.lesson import by_model, decided

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from pate.data.values import Inputs
    from student.chances.evidence import Chances
    from student.fit.trees import Model
    from student.lesson import Effort, Lesson, Progress

    Rows = NDArray[np.float32]
    Floats = NDArray[np.float64]

KIND: Final = "selftraining"
#: Of a student of embeddings.
HEAD: Final = "head"
#: Penalty on the weights of a head, for rows of mean squared length one, per row; and the part of it with
#: which a head copies a clear model of rounds.
PENALTY: Final = 3e-4
_COPIED: Final = 0.1
_STEPS: Final = 150
#: One of so many rows is left out when copies of a model are compared, and the least chance there.
_LEFT_OUT: Final = 5
_LEAST: Final = 1e-9
_HALF: Final = 0.5


@dataclass(frozen=True, eq=False)
class TableStudent:
    """Fitted models and the encoding of their rows."""

    encoding: Encoding | EmbeddedRows
    # fitted classifiers by name; their average decides. None for a constant student
    models: dict[str, Model]
    constant: int | None  # the only class of all its labels, or None
    # class names; of several labels their names, of a number the points of its range
    classes: tuple[str, ...]
    kind: str = KIND
    answer: str = CLASS  # text of an :class:`~pate.answers.Answer`
    # of several labels the probability from which each is predicted
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
        """
        rows = self.encoding.encode(inputs)
        if self.thresholds:
            return chances_of_labels(self.models, rows)
        if self.answer == NUMBER and len(self.classes) > 2:
            below = chances_of_labels(self.models, rows)
            return shares_below(below.astype(np.float64)).astype(np.float32)
        if self.constant is not None:
            made = np.zeros((len(rows), len(self.classes)), dtype=np.float32)
            made[:, self.constant] = 1.0
            return made
        return mean_of(self.models, rows, len(self.classes)).astype(np.float32)

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


def encoding_of(public: Inputs) -> Encoding | EmbeddedRows:
    """Return how the inputs of a public set become rows of numbers."""
    if isinstance(public, Embeddings):
        return EmbeddedRows(public.schema())
    if isinstance(public, Table):
        return learn_encoding(public)
    raise DataError("images are learnt by a network")


def fit_rows(
    lesson: Lesson,
    encoding: Encoding | EmbeddedRows,
    rows: Rows,
    found: Sequence[Chances],
    *,
    seed: int,
    effort: Effort,
    progress: Progress,
) -> TableStudent:
    """Return a student fitted to chances of (n, d) public rows, those of the classes or one a question.

    Several questions share the seconds. ``progress`` is called after each model.
    """
    kind = HEAD if isinstance(encoding, EmbeddedRows) else KIND
    answer = CLASS if lesson.noisy is None else str(code_of(lesson.noisy.code).answer)
    answer = CLASS if answer in (RESIDUAL, BALANCED, ARRAY) else answer
    if answer == RESIDUAL_LABELS:  # all of them count
        answer = f"{LABELS}-{min(len(lesson.classes) - 1, MOST_LABELS)}"
    several = answer_of(answer).name == LABELS
    if not several and not has_points(lesson):
        (one,) = found
        present = np.flatnonzero(one.matrix.any(axis=0))
        if len(present) == 1:
            progress(1, 1, float("nan"))
            return TableStudent(encoding, {}, int(present[0]), lesson.classes, kind, answer)
        trained = kind == KIND and one.source == "labels"
        step = by_model(progress, SELF_TRAINING if trained else 1)
        models = _models(rows, one, kind, seed, effort, step)
        return TableStudent(encoding, models, None, lesson.classes, kind, answer)
    each = None if effort.seconds is None else effort.seconds / len(found)
    step = by_model(progress, len(found))
    models = {}
    for at, one in enumerate(found):
        here = rows if one.rows is None else rows[one.rows]
        made = _models(here, one, kind, seed + at, replace(effort, seconds=each), step)
        (models[f"label-{at}"],) = made.values()
    if not several:
        return TableStudent(encoding, models, None, lesson.classes, kind, answer)
    chances = chances_of_labels(models, rows)
    least = tuple(best_threshold(column) for column in chances.T.astype(np.float64))
    names = tuple(name for name in lesson.classes if name != NONE)
    return TableStudent(encoding, models, None, names, kind, answer, least)


def _models(
    rows: Rows, given: Chances, kind: str, seed: int, effort: Effort, step: Callable[[], None]
) -> dict[str, Model]:
    """Return the models, by name, that are fitted to chances of (n, d) rows."""
    if kind == KIND and given.source == "labels":
        return self_train(
            rows, np.asarray(given.matrix, np.float64), seed=seed, effort=effort, step=step
        )
    chances = given.matrix.astype(np.float64)
    if kind == HEAD:
        # With many classes each has few rows, and a softer penalty.
        penalty = PENALTY * min(1.0, SMOOTHED / chances.shape[1])
        penalty *= _COPIED if given.clear else 1.0
        made = {HEAD: fit_head(rows, chances, steps=effort.steps, penalty=penalty)}
    else:
        made = {"boosting": boost(rows, given, seed=seed, effort=effort)}
        trees = effort.steps or TREES
        if given.source == "teachers" or (
            given.source == "rounds" and is_smooth(rows, chances, seed, trees)
        ):
            made["logistic"] = fit_head(rows, chances, steps=effort.steps)
    step()
    return made


def is_smooth(rows: Rows, chances: Floats, seed: int, trees: int) -> bool:
    """Return whether trees copy a model better with a linear one, by the cross-entropy of every fifth row."""
    left = np.arange(len(rows)) % _LEFT_OUT == 0
    if left.all():
        return False
    given, wanted = rows[~left], chances[~left]
    by_trees, by_line = (
        model.predict_proba(rows[left])
        for model in (
            fit_chances(given, wanted, seed=seed, trees=trees, closely=True),
            fit_head(given, wanted),
        )
    )
    apart, joined = (
        float((chances[left] * np.log(np.maximum(each, _LEAST))).sum())
        for each in (by_trees, (by_trees + by_line) / 2)
    )
    return joined > apart


def fit_head(
    rows: Rows, chances: Floats, *, steps: int | None = None, penalty: float = PENALTY
) -> Model:
    """Return softmax regression fitted to class probabilities; it has no randomness.

    The loss is the cross-entropy, averaged over the rows, plus a penalty on the weights: these are of rows
    less their mean, divided by their usual length, and then of the rows themselves. Each row of the (n, m)
    chances is divided by its sum.
    """
    from scipy.optimize import minimize
    from sklearn.linear_model import LogisticRegression

    if not len(rows) or not np.isfinite(chances).all():
        raise DataError("a head is fitted to finite probabilities of one row or more")
    wanted = np.maximum(chances, 0.0) + 1e-12
    wanted = (wanted / wanted.sum(axis=1, keepdims=True)).astype(np.float32)
    middle = rows.mean(axis=0)
    length = np.float32(np.sqrt(np.square(rows - middle).sum(axis=1).mean()) + 1e-9)
    scaled = np.hstack([(rows - middle) / length, np.ones((len(rows), 1), dtype=np.float32)])
    width, classes = scaled.shape[1], wanted.shape[1]

    def loss(flat: Floats) -> tuple[float, Floats]:
        at = flat.reshape(width, classes)
        scores = scaled @ at.astype(np.float32)
        scores -= scores.max(axis=1, keepdims=True)
        powers = np.exp(scores)
        totals = powers.sum(axis=1, keepdims=True)
        slope = (scaled.T @ (powers / totals - wanted)).astype(np.float64) / len(rows)
        slope[:-1] += penalty * at[:-1]
        value = -float((wanted * (scores - np.log(totals))).sum(dtype=np.float64)) / len(rows)
        return value + penalty / 2 * float(np.square(at[:-1]).sum()), slope.ravel()

    start = np.zeros((width, classes))
    start[-1] = np.log(np.maximum(wanted.mean(axis=0), LEAST_SHARE))
    found = minimize(
        loss, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": steps or _STEPS}
    )
    weights = np.asarray(found.x, dtype=np.float64).reshape(width, classes)
    own = weights[:-1] / length
    bias = weights[-1] - middle @ own
    model = LogisticRegression()
    if classes == 2:  # scikit-learn stores only the second's score
        own, bias = own[:, 1:] - own[:, :1], bias[1:] - bias[:1]
    model.coef_, model.intercept_ = np.ascontiguousarray(own.T), bias
    model.classes_ = np.arange(classes)
    model.n_features_in_ = width - 1
    made: Model = model
    return made


def chances_of_labels(models: dict[str, Model], rows: Rows) -> Rows:
    """Return (n, l) the probability of each label, one model each."""
    made = np.zeros((len(rows), len(models)), dtype=np.float32)
    if len(rows):
        for at, model in enumerate(models.values()):
            made[:, at] = model.predict_proba(rows)[:, -1]
    return made


def best_threshold(chances: NDArray[np.float64]) -> float:
    """Return the probability from which a prediction makes the expected F1 of these inputs largest.

    Of k predicted inputs with summed probability s, of p in all, it is about 2 s / (k + p): no label is
    needed. It is at most 1/2.

    Source: Lipton, Elkan and Naryanaswamy, "Optimal thresholding of classifiers to maximize F1
    measure", ECML 2014.
    """
    ordered = np.sort(chances)[::-1]
    expected = 2 * ordered.cumsum() / (np.arange(1, len(ordered) + 1) + ordered.sum())
    return float(expected.max() / 2)


def means(shares: Floats, points: Sequence[float]) -> Floats:
    """Return (n,) the mean numbers of (n, m) shares of m ascending points; it has the least squared error."""
    low, high = points[0], points[-1]
    # Of two ends it is low + share * (high - low), without another rounding.
    made: Floats = low + shares @ ((np.array(points) - low) / (high - low)) * (high - low)
    return made


def medians(shares: Floats, points: Sequence[float]) -> Floats:
    """Return (n,) the median numbers of (n, m) shares of m points; it has the least mean absolute error.

    A record's vote for its number z is divided between the two points next to it, in proportion to how near
    they are. So the expected share of the points up to the j-th is the mean of P(z <= t) over t from that
    point to the next: about P(z <= t) halfway between them. The median is where it crosses a half, by
    straight lines. If the points are whole numbers that follow each other, so is the number taken to be: P(z
    <= t) has steps at the points, and the median is one of them.
    """
    at = np.array(points)
    below = shares.cumsum(axis=1)[:, :-1]
    after = (below < _HALF).sum(axis=1)
    if (np.diff(at) == 1).all() and at[0] == np.trunc(at[0]):
        whole: Floats = at[after]
        return whole
    ends = np.concatenate([at[:1], (at[1:] + at[:-1]) / 2, at[-1:]])
    sums = np.pad(below, ((0, 0), (1, 1)), constant_values=(0.0, 1.0))
    # The sums to either side of where a row crosses a half.
    rows = np.arange(len(shares))
    least, most = sums[rows, after], sums[rows, after + 1]
    share = np.clip((_HALF - least) / np.maximum(most - least, 1e-12), 0, 1)
    made: Floats = ends[after] + share * (ends[after + 1] - ends[after])
    return made
