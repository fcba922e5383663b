"""Embeddings of a public encoder as points: less the public mean, of length one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pate.data.embeddings import Embeddings
from pate.errors import DataError, SchemaError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pate.data.values import Inputs

    Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class EmbeddedSpace:
    """The space of the embeddings of one encoder.

    All of it is exact up to one division, so a record's point depends on that record alone.
    """

    schema: str  # the line of the embeddings that it takes
    middle: NDArray[np.int64]  # (d,) int64, the public mean, rounded

    name = "encoder"

    @classmethod
    def fit(cls, public: Inputs) -> EmbeddedSpace:
        """Return the space fitted on the public embeddings."""
        if not isinstance(public, Embeddings):
            raise SchemaError(f"this feature space needs embeddings, not {public.schema()}")
        if not len(public):
            raise DataError("the public set has no rows; its mean cannot be taken")
        total = public.values.sum(axis=0, dtype=np.int64)
        return cls(public.schema(), total // len(public))

    @property
    def width(self) -> int:
        """Return the number of coordinates."""
        return len(self.middle)

    def embed(self, inputs: Inputs) -> Floats:
        """Return (n, width) float32 of length one; of length zero in the middle."""
        if not isinstance(inputs, Embeddings) or inputs.schema() != self.schema:
            raise SchemaError(f"the feature space is for {self.schema}, not {inputs.schema()}")
        apart = inputs.values.astype(np.int64) - self.middle
        lengths = np.sqrt(np.square(apart).sum(axis=1, keepdims=True).astype(np.float64))
        made: Floats = (apart / np.maximum(lengths, 1.0)).astype(np.float32)
        return made
