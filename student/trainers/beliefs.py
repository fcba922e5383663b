"""What is believed of every public image before a network is trained, from a few noisy labels.

1. The public images are described twice, by scattering and by gradients: fixed features, their main
   directions in the public set, each scaled so that strong ones no longer drown weak ones. Where a
   steady space suits the public set (:mod:`pate.features.invariant`), it is the one description: either
   of the others knows less.
2. The labels spread over the graphs of nearest neighbours of both.
3. A kernel machine for each learns what the graphs say; together they predict every image without
   its own target, and learn again from those predictions, a few times over. It is co-training in
   which no image confirms its own label, so lonely errors of vote and graph are outvoted.
4. How far self-training may go, and how sure the machines may be, is found without a validation set:
   labels are held out in turn, and that is taken under which they were the most likely. Where classes
   are many and each has few labels, self-training forgets the rare ones, and one round is better than
   eight.

Noisy counts, where they were released, stand in for labels: what rises above the noise.

Source: Blum and Mitchell, "Combining labeled and unlabeled data with co-training", COLT 1998.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from sklearn.decomposition import PCA

from pate.data.values import Images
from pate.features.space import default_name, space_over
from student.trainers.graph import neighbour_graph, spread
from student.trainers.kernel import KernelMachine

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from pate.formats.noisy_counts import NoisyVotes
    from student.trainers.base import Lesson

    Floats = NDArray[np.float32]

#: The share of labels that are taken to be wrong, for lack of anything better.
DOUBT: Final = 0.05
_FOLDS: Final = 5
#: Labels at representatives are of easy images and would allow more, which the others do not bear out.
_SHARPNESS: Final = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0, 12.0)
_LEAST: Final = 1e-4  # probability
FEWEST: Final = 3  # images; of fewer, none has two neighbours
_LOOKED_AT: Final = 400  # images, to tell how they are best described
_CHANCE: Final = 1.0  # standard deviations of the noise that are taken off every count, up to
_FEW_CLASSES: Final = 10  # classes; of more, more rise above it by chance


@dataclass(frozen=True)
class Settings:
    """Parameters of the beliefs; the defaults were found on MNIST's training images.

    Attributes:
        directions: main directions of the features that are kept.
        neighbours: edges of the graph from each image.
        roads: (memory, rounds) to choose among by labels held out: of the spreading, see
            :func:`student.trainers.graph.spread`, and of self-training. The first where there are too
            few labels to hold any out.
        width: of the kernel, for points of mean squared length one.
        ridge: of the kernel machine.
        landmarks: of the kernel machine.
        sharpness: factor on the machine's scores in self-training, and where there are too few
            labels to hold any out.
    """

    directions: int = 256
    neighbours: int = 8
    roads: tuple[tuple[float, int], ...] = ((0.95, 8), (0.7, 1))
    width: float = 0.5
    ridge: float = 0.1
    landmarks: int = 2000
    sharpness: float = 12.0


def believe(lesson: Lesson, *, seed: int, settings: Settings | None = None) -> Floats:
    """Return (n, m) probabilities of the classes, one row per public image, each positive.

    What a label says of its own image is not in them; see :func:`with_labels`.

    Args:
        lesson: images, and labels of a few.
        seed: of the landmarks and of the fitting of the directions.
        settings: parameters.
    """
    by = settings or Settings()
    if len(lesson.public) < FEWEST:
        return np.full((len(lesson.public), len(lesson.classes)), 1 / len(lesson.classes), "f4")
    views = [_View(points, by, seed) for points in described(lesson, by, seed)]
    evidence = evidence_of(lesson)

    def scores(known: NDArray[np.float64], road: tuple[float, int]) -> Floats:
        return _self_train(views, known, by, road)

    road, sharpness = _calibrated(scores, evidence, lesson, by)
    believed = np.maximum(_softmax(sharpness * scores(evidence, road)), _LEAST)
    made: Floats = (believed / believed.sum(axis=1, keepdims=True)).astype(np.float32)
    return made


def evidence_of(lesson: Lesson) -> NDArray[np.float64]:
    """Return (n, m) what labels or noisy counts say of each image, in rows that sum to 1 or less.

    A label is a one. Where counts are known they speak instead, a query's label among them.
    """
    evidence = np.zeros((len(lesson.public), len(lesson.classes)))
    evidence[lesson.queries, lesson.labels] = 1
    if lesson.noisy is not None and len(lesson.noisy.queries):
        evidence[lesson.noisy.queries] = shares(lesson.noisy)
    return evidence


def shares(noisy: NoisyVotes) -> NDArray[np.float64]:
    """Return (v, m) shares of the votes as far as they rise above the noise.

    A query with less than half as many such votes as is usual, or fewer than the noise could bring,
    weighs less than one.

    The largest of m draws of noise grows as the root of 2 ln m, so more is taken off where classes are
    many; otherwise noise in the many that nobody voted for would outweigh the votes.

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
    """Return (n, m) beliefs in which each label had its say, as one that may be wrong.

    Args:
        beliefs: (n, m) probabilities that do not rest on the image's own label.
        evidence: what :func:`evidence_of` made.
    """
    classes = beliefs.shape[1]
    known = evidence.sum(axis=1, keepdims=True)
    likelihood = (1 - DOUBT) * evidence + (1 - known) / classes + DOUBT * known / classes
    product = beliefs * likelihood
    made: Floats = (product / product.sum(axis=1, keepdims=True)).astype(np.float32)
    return made


class _View:
    """One description of the public images, with its graph and its kernel machine."""

    def __init__(self, points: Floats, by: Settings, seed: int) -> None:
        self.graph = neighbour_graph(points, by.neighbours)
        self.machine = KernelMachine(
            points, width=by.width, ridge=by.ridge, landmarks=by.landmarks, seed=seed
        )


def described(lesson: Lesson, by: Settings, seed: int) -> list[Floats]:
    """Return (n, d) points per view, of mean squared length one, directions half-way to even."""
    public = lesson.public
    if isinstance(public, Images) and default_name(public).startswith("steady"):
        points = space_over(public).embed(public)
        centred = points - points.mean(axis=0)
        return [(centred / np.sqrt(np.square(centred).sum(axis=1).mean())).astype(np.float32)]
    few = np.linspace(0, len(public) - 1, min(len(public), _LOOKED_AT)).astype(np.int64)
    # What suits so few images is a plain space: shapes that are drawn are set upright.
    upright = space_over(public.take(few)).name == "upright"
    views = []
    for name in ("scattering", "upright" if upright else "gradients"):
        features = space_over(public, name).embed(public)
        directions = max(1, min(by.directions, len(features) - 1, features.shape[1]))
        fitted = PCA(directions, svd_solver="randomized", random_state=seed, iterated_power=3)
        turned = fitted.fit_transform(features)
        halfway = turned / (turned.std(axis=0) ** 0.5 + 1e-6)
        length = np.sqrt(np.square(halfway).sum(axis=1).mean())
        views.append((halfway / (length + 1e-9)).astype(np.float32))
    return views


def _self_train(
    views: list[_View],
    evidence: NDArray[np.float64],
    by: Settings,
    road: tuple[float, int],
) -> Floats:
    memory, rounds = road
    # The graphs rank well but are far too timid; together they are the geometric mean.
    spreads = [np.log(spread(view.graph, evidence, memory) + 1e-9) for view in views]
    believed = _softmax(4 * sum(spreads, start=np.zeros(1)) / len(views)).astype(np.float32)
    scores = believed
    for _ in range(rounds):
        parts = [view.machine.left_out(believed) for view in views]
        scores = (sum(parts, start=np.zeros(1)) / len(views)).astype(np.float32)
        believed = _softmax(by.sharpness * scores).astype(np.float32)
    return scores


def _calibrated(
    scores: Callable[[NDArray[np.float64], tuple[float, int]], Floats],
    evidence: NDArray[np.float64],
    lesson: Lesson,
    by: Settings,
) -> tuple[tuple[float, int], float]:
    """Return the road and the sharpness under which held-out labels were the most likely."""
    order = np.argsort(lesson.queries)
    known, labels = lesson.queries[order], lesson.labels[order]
    if len(known) < 4 * _FOLDS:
        return by.roads[0], by.sharpness
    likelihood = np.zeros((len(by.roads), len(_SHARPNESS)))
    for fold in range(_FOLDS):
        held = known[fold::_FOLDS]
        fewer = evidence.copy()
        fewer[held] = 0
        for row, road in enumerate(by.roads):
            predicted = scores(fewer, road)[held]
            for column, sharpness in enumerate(_SHARPNESS):
                chances = np.maximum(_softmax(sharpness * predicted), _LEAST)
                told = np.log(chances[np.arange(len(held)), labels[fold::_FOLDS]])
                likelihood[row, column] += told.sum()
    best_row, best_column = divmod(int(likelihood.argmax()), len(_SHARPNESS))
    return by.roads[best_row], _SHARPNESS[best_column]


def _softmax(scores: NDArray[np.floating]) -> NDArray[np.float64]:
    raised = np.exp(scores.astype(np.float64) - scores.max(axis=1, keepdims=True))
    shares: NDArray[np.float64] = raised / raised.sum(axis=1, keepdims=True)
    return shares
