"""From a lesson's evidence to class probabilities of its public inputs, and the numbers that go with them.

============  ==========================================================================================
evidence      what is made of it
============  ==========================================================================================
labels        of images beliefs (:mod:`student.chances.propagation`); embeddings spread them over their
              graph of neighbours; of tables the labels as they are, for self-training
counts        shares of cells (:mod:`student.chances.cells`): an additive model of the columns and smoothing
              over similar rows, whose errors differ, so that their mean is better than either. Of embeddings
              smoothing, then spread over their graph, in which classes are groups more often than a linear
              model knows: that brings points where noise is large
sums          ridge regression on dense votes (:mod:`student.chances.sums`)
rounds        the model that the rounds ended with
teachers      counts, or arrays, of teachers in one release (:mod:`student.chances.teachers`)
============  ==========================================================================================

Several labels are a question of two classes each, those who have it and those who lack it. So is each point
of a number's range but the last: whether the number lies at or below it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import numpy as np

from pate.answers import LABELS, NONE, NUMBER
from pate.codes import code_of
from pate.data.embeddings import Embeddings
from pate.data.values import Images
from pate.errors import DataError
from pate.features.space import default_name
from pate.rounds.solver import softmax
from student.chances import propagation
from student.chances.cells import Cells, additive, cells_of, labels_of
from student.chances.neighbours import WIDTHS, neighbour_graph, points_of, smooth, spread
from student.chances.sums import having, is_clear, linear_chances, linear_labels, rounds_chances
from student.chances.teachers import teachers_chances
from student.lesson import by_model, silent

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from pate.formats.noisy_counts import NoisyVotes
    from student.lesson import Lesson, Progress

    Floats = NDArray[np.float64]

#: What chances are made of.
Source: TypeAlias = Literal["labels", "counts", "sums", "rounds", "teachers"]

#: Why nothing is learnt.
ONLY_NOISE: Final = (
    "the released counts are no more than their noise, so nothing can be learnt of them: more records, "
    "or more epsilon, in another campaign"
)
#: Most classes of embeddings whose counts are smoothed; of more, most counts of a cell are only noise. Then
#: only counts that stand out are taken.
SMOOTHED: Final = 10
#: Of the graph of embeddings: edges from each row, and the weight of neighbours. A graph's shares rank well
#: but are not confident; they are raised to a power. Chosen on labels of the public parts of two benchmarks,
#: AG News and Banking77, with trial votes of their private parts.
_NEIGHBOURS: Final = 10
_MEMORY: Final = 0.8
_SHARPNESS: Final = 3.0
#: Of many classes: standard deviations of the noise that are subtracted from each count, and those of
#: votes above it that are one cell's evidence; the graph averages what noise is left.
_CHANCE: Final = 1.6
_ENOUGH: Final = 2.5
#: Times that a model and the counts of cells are made to agree, if the first guess is additive only.
_PASSES: Final = 4


@dataclass(frozen=True, eq=False)
class Chances:
    """Class probabilities of public inputs."""

    # (n, m) probabilities, a row an input; zeros where nothing is known
    matrix: NDArray[np.floating]
    source: Source
    rows: NDArray[np.int64] | None = None  # (n,) the public inputs; None for all, in order
    # counts with which the mean probabilities of a model should agree, or None
    cells: Cells | None = None
    # times that a model is fitted and its probabilities made to agree with the cells
    passes: int = 1
    # (n, m) labels and counts that the matrix does not count at their own input, or None
    known: Floats | None = None
    # whether they are a smooth function of the inputs, with nothing random in it
    smooth: bool = False
    clear: bool = False  # whether they are a model of rounds whose noise hides little of it


def labelled(lesson: Lesson) -> Chances:
    """Return the labels of a lesson and nothing else."""
    if not len(lesson.labels):
        raise DataError(ONLY_NOISE)
    matrix = np.zeros((len(lesson.public), len(lesson.classes)))
    matrix[lesson.queries, lesson.labels] = 1
    return Chances(matrix, "labels")


def chances_of(
    lesson: Lesson,
    rows: NDArray[np.float32] | None,  # (n, d) the encoded public set; None of images
    *,
    seed: int,
    # whether counts over tables are smoothed over similar rows, without an additive model
    smoothed: bool = False,
    progress: Progress = silent,  # called after each part that takes a time of its own
) -> list[Chances]:
    """Return the chances of classes, of each label, or of each point of a number's range but the last."""
    noisy = lesson.noisy
    if rows is None:
        return [_of_images(lesson, seed)]
    if noisy is not None and code_of(noisy.code).answer.permission == LABELS:
        return _of_labels(lesson, noisy, rows, seed)
    if noisy is not None and has_points(lesson):
        return _of_points(lesson, noisy, rows, seed)
    found = None if noisy is None else _of_counts(lesson, noisy, rows, seed, smoothed, progress)
    if found is None and isinstance(lesson.public, Embeddings):
        found = _of_few(lesson)
    if found is None and noisy is not None and code_of(noisy.code).answer.name == NUMBER:
        raise DataError(ONLY_NOISE)
    return [labelled(lesson) if found is None else found]


def has_points(lesson: Lesson) -> bool:
    """Return whether a lesson is of a number whose range has more points than its two ends."""
    noisy = lesson.noisy
    return (
        noisy is not None and code_of(noisy.code).answer.name == NUMBER and len(lesson.classes) > 2
    )


def _of_counts(
    lesson: Lesson,
    noisy: NoisyVotes,
    rows: NDArray[np.float32],
    seed: int,
    smoothed: bool,
    progress: Progress,
) -> Chances | None:
    """Return the chances of a class from noisy counts over rows; None if they are only noise."""
    public = lesson.public
    if noisy.of_teachers:
        return Chances(teachers_chances(public, noisy, lesson.teachers), "teachers", smooth=True)
    if noisy.dense:
        return _of_sums(lesson, noisy)
    cells = cells_of(public, noisy)
    if cells is None:
        return None
    embedded = isinstance(public, Embeddings)
    if embedded and len(lesson.classes) > SMOOTHED:
        evidence = np.zeros((len(public), len(lesson.classes)))
        evidence[noisy.queries] = _standing_out(noisy)
        return Chances(_spread(lesson, evidence), "counts")
    step = by_model(progress, len(WIDTHS) + (not smoothed and not embedded))
    guess = _smoothed(lesson, cells, seed, step)
    if embedded:
        one_hot = code_of(noisy.code).answer.one_hot
        return Chances(_spread(lesson, guess) if one_hot else guess, "counts")
    if not smoothed:
        guess = (guess + additive(rows, cells)) / 2
        step()
    # More passes would forget the guess.
    return Chances(guess, "counts", cells=cells)


def _of_sums(lesson: Lesson, noisy: NoisyVotes) -> Chances | None:
    """Return the chances of a class from dense sums, or from the model of rounds."""
    if code_of(noisy.code).answer.in_rounds:
        modelled = rounds_chances(lesson.public, noisy)
        if modelled is None:
            return None
        return Chances(modelled, "rounds", smooth=True, clear=is_clear(noisy))
    found = linear_chances(lesson.public, noisy)
    return None if found is None else Chances(found, "sums", smooth=True)


def _of_few(lesson: Lesson) -> Chances | None:
    """Return a few labels, and what stands out of the counts, spread over the graph of embeddings."""
    if not len(lesson.labels):
        return None
    evidence = propagation.evidence_of(lesson)
    present = evidence.any(axis=0)
    if np.count_nonzero(present) == 1:
        return Chances(np.tile(present.astype(np.float64), (len(evidence), 1)), "labels")
    return Chances(_spread(lesson, evidence), "labels")


def _of_labels(
    lesson: Lesson, noisy: NoisyVotes, rows: NDArray[np.float32], seed: int
) -> list[Chances]:
    """Return the chances of each of several labels, of records or of teachers."""
    if lesson.teachers:
        return [
            _of_cells(lesson, cells, rows, seed, noisy.queries)
            for cells in _teachers_cells(noisy, lesson.teachers)
        ]
    none = lesson.classes.index(NONE)
    if noisy.dense:
        if code_of(noisy.code).answer.in_rounds:
            modelled = rounds_chances(lesson.public, noisy)
            found = None if modelled is None else having(modelled)
        else:
            found = linear_labels(lesson.public, noisy, none)
        if found is None:
            raise DataError(ONLY_NOISE)
        return [Chances(each, "sums", smooth=True) for each in found]
    cells = labels_of(lesson.public, noisy, none)
    if cells is None:
        raise DataError(ONLY_NOISE)
    return [_of_cells(lesson, each, rows, seed + at) for at, each in enumerate(cells)]


def _teachers_cells(noisy: NoisyVotes, teachers: int) -> list[Cells]:
    """Return for each label the queries as cells of one row each, in which all teachers voted.

    A label's share of them is known up to the noise, whose size says how far a share is to be believed.
    """
    queries = len(noisy.queries)
    cell, one = np.arange(queries), np.ones(queries, dtype=np.int64)
    mass, sigma = np.full(queries, float(teachers)), math.sqrt(2) * noisy.sigma
    shares = noisy.counts / teachers
    return [Cells(cell, one, mass, np.stack([1 - each, each], axis=1), sigma) for each in shares.T]


def _of_points(
    lesson: Lesson, noisy: NoisyVotes, rows: NDArray[np.float32], seed: int
) -> list[Chances]:
    """Return the chances that a number lies at or below each point but the last."""
    points = noisy.counts.shape[1]
    if noisy.dense:
        linear = linear_chances(lesson.public, noisy)
        if linear is None:
            raise DataError(ONLY_NOISE)
        below = [linear[:, :at].sum(axis=1) for at in range(1, points)]
        return [Chances(np.stack([1 - each, each], axis=1), "sums", smooth=True) for each in below]
    cells = cells_of(lesson.public, noisy)
    if cells is None:
        raise DataError(ONLY_NOISE)
    made = []
    for at in range(points - 1):
        share = cells.shares[:, : at + 1].sum(axis=1)
        # Noise of at + 1 counts, less that of the mean of all; Cells takes half of its square.
        noise = math.sqrt(2 * (at + 1) * (1 - (at + 1) / points)) * cells.sigma
        here = replace(cells, shares=np.stack([1 - share, share], axis=1), sigma=noise)
        made.append(_of_cells(lesson, here, rows, seed + at))
    return made


def _of_cells(
    lesson: Lesson,
    cells: Cells,
    rows: NDArray[np.float32],
    seed: int,
    of: NDArray[np.int64] | None = None,
) -> Chances:
    """Return the chances of a label from shares of cells; ``of`` are their inputs, if each has one."""
    if not isinstance(lesson.public, Embeddings):
        guess = additive(rows if of is None else rows[of], cells)
        return Chances(guess, "counts", of, cells, _PASSES)
    if of is not None:
        return Chances(np.clip(cells.shares, 0.0, 1.0), "counts", of)
    return Chances(_smoothed(lesson, cells, seed), "counts")


def _of_images(lesson: Lesson, seed: int) -> Chances:
    """Return the chances of images: beliefs, or smoothed counts where those say more than clear votes.

    Where classes overlap, clear votes are only of easy images, and beliefs that start from them drift.
    """
    images, noisy = lesson.public, lesson.noisy
    assert isinstance(images, Images)  # noqa: S101  # encoded rows are of anything else
    if noisy is not None and noisy.of_arrays:
        answers = teachers_chances(images, noisy, lesson.teachers).astype(np.float32)
        return Chances(answers, "teachers", smooth=True)
    if noisy is not None and noisy.dense:
        found = _of_sums(lesson, noisy)
        if found is not None:
            return replace(found, matrix=found.matrix.astype(np.float32))
    elif noisy is not None and default_name(images).endswith("scattering"):
        cells = cells_of(images, noisy)
        if cells is not None and len(images) >= propagation.FEWEST:
            views = propagation.described(images, seed)
            return Chances(smooth(views, cells, seed=seed), "counts")
    if not len(lesson.labels):
        raise DataError(ONLY_NOISE)
    believed = propagation.believe(lesson, seed=seed)
    return Chances(believed, "labels", known=propagation.evidence_of(lesson))


def _smoothed(
    lesson: Lesson, cells: Cells, seed: int, step: Callable[[], None] = lambda: None
) -> Floats:
    """Return (n, m) class probabilities, smooth in the space that records voted in."""
    return smooth([points_of(lesson.public)], cells, seed=seed, step=step).astype(np.float64)


def _spread(lesson: Lesson, evidence: Floats) -> Floats:
    """Return (n, m) evidence spread over the graph of embeddings."""
    points = points_of(lesson.public)
    if len(points) < 2:
        return evidence
    shares = spread(neighbour_graph(points, _NEIGHBOURS), evidence, _MEMORY)
    return softmax(_SHARPNESS * np.log(shares.astype(np.float64)))


def _standing_out(noisy: NoisyVotes) -> Floats:
    """Return (v, m) shares of the votes above the noise; few such votes weigh less than one."""
    risen = np.clip(noisy.counts - _CHANCE * noisy.sigma, 0.0, None)
    total = np.maximum(risen.sum(axis=1, keepdims=True), _ENOUGH * noisy.sigma)
    shares: Floats = risen / np.maximum(total, 1e-9)
    return shares
