"""Axes: directions of the public set in which a teacher's answer to all of it is one short array.

The K representatives of a campaign have directions (:mod:`pate.features.dense`). X are the public rows in
these, less their mean m, and H their second moments X'X / n. An answer is a matrix of scores Z, one row for
each public row, whose columns are the classes. Its array is H^(-3/4) X'Z / n: for Z = X W it is H^(1/4) W.
Its length is cut to a fixed one, so what a teacher says has a bounded length whatever it has learnt. H^(1/2)
would make the noise of all its parts alike in the answer; H^(1/4) gives the weak directions a little more,
of which each teacher says less and all together just as much.

The direction of m has no variance to speak of, and no part in that. There is the answer's level instead, its
mean over the public rows less 1/m, as a tenth of the squared length.

A representative's direction and a power of a symmetric matrix depend on no sign or order of eigenvectors, so
the parties' and the student's axes agree but for the last digits. Nothing that is charged depends on that:
the length of an array is checked in whole numbers, and a teacher's array depends on its own shard.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.codes import GRID
from pate.errors import DataError
from pate.features.dense import Directions, looked_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Wide = NDArray[np.float64]
    Counts = NDArray[np.int64]

#: Part of the squared length that the level has.
LEVEL: Final = 0.1
#: Moments below this part of the largest are of no direction.
_LEAST: Final = 1e-6


@dataclass(frozen=True, eq=False)
class Axes:
    """The axes of a public set.

    Attributes:
        centred: (n, K) X, the public rows in all directions but that of their mean, in votes.
        moments: (K,) of H, ascending.
        vectors: (K, K) orthonormal columns, its eigenvectors.
        mean: (K,) the direction of the mean, of length 1.
    """

    centred: Wide
    moments: Wide
    vectors: Wide
    mean: Wide

    @classmethod
    def fit(cls, points: Floats, queries: Sequence[int]) -> Axes:
        """Return the axes of public rows.

        Args:
            points: (n, w) float32, the public rows in the space of directions.
            queries: the K representatives among them.

        Raises:
            DataError: for points without directions.
        """
        directions = Directions.fit(points[list(queries)], points[looked_at(len(points))])
        rows = directions.codes(points) / GRID
        middle = rows.mean(axis=0)
        length = float(np.linalg.norm(middle))
        if not length:
            raise DataError("public rows whose mean is 0 have no level")
        mean = middle / length
        centred = rows - middle
        centred -= np.outer(centred @ mean, mean)
        moments, vectors = np.linalg.eigh(centred.T @ centred / len(rows))
        return cls(centred, np.maximum(moments, 0.0), vectors, mean)

    @property
    def kept(self) -> NDArray[np.bool_]:
        """(K,) which eigenvectors are of directions in which the public rows differ."""
        made: NDArray[np.bool_] = self.moments > _LEAST * self.moments[-1]
        return made

    @cached_property
    def reading(self) -> Wide:
        """(K, n) the matrix H^(-3/4) X' / n, which reads the array of scores."""
        return self._power(-0.75) @ self.centred.T / len(self.centred)

    @cached_property
    def answering(self) -> Wide:
        """(n, K) the matrix X H^(-1/4): the scores, less their means, that an array stands for."""
        return self.centred @ self._power(-0.25)

    def _power(self, exponent: float) -> Wide:
        vectors, moments = self.vectors[:, self.kept], self.moments[self.kept]
        made: Wide = (vectors * moments**exponent) @ vectors.T
        return made

    def array(self, read: Wide, level: Wide) -> Counts:
        """Return (K, m) int64, the array of one answer: of length at most :data:`~pate.codes.GRID`.

        Args:
            read: (K, m) :attr:`reading` times its scores.
            level: (m,) their means, which are made shares of 1.

        Raises:
            DataError: if a number is not finite.
        """
        if not (np.isfinite(read).all() and np.isfinite(level).all()):
            raise DataError("the scores of a teacher are not finite")
        shares = np.clip(level, 0.0, None)
        shares = shares / shares.sum() if shares.sum() > 0 else np.full(len(level), 1 / len(level))
        largest = float(np.abs(read).max(initial=0.0))
        apart = read / largest if largest > 0 else read
        length = float(np.linalg.norm(apart))
        if length > 0:
            apart = apart / length
        whole = np.sqrt(1 - LEVEL) * apart + np.sqrt(LEVEL) * np.outer(
            self.mean, shares - 1 / len(shares)
        )
        return cut(whole)

    def level_of(self, sums: Wide) -> Wide:
        """Return (m,) the summed levels, less 1/m each, in summed arrays of teachers, in votes."""
        made: Wide = self.mean @ sums / np.sqrt(LEVEL)
        return made


def cut(whole: Wide) -> Counts:
    """Return an array of length about 1 at most in units of 1/grid, towards 0, and never too long."""
    made: Counts = np.trunc(whole * GRID).astype(np.int64)
    while int(np.square(made).sum()) > GRID**2:
        made -= np.sign(made)
    return made
