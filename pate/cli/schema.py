"""``pate schema draft``: the schema of a table, as far as it follows from public facts.

It is made of a public set or of a codebook, never of a party's records: an edge that is the largest
value there, or a code that one patient has, would be a release of its own.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from pate.data.cells import is_nothing, parse_number, plain_names
from pate.errors import DataError, UsageError
from pate.formats.synthesis_schema import SCHEMA_FORMAT, TODO
from pate.runtime.help import Commands
from pate.runtime.options import of_data, of_output, of_privacy

if TYPE_CHECKING:
    from pate.data.files.tables import TextTable
    from pate.data.values import Column

app = Commands(no_args_is_help=True, help="Draft a schema: what a table's columns may hold.")

#: Approximate number of bins of a number.
_BINS: Final = 10
#: Most codes of an agreed list.
_CODES: Final = 100
_STEPS: Final = (1.0, 2.0, 2.5, 5.0, 10.0)
_KINDS: Final = ("number", "whole", "category")


@app.callback()
def _schema() -> None:
    """Group of commands."""


@app.command()
def draft(
    out: Annotated[Path, of_output(help="The schema to write.", metavar="FILE.json")],
    public: Annotated[
        Path | None, of_data(help="A public table, not a party's own.", metavar="PATH")
    ] = None,
    codebook: Annotated[
        Path | None, of_data(help="A table of columns; its form is below.", metavar="FILE.csv")
    ] = None,
    label: Annotated[
        str | None, of_data(help="The column with the class.", metavar="COLUMN")
    ] = None,
    min_rows: Annotated[
        int | None,
        of_privacy(min=1, help="Rows that each party is known to have.", metavar="ROWS"),
    ] = None,
) -> None:
    """Write a draft of a schema from a public table, or from a codebook.

    A codebook is a CSV file with the columns column, kind (number, whole or category), values (1..100
    or a|b|c) and, if wanted, missing (yes or no).

    What neither of them tells is marked TODO, and `pate-party synthesize` takes the schema only when a
    person has filled it in.
    """
    from pate.data.read import read_inputs, read_table
    from pate.data.values import Table
    from pate.runtime.home import write_file
    from pate.runtime.screen import Screen

    if (public is None) == (codebook is None):
        raise UsageError("name one of --public and --codebook")
    if out.exists():
        raise UsageError(f"{out} is there already: name a new file")
    if codebook is not None:
        columns = _of_codebook(read_table(codebook))
    else:
        inputs = read_inputs(public) if public is not None else None
        if not isinstance(inputs, Table):
            raise DataError(f"{public} is no table")
        columns = [_of_public(*each) for each in zip(inputs.names, inputs.columns, strict=True)]
    names = [str(column["name"]) for column in columns]
    if label is not None and label not in names:
        raise DataError(f"there is no column {label!r}; there are: {', '.join(names)}")
    if min_rows is None:
        rows: object = f"{TODO}: how many rows each party is publicly known to have"
    else:
        rows = min_rows
    head = {"format": SCHEMA_FORMAT, "min_rows": rows, "label": label}
    lines = ",\n".join(f"  {json.dumps(column)}" for column in columns)
    text = f'{json.dumps(head)[:-1]}, "columns": [\n{lines}\n]}}\n'
    write_file(out, text.encode(), mode=0o644)
    screen = Screen("pate")
    screen.say(f"{out}: {len(columns)} columns")
    open_ = [name for name, column in zip(names, columns, strict=True) if _is_open(column)]
    open_ += ["min_rows"] * (min_rows is None)
    if open_:
        screen.say(f"to be filled in by a person: {', '.join(open_)}", "warning")
    if public is not None:
        screen.say(
            "ranges and codes are those of the public table: look at each, for a party's row beyond "
            "them takes no part"
        )


def _is_open(column: dict[str, object]) -> bool:
    return any(isinstance(value, str) and value.startswith(TODO) for value in column.values())


def _of_public(name: str, column: Column) -> dict[str, object]:
    """Return a column of the schema from one of a public table."""
    import numpy as np

    from pate.data.values import is_numeric

    if is_numeric(column):
        present = column[~np.isnan(column)]
        whole = bool(len(present) and (present == np.floor(present)).all())
        made = _number(
            name, (float(present.min()), float(present.max())) if len(present) else None, whole
        )
        some_missing = len(present) < len(column)
    else:
        codes = sorted(set(plain_names(column.tolist())) - {""})
        made = _category(name, codes)
        some_missing = "" in column
    return made | ({"missing": True} if some_missing else {})


def _of_codebook(book: TextTable) -> list[dict[str, object]]:
    """Return the columns that a codebook lists."""
    lacks = [name for name in ("column", "kind", "values") if name not in book.columns]
    if lacks:
        raise DataError(f"{book.path} is no codebook: it has no column {', '.join(lacks)}")
    missing = book.columns.get("missing", [""] * len(book))
    made: list[dict[str, object]] = []
    for row in range(len(book)):
        name, kind, values = (book.columns[each][row] for each in ("column", "kind", "values"))
        where = f"{book.path} {book.place(row)}"
        if not name or name in {column["name"] for column in made}:
            raise DataError(f"{where}: {name!r:.80} is no name, or is there twice")
        if kind not in _KINDS:
            raise DataError(f"{where}: the kind {kind!r:.80} is none of {', '.join(_KINDS)}")
        if kind == "category":
            listed = [code.strip() for code in values.split("|") if code.strip()]
            column = _category(name, list(dict.fromkeys(plain_names(listed))))
        else:
            ends = None if is_nothing(values) else _ends(values, where)
            column = _number(name, ends, kind == "whole")
        if missing[row].casefold() in {"yes", "true", "1"}:
            column["missing"] = True
        made.append(column)
    return made


def _ends(values: str, where: str) -> tuple[float, ...]:
    """Return the numbers of ``1..100`` or ``1|5|20``, in their order."""
    parts = values.split("..") if ".." in values else values.split("|")
    numbers = [parse_number(part.strip()) for part in parts]
    ends = tuple(number for number in numbers if number is not None and math.isfinite(number))
    if len(ends) != len(parts) or len(ends) < 2 or sorted(set(ends)) != list(ends):
        raise DataError(
            f"{where}: {values!r:.80} is no range such as 1..100, and no edges such as 1|5|20"
        )
    return ends


def _number(name: str, ends: tuple[float, ...] | None, whole: bool) -> dict[str, object]:
    """Return a column of numbers: between two ends, or with edges where there are more."""
    edges: object = f"{TODO}: the edges of its bins, from the least to the largest possible value"
    if ends is not None:
        found = _bins(*ends, whole) if len(ends) == 2 else ends
        edges = [int(edge) if float(edge).is_integer() else edge for edge in found]
    return {"name": name, "kind": "number", "integer": whole, "edges": edges}


def _bins(low: float, high: float, whole: bool) -> list[float]:
    """Return round edges of about ten bins that hold both ends.

    >>> _bins(17, 93, True)
    [10, 20, 30, 40, 50, 60, 70, 80, 90, 100]
    >>> _bins(0.05, 0.16, False)
    [0.04, 0.06, 0.08, 0.1, 0.12, 0.14, 0.16]
    """
    span = high - low or max(abs(low), 1.0)
    power = 10.0 ** math.floor(math.log10(span / _BINS))
    step = next(each * power for each in _STEPS if each * power >= span / _BINS * (1 - 1e-9))
    if whole:
        step = max(1.0, float(math.ceil(step)))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    edges = [float(f"{at * step:.12g}") for at in range(first, max(last, first + 1) + 1)]
    return [int(edge) if whole else edge for edge in edges]


def _category(name: str, codes: list[str]) -> dict[str, object]:
    told: object = codes
    if not 0 < len(codes) <= _CODES:
        told = f"{TODO}: its codes; take the column out if it is free text, a date or an identifier"
    return {"name": name, "kind": "category", "codes": told}
