"""Conversion between tables and codes of a domain.

Each cell is coded by itself: one row never changes the code of another.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from pate.data.cells import PLAIN, Reading
from pate.data.labels import (
    is_nothing,
    parse_number,
    plain_category,
    plain_name,
    plain_names,
    plain_truth,
)
from pate.data.values import Column, Table, is_numeric
from pate.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from party.synthesis.table.domain import Attribute, Domain
    from pate.data.odd import Odd


def encode(table: Table, domain: Domain, source: str, reading: Reading = PLAIN) -> NDArray[np.intp]:
    """Return the codes of a table.

    Args:
        table: with exactly the columns of the domain, in any order.
        domain: public.
        source: what the table is called in messages.
        reading: how the file writes its cells.

    Returns:
        (n, attributes) intp.

    Raises:
        DataError: if there is no row, a column is missing or unknown, or a cell has no code; the
            message names the row, counted from 1, and the column.
    """
    columns = _columns(table, domain, source)
    codes = []
    for attribute in domain.attributes:
        found, at, cells = _encode(columns[attribute.name], attribute, reading)
        wrong = np.flatnonzero(found < 0)
        if wrong.size:
            row = int(wrong[0])
            why = _why(cells[at[row]], attribute, reading)
            raise DataError(f"{source}: row {row + 1}, column {attribute.name}: {why}")
        codes.append(found)
    return np.stack(codes, axis=1)


def encode_fitting(
    table: Table,
    domain: Domain,
    source: str,
    odd: Odd,
    place: Callable[[int], str],
    reading: Reading = PLAIN,
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the codes of the rows that fit the schema, and which rows they are.

    Args:
        table: as of :func:`encode`, as the next two.
        domain: see above.
        source: see above.
        odd: collects the other rows.
        place: where in the file a row is.
        reading: as of :func:`encode`.

    Raises:
        DataError: if there is no row, or a column is missing or unknown.
    """
    held = _columns(table, domain, source)
    codes = np.stack([_encode(held[a.name], a, reading)[0] for a in domain.attributes], axis=1)
    fits = (codes >= 0).all(axis=1)
    for row in np.flatnonzero(~fits).tolist():
        name = domain.names[int((codes[row] < 0).argmax())]
        odd.record(f"its cell in column {name!r} is not in the schema", place(row))
    return codes[fits], np.flatnonzero(fits)


def _columns(table: Table, domain: Domain, source: str) -> dict[str, Column]:
    missing = [name for name in domain.names if name not in table.names]
    unknown = [name for name in table.names if name not in domain.names]
    if missing or unknown:
        lacks = f"lacks {_named(missing)} of the schema" if missing else ""
        more = f"has {_named(unknown)} that the schema does not have" if unknown else ""
        raise DataError(
            f"{source} {' and '.join(filter(None, (lacks, more)))}"
            + ("; leave them out with --columns-of-schema, or each with --drop" if unknown else "")
        )
    if not len(table):
        raise DataError(f"{source} holds no records")
    return dict(zip(table.names, table.columns, strict=True))


def _named(names: Sequence[str]) -> str:
    return ("column " if len(names) == 1 else "columns ") + ", ".join(map(repr, names))


def decode(codes: NDArray[np.intp], domain: Domain, without: Sequence[str] = ()) -> Table:
    """Return the rows of codes.

    A number's bin becomes one public value inside it: its middle, rounded down for whole numbers.

    Args:
        codes: (n, attributes) intp.
        domain: public.
        without: columns to leave out.

    Raises:
        DataError: if no column is left.
        SchemaError: if the codes are not of the domain.
    """
    domain.check_codes(codes)
    kept = [(at, a) for at, a in enumerate(domain.attributes) if a.name not in without]
    return Table(tuple(a.name for _, a in kept), tuple(_values(a)[codes[:, at]] for at, a in kept))


def _encode(
    column: Column, attribute: Attribute, reading: Reading
) -> tuple[NDArray[np.intp], NDArray[np.intp], list[str]]:
    """Return the code of each row, -1 for none; and its place in the list of distinct cells."""
    # Few cells are distinct, so each text is processed once.
    if is_numeric(column):
        distinct, at = np.unique(column, return_inverse=True, equal_nan=True)
        cells = ["" if math.isnan(v) else repr(v) for v in distinct.tolist()]
    else:
        texts, at = np.unique(column, return_inverse=True)
        cells = ["" if reading.is_missing(text) else text for text in texts.tolist()]
    codes = [-1 if code is None else code for code in _codes(cells, attribute, reading)]
    return np.array(codes, dtype=np.intp)[at], at, cells


def _codes(cells: list[str], attribute: Attribute, reading: Reading) -> list[int | None]:
    """Return the code of each cell, or None if it has none."""
    # One value has one code, whatever type its column was written as.
    if attribute.edges is None:
        place = {plain_name(code): at for at, code in enumerate(attribute.codes)}
        place |= {code: at for at, code in enumerate(attribute.codes)}
        # A word for no value is a code only where the schema lists it.
        return [place.get(plain_name(cell), place.get(plain_category(cell))) for cell in cells]
    cells = ["" if is_nothing(cell) else plain_truth(cell) for cell in cells]
    edges = np.array(attribute.edges)
    bins = len(edges) - 1
    found: list[int | None] = []
    for cell in cells:
        number = reading.number(cell)
        if number is not None and math.isnan(number):
            found.append(attribute.missing)
            continue
        if number is None or not edges[0] <= number <= edges[-1]:
            found.append(None)
            continue
        at = int(np.searchsorted(edges, number, side="right")) - 1
        whole = not attribute.integer or number.is_integer()
        found.append(min(at, bins - 1) if whole else None)
    return found


def _why(cell: str, attribute: Attribute, reading: Reading) -> str:
    number = None if attribute.edges is None else reading.number(cell)
    if not cell or (number is not None and math.isnan(number)):
        return "no value, but the schema does not allow missing values there"
    if attribute.edges is None:
        return f"{plain_names([cell])[0]!r:.80} is not one of the schema's {len(attribute.codes)} codes"
    if number is None:
        return f"{cell!r:.80} is not a number"
    low, high = attribute.edges[0], attribute.edges[-1]
    if not low <= number <= high:
        return f"{number:.15g} outside {low:.15g}..{high:.15g}"
    return f"{number:.15g} is not a whole number"


def _values(attribute: Attribute) -> Column:
    """Return (codes,) the written form of each code."""
    if attribute.edges is not None:
        values = [] if attribute.missing is None else [math.nan]
        edges = attribute.edges
        return np.array([*(_middle(attribute, at) for at in range(len(edges) - 1)), *values])
    numbers = [math.nan if code == "" else parse_number(code) for code in attribute.codes]
    # As a reader of the file will parse it: numbers if all are.
    if all(n is not None and not math.isinf(n) for n in numbers):
        return np.array(numbers, dtype=np.float64)
    return np.array(attribute.codes, dtype=np.str_)


def _middle(attribute: Attribute, at: int) -> float:
    assert attribute.edges is not None  # noqa: S101 - the caller's case
    low, high = attribute.edges[at : at + 2]
    if not attribute.integer:
        return low + (high - low) / 2
    last = at == len(attribute.edges) - 2
    return float((int(low) + int(high) - (not last)) // 2)
