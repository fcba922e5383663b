"""The inputs that a teacher takes, and tables as matrices, by an encoding that is fitted within one shard.

A column of numbers becomes two: the value, centred on the shard's median and scaled, and whether it
is missing. A column of categories becomes one per category of the shard; an unknown category is all
zeros.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from party.teachers.protocol import DamagedTeacherError
from pate.data.embeddings import Embeddings
from pate.data.schema import Schema
from pate.data.values import Images, Table, is_numeric
from pate.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Literal

    from numpy.typing import NDArray

    from pate.data.values import Dataset, Inputs

#: Most categories of a column with their own feature: the most frequent ones.
_VOCABULARY: Final = 32
#: A number counts as at most this many spreads from the median, so that float32 holds it.
_FARTHEST: Final = 1e6


@dataclass(frozen=True)
class ImageSchema:
    """Images of one size."""

    size: tuple[int, int, int]

    @classmethod
    def from_facts(cls, facts: Mapping[str, object]) -> ImageSchema:
        """Return the image size among a stored teacher's facts."""
        size = facts.get("size")
        if not isinstance(size, list) or [type(side) for side in size] != [int, int, int]:
            raise DamagedTeacherError("its image size")
        return cls((size[0], size[1], size[2]))

    @property
    def cells(self) -> int:
        """Return the numbers that an input has."""
        return math.prod(self.size)

    def conform(self, inputs: Inputs) -> Images:
        """Return ``inputs`` if they are images of this size."""
        if not isinstance(inputs, Images) or inputs.size != self.size:
            wanted = "images {}x{}x{}".format(*self.size)
            raise SchemaError(f"the teachers take {wanted}, the queries are {inputs.schema()}")
        return inputs


@dataclass(frozen=True)
class TableSchema:
    """Rows of named columns."""

    names: tuple[str, ...]
    numeric: tuple[bool, ...]

    @property
    def cells(self) -> int:
        """Return the numbers or categories that an input has."""
        return len(self.names)

    def conform(self, inputs: Inputs) -> Table:
        """Return ``inputs`` with these columns; the same object if it has them so already."""
        if not isinstance(inputs, Table):
            raise SchemaError(f"the teachers take a table, the queries are {inputs.schema()}")
        if inputs.names == self.names and _kinds(inputs) == self.numeric:
            return inputs
        return inputs.aligned(self.names, self.numeric)


@dataclass(frozen=True)
class EmbeddingSchema:
    """Embeddings by one encoder."""

    line: str

    @property
    def cells(self) -> int:
        """Return the numbers that an input has."""
        return Schema.parse(self.line).width

    def conform(self, inputs: Inputs) -> Embeddings:
        """Return ``inputs`` if they are embeddings of this kind."""
        if not isinstance(inputs, Embeddings) or inputs.schema() != self.line:
            raise SchemaError(f"the teachers take {self.line}, the queries are {inputs.schema()}")
        return inputs


class OfRecords:
    """What a party's voters say of the records that they are, or learn from at once."""

    records: Dataset

    @property
    def classes(self) -> tuple[str, ...]:
        """The class list of the data."""
        return self.records.classes

    @property
    def answer(self) -> str:
        """What the records say: ``class``, ``labels`` or ``number``."""
        return self.records.kind

    @property
    def unit(self) -> Literal["record", "patient"]:
        """``patient`` if the data names them, so that what one of them can change is limited."""
        return "record" if self.records.groups is None else "patient"

    @property
    def schema(self) -> str:
        """One line that describes the inputs."""
        return self.records.inputs.schema()


def plainly(inputs: Inputs) -> Inputs:
    """Return inputs as teachers see them; see :meth:`pate.data.values.Table.plain`."""
    return inputs.plain() if isinstance(inputs, Table) else inputs


def schema_of(inputs: Inputs) -> ImageSchema | TableSchema | EmbeddingSchema:
    """Return the schema that ``inputs`` have."""
    if isinstance(inputs, Embeddings):
        return EmbeddingSchema(inputs.schema())
    if isinstance(inputs, Images):
        return ImageSchema(inputs.size)
    return TableSchema(inputs.names, _kinds(inputs))


def _kinds(table: Table) -> tuple[bool, ...]:
    return tuple(is_numeric(column) for column in table.columns)


@dataclass(frozen=True)
class NumberColumn:
    """Encoding of a column of numbers: median and spread of the shard's values."""

    centre: float
    scale: float


@dataclass(frozen=True)
class CategoryColumn:
    """Encoding of a column of categories: those with a feature, possibly "" for missing."""

    vocabulary: tuple[str, ...]


@dataclass(frozen=True)
class TableEncoding:
    """The encoding of a shard's tables."""

    schema: TableSchema
    columns: tuple[NumberColumn | CategoryColumn, ...]

    @classmethod
    def fit(cls, table: Table) -> TableEncoding:
        """Return the encoding of a shard, from only its rows."""
        kinds = tuple(is_numeric(column) for column in table.columns)
        fitted = tuple(
            _fit_numbers(c) if is_numeric(c) else _fit_categories(c.tolist()) for c in table.columns
        )
        return cls(TableSchema(table.names, kinds), fitted)

    def encode(self, inputs: Inputs) -> NDArray[np.float32]:
        """Return (n, d) float32, without NaN."""
        table = self.schema.conform(inputs)
        parts: list[NDArray[np.float32]] = []
        coded = _coded(table)
        for at, (column, how) in enumerate(zip(table.columns, self.columns, strict=True)):
            if isinstance(how, NumberColumn):
                values = column.astype(np.float64)
                missing = np.isnan(values)
                with np.errstate(over="ignore"):  # what overflows is clipped
                    scaled = np.where(missing, 0.0, (values - how.centre) / how.scale)
                scaled = np.clip(scaled, -_FARTHEST, _FARTHEST)
                parts.append(np.stack([scaled, missing], axis=1).astype(np.float32))
            else:
                names, codes = coded[at]
                place = {name: spot for spot, name in enumerate(how.vocabulary)}
                spots = np.array([place.get(name, -1) for name in names], dtype=np.int64)[codes]
                wanted = np.arange(len(how.vocabulary))
                parts.append((spots[:, None] == wanted).astype(np.float32))
        return np.concatenate(parts, axis=1)

    def facts(self) -> dict[str, object]:
        """Return the encoding as JSON values."""
        return {
            "names": list(self.schema.names),
            "columns": [asdict(column) for column in self.columns],
        }

    @classmethod
    def from_facts(cls, facts: object) -> TableEncoding:
        """Return the encoding that :meth:`facts` described."""
        try:
            names, columns = facts["names"], facts["columns"]  # type: ignore[index]
            fitted = tuple(
                NumberColumn(float(c["centre"]), float(c["scale"]))
                if "centre" in c
                else CategoryColumn(tuple(str(name) for name in c["vocabulary"]))
                for c in columns
            )
            kinds = tuple(isinstance(column, NumberColumn) for column in fitted)
            if len(names) != len(fitted):
                raise ValueError(names)
            return cls(TableSchema(tuple(str(name) for name in names), kinds), fitted)
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedTeacherError("its encoding of columns") from error


def _fit_numbers(column: NDArray[np.float64]) -> NumberColumn:
    present = column[~np.isnan(column)]
    if not present.size:
        return NumberColumn(0.0, 1.0)
    largest = float(np.abs(present).max())
    if not largest:
        return NumberColumn(0.0, 1.0)
    # Scaled to [-1, 1] first: the square of a number in a file can overflow.
    tame = present / largest
    spread = float(tame.std())
    # A column that is constant in the shard carries no information, and has spread 0.
    scale = spread * largest if spread > 1e-9 else 1.0
    return NumberColumn(float(np.median(tame)) * largest, scale)


def _fit_categories(cells: list[str]) -> CategoryColumn:
    counted = Counter(cells)
    frequent = sorted(counted, key=lambda name: (-counted[name], name))[:_VOCABULARY]
    return CategoryColumn(tuple(sorted(frequent)))


@functools.lru_cache(maxsize=1)  # teachers read the same batch one after the other
def _coded(table: Table) -> tuple[tuple[list[str], NDArray[np.int64]], ...]:
    """Return, for each column, its distinct texts and each row's place among them."""
    coded: list[tuple[list[str], NDArray[np.int64]]] = []
    for column in table.columns:
        if is_numeric(column):
            coded.append(([], np.empty(0, dtype=np.int64)))
        else:
            names, codes = np.unique(column, return_inverse=True)
            coded.append((names.tolist(), codes.astype(np.int64)))
    return tuple(coded)
