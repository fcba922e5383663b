"""Parquet files of synthetic rows, with provenance and privacy cost as metadata.

A file is a public set. Its metadata contain only values fixed before the data were read: no number
of records, no pass rate, no attempts, no times. Files of several parties with one schema can be
merged into one public set.
"""

from __future__ import annotations

import io
import json
import re
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Final

import numpy as np

from party.ledger.synthesis import RELEASES, UNITS
from pate import text_form
from pate.data.files.parquet import read_parquet
from pate.data.values import Table, is_numeric
from pate.errors import DataError, SchemaError
from pate.formats.privacy_statement import in_words
from pate.text_form import parse, write

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

#: Key of the metadata, and the format of its value.
KEY: Final = b"pate-synthetic-rows"
FORMAT: Final = "pate-synthetic-rows/1"
#: Limits on metadata and parties.
_MOST_BYTES: Final = 2**20
_MOST_SOURCES: Final = 1000
_DIGEST: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_TEXT: Final = re.compile(r"[ -~]{1,120}", re.ASCII)
_NEIGHBOURS: Final = "add or remove one {}"


@dataclass(frozen=True, kw_only=True)
class Source:
    """One party's release in a file.

    Attributes:
        method: the generator.
        release: seedless or seeded.
        epsilon: of the release.
        delta: of that epsilon; 0 for a pure one.
        unit: record or patient.
        neighbours: the adjacency, in words.
        version: of the code.
        rows: in the file; 0 if other sources have all of them; its cost is stated anyway.

    Raises:
        DataError: for impossible values.
    """

    method: str
    release: str
    epsilon: float
    delta: float
    unit: str
    neighbours: str
    version: str
    rows: int

    def __post_init__(self) -> None:
        texts = (self.method, self.version, self.neighbours)
        fine = (
            all(map(_TEXT.fullmatch, texts))
            and self.release in RELEASES
            and self.unit in UNITS
            and self.rows >= 0
            and all(0 <= figure < float("inf") for figure in (self.epsilon, self.delta))
        )
        if not fine:
            raise DataError("the metadata of synthetic rows have an impossible source")

    @property
    def in_words(self) -> str:
        """One line for people."""
        what = in_words(self.epsilon, self.delta, self.unit, neighbours=self.neighbours)
        return f"{self.rows} rows by {self.method}, {self.release}: {what}"


@dataclass(frozen=True)
class About:
    """The metadata of a file of synthetic rows.

    Attributes:
        schema: digest of the public schema, hex.
        sources: one or more.

    Raises:
        DataError: for impossible values.
    """

    schema: str
    sources: tuple[Source, ...]

    def __post_init__(self) -> None:
        if not _DIGEST.fullmatch(self.schema):
            raise DataError("an invalid digest of a schema")
        if not 0 < len(self.sources) <= _MOST_SOURCES:
            raise DataError(f"{len(self.sources)} sources, allowed are 1 to {_MOST_SOURCES}")

    def to_json(self) -> bytes:
        """Return its form in the file."""
        return json.dumps(
            {"format": FORMAT, **write(self)}, sort_keys=True, allow_nan=False
        ).encode()

    @classmethod
    def from_json(cls, content: bytes) -> About:
        """Return what :meth:`to_json` made.

        Raises:
            DataError: for anything else.
        """
        what = "the metadata of synthetic rows"
        fields = parse(content, most=_MOST_BYTES, error=DataError, what=what, form=FORMAT)
        return text_form.read(cls, fields, error=DataError, what=what)


def neighbours_of(unit: str) -> str:
    """Return the adjacency, in words."""
    return _NEIGHBOURS.format(unit)


def code_version() -> str:
    """Return the version of this project for the metadata."""
    try:
        return version("federated-pate")
    except PackageNotFoundError:
        return "unknown"


def _holds_numbers(table: Table, name: str) -> bool:
    return is_numeric(table.columns[table.names.index(name)])


def to_bytes(table: Table, about: About) -> bytes:
    """Return a file of these rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = [
        pa.array(column, mask=np.isnan(column))
        if is_numeric(column)
        else pa.array([cell or None for cell in column.tolist()], type=pa.string())
        for column in table.columns
    ]
    read_files = pa.Table.from_arrays(columns, names=list(table.names))
    sink = io.BytesIO()
    pq.write_table(read_files.replace_schema_metadata({KEY: about.to_json()}), sink)
    return sink.getvalue()


def read(path: Path) -> tuple[Table, About]:
    """Read a file that :func:`to_bytes` made, of this party or another.

    Raises:
        DataError: if it is not such a file, or damaged.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.is_file():
        raise DataError(f"there is no file {path}; check the path")
    try:
        with pq.ParquetFile(path) as file:
            schema, claimed = file.schema_arrow, file.metadata.num_rows
    except (pa.ArrowException, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise DataError(f"{path} is not a Parquet file or is truncated ({reason})") from error
    kept = schema.metadata or {}
    if KEY not in kept:
        raise DataError(f"{path} has no metadata of synthetic rows and their cost")
    try:
        about = About.from_json(kept[KEY])
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_null)
    numbers = {field.name for field in schema if any(is_of(field.type) for is_of in kinds)}
    # Checked before reading: a file of some kilobytes may contain very many rows.
    if claimed != sum(each.rows for each in about.sources):
        raise DataError(f"{path} does not have the stated number of rows; is it truncated?")
    # Text as stored: codes may look like numbers.
    text = read_parquet(path)
    return text.table((), as_text=text.columns.keys() - numbers), about


def merge(paths: Sequence[Path]) -> tuple[Table, About]:
    """Return the rows of several files, each row once, in the order of the files.

    Raises:
        DataError: if a file cannot be used, or none was given.
        SchemaError: if they are of different schemas, or have different columns.
    """
    read_files = [(path, *read(path)) for path in paths]
    if not read_files:
        raise DataError("no file of synthetic rows was given")
    first, table, about = read_files[0]
    for path, rows, told in read_files:
        if told.schema != about.schema or set(rows.names) != set(table.names):
            raise SchemaError(f"{path} and {first} are of different schemas, or of other columns")
    numeric = [all(_holds_numbers(rows, name) for _, rows, _ in read_files) for name in table.names]
    sources: list[Source] = []
    tables: list[Table] = []
    seen: set[bytes] = set()
    for _, rows, told in read_files:
        same = rows.aligned(table.names, numeric)
        tables.append(same)
        hashes = same.row_hashes()
        left = len(hashes)
        for source in told.sources:
            # Rows of a source are contiguous.
            start = len(hashes) - left
            fresh = set(hashes[start : start + source.rows]) - seen
            left -= source.rows
            seen |= fresh
            # A source without rows of its own is kept: its party paid.
            sources.append(replace(source, rows=len(fresh)))
    if len(sources) > _MOST_SOURCES:
        raise DataError(f"the files have {len(sources)} sources, more than {_MOST_SOURCES}")
    whole = Table(
        table.names,
        tuple(
            np.concatenate([each.columns[at] for each in tables]) for at in range(len(table.names))
        ),
    )
    return whole.take(first_of_each(whole)), About(about.schema, tuple(sources))


def first_of_each(table: Table) -> list[int]:
    """Return the first index of each distinct row.

    A repeated query costs twice and is not informative; with noise shares a campaign refuses it.
    """
    found: dict[bytes, int] = {}
    for at, row in enumerate(table.row_hashes()):
        found.setdefault(row, at)
    return list(found.values())
