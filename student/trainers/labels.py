"""One model a label, from noisy counts or dense sums of several labels, of records or of teachers.

So it is with a number whose range has more points than its two ends: one model a point, of whether a number
lies below it (:mod:`student.trainers.numbers`).

Each label is a question of two classes, those who have it and those who lack it: at a cell its share
of the records that voted there, with dense votes a ridge regression. A label is predicted from the
probability on that makes the expected F1 of the public rows largest.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from pate.errors import DataError
from student.trainers.base import Effort, Progress, silent
from student.trainers.boosting import CLOSELY, TREES, fit_chances, train_on_counts
from student.trainers.counts import Cells, cells_of, labels_of
from student.trainers.head import fit_head, smoothed_rows
from student.trainers.linear import linear_chances, linear_labels

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from pate.data.values import Inputs
    from pate.formats.noisy_counts import NoisyVotes
    from student.trainers.model import Model

    Floats = NDArray[np.float64]

#: Why nothing is learnt.
ONLY_NOISE: Final = (
    "the released counts are no more than their noise, so nothing can be learnt of them: more records, "
    "or more epsilon, in another campaign"
)


class Makes(Protocol):
    """What the models of labels are."""

    def of_chances(
        self,
        rows: NDArray[np.float32],
        chances: Floats,
        seed: int,
        effort: Effort,
        *,
        closely: bool = False,
    ) -> Model:
        """Return a model fitted to (n, 2) probabilities of (n, d) rows, on request more closely."""

    def of_cells(
        self, public: Inputs, rows: NDArray[np.float32], cells: Cells, seed: int, effort: Effort
    ) -> Model:
        """Return a model fitted to the counts of cells of public rows."""

    def of_rows(self, rows: NDArray[np.float32], cells: Cells, seed: int, effort: Effort) -> Model:
        """Return a model fitted to the counts of cells of one row each."""


class _Trees:
    """Boosted trees, for tables."""

    def of_chances(
        self,
        rows: NDArray[np.float32],
        chances: Floats,
        seed: int,
        effort: Effort,
        *,
        closely: bool = False,
    ) -> Model:
        trees = effort.steps or TREES
        if closely:
            return fit_chances(rows, chances, seed=seed, trees=trees, far=CLOSELY)
        return fit_chances(rows, chances, seed=seed, trees=trees)

    def of_cells(
        self, public: Inputs, rows: NDArray[np.float32], cells: Cells, seed: int, effort: Effort
    ) -> Model:
        del public
        return self.of_rows(rows, cells, seed, effort)

    def of_rows(self, rows: NDArray[np.float32], cells: Cells, seed: int, effort: Effort) -> Model:
        return train_on_counts(rows, cells, seed=seed, effort=effort)


class _Heads:
    """Softmax regression, for embeddings."""

    def of_chances(
        self,
        rows: NDArray[np.float32],
        chances: Floats,
        seed: int,
        effort: Effort,
        *,
        closely: bool = False,
    ) -> Model:
        del seed, closely
        return fit_head(rows, chances, steps=effort.steps)

    def of_cells(
        self, public: Inputs, rows: NDArray[np.float32], cells: Cells, seed: int, effort: Effort
    ) -> Model:
        return self.of_chances(rows, smoothed_rows(public, cells, seed), seed, effort)

    def of_rows(self, rows: NDArray[np.float32], cells: Cells, seed: int, effort: Effort) -> Model:
        return self.of_chances(rows, np.clip(cells.shares, 0.0, 1.0), seed, effort)


TREES_OF_LABELS: Final[Makes] = _Trees()
HEADS: Final[Makes] = _Heads()


def train_on_labels(
    public: Inputs,
    rows: NDArray[np.float32],
    noisy: NoisyVotes,
    none: int,
    *,
    seed: int,
    effort: Effort | None = None,
    makes: Makes = TREES_OF_LABELS,
    progress: Progress = silent,
) -> tuple[list[Model], tuple[float, ...]]:
    """Return a model and a threshold for each label.

    Args:
        public: the public set, n inputs.
        rows: (n, d) float32, the encoded public set.
        noisy: the released counts, or dense sums.
        none: the column that is no label.
        seed: of the trees.
        effort: ``steps`` is the number of boosting rounds per fit; ``seconds`` is shared by the labels.
        makes: what the models are.
        progress: called after each label.

    Raises:
        DataError: if the counts are only noise.
    """
    linear = linear_labels(public, noisy, none) if noisy.dense else None
    cells = None if noisy.dense else labels_of(public, noisy, none)

    def fit(at: int, effort: Effort) -> Model:
        if linear is not None:
            return makes.of_chances(rows, linear[at], seed + at, effort)
        if cells is None:
            raise DataError(ONLY_NOISE)
        return makes.of_cells(public, rows, cells[at], seed + at, effort)

    number = noisy.counts.shape[1] - 1
    return _with_thresholds(_one_a_label(number, fit, effort or Effort(), progress), rows)


def train_on_teachers(
    rows: NDArray[np.float32],
    noisy: NoisyVotes,
    teachers: int,
    *,
    seed: int,
    effort: Effort | None = None,
    makes: Makes = TREES_OF_LABELS,
    progress: Progress = silent,
) -> tuple[list[Model], tuple[float, ...]]:
    """Return a model and a threshold for each label that teachers voted for.

    A query is a cell of one row, in which all teachers voted: a label's share of them is known up to the
    noise, whose size says how far a share is to be believed (:func:`student.trainers.counts.tilt`).

    Args:
        rows: (n, d) float32, the encoded public set.
        noisy: the released counts.
        teachers: how many voted.
        seed: of the trees.
        effort: as above.
        makes: what the models are.
        progress: called after each label.
    """
    queries, number = noisy.counts.shape

    def fit(at: int, effort: Effort) -> Model:
        share = noisy.counts[:, at] / teachers
        cells = Cells(
            np.arange(queries),
            np.ones(queries, dtype=np.int64),
            np.full(queries, float(teachers)),
            np.stack([1 - share, share], axis=1),
            math.sqrt(2) * noisy.sigma,
        )
        return makes.of_rows(rows[noisy.queries], cells, seed + at, effort)

    return _with_thresholds(_one_a_label(number, fit, effort or Effort(), progress), rows)


def train_on_points(
    public: Inputs,
    rows: NDArray[np.float32],
    noisy: NoisyVotes,
    *,
    seed: int,
    effort: Effort | None = None,
    makes: Makes = TREES_OF_LABELS,
    progress: Progress = silent,
) -> list[Model]:
    """Return a model for each point of a number's range but the last: whether a number is about below it.

    Args:
        public: the public set, n inputs.
        rows: (n, d) float32, the encoded public set.
        noisy: the released counts, or dense sums, of a number at m points.
        seed: of the trees.
        effort: as above, shared by the points.
        makes: what the models are.
        progress: called after each point.

    Raises:
        DataError: if the counts are only noise.
    """
    linear = linear_chances(public, noisy) if noisy.dense else None
    cells = None if noisy.dense else cells_of(public, noisy)
    points = noisy.counts.shape[1]

    def fit(at: int, effort: Effort) -> Model:
        if linear is not None:
            below = linear[:, : at + 1].sum(axis=1)
            chances = np.stack([1 - below, below], axis=1)
            return makes.of_chances(rows, chances, seed + at, effort, closely=True)
        if cells is None:
            raise DataError(ONLY_NOISE)
        share = cells.shares[:, : at + 1].sum(axis=1)
        # Noise of at + 1 counts, less that of the mean of all; Cells takes half of its square.
        noise = math.sqrt(2 * (at + 1) * (1 - (at + 1) / points)) * cells.sigma
        here = replace(cells, shares=np.stack([1 - share, share], axis=1), sigma=noise)
        return makes.of_cells(public, rows, here, seed + at, effort)

    return _one_a_label(points - 1, fit, effort or Effort(), progress)


def _one_a_label(
    number: int, fit: Callable[[int, Effort], Model], effort: Effort, progress: Progress
) -> list[Model]:
    """Return a model for each label; the labels share the seconds."""
    each = replace(effort, seconds=None if effort.seconds is None else effort.seconds / number)
    models: list[Model] = []
    for at in range(number):
        models.append(fit(at, each))
        progress(at + 1, number, float("nan"))
    return models


def _with_thresholds(
    models: list[Model], rows: NDArray[np.float32]
) -> tuple[list[Model], tuple[float, ...]]:
    chances = chances_of_labels(models, rows)
    return models, tuple(best_threshold(column) for column in chances.T.astype(np.float64))


def chances_of_labels(models: Sequence[Model], rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return (n, l) the probability of each label, one model each."""
    made = np.zeros((len(rows), len(models)), dtype=np.float32)
    if len(rows):
        for at, model in enumerate(models):
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
