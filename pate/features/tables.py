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

    Floats = NDArray[np.float32]

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
