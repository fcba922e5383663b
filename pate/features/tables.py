"""Rows of a table as points whose distances mix numbers and categories fairly.

A number becomes its distance from the public mean in public spreads, clipped so that one outlier
does not decide. (Ranks among the public values were tried: they discard how far out a value lies,
the information of a long tail such as incomes or days in hospital.) A category becomes one
coordinate per frequent public category, so that two rows that differ in it are a little farther
apart than two numbers one spread from each other; rare and unknown categories are pooled.
Everything is fitted on the public set.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.data.embeddings import Embeddings
from pate.data.values import Table, is_numeric
from pate.errors import DataError, SchemaError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pate.data.values import Column, Inputs
    from pate.features.contract import FeatureSpace

    Floats = NDArray[np.float32]
    Wide = NDArray[np.float64]

_TAIL: Final = 0.001  # share of the public values at either end that mean and spread ignore
_FARTHEST: Final = 4.0  # spreads from the mean
_RARE: Final = 0.005  # a category on a smaller share of the public rows is pooled
_MOST_CATEGORIES: Final = 64
_MISMATCH: Final = 0.85  # two one-hot rows that differ are sqrt(2) times that apart


@dataclass(frozen=True, eq=False)
class _Numbers:
    """Mean and spread of a column's public values; a spread of 0 if it is constant."""

    centre: float  # mean of the public values, the farthest clipped
    spread: float  # their standard deviation

    @classmethod
    def fit(cls, values: NDArray[np.float64]) -> _Numbers:
        """Return the mean and spread of a column's public values, missing ones excluded."""
        if not len(values):
            return cls(0.0, 0.0)
        low, high = np.quantile(values, [_TAIL, 1 - _TAIL], method="nearest").tolist()
        largest = max(abs(low), abs(high), np.finfo(np.float64).tiny)
        # Brought to [-1, 1] first: the square of a number in a file can overflow.
        tame = np.clip(values, low, high) / largest
        spread = float(tame.std())
        return cls(float(tame.mean()) * largest, spread * largest if spread > 1e-9 else 0.0)

    @property
    def width(self) -> int:
        """Return the number of coordinates."""
        return 1 + bool(self.spread)

    def embed(self, column: NDArray[np.float64]) -> list[Floats]:
        """Return spreads from the mean, 0 where it is missing, and whether it is missing."""
        missing = np.isnan(column)
        if not self.spread:
            return [missing.astype(np.float32)]
        values = np.where(missing, self.centre, column)
        with np.errstate(over="ignore"):  # overflow is clipped
            scaled = np.clip(
                values / self.spread - self.centre / self.spread, -_FARTHEST, _FARTHEST
            )
        return [scaled.astype(np.float32), missing.astype(np.float32)]


@dataclass(frozen=True)
class _Categories:
    """The frequent public categories of a column, "" for missing among them if it is frequent."""

    known: tuple[str, ...]

    @property
    def width(self) -> int:
        """Return the number of coordinates."""
        return len(self.known) + 1

    def embed(self, column: NDArray[np.str_]) -> list[Floats]:
        """Return one coordinate per known category and one for all others."""
        hits = [column == category for category in self.known]
        other = ~np.any(hits, axis=0) if hits else np.ones(len(column), dtype=np.bool_)
        return [(hit * _MISMATCH).astype(np.float32) for hit in (*hits, other)]


_Column = _Numbers | _Categories


@dataclass(frozen=True, eq=False)
class TableSpace:
    """The space of the rows of tables with given columns."""

    names: tuple[str, ...]  # the columns it takes, in order
    columns: tuple[_Column, ...]  # the coordinates of each

    name = "table"

    @classmethod
    def fit(cls, public: Inputs) -> TableSpace:
        """Return the space fitted on the public rows."""
        if not isinstance(public, Table):
            raise SchemaError(f"this feature space needs rows of a table, not {public.schema()}")
        if not len(public):
            raise DataError("the public set has no rows; distances cannot be scaled")
        return cls(public.names, tuple(map(_fitted, public.columns)))

    @property
    def width(self) -> int:
        """Return the number of coordinates."""
        return sum(column.width for column in self.columns)

    def embed(self, inputs: Inputs) -> Floats:
        """Return (n, width) float32, all finite."""
        if not isinstance(inputs, Table):
            raise SchemaError(f"this feature space needs rows of a table, not {inputs.schema()}")
        numeric = [not isinstance(column, _Categories) for column in self.columns]
        table = inputs.aligned(self.names, numeric)
        made: list[Floats] = []
        for column, how in zip(table.columns, self.columns, strict=True):
            if isinstance(how, _Categories):
                made += how.embed(np.asarray(column, dtype=np.str_))
            else:
                made += how.embed(np.asarray(column, dtype=np.float64))
        return np.stack(made, axis=1)


def _fitted(column: Column) -> _Column:
    if is_numeric(column):
        return _Numbers.fit(column[~np.isnan(column)])
    return _Categories(_frequent(column.tolist()))


def _frequent(cells: list[str]) -> tuple[str, ...]:
    counted = Counter(cells)
    often = sorted(counted, key=lambda text: (-counted[text], text))[:_MOST_CATEGORIES]
    return tuple(sorted(text for text in often if counted[text] >= _RARE * len(cells)))


# Embeddings


@dataclass(frozen=True, eq=False)
class EmbeddedSpace:
    """The space of an encoder's embeddings: a record's point depends on that record alone, exactly."""

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


# Likeness: a feature space in which any smooth function of the space of distances is linear.
#
# A record's features are how like it is to each of some public rows, the landmarks: 1 / (1 + d^2/2), d being
# their distance in units of the usual distance of public rows from their mean (a Cauchy kernel). They are
# turned so that the inner products of features are the likenesses of the records themselves, as far as the
# landmarks show them (Nystroem). So dense votes learn what a kernel method learns; on the coordinates
# themselves they would learn what is linear in these.
#
# All of it is exact, as in :mod:`pate.features.dense`: coordinates, likenesses and the turn are whole
# numbers, and no sum of their products reaches 2^53. So a record's features depend on it and the public set
# only.
#
# Source: Williams and Seeger, "Using the Nystroem method to speed up kernel machines", NIPS 2000.

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
