"""Kernel ridge regression that predicts each of its own training points as if left out.

A point's own target does not influence its prediction, so a wrong target is contradicted by its
neighbours. The leave-one-out prediction of a linear smoother follows from its diagonal.

Source: Williams and Seeger, "Using the Nyström method to speed up kernel machines", NIPS 2000;
Rifkin and Lippert, "Notes on regularized least squares", MIT-CSAIL-TR-2007-025 (leave one out).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from student.trainers.graph import squared_distances

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

_TINY: Final = 1e-6  # directions of the landmarks' kernel weaker than this are left out
_SURE: Final = 0.999  # largest leverage: a point that nothing else explains keeps a prediction


class KernelMachine:
    """A smoother over fixed points, made once and applied to many targets."""

    def __init__(
        self, points: Floats, *, width: float, ridge: float, landmarks: int, seed: int
    ) -> None:
        """Prepare.

        Args:
            points: (n, d) float32, of mean squared length one.
            width: factor in the kernel exp(-width |x - y|^2).
            ridge: weight of the penalty.
            landmarks: the points, drawn at random, whose kernels span the functions that can be
                learnt; all of them if there are fewer.
            seed: of that draw.
        """
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
