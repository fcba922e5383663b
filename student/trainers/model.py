"""A fitted classifier of rows, as far as trainers and exports look at it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Model(Protocol):
    """A fitted scikit-learn classifier, as far as it is used here."""

    classes_: NDArray[np.int64]
    n_features_in_: int

    def fit(
        self, x: NDArray[np.float32], y: NDArray[np.int64], sample_weight: NDArray[np.float64]
    ) -> Model:
        """Fit."""

    def predict_proba(self, x: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return probabilities of ``classes_``."""
