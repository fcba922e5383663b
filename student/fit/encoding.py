"""Encoding of table rows as numbers, including missing values and categories; and embeddings, which are.

Everything is fitted on the public set. The encoding is plain JSON, so that users of the student can
read it, and nothing is unpickled.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.data.embeddings import Embeddings
from pate.data.schema import Schema
from pate.data.values import Table
from pate.errors import DataError, SchemaError
from pate.exact import read, write

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pate.data.values import Column, Inputs

#: Most categories of one column with their own number; the rarest have none.
MOST_CATEGORIES: Final = 64
#: Standardised numbers are clipped here, so that one outlier does not dominate a linear model.
FURTHEST: Final = 6.0


@dataclass(frozen=True)
class NumberColumn:
    """A column of numbers: standardised; the median where missing, and a flag if any was."""

    name: str
    middle: float
    spread: float  # standard deviation of the public set, or 1 if it has none
    flagged: bool  # whether a second number says that the cell was missing

    def __post_init__(self) -> None:
        if not self.spread > 0:
            raise DataError(f"column {self.name!r}: its spread is above 0, got {self.spread}")

    def encode(self, column: Column) -> list[NDArray[np.float32]]:
        """Return one or two arrays of length n."""
        numbers = np.asarray(column, dtype=np.float64)
        missing = np.isnan(numbers)
        scaled = (np.where(missing, self.middle, numbers) - self.middle) / self.spread
        made = [np.clip(scaled, -FURTHEST, FURTHEST).astype(np.float32)]
        return [*made, missing.astype(np.float32)] if self.flagged else made


@dataclass(frozen=True)
class CategoryColumn:
    """A column of categories: one number, 0 or 1, for each known one; all 0 for any other."""

    name: str
    known: tuple[str, ...]  # the categories, "" standing for a missing one

    def encode(self, column: Column) -> list[NDArray[np.float32]]:
        """Return one array of length n per known category."""
        texts = np.asarray(column, dtype=np.str_)
        return [(texts == category).astype(np.float32) for category in self.known]


@dataclass(frozen=True)
class Encoding:
    """The encodings of a table's columns, in order."""

    columns: tuple[NumberColumn | CategoryColumn, ...]

    @property
    def schema(self) -> str:
        """Return the line of the tables that it encodes, as ``Table.schema`` writes it."""
        kinds = ("number" if isinstance(c, NumberColumn) else "category" for c in self.columns)
        pairs = zip(self.columns, kinds, strict=True)
        return "table " + ", ".join(f"{column.name}:{kind}" for column, kind in pairs)

    def encode(self, inputs: Inputs) -> NDArray[np.float32]:
        """Return (n, features) float32, all finite."""
        if not isinstance(inputs, Table):
            raise SchemaError(f"this student takes rows of a table, not {inputs.schema()}")
        names = [column.name for column in self.columns]
        table = inputs.aligned(names, [isinstance(c, NumberColumn) for c in self.columns])
        features = [
            feature
            for column, cells in zip(self.columns, table.columns, strict=True)
            for feature in column.encode(cells)
        ]
        return np.stack(features, axis=1)

    def to_json(self) -> list[dict[str, object]]:
        """Return plain JSON values."""
        return [write(column) for column in self.columns]

    @classmethod
    def from_json(cls, fields: object) -> Encoding:
        """Return the encoding that :meth:`to_json` described."""
        if not isinstance(fields, list) or not fields:
            raise DataError("an encoding is a list of columns")
        return cls(tuple(_column_from_json(column) for column in fields))


@dataclass(frozen=True)
class EmbeddedRows:
    """Embeddings of one encoder, whose coordinates are the features."""

    schema: str

    def __post_init__(self) -> None:
        if Schema.parse(self.schema).encoder is None:
            raise SchemaError(f"{self.schema!r:.80} is no line of embeddings")

    @property
    def width(self) -> int:
        """Number of features."""
        return Schema.parse(self.schema).width

    def encode(self, inputs: Inputs) -> NDArray[np.float32]:
        """Return (n, width) float32."""
        if not isinstance(inputs, Embeddings) or inputs.schema() != self.schema:
            raise SchemaError(f"this student takes {self.schema}, not {inputs.schema()}")
        return inputs.points()


def learn_encoding(table: Table) -> Encoding:
    """Return the encoding that suits a public set; columns that never vary are still encoded."""
    if not len(table):
        raise DataError("the public set has no rows")
    columns: list[NumberColumn | CategoryColumn] = []
    for name, column in zip(table.names, table.columns, strict=True):
        if column.dtype == np.float64:
            columns.append(_learn_numbers(name, np.asarray(column, dtype=np.float64)))
        else:
            counts = Counter(str(cell) for cell in column.tolist())
            often = sorted(counts, key=lambda text: (-counts[text], text))[:MOST_CATEGORIES]
            # A category that occurs once is not informative; a column of such is an identifier.
            known = tuple(sorted(text for text in often if counts[text] > 1)) or (often[0],)
            columns.append(CategoryColumn(name, known))
    return Encoding(tuple(columns))


def _learn_numbers(name: str, column: NDArray[np.float64]) -> NumberColumn:
    present = column[~np.isnan(column)]
    flagged = len(present) < len(column)
    if not len(present):
        return NumberColumn(name, 0.0, 1.0, flagged)
    with np.errstate(over="ignore"):
        spread = float(present.std())
    usable = math.isfinite(spread) and spread > 0
    return NumberColumn(name, float(np.median(present)), spread if usable else 1.0, flagged)


def _column_from_json(fields: object) -> NumberColumn | CategoryColumn:
    what = "a column of an encoding"
    if isinstance(fields, dict) and "known" in fields:
        return read(CategoryColumn, fields, error=DataError, what=what)
    return read(NumberColumn, fields, error=DataError, what=what)
