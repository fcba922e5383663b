"""A party's table as codes of the public schema, and codes as a table.

Each cell is coded by itself: one row never changes the code of another. A row that does not fit the
schema is excluded, and so is a patient with several rows: one person's cells decide only about that
person's row, not about the whole release.
"""

from __future__ import annotations

import hashlib
import hmac
import math
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.data.cells import (
    PLAIN,
    Reading,
    is_nothing,
    parse_number,
    plain_category,
    plain_name,
    plain_names,
    plain_truth,
)
from pate.data.files.tables import OF_GROUPS
from pate.data.odd import Odd
from pate.data.read import TABLE_SUFFIXES, is_wanted, read_table
from pate.data.values import Column, Table, content_hash, is_numeric
from pate.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from party.synthesis.schema import Attribute, Domain
    from pate.data.files.tables import TextTable

_DIGEST: Final = b"pate party synthesis data v1\0"
_IMAGES: Final = (
    "{} holds no table (.csv, .tsv or .parquet), and only rows of a table can be synthesised: "
    "no private generator of images is good enough at a hospital's size; let images be labelled by "
    "--aggregator neighbour, or take a public set of images that look alike"
)


@dataclass(frozen=True, eq=False)
class PrivateRows:
    """The rows behind a release, one per unit, and those excluded, for the party's own screen.

    ``content`` is a digest of the table. It is secret, since a table can be guessed and compared.
    """

    codes: NDArray[np.intp]
    content: bytes
    odd: Odd = field(default_factory=Odd)

    def digest(self, key: bytes) -> str:
        """Return a digest by which only this home can identify the table, hex."""
        return hmac.digest(key, _DIGEST + self.content, hashlib.sha256).hex()


def read_rows(
    path: Path,
    domain: Domain,
    *,
    group: str | None = None,
    drop: Sequence[str] = (),
    columns_of_schema: bool = False,
    strict: bool = False,
    reading: Reading = PLAIN,
) -> PrivateRows:
    """Read the table of a file, or of a folder with one, and check it row by row.

    Columns that the schema lacks are an error unless dropped. DataError for fewer than ``min_rows`` rows, or,
    if ``strict``, for the first excluded row.
    """
    if path.exists():
        files = [path] if path.is_file() else path.iterdir()
        if not any(each.name.casefold().endswith(TABLE_SUFFIXES) for each in files):
            raise DataError(_IMAGES.format(path))
    odd = Odd()
    roles = [*filter(None, [group])]
    wanted = partial(is_wanted, roles, drop, domain.names if columns_of_schema else None)
    text = read_table(path, None if strict else odd, reading, wanted=wanted)
    alone = None if group is None else _alone(text, group, strict, odd)
    without = [*drop, *roles]
    # Each cell as text: a column's inferred kind would depend on all of its cells.
    table = text.table(without, as_text=text.columns)
    content = content_hash(replace(text, odd=Odd(), reading=PLAIN).table(without))
    codes = encode(table, domain, str(path), reading, strict=strict)
    fits = (codes >= 0).all(axis=1)
    for row in np.flatnonzero(~fits).tolist():
        name = domain.names[int((codes[row] < 0).argmax())]
        odd.record(f"its cell in column {name!r} is not in the schema", text.place(row))
    codes = codes[fits if alone is None else fits & alone]
    if len(codes) < domain.min_rows:
        # Without the number of records: log lines are often collected and stored.
        raise DataError(
            f"{path} has fewer rows than min_rows of the schema, {domain.min_rows}, which every "
            "party must have; do not take part, or ask for a schema with a lower one"
            + "".join(f"; {each}" for each in odd.of_file[:1])
            + "".join(f"; some rows are excluded: {why}" for why in odd.reasons[:3])
        )
    return PrivateRows(codes, content, odd)


def _alone(text: TextTable, group: str, strict: bool, odd: Odd) -> NDArray[np.bool_]:
    """Return whether each row is its patient's only one; 12 and 12.0 are equal, as for votes."""
    patients = text.column(group, OF_GROUPS)
    rows = Counter(patients)
    alone = np.array([bool(name) and rows[name] == 1 for name in patients], dtype=np.bool_)
    if strict and not alone.all():
        again = next(row for row, name in enumerate(patients) if rows[name] > 1)
        raise DataError(
            f"{text.path}: the patient of row {again + 1} (column {group}) has several rows, and a "
            "release for patients uses one row each: keep one per patient, such as the last visit, "
            "chosen by a rule that looks at that patient only"
        )
    for row in np.flatnonzero(~alone).tolist():
        odd.record(
            "its patient has several rows: keep one, such as the last visit, by a rule that looks at "
            "that patient only"
            if patients[row]
            else "it has no patient",
            text.place(row),
        )
    return alone


# --- from cells to codes -------------------------------------------------------------------------


def encode(
    table: Table, domain: Domain, source: str, reading: Reading = PLAIN, *, strict: bool = True
) -> NDArray[np.intp]:
    """Return (n, attributes) codes of a table, -1 for a cell without one; DataError if ``strict``."""
    columns = _columns(table, domain, source)
    codes = np.empty((len(table), len(domain)), dtype=np.intp)
    for place, attribute in enumerate(domain.attributes):
        codes[:, place], at, cells = _encode(columns[attribute.name], attribute, reading)
        wrong = np.flatnonzero(codes[:, place] < 0)
        if wrong.size and strict:
            row = int(wrong[0])
            why = _why(cells[at[row]], attribute, reading)
            raise DataError(f"{source}: row {row + 1}, column {attribute.name}: {why}")
    return codes


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
    found: list[int | None] = []
    for cell in cells:
        number = reading.number(cell)
        if number is not None and math.isnan(number):
            found.append(attribute.missing)
        elif number is None or not edges[0] <= number <= edges[-1]:
            found.append(None)
        else:
            at = int(np.searchsorted(edges, number, side="right")) - 1
            whole = not attribute.integer or number.is_integer()
            found.append(min(at, len(edges) - 2) if whole else None)
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


# --- from codes to cells -------------------------------------------------------------------------


def decode(codes: NDArray[np.intp], domain: Domain, *, keep_label: bool = True) -> Table:
    """Return the rows of codes, with the label only if kept; of a bin its middle, a public value."""
    domain.check_codes(codes)
    columns = [(at, domain.attributes[at]) for at in domain.written(keep_label=keep_label)]
    cells = (_values(attribute)[codes[:, at]] for at, attribute in columns)
    return Table(tuple(attribute.name for _, attribute in columns), tuple(cells))


def _values(attribute: Attribute) -> Column:
    """Return (codes,) the written form of each code."""
    if attribute.edges is not None:
        values = [] if attribute.missing is None else [math.nan]
        last = len(attribute.edges) - 2
        middles = (
            _middle(low, high, attribute.integer, at == last)
            for at, (low, high) in enumerate(pairwise(attribute.edges))
        )
        return np.array([*middles, *values])
    numbers = [math.nan if code == "" else parse_number(code) for code in attribute.codes]
    # As a reader of the file will parse it: numbers if all are.
    if all(n is not None and not math.isinf(n) for n in numbers):
        return np.array(numbers, dtype=np.float64)
    return np.array(attribute.codes, dtype=np.str_)


def _middle(low: float, high: float, integer: bool, last: bool) -> float:
    if not integer:
        return low + (high - low) / 2
    return float((int(low) + int(high) - (not last)) // 2)
