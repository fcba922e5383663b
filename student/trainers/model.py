"""The interface of fitted classifiers of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Model(Protocol):
    """The used part of a fitted scikit-learn classifier."""

    classes_: NDArray[np.int64]
    n_features_in_: int

    def fit(
        self, x: NDArray[np.float32], y: NDArray[np.int64], sample_weight: NDArray[np.float64]
    ) -> Model:
        """Fit."""

    def predict_proba(self, x: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return probabilities of ``classes_``."""
