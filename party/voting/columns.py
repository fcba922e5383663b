"""Description of a party's table for its own screen, with warnings about suspicious columns.

Warnings contain only names of columns, no cell and no number, and may be passed on. The description
contains the form of cells, never their content, and stays on the party's own screen.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.data.cells import PLAIN, may_be_number
from pate.data.labels import look_alike
from pate.data.odd import Problem
from pate.data.values import Table, is_numeric
from pate.printable import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from numpy.typing import NDArray

    from pate.data.odd import Odd
    from pate.data.schema import Schema
    from pate.data.values import Column, Inputs

#: Share of distinct cells from which on a column of text is an identifier.
_DISTINCT: Final = 0.9
#: The same for free text, if half of the cells have two words.
_DISTINCT_TEXT: Final = 0.5
#: Share of numbers among present cells from which on the other cells look like typing errors.
_MOSTLY: Final = 0.8
#: Fewer rows are not judged; of more, only the first ones are read.
_FEWEST: Final = 20
_MOST: Final = 10_000
_NAMED: Final = 8
#: Most columns with their own line, and most characters of a name there.
_LINES: Final = 16
_NAME: Final = 24
_DATE: Final = re.compile(
    r"(\d{4}([-/.])\d\d?\2\d\d?|\d\d?([-/.])\d\d?\3\d{2,4})([ T].*)?", re.ASCII
)
_NUMERIC_DATE: Final = re.compile(r"(19|20)\d\d(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])", re.ASCII)


def warnings(inputs: Inputs, schema: Schema | None, told: Collection[str] = ()) -> list[Problem]:
    """Return warnings about the columns that are not reported elsewhere: ``told`` are."""
    if not isinstance(inputs, Table):
        return []
    known = None if schema is None else schema.numeric
    held = dict(zip(inputs.names, inputs.columns, strict=True))
    empty = [n for n, column in held.items() if n not in told and _missing(column).all()]
    held = {name: column[:_MOST] for name, column in held.items()}
    like: dict[str, list[str]] = {"date": [], "free text": [], "identifier": []}
    for name, column in held.items():
        if (kind := _looks_like(column)) is not None:
            like[kind].append(name)
    texts = {n: c for n, c in held.items() if n not in empty and not is_numeric(c)}
    shares = {name: _numbers(column, _is_number) for name, column in texts.items()}
    separated = [
        n
        for n, column in texts.items()
        if _numbers(column, may_be_number) > shares[n] + 1 - _MOSTLY
    ]
    slips = [name for name, share in shares.items() if _MOSTLY <= share < 1]
    numbers = [name for name, share in shares.items() if known is not None and share == 1]
    absent = [name for name in known or () if name not in held and name not in told]
    drop = "leave such out with --drop"
    has = "read as text, as the campaign has it"
    found = {
        f"without a value that can be read: {drop}": empty,
        f"of dates: {drop}": like["date"],
        f"of free text: {drop}": like["free text"],
        f"with another value in nearly every row, as an identifier has: {drop} or, if it names the "
        "patient, give it to --group": like["identifier"],
        "of numbers with separators of decimals or thousands: say which with --decimal and --thousands": (
            separated
        ),
        "of numbers, but for cells that are none (such as <5), "
        + (
            "read as text, since the campaign's schema is not known yet" if known is None else has
        ): slips,
        f"of numbers here, {has}": numbers,
        "of the campaign that we have not, so nothing is made of it": absent,
    }
    agree = "correct the names or the cells, or agree with the coordinator"
    return [Problem(f"{listed(names)} ", why, agree) for why, names in found.items() if names]


def left_out(names: Sequence[str]) -> Problem:
    """Return the problem of columns that the campaign does not have."""
    return Problem(
        f"{listed(names)} ",
        "that the campaign has not, left out",
        "nothing, if they are meant to be; else correct their names, or agree with the coordinator",
    )


def alike(what: str, names: Collection[str]) -> list[Problem]:
    """Return the problem of each few names of one kind that look like one name."""
    return [
        Problem(
            f"{what} {', '.join(map(repr, some[:_NAMED]))} ",
            "differ by case, spaces or punctuation only",
            "if they are one, write it in one way",
        )
        for some in look_alike(names)
    ]


def described(inputs: Inputs, odd: Odd, *, counts: bool) -> list[str]:
    """Return a line for each column: its kind, the form of its cells, and what is read as missing.

    In a wide table, columns that look like no feature or have missing cells come first, and the
    rest are counted. ``counts``: whether to report how many cells are missing per word, or only the
    words.
    """
    if not isinstance(inputs, Table):
        return []
    rows = []
    for name, column in zip(inputs.names, inputs.columns, strict=True):
        kind = "number" if is_numeric(column) else "category"
        words = {word: n for word, n in odd.missing.get(name, {}).items() if n}
        none = ", ".join(
            (f"{n} " if counts else "") + (repr(word) if word else "empty")
            for word, n in sorted(words.items())
        )
        column = column[:_MOST]  # noqa: PLW2901 - enough to see the form of the cells
        rows.append((name, kind, _form(column) + (f"; missing: {none}" if none else ""), column))
    shown = rows
    if len(rows) > _LINES:
        shown = sorted(
            rows, key=lambda row: _looks_like(row[3]) is None and "missing" not in row[2]
        )
        shown = shown[: _LINES - 1]
    widest = min(_NAME, max(len(name) for name, *_ in shown))
    lines = [f"{_cut(name, widest)}  {kind:<8}  {form}" for name, kind, form, _ in shown]
    return lines if shown is rows else [*lines, f"and {len(rows) - len(shown)} more"]


def _form(column: Column) -> str:
    """Return the form of a column's cells: their length, not their content."""
    present = np.unique(column[~_missing(column)])
    if not len(present):
        return "no value"
    like = _looks_like(column)
    if is_numeric(column):
        texts = [f"{abs(value):.15g}" for value in present.tolist()]
        decimals = max(len(text.partition("e")[0].partition(".")[2]) for text in texts)
        if decimals:
            return f"up to {_many(decimals, 'decimal')}"
        lengths = f"whole numbers of {_span(texts, 'digit')}"
        return f"{like}s? {lengths}" if like else lengths
    lengths = _span(present.tolist(), "character")
    if like is not None:
        return f"{like}{'' if like == 'free text' else 's'}? {lengths}"
    return f"{_many(len(present), 'value')} of {lengths}"


def _span(texts: Sequence[str], what: str) -> str:
    low, high = min(map(len, texts)), max(map(len, texts))
    return _many(high, what) if low == high else f"{low} to {_many(high, what)}"


def _many(count: int, what: str) -> str:
    return f"{count} {what}" + ("" if count == 1 else "s")


def _cut(name: str, width: int) -> str:
    return printable(name, width).ljust(width)


def _missing(column: Column) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = np.isnan(column) if is_numeric(column) else column == ""
    return found


def _looks_like(column: Column) -> str | None:
    """Return ``date``, ``free text`` or ``identifier`` if a column is probably no feature."""
    present = column[~_missing(column)]
    if len(present) < _FEWEST:
        return None
    distinct = len(np.unique(present)) / len(present)
    if is_numeric(column):
        if not bool((present == np.floor(present)).all()):
            return None
        if _share(np.array([f"{value:.15g}" for value in present.tolist()]), _NUMERIC_DATE) == 1:
            return "date"
        # Measured values are distinct, too; distinct whole numbers are more likely row numbers.
        return "identifier" if distinct == 1 and len(present) == len(column) else None
    if _share(column, _DATE) >= _MOSTLY:
        return "date"
    words = np.median([len(str(cell).split()) for cell in present.tolist()])
    if distinct >= _DISTINCT_TEXT and words > 1:
        return "free text"
    return (
        "identifier"
        if distinct >= _DISTINCT and _numbers(column, may_be_number) < _MOSTLY
        else None
    )


def _share(column: Column, pattern: re.Pattern[str]) -> float:
    """Return the share of present cells that match a pattern; 0 for few cells."""
    present = [str(cell) for cell in column.tolist() if cell != ""]
    if len(present) < _FEWEST:
        return 0.0
    return sum(pattern.fullmatch(cell) is not None for cell in present) / len(present)


def _is_number(cell: str) -> bool:
    return PLAIN.number(cell) is not None


def _numbers(column: Column, is_number: Callable[[str], bool]) -> float:
    """Return the share of present cells that are numbers; 0 for few cells."""
    present = [str(cell) for cell in column.tolist() if cell != ""]
    if len(present) < _FEWEST:
        return 0.0
    return sum(map(is_number, present)) / len(present)


def listed(names: Sequence[str]) -> str:
    """Return the names of the first few columns."""
    shown = ", ".join(map(repr, names[:_NAMED])) + (", …" if len(names) > _NAMED else "")
    return f"column {shown}" if len(names) == 1 else f"columns {shown}"
