"""What is known of some public rows, carried to those that are like them: graphs, kernels, smoothing.

*Spreading* moves labels along a graph of nearest neighbours (Zhou et al., "Learning with local and global
consistency", NIPS 2003; widths of the edges from Zelnik-Manor and Perona, "Self-tuning spectral clustering",
NIPS 2004).

A *kernel machine* predicts each of its own training points as if left out, so a wrong target is contradicted
by its neighbours; the leave-one-out prediction of a linear smoother follows from its diagonal (Williams and
Seeger, "Using the Nyström method to speed up kernel machines", NIPS 2000; Rifkin and Lippert, "Notes on
regularized least squares", MIT-CSAIL-TR-2007-025).

*Smoothing* is Gaussian-process regression on noisy cell counts. The probability of a class is modelled as a
smooth function over the public set whose mean over the public rows of each cell was observed, with the noise
of the counts and of sampling the voters. A cell with few votes is then inferred from its neighbours, and a
mixed cell is split along the difference to its neighbours. Width, strength and residual maximise the
likelihood of the released counts, in closed form: no label or count is held out (Rasmussen and Williams,
"Gaussian processes for machine learning", 2006, sections 2.2 and 5.4; of aggregates Law et al., "Variational
learning on aggregate outputs with Gaussian processes", NeurIPS 2018, of which this is the conjugate case).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.features.space import space_over

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray
    from scipy import sparse

    from pate.data.values import Inputs
    from student.chances.cells import Cells

    Floats = NDArray[np.float32]
    Wide = NDArray[np.float64]

_CHUNK_ENTRIES: Final = 1 << 23  # of a matrix of distances in memory: 32 MiB
_WIDTH_FROM: Final = 6  # the width of an edge is the distance of its ends to this neighbour
_ROUNDS: Final = 80  # at most; a label's remainder is then below 0.95^80, two per cent
_REMAINDER: Final = 1e-3  # below it no more rounds are made
_TINY: Final = 1e-6  # directions of the landmarks' kernel weaker than this are left out
_SURE: Final = 0.999  # largest leverage: a point that nothing else explains keeps a prediction
#: Least probability, divided by the number of classes.
DOUBT: Final = 0.05
#: Of kernels exp(-width |x - y|^2) over points of mean squared length one.
WIDTHS: Final = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
#: Variance of the function, and of a record's residual, both relative to p (1 - p).
_STRENGTHS: Final = tuple(4.0**power for power in range(-4, 3))
_RESIDUALS: Final = (1 / 16, 1 / 4, 1.0)
_LANDMARKS: Final = 2000
_JITTER: Final = 1e-4  # on the landmarks' kernel, so that it has a root


def points_of(public: Inputs) -> Floats:
    """Return (n, d) the inputs where records vote, of mean squared length one about their mean."""
    points = space_over(public).embed(public)
    centred = points - points.mean(axis=0)
    length = np.sqrt(np.square(centred).sum(axis=1).mean()) + 1e-9
    made: Floats = (centred / length).astype(np.float32)
    return made


def squared_distances(left: Floats, right: Floats) -> Floats:
    """Return (l, r) squared Euclidean distances of (l, d) and (r, d) points."""
    lengths = np.einsum("ij,ij->i", left, left)[:, None] + np.einsum("ij,ij->i", right, right)
    apart: Floats = np.maximum(lengths - 2 * (left @ right.T), 0)
    return apart


def neighbour_graph(points: Floats, neighbours: int) -> sparse.csr_array:
    """Return the (n, n) normalised adjacency of the graph of nearest neighbours.

    Two of (n, d) points, n at least 2, are joined if one is among the other's nearest, the more strongly the
    closer; the weights are divided by the square roots of both degrees.
    """
    from scipy import sparse  # slow to import

    count = len(points)
    reach = min(neighbours, count - 1)
    found = np.empty((count, reach), dtype=np.int64)
    apart = np.empty((count, reach), dtype=np.float32)
    step = max(1, _CHUNK_ENTRIES // count)
    for start in range(0, count, step):
        some = squared_distances(points[start : start + step], points)
        some[np.arange(len(some)), np.arange(start, start + len(some))] = np.inf
        nearest = np.argpartition(some, reach - 1, axis=1)[:, :reach]
        distance = np.take_along_axis(some, nearest, axis=1)
        order = distance.argsort(axis=1)
        found[start : start + step] = np.take_along_axis(nearest, order, axis=1)
        apart[start : start + step] = np.take_along_axis(distance, order, axis=1)
    width = np.sqrt(apart[:, min(_WIDTH_FROM, reach - 1)]) + np.float32(1e-6)
    weights = np.exp(-apart / (width[:, None] * width[found])) + np.float32(1e-6)
    rows = np.repeat(np.arange(count), reach)
    one_way = sparse.coo_array((weights.ravel(), (rows, found.ravel())), shape=(count, count))
    both = (one_way + one_way.T).tocsr()
    scale = sparse.diags_array(1 / np.sqrt(both.sum(axis=1)))
    return (scale @ both @ scale).tocsr()


def averaged(
    graph: sparse.csr_array, values: NDArray[np.floating], memory: float
) -> NDArray[np.floating]:
    """Return (n, m) values averaged over each point's surroundings, whose weight ``memory`` is below 1."""
    rounds = math.ceil(math.log(_REMAINDER) / math.log(memory)) if memory else 0
    now = values
    for _ in range(min(rounds, _ROUNDS)):
        now = memory * (graph @ now) + (1 - memory) * values
    return now


def spread(graph: sparse.csr_array, evidence: NDArray[np.float64], memory: float) -> Floats:
    """Return (n, m) probabilities: each point's share of the evidence that flows to it.

    Rows of ``evidence`` are zero where nothing is known. A label that its neighbours contradict is outvoted.
    """
    shares_now = averaged(graph, evidence, memory)
    # Where nothing arrived, the evidence's own shares of the classes.
    floor = 1e-6 * evidence.sum(axis=0) / len(evidence) + 1e-12
    shares_now = shares_now + floor
    shares: Floats = (shares_now / shares_now.sum(axis=1, keepdims=True)).astype(np.float32)
    return shares


class KernelMachine:
    """A smoother over fixed points, made once and applied to many targets."""

    def __init__(
        self, points: Floats, *, width: float, ridge: float, landmarks: int, seed: int
    ) -> None:
        """Prepare for (n, d) points; so many of them, drawn at random, span what can be learnt."""
        drawn = np.random.default_rng(seed).permutation(len(points))[:landmarks]
        chosen = points[np.sort(drawn)]
        values, vectors = np.linalg.eigh(_kernel(chosen, chosen, width).astype(np.float64))
        kept = values > _TINY * values[-1]
        whiten = (vectors[:, kept] / np.sqrt(values[kept])).astype(np.float32)
        self._features: Floats = _kernel(points, chosen, width) @ whiten
        gram = (self._features.T @ self._features).astype(np.float64)
        gram[np.diag_indices(len(gram))] += ridge
        self._solved: Floats = self._features @ np.linalg.inv(gram).astype(np.float32)
        leverage = np.einsum("ij,ij->i", self._solved, self._features)
        self._leverage = np.clip(leverage, 0, _SURE)[:, None]

    def left_out(self, targets: Floats) -> Floats:
        """Return (n, m) predictions of (n, m) targets, each without its own target."""
        mean = targets.mean(axis=0)
        centred = targets - mean
        fitted = self._features @ (self._solved.T @ centred)
        predicted: Floats = (fitted - self._leverage * centred) / (1 - self._leverage) + mean
        return predicted


def _kernel(left: Floats, right: Floats, width: float) -> Floats:
    values: Floats = np.exp(-np.float32(width) * squared_distances(left, right))
    return values


@dataclass(frozen=True, eq=False)
class _Fit:
    """One choice of the parameters: its evidence, and its predictions."""

    evidence: float
    moves: Wide


def smooth(
    # (n, d) float32 each, of mean squared length one; similarity is the mean of their kernels
    views: Sequence[Floats],
    cells: Cells,
    *,
    seed: int,  # of the draw of landmarks, which bound the work for many rows
    step: Callable[[], None] = lambda: None,  # called after each of the :data:`WIDTHS`
) -> Floats:
    """Return (n, m) class probabilities of the public rows, from the released counts over them."""
    count = len(views[0])
    drawn = np.random.default_rng(seed).permutation(count)[:_LANDMARKS]
    drawn.sort()
    apart = [squared_distances(view, view[drawn]) for view in views]
    overall = cells.overall
    fits = (
        _fit(np.mean([np.exp(-np.float32(width) * each) for each in apart], axis=0), drawn, cells)
        for width in WIDTHS
    )

    def evidence(fit: _Fit) -> float:
        step()
        return fit.evidence

    best = max(fits, key=evidence)
    chances = np.clip(overall + best.moves, DOUBT / len(overall), 1.0)
    made: Floats = (chances / chances.sum(axis=1, keepdims=True)).astype(np.float32)
    return made


def _fit(kernel: Floats, drawn: NDArray[np.int64], cells: Cells) -> _Fit:
    """Return the best fit with a kernel of (n, l) values between all rows and the landmarks."""
    from scipy.linalg import cho_factor, cho_solve, cholesky, solve_triangular

    among = kernel[drawn].astype(np.float64)
    among[np.diag_indices(len(among))] += _JITTER
    root = cholesky(among, lower=True, overwrite_a=True)
    # Of the features K L^-T, whose products are the kernel as the landmarks see it, cells take means.
    means = solve_triangular(root, cells.means(kernel).T, lower=True).T
    alike = means @ means.T
    overall = cells.overall
    classes = len(overall)
    spread = overall * (1 - overall)
    seen = cells.shares - overall
    noise = cells.sigma**2 * (1 - 1 / classes) / cells.mass**2
    best, pulls = -np.inf, np.zeros_like(seen)
    for strength in _STRENGTHS:
        for residual in _RESIDUALS:
            evidence, weights = 0.0, np.empty_like(seen)
            for label in range(classes):
                if label == 0 or classes > 2:  # of two classes both have the same covariance
                    own = spread[label] * residual / cells.mass + noise
                    covariance = strength * spread[label] * alike
                    covariance[np.diag_indices(len(own))] += own
                    lower = cho_factor(covariance, lower=True, overwrite_a=True, check_finite=False)
                weights[:, label] = cho_solve(lower, seen[:, label])
                evidence -= 0.5 * float(seen[:, label] @ weights[:, label])
                evidence -= float(np.log(np.diag(lower[0])).sum())
            if evidence > best:
                best, pulls = evidence, strength * weights * spread
    return _Fit(best, kernel @ solve_triangular(root.T, means.T @ pulls))
