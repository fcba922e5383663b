"""Dense votes: a record counts at every representative, by how far it lies in that direction.

A record's features, less the mean of the public set's and with one constant coordinate, are scaled
to length 1, projected onto as many principal directions of the public rows as there are
representatives, in the basis nearest to the representatives (Loewdin's), and cut towards zero to
multiples of 1/grid.

All of that is exact: features are cut to whole numbers first, and products of whole numbers below
2^53 have no rounding in doubles, in whatever order they are added. So a record's array depends on
it and the representatives alone, and its length is checked in whole numbers.

Source: P.-O. Loewdin, "On the non-orthogonality problem", 1950, for the basis.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.codes import GRID
from pate.errors import DataError
from pate.features.contract import check_points

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Wide = NDArray[np.float64]
    Counts = NDArray[np.int64]

#: Features and basis are multiples of one over it; sums of up to 2^13 of their products are exact.
_FINE: Final = 2**20
_WIDEST: Final = 2**13 - 1
#: Coordinates further from the middle than this many times the farthest representative's are cut.
_FAR: Final = 8.0
#: The constant coordinate, relative to the usual distance of public rows from their mean.
_CONSTANT: Final = 0.35
#: Public rows, evenly spaced, whose mean is the middle, and whose principal directions are taken.
_LOOKED_AT: Final = 1024
#: Directions with less than this part of the largest one's moment are no directions.
_LEAST: Final = 1e-6
#: Length of what is added to representatives, so that together they reach every direction.
_ADDED: Final = 1e-3


@dataclass(frozen=True, eq=False)
class Directions:
    """The directions of a code, fitted on representatives."""

    middle: Wide  # (w,) mean of the public rows
    reach: float  # size at which coordinates less the middle are cut
    constant: float  # the constant coordinate
    basis: Wide  # (d, w + 1) whole numbers, a direction for each representative

    @classmethod
    def fit(cls, points: Floats, public: Floats | None = None) -> Directions:
        """Return the directions of (d, w) representatives in a feature space.

        Representatives cover the public set evenly, outliers too; so their mean is not that of most
        rows. A middle far from it would make all records' arrays alike. Nor do they span what rows
        differ in. So both are taken of the public rows at :func:`looked_at`, if they are given.
        """
        around = points if public is None else public
        _check(points)
        _check(around)
        wide = around.astype(np.float64)
        middle = wide.mean(axis=0)
        reach = float(np.abs(points - middle).max())
        usual = float(np.sqrt(np.square(wide - middle).sum(1).mean()))
        if not 0 < reach < 1e300 or not usual or (points == points[0]).all():
            raise DataError(
                "representatives, or public rows, that are all in one place have no directions"
            )
        bare = cls(middle, _FAR * reach, _CONSTANT * usual, np.zeros((0, wide.shape[1] + 1)))
        lifted = bare._lifted(points) / _FINE
        basis = nearest_basis(lifted, principal(bare._lifted(around) / _FINE, len(points)))
        return cls(bare.middle, bare.reach, bare.constant, np.trunc(basis * _FINE))

    def codes(self, points: Floats) -> Counts:
        """Return (n, d) int64, the array of each record: of length at most :data:`~pate.codes.GRID`."""
        _check(points)
        if points.shape[1] != len(self.middle):
            raise DataError(f"records of {points.shape[1]} coordinates, not {len(self.middle)}")
        turned = (self._lifted(points) @ self.basis.T) / (_FINE * _FINE / GRID)
        made: Counts = np.trunc(turned).astype(np.int64)
        # The cut basis may be longer than 1 by a hair.
        long = np.square(made).sum(axis=1) > GRID**2
        made[long] -= np.sign(made[long])
        if (np.square(made).sum(axis=1) > GRID**2).any():
            raise DataError("an array of a record is longer than its code allows")
        return made

    def _lifted(self, points: Floats) -> Wide:
        """Return (n, w + 1) whole numbers, each row of length at most :data:`_FINE`."""
        apart = np.clip((points.astype(np.float64) - self.middle) / self.reach, -1, 1)
        whole = np.trunc(apart * _FINE)
        last = np.full((len(whole), 1), np.trunc(self.constant / self.reach * _FINE))
        whole = np.concatenate([whole, last], axis=1)
        # A row at the very middle, where the constant is cut to 0, stays there.
        length = np.maximum(np.sqrt(np.square(whole).sum(axis=1, keepdims=True)), 1)
        made: Wide = np.trunc(whole / length * _FINE)
        return made


def looked_at(public: int) -> list[int]:
    """Return the public rows, of so many, whose mean is the middle of the directions."""
    number = min(public, _LOOKED_AT)
    return [at * public // number for at in range(number)]


def dense_votes(directions: Directions, points: Floats, labels: Counts, classes: int) -> Counts:
    """Return the summed arrays of (n, w) records, (d, classes) int64, in units of 1/grid of a vote."""
    if labels.shape != (len(points),) or (
        labels.size and not 0 <= labels.min() <= labels.max() < classes
    ):
        raise DataError(f"labels of shape {labels.shape} for {len(points)} records")
    codes = directions.codes(points)
    sums = [codes[labels == label].sum(axis=0) for label in range(classes)]
    return np.stack(sums, axis=1)


def dense_sums(directions: Directions, points: Floats, answers: Counts, grid: int) -> Counts:
    """Return the summed arrays of (n, w) records with (n, m) answers of any kind: (d, m), in the same units.

    Each number of each record's array is cut towards zero, so no norm of it is larger than that of its
    code times that of its answer.
    """
    if answers.ndim != 2 or len(answers) != len(points):
        raise DataError(f"answers of shape {answers.shape} for {len(points)} records")
    codes = directions.codes(points)
    sizes, signs = np.abs(codes), np.sign(codes)
    sums = [
        (signs * np.sign(column)[:, None] * (sizes * np.abs(column)[:, None] // grid)).sum(axis=0)
        for column in answers.T
    ]
    return np.stack(sums, axis=1)


def nearest_basis(points: Wide, axes: Wide) -> Wide:
    """Return (d, w) directions nearest to (d, w) points, one each, in the span of (k, w) axes."""
    # Where no point reaches, the nearest basis would be anything, and another one on another machine.
    number, width = points.shape
    spread = np.cos(np.square(np.arange(1.0, number * width + 1))).reshape(number, width)
    near = (points + _ADDED * np.sqrt(2 / width) * spread) @ axes.T
    left, _, right = np.linalg.svd(near, full_matrices=False)
    made: Wide = left @ right @ axes
    return made


def principal(rows: Wide, most: int) -> Wide:
    """Return (k, w) orthonormal directions with the largest moments of rows, k at most ``most``."""
    wide = rows.shape[1] > len(rows)
    moments, vectors = np.linalg.eigh(rows @ rows.T if wide else rows.T @ rows)
    kept = max(int((moments <= _LEAST * moments[-1]).sum()), len(moments) - most)
    axes = vectors.T[kept:]
    made: Wide = axes @ rows / np.sqrt(moments[kept:, None]) if wide else axes
    return made


def _check(points: Floats) -> None:
    check_points(points, "dense votes")
    if not 0 < points.shape[1] <= _WIDEST:
        raise DataError(f"features are of shape {points.shape}")


# Axes: directions of the public set in which a teacher's answer to all of it is one short array.
#
# The directions are the principal ones of the public rows, less their mean; of all bases of these it is
# the one nearest to the K representatives of a campaign but the first (:mod:`pate.features.dense`). X are
# the public rows in these, and H their second moments X'X / n. An answer is a matrix of scores Z, one row
# for each public row, whose columns are the classes. Its array is H^(-3/4) X'Z / n: for Z = X W it is
# H^(1/4) W. Its length is cut to a fixed one, so what a teacher says has a bounded length whatever it has
# learnt. H^(1/2) would make the noise of all its parts alike in the answer; H^(1/4) gives the weak
# directions a little more, of which each teacher says less and all together just as much.
#
# The first row is the answer's level, its mean over the public rows less 1/m, as a tenth of the squared
# length.
#
# A representative's direction and a power of a symmetric matrix depend on no sign or order of
# eigenvectors, so the parties' and the student's axes agree but for the last digits. Nothing that is
# charged depends on that: the length of an array is checked in whole numbers, and a teacher's array
# depends on its own shard.

#: Part of the squared length that the level has.
LEVEL: Final = 0.1


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

    @cached_property
    def whitened(self) -> Wide:
        """(n, K - 1) the public rows X H^(-1/2), whose variance is the same in all directions."""
        return self.rows @ self._power(-0.5)

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
