"""The feature space of likeness, in which any smooth function of the space of distances is linear.

A record's features are how like it is to each of some public rows, the landmarks: 1 / (1 + d^2/2), d being
their distance in units of the usual distance of public rows from their mean (a Cauchy kernel). They are
turned so that the inner products of features are the likenesses of the records themselves, as far as the
landmarks show them (Nystroem). So dense votes learn what a kernel method learns; on the coordinates
themselves they would learn what is linear in these.

All of it is exact, as in :mod:`pate.features.dense`: coordinates, likenesses and the turn are whole
numbers, and no sum of their products reaches 2^53. So a record's features depend on it and the public set
only.

Source: Williams and Seeger, "Using the Nystroem method to speed up kernel machines", NIPS 2000.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pate.data.values import Inputs
    from pate.features.contract import FeatureSpace

    Floats = NDArray[np.float32]
    Wide = NDArray[np.float64]

#: Coordinates are multiples of one over it, and cut at so many usual distances: 2^17, squares of up to 2^13
#: of which sum up to 2^47.
_FINE: Final = 2**12
_FAR: Final = 2.0**5
_WIDEST: Final = 2**13
#: Likenesses are multiples of one over it.
_LIKE: Final = 2**20
#: Entries of the turn are multiples of one over it, and below 2^7; with 2^10 landmarks sums stay below 2^50.
_TURNED: Final = 2**13
_LONGEST: Final = 2.0**7
_MOST: Final = 2**10
#: Added to the moments of landmarks, relative to the largest: what they hardly show is not blown up.
_LEAST: Final = 1e-4
#: Rows at once, which bounds memory.
_AT_ONCE: Final = 2048


@dataclass(frozen=True, eq=False)
class LikenessSpace:
    """The likeness of inputs to landmarks."""

    base: FeatureSpace  # the space of distances
    usual: float  # the usual distance of public rows from their mean
    landmarks: Wide  # (m, w) their coordinates, whole numbers
    turn: Wide  # (m, m) whole numbers

    name = "likeness"

    @classmethod
    def fit(cls, base: FeatureSpace, public: Inputs) -> LikenessSpace:
        """Return the space fitted on public rows; the first 2^10 different ones are landmarks."""
        points = base.embed(public).astype(np.float64)
        usual = float(np.sqrt(np.square(points - points.mean(axis=0)).sum(axis=1).mean()))
        if not 0 < usual < 1e300 or points.shape[1] > _WIDEST:
            raise DataError(
                "public rows that are all in one place, or too wide, have no kernel features"
            )
        whole = _whole(points, usual)
        _, first = np.unique(whole, axis=0, return_index=True)
        marks = whole[np.sort(first)[:_MOST]]
        moments, axes = np.linalg.eigh(_likeness(marks, marks) / _LIKE)
        turn = (axes * (np.maximum(moments, 0) + _LEAST * moments[-1]) ** -0.5) @ axes.T
        return cls(base, usual, marks, np.trunc(np.clip(turn, -_LONGEST, _LONGEST) * _TURNED))

    @property
    def width(self) -> int:
        """Return the number of coordinates."""
        return len(self.landmarks)

    def embed(self, inputs: Inputs) -> Floats:
        """Return (n, width) float32; errors as those of the space of distances."""
        whole = _whole(self.base.embed(inputs).astype(np.float64), self.usual)
        made = np.zeros((len(whole), self.width), dtype=np.float32)
        for at in range(0, len(whole), _AT_ONCE):
            like = _likeness(whole[at : at + _AT_ONCE], self.landmarks)
            made[at : at + _AT_ONCE] = like @ self.turn / (_LIKE * _TURNED)
        return made


def _whole(points: Wide, usual: float) -> Wide:
    """Return coordinates in units of the usual distance, as whole numbers of up to 2^17."""
    made: Wide = np.trunc(np.clip(points / usual, -_FAR, _FAR) * _FINE)
    return made


def _likeness(some: Wide, others: Wide) -> Wide:
    """Return (n, m) whole numbers of up to :data:`_LIKE`; only the last division is rounded."""
    squares = np.square(some).sum(axis=1)[:, None] + np.square(others).sum(axis=1)
    apart = squares - 2 * (some @ others.T)
    made: Wide = np.trunc(_LIKE / (1 + apart / (2 * _FINE**2)))
    return made
