"""Files of synthetic rows: Parquet with their provenance and cost.

A file of rows is a public set. Its metadata contain only values fixed before the data were read: no
number of records, no pass rate, no attempts, no times. Files of several parties with one schema can
be merged into one public set.
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
from pate import exact
from pate.data.files.parquet import read_parquet
from pate.data.values import Table, is_numeric
from pate.errors import DataError, SchemaError
from pate.formats.privacy_statement import in_words

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from party.ledger.synthesis import Synthesis

#: Key of the metadata, and the format of its value.
KEY: Final = b"pate-synthetic-rows"
FORMAT: Final = "pate-synthetic-rows/1"
#: Settings of an entry that state the cost that its file publishes.
PUBLISHED: Final = ("published_epsilon", "published_delta")
#: Limits on metadata and parties.
_MOST_BYTES: Final = 2**20
_MOST_SOURCES: Final = 1000
_DIGEST: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_TEXT: Final = re.compile(r"[ -~]{1,120}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Source:
    """One party's release in a file; DataError for impossible values. ``rows`` may be 0."""

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

    @classmethod
    def of(cls, entry: Synthesis, rows: int) -> Source:
        """Return the source of a release in a file of ``rows`` rows.

        Rows of a paid model are as private as the model, so they state its cost.
        """
        try:
            of_code = version("federated-pate")
        except PackageNotFoundError:
            of_code = "unknown"
        epsilon, delta = (float(entry.settings[name]) for name in PUBLISHED)
        return cls(
            method=entry.method,
            release=entry.release,
            epsilon=epsilon,
            delta=delta,
            unit=entry.unit,
            neighbours=f"add or remove one {entry.unit}",
            version=of_code,
            rows=rows,
        )

    @property
    def in_words(self) -> str:
        """One line for people."""
        what = in_words(self.epsilon, self.delta, self.unit, neighbours=self.neighbours)
        return f"{self.rows} rows by {self.method}, {self.release}: {what}"


@dataclass(frozen=True)
class About:
    """The metadata of a file of rows: digest of the public schema, hex, and one source or more."""

    schema: str
    sources: tuple[Source, ...]

    def __post_init__(self) -> None:
        if not _DIGEST.fullmatch(self.schema):
            raise DataError("an invalid digest of a schema")
        if not 0 < len(self.sources) <= _MOST_SOURCES:
            raise DataError(f"{len(self.sources)} sources, allowed are 1 to {_MOST_SOURCES}")

    def to_json(self) -> bytes:
        """Return its form in the file."""
        fields = {"format": FORMAT, **exact.write(self)}
        return json.dumps(fields, sort_keys=True, allow_nan=False).encode()

    @classmethod
    def from_json(cls, content: bytes) -> About:
        """Return what :meth:`to_json` made; DataError for anything else."""
        what = "the metadata of synthetic rows"
        fields = exact.parse(content, most=_MOST_BYTES, error=DataError, what=what, form=FORMAT)
        return exact.read(cls, fields, error=DataError, what=what)


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
    made = pa.Table.from_arrays(columns, names=list(table.names))
    sink = io.BytesIO()
    pq.write_table(made.replace_schema_metadata({KEY: about.to_json()}), sink)
    return sink.getvalue()


def read(path: Path) -> tuple[Table, About]:
    """Read a file that :func:`to_bytes` made, of this party or another; DataError if it is none."""
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
    """Return the rows of several files of one schema, each row once, in the order of the files.

    A repeated query would cost twice and say nothing new; with noise shares a campaign refuses it.
    """
    files = [(path, *read(path)) for path in paths]
    if not files:
        raise DataError("no file of synthetic rows was given")
    first, table, about = files[0]
    for path, rows, told in files:
        if told.schema != about.schema or set(rows.names) != set(table.names):
            raise SchemaError(f"{path} and {first} are of different schemas, or of other columns")
    numeric = [
        all(is_numeric(rows.columns[rows.names.index(name)]) for _, rows, _ in files)
        for name in table.names
    ]
    aligned = [rows.aligned(table.names, numeric) for _, rows, _ in files]
    columns = zip(*(each.columns for each in aligned), strict=True)
    whole = Table(table.names, tuple(map(np.concatenate, columns)))
    hashes = whole.row_hashes()
    kept: dict[bytes, int] = {}
    sources: list[Source] = []
    start = 0
    for source in (each for _, _, told in files for each in told.sources):
        # Rows of a source are contiguous. One without rows of its own stays: its party paid.
        before, end = len(kept), start + source.rows
        for at in range(start, end):
            kept.setdefault(hashes[at], at)
        sources.append(replace(source, rows=len(kept) - before))
        start = end
    if len(sources) > _MOST_SOURCES:
        raise DataError(f"the files have {len(sources)} sources, more than {_MOST_SOURCES}")
    return whole.take([*kept.values()]), About(about.schema, tuple(sources))
