"""Softmax regression on embeddings: the head of a public encoder, as a student.

It is fitted to class probabilities of the public rows. From dense sums these come by ridge regression
(:mod:`student.trainers.linear`) on the rows, or on rows averaged over the public rows' graph of nearest
neighbours (:mod:`student.trainers.graph`). From noisy counts of a few classes they come by smoothing
(:mod:`student.trainers.smoothing`). With many classes most counts of a cell are of classes that nobody there
has; only counts that stand out of the noise, or labels, are then taken. Both are spread over the same graph,
in which classes are groups more often than a linear model knows: that brings points where noise is large.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from pate.codes import GRID, code_of
from pate.errors import DataError
from pate.features.space import space_over
from pate.rounds.rule import noise_ratio
from pate.rounds.solver import Start
from student.trainers.arrays import teachers_chances
from student.trainers.beliefs import evidence_of
from student.trainers.counts import LEAST_SHARE, cells_of
from student.trainers.graph import averaged, neighbour_graph, spread
from student.trainers.linear import linear_chances
from student.trainers.proportions import softmax
from student.trainers.smoothing import smooth

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from pate.data.values import Inputs
    from pate.formats.noisy_counts import NoisyVotes
    from student.trainers.base import Lesson
    from student.trainers.counts import Cells
    from student.trainers.model import Model

    Rows = NDArray[np.float32]
    Floats = NDArray[np.float64]

#: Most classes whose counts are smoothed; of more, most counts are only noise.
SMOOTHED: Final = 10
#: Of the graph: edges from each row, and the weight of neighbours. A graph's shares rank well but are
#: not confident; they are raised to a power. Chosen on labels of the public parts of two benchmarks,
#: AG News and Banking77, with trial votes of their private parts.
_NEIGHBOURS: Final = 10
_MEMORY: Final = 0.8
_SHARPNESS: Final = 3.0
#: Weights of neighbours in the averaged rows that dense sums choose from, and the constant coordinate.
_MEMORIES: Final = (0.0, 0.5, 0.8)
_CONSTANT: Final = 0.35
#: Of many classes: standard deviations of the noise that are subtracted from each count, and those of
#: votes above it that are one cell's evidence; the graph averages what noise is left.
_CHANCE: Final = 1.6
_ENOUGH: Final = 2.5
#: Penalty on the weights, for rows of mean squared length one, per row.
PENALTY: Final = 3e-4
_STEPS: Final = 150
#: Part of the penalty with which a head copies the model of a campaign in rounds, if its noise is below so
#: much of what the draw of records adds; else the head is the better for not copying the noise. Chosen on
#: AG News and CIFAR-10.
COPIED: Final = 0.1
_CLEAR: Final = 10.0


def head_chances(lesson: Lesson, seed: int) -> Floats | None:
    """Return (n, m) class probabilities of the public rows; None if there is nothing but noise.

    Args:
        lesson: embeddings, with labels of a few or noisy counts.
        seed: of the draw of landmarks.
    """
    noisy = lesson.noisy
    if noisy is not None and noisy.of_teachers:
        return teachers_chances(lesson.public, noisy, lesson.teachers)
    if noisy is not None and noisy.dense:
        return linear_chances(lesson.public, noisy, _views(lesson.public))
    cells = None if noisy is None else cells_of(lesson.public, noisy)
    if cells is not None and len(lesson.classes) <= SMOOTHED:
        evidence = smoothed_rows(lesson.public, cells, seed)
    elif cells is not None and noisy is not None:
        evidence = np.zeros((len(lesson.public), len(lesson.classes)))
        evidence[noisy.queries] = _standing_out(noisy)
    elif len(lesson.queries):
        evidence = evidence_of(lesson)
    else:
        return None
    points = _points(lesson.public)
    if len(points) < 2 or (noisy is not None and not code_of(noisy.code).answer.one_hot):
        return evidence
    shares = spread(neighbour_graph(points, _NEIGHBOURS), evidence, _MEMORY)
    return softmax(_SHARPNESS * np.log(shares.astype(np.float64)))


def is_clear(noisy: NoisyVotes | None) -> bool:
    """Return whether counts are of a campaign in rounds whose noise hides little of its model."""
    if noisy is None or noisy.model is None or noisy.shown is None:
        return False
    sigmas = [*(each.sigma for each in noisy.earlier[1:]), noisy.sigma]
    if not all(sigmas):
        return True
    mu = sum((GRID / sigma) ** 2 for sigma in sigmas) ** 0.5
    records = Start.of(*noisy.class_counts).records
    directions, classes = noisy.counts.shape
    return mu > 0 and noise_ratio(classes, directions, records, mu) <= _CLEAR


def smoothed_rows(
    public: Inputs, cells: Cells, seed: int, step: Callable[[], None] = lambda: None
) -> Floats:
    """Return (n, m) class probabilities, smooth in the space that records voted in.

    Args:
        public: the public set, n inputs.
        cells: the released counts over them.
        seed: of the draw of landmarks.
        step: as of :func:`smooth`.
    """
    return smooth([_points(public)], cells, seed=seed, step=step).astype(np.float64)


def fit_head(
    rows: Rows, chances: Floats, *, steps: int | None = None, penalty: float = PENALTY
) -> Model:
    """Return softmax regression fitted to class probabilities; it has no randomness.

    The loss is the cross-entropy, averaged over the rows, plus a penalty on the weights: these are of
    rows less their mean, divided by their usual length, and then of the rows themselves.

    Args:
        rows: (n, d) float32.
        chances: (n, m), of which each row is divided by its sum.
        steps: of the search.
        penalty: on the weights.

    Raises:
        DataError: if there are no rows, or the probabilities are not finite.
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


def _standing_out(noisy: NoisyVotes) -> Floats:
    """Return (v, m) shares of the votes above the noise; few such votes weigh less than one."""
    risen = np.clip(noisy.counts - _CHANCE * noisy.sigma, 0.0, None)
    total = np.maximum(risen.sum(axis=1, keepdims=True), _ENOUGH * noisy.sigma)
    shares: Floats = risen / np.maximum(total, 1e-9)
    return shares


def _views(public: Inputs) -> tuple[NDArray[np.floating], ...]:
    """Return the rows with a constant coordinate, and averaged over their graph."""
    points = _points(public)
    if len(points) < 2:
        return ()
    lifted = np.hstack([points, np.full((len(points), 1), _CONSTANT)]).astype(np.float32)
    graph = neighbour_graph(points, _NEIGHBOURS)
    return tuple(averaged(graph, lifted, memory) for memory in _MEMORIES)


def _points(public: Inputs) -> Rows:
    """Return the rows in the space that records vote in, of mean squared length one about their mean."""
    points = space_over(public).embed(public)
    centred = points - points.mean(axis=0)
    length = np.sqrt(np.square(centred).sum(axis=1).mean()) + 1e-9
    made: Rows = (centred / length).astype(np.float32)
    return made
