"""The model that a round of records' votes shows: public, and of bounded whole numbers.

A server states it, and a party takes it from anybody: whatever weights and length it has, a record's
array has the same greatest length (:mod:`pate.rounds.record_array`).
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.answers import MOST_CLASSES
from pate.codes import GRID, MOST_DIRECTIONS
from pate.errors import ProtocolError

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Units of weights that are 1, and the largest weight in them.
WEIGHT_GRID: Final = 2**10
MOST_WEIGHT: Final = 2**20
#: The greatest length at which arrays are cut, in units of 1/GRID: none is above sqrt(256), with one class
#: above sqrt(2).
MOST_CUT: Final = 16 * GRID

#: Directions, classes, length; then one number a weight.
_HEAD: Final = struct.Struct("<HHH")
_WEIGHT: Final = np.dtype("<i4")
_DIGEST: Final = b"pate shown model v1\0"


@dataclass(frozen=True, eq=False)
class RoundModel:
    """A linear model of classes in the directions of a dense code."""

    # (k, m) int64, of k directions and m classes, in units of 1/:data:`WEIGHT_GRID`. The logits of a
    # record are its code times the weights.
    weights: NDArray[np.int64]
    cut: int  # the length above which a record's disagreement is cut, in units of 1/GRID

    def __post_init__(self) -> None:
        weights = self.weights
        if not isinstance(weights, np.ndarray) or weights.dtype != np.int64 or weights.ndim != 2:
            raise ProtocolError("a shown model's weights are whole numbers, in rows and columns")
        directions, classes = weights.shape
        if not 2 <= directions <= MOST_DIRECTIONS or not 2 <= classes <= MOST_CLASSES:
            raise ProtocolError(f"a shown model has {directions} directions and {classes} classes")
        if ((weights < -MOST_WEIGHT) | (weights > MOST_WEIGHT)).any():
            raise ProtocolError(f"a shown model has a weight beyond {MOST_WEIGHT}")
        if type(self.cut) is not int or not 1 <= self.cut <= MOST_CUT:
            raise ProtocolError(f"a shown model cuts at a length from 1 to {MOST_CUT}")
        own = weights.copy()
        own.setflags(write=False)
        object.__setattr__(self, "weights", own)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RoundModel) and self.to_bytes() == other.to_bytes()

    def __hash__(self) -> int:
        return hash(self.digest)

    @property
    def digest(self) -> bytes:
        """32 bytes that identify the model."""
        return hashlib.sha256(_DIGEST + self.to_bytes()).digest()

    def check_shape(self, directions: int, classes: int) -> None:
        """Check that the model is for a campaign's directions and classes."""
        if self.weights.shape != (directions, classes):
            raise ProtocolError(
                f"a shown model of {self.weights.shape} weights, not {(directions, classes)}"
            )

    def to_bytes(self) -> bytes:
        """Return the one byte string that :meth:`from_bytes` reads."""
        return _HEAD.pack(*self.weights.shape, self.cut) + self.weights.astype(_WEIGHT).tobytes()

    @classmethod
    def from_bytes(cls, raw: bytes) -> RoundModel:
        """Return the model of a byte string, which anybody may have made."""
        if not isinstance(raw, bytes) or len(raw) < _HEAD.size:
            raise ProtocolError("a shown model is too short")
        directions, classes, cut = _HEAD.unpack_from(raw)
        if len(raw) != _HEAD.size + directions * classes * _WEIGHT.itemsize:
            raise ProtocolError(f"a shown model has {len(raw)} bytes for other shapes")
        read = np.frombuffer(raw, dtype=_WEIGHT, offset=_HEAD.size)
        return cls(read.reshape(directions, classes).astype(np.int64), cut)
