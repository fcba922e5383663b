"""Rows of a table as points whose distances mix numbers and categories fairly.

A number becomes its distance from the public mean in public spreads, clipped so that one outlier
does not decide. (Ranks among the public values were tried: they discard how far out a value lies,
the information of a long tail such as incomes or days in hospital.) A category becomes one
coordinate per frequent public category, so that two rows that differ in it are a little farther
apart than two numbers one spread from each other; rare and unknown categories are pooled.
Everything is fitted on the public set.

Where a record counts by its *direction* instead (dense votes), what is linear in the coordinates is all
that can be learnt. So a number becomes *steps* there: whether it lies above each of a few public quantiles.
And each column has the same variance in all, so that one of many categories is not heard louder.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

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
_STEPS: Final = 5  # quantiles of a number, evenly spaced
_FEW: Final = 3  # with fewer different ones most rows have one value, and the others are cut
_MOST_STEPS: Final = 256  # coordinates of a table; more are more than directions can tell apart
_LEAST_VARIANCE: Final = 0.1  # a column that hardly varies is not stretched beyond this


@dataclass(frozen=True, eq=False)
class _Numbers:
    """Mean and spread of a column's public values; a spread of 0 if it is constant.

    Attributes:
        centre: mean of the public values, the farthest clipped.
        spread: their standard deviation.
    """

    centre: float
    spread: float

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
class _Steps:
    """Public quantiles of a column, and the shares of the public values above them.

    Attributes:
        cuts: ascending, all different.
        shares: of each cut, what a missing number counts as.
    """

    cuts: tuple[float, ...]
    shares: tuple[float, ...]

    @classmethod
    def fit(cls, values: NDArray[np.float64]) -> _Steps:
        """Return the cuts of a column's public values, missing ones excluded."""
        if not len(values):
            return cls((), ())
        cuts = _quantiles(values)
        if len(cuts) < _FEW:
            known, often = np.unique(values, return_counts=True)
            usual = known[often.argmax()]
            cuts = np.union1d(cuts, _quantiles(values[values != usual]))
            cuts = np.union1d(cuts, [usual])
        # Nothing lies above the largest.
        cuts = cuts[cuts < values.max()]
        return cls(tuple(cuts.tolist()), tuple(float((values > cut).mean()) for cut in cuts))

    @property
    def width(self) -> int:
        """Return the number of coordinates."""
        return 1 + len(self.cuts)

    def embed(self, column: NDArray[np.float64]) -> list[Floats]:
        """Return whether it lies above each cut, and whether it is missing."""
        missing = np.isnan(column)
        above = [
            np.where(missing, share, column > cut).astype(np.float32)
            for cut, share in zip(self.cuts, self.shares, strict=True)
        ]
        return [*above, missing.astype(np.float32)]


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


_Column = _Numbers | _Steps | _Categories


@dataclass(frozen=True, eq=False)
class TableSpace:
    """The space of the rows of tables with given columns.

    Attributes:
        names: the columns it takes, in order.
        columns: the coordinates of each.
        sizes: that each column's coordinates are multiplied by; empty: none is.
    """

    names: tuple[str, ...]
    columns: tuple[_Column, ...]
    sizes: tuple[float, ...] = ()

    name = "table"

    @classmethod
    def fit(cls, public: Inputs) -> TableSpace:
        """Return the space for distances, fitted on the public rows.

        Raises:
            SchemaError: if the inputs are images.
            DataError: if the table has no rows.
        """
        table = _of_rows(public)
        return cls(table.names, tuple(_fitted(column, _Numbers) for column in table.columns))

    @classmethod
    def for_directions(cls, public: Inputs) -> TableSpace:
        """Return the space for directions: numbers in steps, and columns of equal variance.

        If the coordinates would be too many, numbers stay one coordinate each.

        Raises:
            SchemaError: if the inputs are images.
            DataError: if the table has no rows.
        """
        table = _of_rows(public)
        columns = tuple(_fitted(column, _Steps) for column in table.columns)
        if sum(column.width for column in columns) > _MOST_STEPS:
            columns = tuple(_fitted(column, _Numbers) for column in table.columns)
        plain = cls(table.names, columns)
        variances = np.square(plain.embed(table).std(axis=0, dtype=np.float64))
        ends = np.cumsum([column.width for column in columns])[:-1]
        sizes = [
            max(float(part.sum()), _LEAST_VARIANCE) ** -0.5 for part in np.split(variances, ends)
        ]
        return cls(table.names, columns, tuple(sizes))

    @property
    def widths(self) -> tuple[int, ...]:
        """Return the number of coordinates of each column."""
        return tuple(column.width for column in self.columns)

    @property
    def width(self) -> int:
        """Return the number of coordinates."""
        return sum(self.widths)

    def embed(self, inputs: Inputs) -> Floats:
        """Return (n, width) float32, all finite.

        Raises:
            SchemaError: if the inputs are images, or a column is missing or does not parse.
        """
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
        points = np.stack(made, axis=1)
        return (
            points * np.repeat(np.array(self.sizes, dtype=np.float32), self.widths)
            if self.sizes
            else points
        )


def _of_rows(public: Inputs) -> Table:
    if not isinstance(public, Table):
        raise SchemaError(f"this feature space needs rows of a table, not {public.schema()}")
    if not len(public):
        raise DataError("the public set has no rows; distances cannot be scaled")
    return public


def _fitted(column: Column, of_numbers: type[_Numbers | _Steps]) -> _Column:
    if is_numeric(column):
        return of_numbers.fit(column[~np.isnan(column)])
    return _Categories(_frequent(column.tolist()))


def _quantiles(values: NDArray[np.float64]) -> NDArray[np.float64]:
    places = np.arange(1, _STEPS + 1) / (_STEPS + 1)
    return np.unique(np.quantile(values, places, method="nearest")) if len(values) else values


def _frequent(cells: list[str]) -> tuple[str, ...]:
    counted = Counter(cells)
    often = sorted(counted, key=lambda text: (-counted[text], text))[:_MOST_CATEGORIES]
    return tuple(sorted(text for text in often if counted[text] >= _RARE * len(cells)))
