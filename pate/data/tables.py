"""Tables from CSV and Parquet files.

``?`` and empty cells are missing. A column is numbers if every cell that is not missing parses as
one, else categories; both formats follow the same rule.
"""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.data.labels import parse_number, plain_names
from pate.data.limits import CELL_BYTES, MAX_BYTES, MAX_CELL, read_whole, require_room
from pate.data.values import Column, Table
from pate.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    import pyarrow as pa
    import pyarrow.parquet as pq

_MISSING: Final = frozenset({"", "?"})
_SEPARATORS: Final = ",;\t"


@dataclass(frozen=True)
class TextTable:
    """The cells of a file as text, column by column, "" for missing.

    Attributes:
        path: of the file, for messages.
        columns: n cells by column name, in the order of the file.
    """

    path: Path
    columns: dict[str, list[str]]

    def column(self, name: str, role: str) -> list[str]:
        """Return one column's cells.

        Args:
            name: of the column.
            role: what it is wanted for, ``label`` or ``group``, for the message.

        Raises:
            DataError: if there is no such column, a cell of it is missing, or an array of it
                would be too large.
        """
        if name not in self.columns:
            raise DataError(
                f"{self.path} has no {role} column {name!r}; it has: {', '.join(self.columns)}"
            )
        # 12 and 12.0 are one class, and one patient: were they two, a patient could have two teachers.
        cells = plain_names(self.columns[name])
        require_room(self.path, _room(cells))
        for row, cell in enumerate(cells):
            if not cell or cell.casefold() == "nan":
                raise DataError(
                    f"{self.path}: record {row + 1} has no value in the {role} column {name!r}; "
                    "fill it in or take the record out"
                )
        return cells

    def table(self, without: Sequence[str], as_text: Collection[str] = ()) -> Table:
        """Return the columns that are not in ``without``, as numbers or categories.

        Args:
            without: columns to leave out.
            as_text: columns that are categories even if every cell of them is a number.

        Raises:
            DataError: if no column is left, a number is infinite, or arrays of the columns would
                be too large.
        """
        names = tuple(name for name in self.columns if name not in without)
        if not names:
            raise DataError(f"{self.path} has no columns besides {', '.join(without)}")
        made: list[Column] = []
        held = 0
        for name in names:
            made.append(self._text(name, held) if name in as_text else self._typed(name, held))
            held += made[-1].nbytes
        return Table(names, tuple(made))

    def _typed(self, name: str, held: int) -> Column:
        """Return a column; the ones before it take ``held`` bytes."""
        cells = self.columns[name]
        numbers: dict[str, float] = {"": math.nan}
        for cell in set(cells):
            if cell:
                number = parse_number(cell)
                if number is None:
                    return self._text(name, held)
                if math.isinf(number):
                    raise DataError(f"{self.path}: column {name!r} holds {cell}; leave it empty")
                numbers[cell] = number
        return np.array([numbers[cell] for cell in cells], dtype=np.float64)

    def _text(self, name: str, held: int) -> Column:
        cells = self.columns[name]
        require_room(self.path, held + _room(cells))
        return np.array(cells, dtype=np.str_)


def read_csv(path: Path) -> TextTable:
    """Return the cells of a CSV file with a header line; comma, semicolon or tab between cells.

    Raises:
        DataError: if it is not UTF-8 text, or a line has another number of cells than the header,
            or there are more or longer cells than are read.
    """
    try:
        text = read_whole(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8"
        ) from error
    first = text.partition("\n")[0]
    separator = max(_SEPARATORS, key=first.count)
    reader = csv.reader(
        io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=True, strict=True
    )
    try:
        names = [name.strip() for name in next(reader, [])]
        if not all(names) or len(set(names)) != len(names):
            raise DataError(f"{path} needs a header line of distinct column names, got {names}")
        rows: list[list[str]] = []
        most = MAX_BYTES // (CELL_BYTES * len(names)) if names else 0
        for row in reader:
            if not row:
                continue
            if len(row) != len(names):
                raise DataError(
                    f"{path} line {reader.line_num} has {len(row)} cells, the header {len(names)}; "
                    "the file may be truncated"
                )
            if len(rows) == most:
                require_room(path, (most + 1) * CELL_BYTES * len(names))
            rows.append(row)
    except csv.Error as error:
        raise DataError(
            f"{path} line {reader.line_num}: {error}; the file may be truncated"
        ) from error
    if not rows:
        raise DataError(f"{path} holds no records")
    columns = zip(*rows, strict=True)
    return TextTable(path, {n: _clean(path, n, c) for n, c in zip(names, columns, strict=True)})


def read_parquet(path: Path) -> TextTable:
    """Return the cells of a Parquet file of numbers, truth values and text.

    A file of some kilobytes may stand for billions of cells, or for one long text a million times.
    So its rows are counted before any is read, and a text that repeats is unpacked once.

    Raises:
        DataError: if it is damaged or truncated, has a column of another kind, or more or longer
            cells than are read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            _check_claims(path, file.metadata)
            schema = file.schema_arrow
        if len(set(schema.names)) != len(schema.names):
            raise DataError(f"{path} has columns of the same name: {sorted(schema.names)}")
        for field in schema:
            _check_kind(path, field.name, field.type)
        texts = [field.name for field in schema if _is_text(field.type)]
        columns: dict[str, list[str]] = {name: [] for name in schema.names}
        held = 0
        with pq.ParquetFile(path, read_dictionary=texts) as file:
            for group in range(file.metadata.num_row_groups):
                part = file.read_row_group(group)
                held += CELL_BYTES * part.num_rows * part.num_columns
                for name, column in zip(part.column_names, part.columns, strict=True):
                    for chunk in column.chunks:
                        columns[name] += _cells(path, name, chunk, held)
                        held += _bytes_of_texts(chunk)
                require_room(path, held)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = str(error).partition("\n")[0]
        raise DataError(f"{path} is not a Parquet file or is truncated ({reason})") from error
    return TextTable(path, columns)


def _check_claims(path: Path, told: pq.FileMetaData) -> None:
    """Check what a Parquet file says of its size; nothing of it has been unpacked yet."""
    groups = [told.row_group(at) for at in range(told.num_row_groups)]
    rows = sum(group.num_rows for group in groups)
    # A column that is no list has a value per row; a reader believes the column, not the group.
    if rows != told.num_rows or any(
        group.column(at).num_values != group.num_rows
        for group in groups
        for at in range(group.num_columns)
        if told.schema.column(at).max_repetition_level == 0
    ):
        raise DataError(f"{path} is damaged: its numbers of rows contradict each other")
    if rows < 1:
        raise DataError(f"{path} holds no records")
    require_room(path, rows * told.num_columns * CELL_BYTES)
    require_room(path, sum(group.total_byte_size for group in groups))


def _check_kind(path: Path, name: str, kind: pa.DataType) -> None:
    import pyarrow.types as kinds

    plain = kind.value_type if kinds.is_dictionary(kind) else kind
    if not (
        kinds.is_boolean(plain)
        or kinds.is_integer(plain)
        or kinds.is_floating(plain)
        or kinds.is_null(plain)
        or _is_text(plain)
    ):
        raise DataError(f"{path}: column {name!r} holds {plain} values; save it as numbers or text")


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow.types as kinds

    of_text = (kinds.is_string, kinds.is_large_string, kinds.is_string_view)
    return any(is_of(kind) for is_of in of_text)


def _bytes_of_texts(chunk: pa.Array) -> int:
    import pyarrow as pa

    return int(chunk.dictionary.nbytes) if isinstance(chunk, pa.DictionaryArray) else 0


def _cells(path: Path, name: str, chunk: pa.Array, held: int) -> list[str]:
    """Return the cells of a part of a column as text; ``held`` bytes were unpacked before."""
    import pyarrow as pa

    if not isinstance(chunk, pa.DictionaryArray):
        return _clean(path, name, _as_text(chunk.to_pylist()))
    require_room(path, held + _bytes_of_texts(chunk))
    # Cells of one text share it.
    distinct = [*_clean(path, name, _as_text(chunk.dictionary.to_pylist())), ""]
    return [distinct[-1 if at is None else at] for at in chunk.indices.to_pylist()]


def _as_text(cells: Sequence[object]) -> list[str]:
    texts = []
    for cell in cells:
        if cell is None:
            texts.append("")
        elif isinstance(cell, bool):
            texts.append(str(int(cell)))
        elif isinstance(cell, float):
            texts.append("" if math.isnan(cell) else repr(cell))
        else:
            texts.append(str(cell))
    return texts


def _clean(path: Path, name: str, cells: Sequence[str]) -> list[str]:
    """Return cells without spaces around them, "" for missing ones."""
    if max(map(len, cells), default=0) > MAX_CELL:
        raise DataError(
            f"{path}: column {name!r} has a text of more than {MAX_CELL} characters; "
            "take the column out, or shorten its texts"
        )
    stripped = (cell.strip() for cell in cells)
    return ["" if cell in _MISSING else cell for cell in stripped]


def _room(cells: Sequence[str]) -> int:
    """Return the bytes of an array of these texts: each takes as much as the longest."""
    return 4 * max(map(len, cells), default=0) * len(cells)
