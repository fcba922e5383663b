"""Tables from Parquet files: each cell as the text that a CSV file of the same table would have."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pate.data.cells import PLAIN, Reading, cell_text, float_text
from pate.data.files.images import entries
from pate.data.files.tables import TextTable, clean, column_names, is_named
from pate.data.limits import CELL_BYTES, MAX_BYTES, require_room
from pate.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa
    import pyarrow.parquet as pq

    from pate.data.odd import Odd

#: How the names of files that Spark writes begin, and how many a message names.
_PART: Final = re.compile(r"part-[0-9]+", re.ASCII)
_SHOWN: Final = 3
_CONTRADICTION: Final = "is damaged: its numbers of rows contradict each other"


def read_parquet(
    path: Path,
    odd: Odd | None = None,
    *,
    text: str | None = None,
    reading: Reading = PLAIN,
    wanted: Callable[[str], bool] = is_named,
) -> TextTable:
    """Return the cells of a Parquet file of numbers, truth values, text, dates and times.

    A file of some kilobytes may contain billions of cells, or one long text a million times. So its
    rows are counted before any is read, and a repeated text is unpacked once.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            schema, told = file.schema_arrow, file.metadata
        names = dict(zip(schema.names, column_names(path, schema.names), strict=True))
        columns: dict[str, list[str]] = {each: [] for each in names.values() if wanted(each)}
        _check_claims(path, told, len(columns), odd)
        fields = [field for field in schema if names[field.name] in columns]
        for field in fields:
            _check_kind(path, field.name, field.type)
        found = TextTable(
            path, columns, None, odd, text, reading, typed=True, names=tuple(names.values())
        )
        held = 0
        for part in _parts(path, told, fields) if fields else ():
            held += CELL_BYTES * part.num_rows * part.num_columns
            for written, column in zip(part.schema.names, part.columns, strict=True):
                if (name := names[written]) in columns:  # with "a" Arrow also reads "a.b"
                    columns[name] += _cells(found, name, column, held, len(columns[name]))
                    held += _bytes_of_texts(column)
            require_room(path, held)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = str(error).partition("\n")[0]
        raise DataError(f"{path} is not a Parquet file, or is damaged ({reason})") from error
    return found


def require_no_parts(folder: Path) -> None:
    """Refuse a table in parts, which are files as Spark writes them, or folders by the value of a column."""
    parts = [
        path.name
        for path in entries(folder)
        if _PART.match(path.name) or ("=" in path.name and path.is_dir())
    ]
    if parts:
        names = ", ".join(parts[:_SHOWN]) + (", …" if len(parts) > _SHOWN else "")
        raise DataError(
            f"{folder} holds one table in parts ({names}): join them, in Spark by coalesce(1), or Parquet "
            'files by python -c "import pyarrow.parquet as p; '
            "p.write_table(p.read_table('FOLDER'), 'table.parquet')\""
        )


def _check_claims(path: Path, told: pq.FileMetaData, columns: int, odd: Odd | None) -> None:
    """Check the stated size of a Parquet file before unpacking anything."""
    groups = [told.row_group(at) for at in range(told.num_row_groups)]
    rows = sum(group.num_rows for group in groups)
    if rows != told.num_rows or any(group.num_rows < 0 for group in groups):
        raise DataError(f"{path} {_CONTRADICTION}")
    if rows < 1 and odd is None:
        raise DataError(f"{path} holds no records")
    require_room(path, rows * columns * CELL_BYTES)
    require_room(path, sum(group.total_byte_size for group in groups))


def _parts(
    path: Path, told: pq.FileMetaData, fields: Sequence[pa.Field]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of each group, in one part or a few, texts as places in a dictionary.

    No column is read further than its group has rows, whatever number of values it states. Neither that
    number nor a column's encodings are looked at: for some damage Arrow ends the process where a column's
    metadata is asked for, and only refuses the file where its cells are.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = [field.name for field in fields]
    texts = [field.name for field in fields if _is_text(field.type) or _is_bytes(field.type)]
    with (
        pq.ParquetFile(path, read_dictionary=texts, page_checksum_verification=True) as file,
        pq.ParquetFile(path, page_checksum_verification=True) as plain,
    ):
        for group in range(told.num_row_groups):
            rows, size = told.row_group(group).num_rows, told.row_group(group).total_byte_size
            if not rows:
                continue
            try:
                yield from list(_all(path, rows, file.iter_batches(rows, [group], names)))
            except (pa.ArrowException, OSError):
                # Some encodings of texts are unpacked to plain ones only, each of up to the group's size:
                # a few rows at a time. A damaged group is refused here again.
                few = min(rows, max(1, MAX_BYTES // max(1, size)))
                parts = _all(path, rows, plain.iter_batches(few, [group], names))
                yield from map(_with_dictionaries, parts)


def _all(path: Path, rows: int, parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield parts that together have ``rows`` rows."""
    for part in parts:
        rows -= part.num_rows
        if rows < 0:
            break
        yield part
    if rows:
        raise DataError(f"{path} {_CONTRADICTION}")


def _with_dictionaries(part: pa.RecordBatch) -> pa.RecordBatch:
    import pyarrow as pa

    columns = [
        column.dictionary_encode() if _is_text(column.type) or _is_bytes(column.type) else column
        for column in part.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=part.schema.names)


def _check_kind(path: Path, name: str, kind: pa.DataType) -> None:
    import pyarrow.types as kinds

    plain = kind.value_type if kinds.is_dictionary(kind) else kind
    numbers = (
        kinds.is_boolean,
        kinds.is_integer,
        kinds.is_floating,
        kinds.is_null,
        kinds.is_decimal,
    )
    if not any(is_of(plain) for is_of in (*numbers, _is_time, _is_bytes, _is_text)):
        raise DataError(
            f"{path}: column {name!r} holds {plain} values; save it as numbers or text, or leave it out"
        )


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow.types as kinds

    of_text = (kinds.is_string, kinds.is_large_string, kinds.is_string_view)
    return any(is_of(kind) for is_of in of_text)


def _is_bytes(kind: pa.DataType) -> bool:
    """Return whether a column has type bytes: one such cell changes a text column to it."""
    import pyarrow.types as kinds

    return bool(kinds.is_binary(kind) or kinds.is_large_binary(kind))


def _is_time(kind: pa.DataType) -> bool:
    """Return whether a column has dates or times: one cell of text turns all of them into text."""
    import pyarrow.types as kinds

    return bool(kinds.is_date(kind) or kinds.is_timestamp(kind) or kinds.is_time(kind))


def _bytes_of_texts(chunk: pa.Array) -> int:
    import pyarrow as pa

    return int(chunk.dictionary.nbytes) if isinstance(chunk, pa.DictionaryArray) else 0


def _cells(table: TextTable, name: str, chunk: pa.Array, held: int, first: int) -> list[str]:
    """Return the cells of a part of a column, from row ``first`` on; ``held`` bytes were unpacked before."""
    import pyarrow as pa

    # A long text that is not UTF-8 is refused by its own reader, which names the record.
    lenient = table.odd is not None or name == table.text
    if not isinstance(chunk, pa.DictionaryArray):
        return clean(table, name, _as_text(chunk, lenient), first)
    require_room(table.path, held + _bytes_of_texts(chunk))
    # Equal cells share one string.
    distinct = [*_as_text(chunk.dictionary, lenient), ""]
    cells = [distinct[-1 if at is None else at] for at in chunk.indices.to_pylist()]
    return clean(table, name, cells, first)


def _as_text(cells: pa.Array, replace: bool) -> list[str]:
    import pyarrow as pa

    if _is_time(cells.type):
        # By text; a column of times writes as many decimals for each as the finest has.
        cells = cells.cast(pa.string())
        return [
            "" if cell is None else cell.rstrip("0").rstrip(".") if "." in cell else cell
            for cell in cells.to_pylist()
        ]
    if _is_bytes(cells.type):
        errors = "surrogateescape" if replace else "strict"
        return ["" if cell is None else cell.decode(errors=errors) for cell in cells.to_pylist()]
    if replace and _is_text(cells.type):
        binary = pa.large_binary() if pa.types.is_large_string(cells.type) else pa.binary()
        return [
            "" if cell is None else cell.decode(errors="surrogateescape")
            for cell in cells.cast(binary).to_pylist()
        ]
    if pa.types.is_floating(cells.type):
        # As numbers of their own type, whose text is shorter than that of a Python float.
        return list(map(float_text, cells.to_numpy(zero_copy_only=False)))
    return [cell_text(cell) or "" for cell in cells.to_pylist()]
