"""Tables from JSON lines: one object a line, its cells as a CSV file of the same table would have them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pate.data.cells import PLAIN, Reading
from pate.data.files.tables import TextTable, clean
from pate.data.labels import clean_name, float_text
from pate.data.limits import CELL_BYTES, MAX_BYTES, read_whole, require_room
from pate.errors import DataError
from pate.foreign import json_value

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pate.data.odd import Odd

#: Most bytes of one line: a text of 100,000 characters, each written as \\uXXXX, and other cells.
_LONGEST_LINE: Final = 1 << 20


def read_json_lines(
    path: Path,
    wanted: Sequence[str],
    odd: Odd | None,
    *,
    text: str | None = None,
    reading: Reading = PLAIN,
) -> TextTable:
    """Return the ``wanted`` keys of a file of JSON objects, one a line.

    A record that lacks a key has a missing cell there. ``odd`` collects lines that are no object, and cells
    that are a list or an object. ``text`` is the key of long texts.
    """
    wanted = tuple(dict.fromkeys(map(clean_name, wanted)))
    columns: dict[str, list[str]] = {name: [] for name in wanted}
    numbers: list[int] = []
    table = TextTable(path, columns, numbers, odd, text, reading, typed=True)
    seen: set[str] = set()
    most = MAX_BYTES // (CELL_BYTES * max(1, len(wanted)))
    for at, line in enumerate(read_whole(path).removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if not line.strip():
            continue
        held, why = _object(line)
        if held is None:
            if odd is None:
                raise DataError(f"{path} line {at} {why}; a line has one JSON object, in UTF-8")
            odd.record(f"the line {why}", f"line {at}")
            continue
        if len(numbers) == most:
            require_room(path, (most + 1) * CELL_BYTES * len(wanted))
        numbers.append(at)
        held = {clean_name(name): value for name, value in held.items()}
        seen.update(name for name in wanted if name in held)
        for name in wanted:
            cell = _cell(held.get(name))
            if cell is None:
                if odd is None:
                    raise DataError(f"{path} line {at}: {name!r} holds a list or an object")
                odd.cell(name, "is a list or an object", f"line {at}")
            columns[name].append(cell or "")
    if not numbers and not odd:
        raise DataError(f"{path} holds no records")
    if numbers and (missing := [name for name in wanted if name not in seen]):
        raise DataError(f"{path}: no line has {', '.join(map(repr, missing))}")
    for name, cells in columns.items():
        columns[name] = clean(table, name, cells)
    return table


def _object(line: bytes) -> tuple[dict[str, object] | None, str]:
    """Return a line's object, or None and why it has none."""
    if len(line) > _LONGEST_LINE:
        return None, f"has more than {_LONGEST_LINE:,} bytes"
    try:
        held = json_value(line.decode(), parse_constant=lambda _: None)
    except UnicodeDecodeError:
        return None, "is not UTF-8 text"
    except ValueError:
        return None, "is no JSON"
    return (held, "") if isinstance(held, dict) else (None, "is no JSON object")


def _cell(value: object) -> str | None:
    """Return a value as text, "" for null; None for a list or an object."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float):
        return float_text(value)
    return str(value) if isinstance(value, str | int) else None
