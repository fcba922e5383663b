"""Columns of a party's table that are probably not what they should be: lines for its own screen.

Names of columns only, no cell and no number: what is said here may be passed on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from pate.data.labels import parse_number
from pate.data.values import Table, is_numeric

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from numpy.typing import NDArray

    from pate.data.schema import Schema
    from pate.data.values import Column, Inputs

#: Where this share of the cells differ from one another, a column of text names rows.
_DISTINCT: Final = 0.9
#: Where this share of the cells that are there are numbers, those that are not look like slips.
_MOSTLY: Final = 0.8
#: Of fewer rows none of this is said.
_FEWEST: Final = 20
_NAMED: Final = 8


def warnings(inputs: Inputs, schema: Schema | None, told: Collection[str] = ()) -> list[str]:
    """Return what is odd about the columns.

    Args:
        inputs: the party's records, as they are read.
        schema: what the campaign's inputs are, None if that is not known yet.
        told: columns that are no features here: label, group, and those that were dropped.
    """
    if not isinstance(inputs, Table):
        return []
    known = None if schema is None else schema.numeric
    held = dict(zip(inputs.names, inputs.columns, strict=True))
    empty = [name for name, column in held.items() if _missing(column).all()]
    rows = [name for name, column in held.items() if name not in empty and _names_rows(column)]
    texts = {n: c for n, c in held.items() if n not in empty and not is_numeric(c)}
    slips = [name for name, column in texts.items() if 0 < 1 - _numbers(column) <= 1 - _MOSTLY]
    numbers = [
        name for name, column in texts.items() if known is not None and _numbers(column) == 1
    ]
    absent = [name for name in known or () if name not in held and name not in told]
    found = {
        "without a value: leave such out with --drop": empty,
        "with another value in nearly every row, as an identifier, a date or a note has: leave such out "
        "with --drop or, if it names the patient, give it to --group": rows,
        "of numbers, but for cells that are none (such as <5 or n/a): "
        + (
            "read as text, since the campaign's schema is not known yet"
            if known is None
            else "read as text, as the campaign has it"
        ): slips,
        "of numbers here, read as text as the campaign has it": numbers,
        "of the campaign that we have not: nothing is made of it": absent,
    }
    return [f"{_columns(names)} {what}" for what, names in found.items() if names]


def left_out(names: Sequence[str]) -> str:
    """Return a line about columns that the campaign has not."""
    return f"{_columns(names)} that the campaign has not: left out"


def _missing(column: Column) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = np.isnan(column) if is_numeric(column) else column == ""
    return found


def _names_rows(column: Column) -> bool:
    present = column[~_missing(column)]
    if len(present) < _FEWEST:
        return False
    distinct = len(np.unique(present))
    if is_numeric(column):
        # Measured values differ, too; whole numbers of which none repeats are rather numbers of rows.
        return distinct == len(column) and bool((present == np.floor(present)).all())
    return distinct >= _DISTINCT * len(present)


def _numbers(column: Column) -> float:
    """Return which share of a column's cells are numbers, of few cells 0."""
    present = [str(cell) for cell in column.tolist() if cell != ""]
    if len(present) < _FEWEST:
        return 0.0
    return sum(parse_number(cell) is not None for cell in present) / len(present)


def _columns(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:_NAMED])) + (", …" if len(names) > _NAMED else "")
    return f"column {shown}" if len(names) == 1 else f"columns {shown}"
