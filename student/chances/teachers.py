"""Class probabilities of public rows from teachers' votes in one release, whose noise is known.

Of arrays (:mod:`pate.features.dense`) the mean S / M has noise of a known variance v on each number. In the
eigenvectors of H, the public rows' second moments, what is there without noise has the variance s^2 h^(1/2)
if the weights of an answer have s^2. The s^2 with which the released numbers are most likely is taken, and
the best estimate shrinks each number by s^2 h^(1/2) / (s^2 h^(1/2) + v). The answer's level is shrunk to
equal classes, and all the way if it is not clear of its noise, or if that is more than an equal share. No
share is taken to be less than half of its noise.

Linear answers hide classes that lie between others. So a row of many classes is told by which mean is
nearest: where public rows have the same variance in all directions, a linear answer H^(1/4) F is the
classes' means, each times its share of the records. Shares are seldom clear of the noise, so most of a
difference in length is taken to be theirs; a class varies by what the means leave of the public rows'
variance (linear discriminant analysis). Its probabilities are taken with the level as the prior; their mean
is made to agree with the level only where the noise on a share is below an equal share. Else that moves rows
to wrong classes: a tenth of all in trials. The constants were chosen on drawings of 150 classes.

How long answers were is not released. The probabilities of fewer classes are so sharp as a public set with
clear classes would have them, and ranks and largest classes are what is to be relied on.

Of noisy counts the shares of the teachers are regressed on the public rows in the same way.

Source: Rasmussen and Williams, "Gaussian processes for machine learning", 2006, section 5.4; James and Stein,
"Estimation with quadratic loss", 1961, for the level; Hastie, Tibshirani and Friedman, "The elements of
statistical learning", 2009, section 4.2, for classes that are hidden.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.codes import AXES, GRID, code_of
from pate.features.dense import LEVEL, Axes
from pate.features.space import space_over
from pate.rounds.solver import softmax
from student.chances.cells import LEAST_SHARE, of_sum_one

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pate.data.values import Inputs
    from pate.formats.noisy_counts import NoisyVotes

    Floats = NDArray[np.float64]

#: Variances of the weights that are tried, for noise of variance 1 and the largest moment 1.
_SIZES: Final = tuple(2.0 ** (power / 2) for power in range(-24, 41))
#: Standard deviations by which the squared length of a level must exceed what noise has.
_CLEAR: Final = 3.0
#: Least share of a class, as a part of the noise on it.
_OF_NOISE: Final = 0.5
#: Usual length of a row's scores, less their mean, as logits.
_SHARP: Final = 2.0
_STEPS: Final = 300
#: Classes from which on a row is told by their means: fewer seldom hide one another.
_MANY: Final = 8
#: Part of the public rows' variance that lies between classes, in the direction where that is most.
_BETWEEN: Final = 0.5
#: Power of a mean's length that is its class's share.
_OF_SHARES: Final = 0.75
#: Directions in which counts are regressed, at most.
_DIRECTIONS: Final = 64


def teachers_chances(public: Inputs, noisy: NoisyVotes, teachers: int) -> Floats:
    """Return (n, m) class probabilities of the public rows from counts, or arrays, of so many teachers."""
    points = space_over(public).embed(public)
    if code_of(noisy.code).name != AXES:
        return _of_counts(points.astype(np.float64), noisy)
    axes = Axes.fit(points, noisy.queries.tolist())
    sums, noise = noisy.counts / (GRID * teachers), noisy.sigma / (GRID * teachers)
    classes = sums.shape[1]
    sums = sums - sums.mean(axis=1, keepdims=True)
    vectors, roots = axes.vectors[:, axes.kept], np.sqrt(axes.moments[axes.kept])
    seen = vectors.T @ sums[1:] / math.sqrt(1 - LEVEL)
    found = vectors @ (shrunk(roots, seen, noise**2 / (1 - LEVEL)) * seen)
    level = _level(sums[0] / math.sqrt(LEVEL), noise**2 / LEVEL)
    if classes >= _MANY:
        likely = _by_means(axes, found)
        known = noise / math.sqrt(LEVEL) < 1 / classes
        return levelled(likely, level) if known else softmax(likely + np.log(level))
    scores = axes.answering @ found
    length = math.sqrt(float(np.square(scores).sum(axis=1).mean()))
    if not length:
        return np.tile(level, (len(points), 1))
    return levelled(_SHARP * math.sqrt(1 - 1 / classes) / length * scores, level)


def _by_means(axes: Axes, found: Floats) -> Floats:
    """Return (n, m) log-likelihoods, less their mean, by the means that a (K - 1, m) array stands for."""
    roots = axes.vectors * np.maximum(axes.moments, 0.0) ** 0.25
    means = roots @ (axes.vectors.T @ found)
    lengths = np.linalg.norm(means, axis=0)
    means = means / np.where(lengths > 0, lengths, 1.0) ** _OF_SHARES
    between = means @ means.T / means.shape[1]
    largest = np.linalg.eigvalsh(between)[-1]
    if not largest > 0:
        return np.zeros((len(axes.rows), means.shape[1]))
    part = _BETWEEN / largest
    weights = math.sqrt(part) * np.linalg.solve(np.eye(len(means)) - part * between, means)
    nearest = -0.5 * math.sqrt(part) * (means * weights).sum(axis=0)
    scores = axes.whitened @ weights + nearest
    made: Floats = scores - scores.mean(axis=1, keepdims=True)
    return made


def shrunk(moments: Floats, seen: Floats, variance: float) -> Floats:
    """Return (k, 1) factors from 0 to 1 of what was seen with noise, by the evidence.

    ``moments``: (k,) positive, to which the variance of what is there is proportional; ``seen``:
    (k, m), whose rows sum to 0; ``variance``: of the noise on each number, before that was so.
    """
    columns = seen.shape[1]
    if not variance:
        return np.ones((len(moments), 1))
    energy, left = np.square(seen).sum(axis=1) / variance, columns - 1
    relative = moments / moments.max()

    def evidence(size: float) -> float:
        spread = 1 + size * relative
        return -float((energy / spread + left * np.log(spread)).sum())

    size = max(_SIZES, key=evidence) * relative
    made: Floats = (size / (1 + size))[:, None]
    return made


def levelled(scores: Floats, shares: Floats) -> Floats:
    """Return (n, m) probabilities of scores, so shifted that their mean is the classes' shares."""
    shift = np.log(shares)
    made = softmax(scores + shift)
    for _ in range(_STEPS):
        shift = shift + 0.5 * np.log(shares / np.maximum(made.mean(axis=0), LEAST_SHARE))
        made = softmax(scores + shift)
    return made


def _level(apart: Floats, variance: float) -> Floats:
    """Return (m,) the shares of the classes from how far they were seen to be from equal, with noise."""
    classes = len(apart)
    free, length = classes - 1, float(np.square(apart).sum())
    factor = 0.0
    # With more noise than an equal share, chance alone would take some classes to nothing.
    known = variance <= 1 / classes**2
    if known and length > variance * (free + _CLEAR * math.sqrt(2 * free)):
        factor = 1 - variance * free / length
    # Nor is a share known to be less than a part of its noise: of chances near 0 no student learns ranks.
    least = max(LEAST_SHARE, min(_OF_NOISE * math.sqrt(variance), 1 / classes))
    shares = np.clip(1 / classes + factor * apart, least, 1.0)
    made: Floats = shares / shares.sum()
    return made


def _of_counts(points: Floats, noisy: NoisyVotes) -> Floats:
    """Return (n, m) probabilities of public rows from the noisy counts of some, or all, of them."""
    totals = float(noisy.counts.sum(axis=1).mean())  # teachers that are in the sum
    shares, noise = noisy.counts / max(totals, 1.0), noisy.sigma / max(totals, 1.0)
    mean = np.clip(shares.mean(axis=0), LEAST_SHARE, 1.0)
    rows = points - points.mean(axis=0)
    _, _, axes = np.linalg.svd(rows[noisy.queries], full_matrices=False)
    rows = rows @ axes[:_DIRECTIONS].T
    asked = rows[noisy.queries]
    middle = asked.mean(axis=0)
    sizes, vectors = np.linalg.eigh((asked - middle).T @ (asked - middle))
    kept = sizes > 1e-9 * sizes[-1]
    sizes, vectors = sizes[kept], vectors[:, kept]
    apart = shares - shares.mean(axis=0)
    apart = apart - apart.mean(axis=1, keepdims=True)
    seen = vectors.T @ ((asked - middle).T @ apart) / np.sqrt(sizes)[:, None]
    weights = vectors @ (shrunk(sizes, seen, noise**2) * seen / np.sqrt(sizes)[:, None])
    return of_sum_one(np.clip(mean / mean.sum() + (rows - middle) @ weights, LEAST_SHARE, 1.0))
