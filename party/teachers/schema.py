"""The kind of inputs that a teacher takes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pate.data.embeddings import Embeddings
from pate.data.schema import Schema
from pate.data.values import Images, Table, is_numeric
from pate.errors import SchemaError

if TYPE_CHECKING:
    from typing import Literal

    from pate.data.values import Dataset, Inputs


@dataclass(frozen=True)
class ImageSchema:
    """Images of one size.

    Attributes:
        size: height, width, channels.
    """

    size: tuple[int, int, int]

    @property
    def cells(self) -> int:
        """Return the numbers that an input has."""
        return math.prod(self.size)

    def conform(self, inputs: Inputs) -> Images:
        """Return ``inputs`` if they are images of this size.

        Raises:
            SchemaError: if they are not.
        """
        if not isinstance(inputs, Images) or inputs.size != self.size:
            wanted = "images {}x{}x{}".format(*self.size)
            raise SchemaError(f"the teachers take {wanted}, the queries are {inputs.schema()}")
        return inputs


@dataclass(frozen=True)
class TableSchema:
    """Rows of named columns.

    Attributes:
        names: the columns, in order.
        numeric: for each, whether it holds numbers.
    """

    names: tuple[str, ...]
    numeric: tuple[bool, ...]

    @property
    def cells(self) -> int:
        """Return the numbers or categories that an input has."""
        return len(self.names)

    def conform(self, inputs: Inputs) -> Table:
        """Return ``inputs`` with these columns; the same object if it has them so already.

        Raises:
            SchemaError: if they are no table, a column is missing, or its cells do not parse.
        """
        if not isinstance(inputs, Table):
            raise SchemaError(f"the teachers take a table, the queries are {inputs.schema()}")
        if inputs.names == self.names and _kinds(inputs) == self.numeric:
            return inputs
        return inputs.aligned(self.names, self.numeric)


@dataclass(frozen=True)
class EmbeddingSchema:
    """Embeddings by one encoder.

    Attributes:
        line: of :meth:`pate.data.embeddings.Embeddings.schema`.
    """

    line: str

    @property
    def cells(self) -> int:
        """Return the numbers that an input has."""
        return Schema.parse(self.line).width

    def conform(self, inputs: Inputs) -> Embeddings:
        """Return ``inputs`` if they are embeddings of this kind.

        Raises:
            SchemaError: if they are not.
        """
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


def schema_of(inputs: Inputs) -> ImageSchema | TableSchema | EmbeddingSchema:
    """Return the schema that ``inputs`` have."""
    if isinstance(inputs, Embeddings):
        return EmbeddingSchema(inputs.schema())
    if isinstance(inputs, Images):
        return ImageSchema(inputs.size)
    return TableSchema(inputs.names, _kinds(inputs))


def _kinds(table: Table) -> tuple[bool, ...]:
    return tuple(is_numeric(column) for column in table.columns)
