"""The interface of feature spaces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pate.data.values import Inputs

    Floats = NDArray[np.float32]


class FeatureSpace(Protocol):
    """A map from inputs to points."""

    @property
    def name(self) -> str:
        """Return the name of the space on the command line."""

    @property
    def width(self) -> int:
        """Return the number of coordinates of a point."""

    def embed(self, inputs: Inputs) -> Floats:
        """Return (n, width) float32, one point per input, each computed from only that input."""
