"""Axes: directions of the public set in which a teacher's answer to all of it is one short array.

The directions are the principal ones of the public rows, less their mean; of all bases of these it is the one
nearest to the K representatives of a campaign but the first (:mod:`pate.features.dense`). X are the public
rows in these, and H their second moments X'X / n. An answer is a matrix of scores Z, one row for each public
row, whose columns are the classes. Its array is H^(-3/4) X'Z / n: for Z = X W it is H^(1/4) W. Its length is
cut to a fixed one, so what a teacher says has a bounded length whatever it has learnt. H^(1/2) would make the
noise of all its parts alike in the answer; H^(1/4) gives the weak directions a little more, of which each
teacher says less and all together just as much.

The first row is the answer's level, its mean over the public rows less 1/m, as a tenth of the squared length.

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
from pate.features.dense import looked_at, nearest_basis, principal

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
    """The axes of a public set."""

    rows: Wide  # (n, K - 1) X, the public rows less their mean
    moments: Wide  # (K - 1,) of H, ascending
    vectors: Wide  # (K - 1, K - 1) orthonormal columns, its eigenvectors

    @classmethod
    def fit(cls, points: Floats, queries: Sequence[int]) -> Axes:
        """Return the axes of (n, w) public rows in the feature space, of which K are representatives."""
        wide = points.astype(np.float64)
        centred = wide - wide.mean(axis=0)
        usual = float(np.sqrt(np.square(centred).sum(axis=1).mean()))
        if not 0 < usual < 1e300:
            raise DataError("public rows that are all in one place have no directions")
        centred /= usual
        near = centred[list(queries)[1:]]
        basis = nearest_basis(near, principal(centred[looked_at(len(points))], len(near)))
        rows = centred @ basis.T
        moments, vectors = np.linalg.eigh(rows.T @ rows / len(rows))
        return cls(rows, np.maximum(moments, 0.0), vectors)

    @property
    def kept(self) -> NDArray[np.bool_]:
        """(K - 1,) which eigenvectors are of directions in which the public rows differ."""
        made: NDArray[np.bool_] = self.moments > _LEAST * self.moments[-1]
        return made

    @cached_property
    def reading(self) -> Wide:
        """(K - 1, n) the matrix H^(-3/4) X' / n, which reads the array of scores."""
        return self._power(-0.75) @ self.rows.T / len(self.rows)

    @cached_property
    def answering(self) -> Wide:
        """(n, K - 1) the matrix X H^(-1/4): the scores, less their means, that an array stands for."""
        return self.rows @ self._power(-0.25)

    def _power(self, exponent: float) -> Wide:
        vectors, moments = self.vectors[:, self.kept], self.moments[self.kept]
        made: Wide = (vectors * moments**exponent) @ vectors.T
        return made

    def array(self, read: Wide, level: Wide) -> Counts:
        """Return (K, m) int64, the array of one answer: of length at most :data:`~pate.codes.GRID`.

        It is made of (K - 1, m) :attr:`reading` times its scores, and (m,) their means, which are made
        shares of 1.
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
        return cut(
            np.vstack([np.sqrt(LEVEL) * (shares - 1 / len(shares)), np.sqrt(1 - LEVEL) * apart])
        )


def cut(whole: Wide) -> Counts:
    """Return an array of length about 1 at most in units of 1/grid, towards 0, and never too long."""
    made: Counts = np.trunc(whole * GRID).astype(np.int64)
    while int(np.square(made).sum()) > GRID**2:
        made -= np.sign(made)
    return made
