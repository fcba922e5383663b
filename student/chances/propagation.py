"""Class beliefs of every public image from a few noisy labels.

1. The public images are described twice, by scattering and by gradients: fixed features, their
  principal directions in the public set, each scaled so that strong ones do not dominate weak ones.
  Where an invariant space suits the public set (:mod:`pate.features.fitted`), it is the only
  description, since both others are weaker.
2. The labels spread over the graphs of nearest neighbours of both.
3. A kernel machine for each learns the graphs' result; together they predict every image without
  its own target, and learn again from those predictions, a few times. It is co-training in which no
  image confirms its own label, so isolated errors of vote and graph are outvoted.
4. The number of self-training rounds and the confidence of the machines are chosen by
  cross-validated likelihood of held-out labels. With many classes and few labels each,
  self-training forgets the rare ones, and one round is better than eight.

Released noisy counts replace labels, as far as they rise above the noise. All constants were found on
MNIST's training images.

Source: Blum and Mitchell, "Combining labeled and unlabeled data with co-training", COLT 1998.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from pate.data.values import Images
from pate.features.space import default_name, space_over
from pate.rounds.solver import softmax
from student.chances.neighbours import KernelMachine, neighbour_graph, spread

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from pate.data.values import Inputs
    from pate.formats.noisy_counts import NoisyVotes
    from student.lesson import Lesson

    Floats = NDArray[np.float32]

#: The assumed share of wrong labels.
DOUBT: Final = 0.05
FEWEST: Final = 3  # images; of fewer, none has two neighbours
_FOLDS: Final = 5
#: Labels at representatives are of easy images and would suggest too high a confidence for others.
_SHARPNESS: Final = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0, 12.0)
_LEAST: Final = 1e-4  # probability
_LOOKED_AT: Final = 400  # images used to choose the description
_CHANCE: Final = 1.0  # standard deviations subtracted from every count, up to
_FEW_CLASSES: Final = 10  # classes; with more classes, more counts exceed it by chance
_DIRECTIONS: Final = 256  # of the features, at most
_NEIGHBOURS: Final = 8  # edges of the graph from each image
#: Candidates for the memory of the spreading and the rounds of self-training; the first if there are too
#: few labels to hold any out.
_ROADS: Final = ((0.95, 8), (0.7, 1))
_WIDTH, _RIDGE, _LANDMARKS = 0.5, 0.1, 2000  # of the kernel machine
#: Factor on the machine's scores in self-training, and if there are too few labels to hold any out.
_SHARP: Final = 12.0


def believe(lesson: Lesson, *, seed: int) -> Floats:
    """Return (n, m) probabilities of the classes, one row per public image, each positive.

    They do not include an image's own label; see :func:`with_labels`. ``seed`` is of the landmarks and of the
    fitting of the directions.
    """
    if len(lesson.public) < FEWEST:
        return np.full((len(lesson.public), len(lesson.classes)), 1 / len(lesson.classes), "f4")
    views = [_View(points, seed) for points in described(lesson.public, seed)]
    evidence = evidence_of(lesson)

    def scores(known: NDArray[np.float64], road: tuple[float, int]) -> Floats:
        return _self_train(views, known, road)

    road, sharpness = _calibrated(scores, evidence, lesson)
    believed = np.maximum(softmax(sharpness * scores(evidence, road)), _LEAST)
    made: Floats = (believed / believed.sum(axis=1, keepdims=True)).astype(np.float32)
    return made


def evidence_of(lesson: Lesson) -> NDArray[np.float64]:
    """Return (n, m) evidence of labels or noisy counts for each image, with row sums of at most 1.

    A label is a one. Where counts are known they replace the query's label.
    """
    evidence = np.zeros((len(lesson.public), len(lesson.classes)))
    evidence[lesson.queries, lesson.labels] = 1
    if lesson.noisy is not None and len(lesson.noisy.queries) and not lesson.noisy.dense:
        evidence[lesson.noisy.queries] = shares(lesson.noisy)
    return evidence


def shares(noisy: NoisyVotes) -> NDArray[np.float64]:
    """Return (v, m) shares of the votes as far as they rise above the noise.

    A query with less than half as many such votes as is usual, or fewer than the noise could bring,
    weighs less than one.

    The largest of m draws of noise grows as the root of 2 ln m, so more is subtracted for many classes;
    otherwise noise in the many classes without votes would outweigh the votes.

    >>> from pate.formats.noisy_counts import NoisyVotes
    >>> counts = np.array([[390, 30], [350, 50], [140, -10]])
    >>> shares(NoisyVotes(np.arange(3), counts, 40.0)).round(2)
    array([[1.  , 0.  ],
           [0.97, 0.03],
           [0.62, 0.  ]])
    """
    crowd = max(noisy.counts.shape[1] / _FEW_CLASSES, 1.0)
    chance = np.sqrt(_CHANCE**2 + 2 * np.log(crowd))
    risen = np.clip(noisy.counts - chance * noisy.sigma, 0, None)
    total = risen.sum(axis=1, keepdims=True)
    usual = max(float(np.median(total)) / 2, noisy.sigma) + 1e-9
    part: NDArray[np.float64] = risen / np.maximum(total, usual)
    return part


def with_labels(beliefs: Floats, evidence: NDArray[np.float64]) -> Floats:
    """Return (n, m) beliefs, without an image's own label, updated by the evidence, which may be wrong."""
    classes = beliefs.shape[1]
    known = evidence.sum(axis=1, keepdims=True)
    likelihood = (1 - DOUBT) * evidence + (1 - known) / classes + DOUBT * known / classes
    product = beliefs * likelihood
    made: Floats = (product / product.sum(axis=1, keepdims=True)).astype(np.float32)
    return made


class _View:
    """One description of the public images, with its graph and its kernel machine."""

    def __init__(self, points: Floats, seed: int) -> None:
        self.graph = neighbour_graph(points, _NEIGHBOURS)
        self.machine = KernelMachine(
            points, width=_WIDTH, ridge=_RIDGE, landmarks=_LANDMARKS, seed=seed
        )


def described(public: Inputs, seed: int) -> list[Floats]:
    """Return (n, d) points per view, of mean squared length one, directions partly whitened."""
    from sklearn.decomposition import PCA  # slow to import, as all of scikit-learn

    if isinstance(public, Images) and default_name(public).startswith("steady"):
        points = space_over(public).embed(public)
        centred = points - points.mean(axis=0)
        return [(centred / np.sqrt(np.square(centred).sum(axis=1).mean())).astype(np.float32)]
    few = np.linspace(0, len(public) - 1, min(len(public), _LOOKED_AT)).astype(np.int64)
    # A plain space suits so few images: drawn shapes are deskewed.
    upright = space_over(public.take(few)).name == "upright"
    views = []
    for name in ("scattering", "upright" if upright else "gradients"):
        features = space_over(public, name).embed(public)
        directions = max(1, min(_DIRECTIONS, len(features) - 1, features.shape[1]))
        fitted = PCA(directions, svd_solver="randomized", random_state=seed, iterated_power=3)
        turned = fitted.fit_transform(features)
        halfway = turned / (turned.std(axis=0) ** 0.5 + 1e-6)
        length = np.sqrt(np.square(halfway).sum(axis=1).mean())
        views.append((halfway / (length + 1e-9)).astype(np.float32))
    return views


def _self_train(
    views: list[_View], evidence: NDArray[np.float64], road: tuple[float, int]
) -> Floats:
    memory, rounds = road
    # The graphs rank well but are underconfident; they are combined by the geometric mean.
    spreads = [np.log(spread(view.graph, evidence, memory) + 1e-9) for view in views]
    believed = softmax(4 * sum(spreads, start=np.zeros(1)) / len(views)).astype(np.float32)
    scores = believed
    for _ in range(rounds):
        parts = [view.machine.left_out(believed) for view in views]
        scores = (sum(parts, start=np.zeros(1)) / len(views)).astype(np.float32)
        believed = softmax(_SHARP * scores).astype(np.float32)
    return scores


def _calibrated(
    scores: Callable[[NDArray[np.float64], tuple[float, int]], Floats],
    evidence: NDArray[np.float64],
    lesson: Lesson,
) -> tuple[tuple[float, int], float]:
    """Return the settings and sharpness with the highest likelihood of held-out labels."""
    order = np.argsort(lesson.queries)
    known, labels = lesson.queries[order], lesson.labels[order]
    if len(known) < 4 * _FOLDS:
        return _ROADS[0], _SHARP
    likelihood = np.zeros((len(_ROADS), len(_SHARPNESS)))
    for fold in range(_FOLDS):
        left_out = known[fold::_FOLDS]
        fewer = evidence.copy()
        fewer[left_out] = 0
        for row, road in enumerate(_ROADS):
            predicted = scores(fewer, road)[left_out]
            for column, sharpness in enumerate(_SHARPNESS):
                chances = np.maximum(softmax(sharpness * predicted), _LEAST)
                told = np.log(chances[np.arange(len(left_out)), labels[fold::_FOLDS]])
                likelihood[row, column] += told.sum()
    best_row, best_column = divmod(int(likelihood.argmax()), len(_SHARPNESS))
    return _ROADS[best_row], _SHARPNESS[best_column]
