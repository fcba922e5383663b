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
from pate.data.limits import read_whole, require_room
from pate.data.values import Column, Table
from pate.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

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
            DataError: if there is no such column, or a cell of it is missing.
        """
        if name not in self.columns:
            raise DataError(
                f"{self.path} has no {role} column {name!r}; it has: {', '.join(self.columns)}"
            )
        # 12 and 12.0 are one class, and one patient: were they two, a patient could have two teachers.
        cells = plain_names(self.columns[name])
        for row, cell in enumerate(cells):
            if not cell or cell.casefold() == "nan":
                raise DataError(
                    f"{self.path}: record {row + 1} has no value in the {role} column {name!r}; "
                    "fill it in or take the record out"
                )
        return cells

    def table(self, without: Sequence[str]) -> Table:
        """Return the columns that are not in ``without``, as numbers or categories.

        Raises:
            DataError: if no column is left, or a number is infinite.
        """
        names = tuple(name for name in self.columns if name not in without)
        if not names:
            raise DataError(f"{self.path} has no columns besides {', '.join(without)}")
        return Table(names, tuple(self._typed(name) for name in names))

    def _typed(self, name: str) -> Column:
        cells = self.columns[name]
        numbers: dict[str, float] = {"": math.nan}
        for cell in set(cells):
            if cell:
                number = parse_number(cell)
                if number is None:
                    return np.array(cells, dtype=np.str_)
                if math.isinf(number):
                    raise DataError(f"{self.path}: column {name!r} holds {cell}; leave it empty")
                numbers[cell] = number
        return np.array([numbers[cell] for cell in cells], dtype=np.float64)


def read_csv(path: Path) -> TextTable:
    """Return the cells of a CSV file with a header line; comma, semicolon or tab between cells.

    Raises:
        DataError: if it is not UTF-8 text, or a line has another number of cells than the header.
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
        for row in reader:
            if not row:
                continue
            if len(row) != len(names):
                raise DataError(
                    f"{path} line {reader.line_num} has {len(row)} cells, the header {len(names)}; "
                    "the file may be truncated"
                )
            rows.append(row)
    except csv.Error as error:
        raise DataError(
            f"{path} line {reader.line_num}: {error}; the file may be truncated"
        ) from error
    if not rows:
        raise DataError(f"{path} holds no records")
    columns = zip(*rows, strict=True)
    return TextTable(path, {n: _clean(c) for n, c in zip(names, columns, strict=True)})


def read_parquet(path: Path) -> TextTable:
    """Return the cells of a Parquet file of numbers, truth values and text.

    Raises:
        DataError: if it is damaged or truncated, or has a column of another kind.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            groups = range(file.metadata.num_row_groups)
            require_room(path, sum(file.metadata.row_group(at).total_byte_size for at in groups))
            held = file.read()
    except (pa.ArrowException, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise DataError(f"{path} is not a Parquet file or is truncated ({reason})") from error
    if not held.num_rows:
        raise DataError(f"{path} holds no records")
    if len(set(held.column_names)) != held.num_columns:
        raise DataError(f"{path} has columns of the same name: {sorted(held.column_names)}")
    return TextTable(
        path,
        {
            name: _clean(_as_text(path, name, held.column(name).to_pylist()))
            for name in held.column_names
        },
    )


def _as_text(path: Path, name: str, cells: Sequence[object]) -> list[str]:
    texts = []
    for cell in cells:
        if cell is None:
            texts.append("")
        elif isinstance(cell, bool):
            texts.append(str(int(cell)))
        elif isinstance(cell, float):
            texts.append("" if math.isnan(cell) else repr(cell))
        elif isinstance(cell, int | str):
            texts.append(str(cell))
        else:
            raise DataError(
                f"{path}: column {name!r} holds {type(cell).__name__} values; "
                "save it as numbers or text"
            )
    return texts


def _clean(cells: Sequence[str]) -> list[str]:
    stripped = (cell.strip() for cell in cells)
    return ["" if cell in _MISSING else cell for cell in stripped]
