"""A party's own table for a generator, checked against the public schema row by row."""

from __future__ import annotations

import hashlib
import hmac
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from party.synthesis.table.coding import encode, encode_fitting
from pate.data.cells import PLAIN, Reading
from pate.data.odd import Odd
from pate.data.read import TABLE_SUFFIXES, is_wanted, read_table
from pate.data.values import content_hash
from pate.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from party.synthesis.table.domain import Domain
    from pate.data.files.tables import TextTable

_DIGEST: Final = b"pate party synthesis data v1\0"
_IMAGES: Final = (
    "{} holds no table (.csv, .tsv or .parquet), and only rows of a table can be synthesised: "
    "no private generator of images is good enough at a hospital's size; let images be labelled by "
    "--aggregator neighbour, or take a public set of images that look alike"
)


@dataclass(frozen=True, eq=False)
class PrivateRows:
    """The rows behind a release.

    Attributes:
        codes: (n, attributes) codes, one row per unit of privacy.
        content: digest of the table, 32 bytes; secret, since tables can be guessed.
        odd: the excluded rows, for the party's own screen.
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
    """Read a table and check it row by row.

    A row that does not fit the schema is excluded, and so is a patient with several rows: one
    person's cells decide only about that person's row, not about the whole release.

    Args:
        path: a file, or a folder with one.
        domain: the public schema.
        group: the column that names the patient of each row; it may not be in the schema.
        drop: columns to leave out; absent ones are no error.
        columns_of_schema: whether columns that the schema does not have are left out, too.
        strict: whether such a row is an error.
        reading: how the file writes its cells.

    Raises:
        DataError: if there is no table with the schema's columns; it has fewer than ``min_rows``
            rows; or, if ``strict``, for the first excluded row.
    """
    if path.exists() and not _holds_table(path):
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
    if strict:
        codes = encode(table, domain, str(path), reading)
    else:
        codes, kept = encode_fitting(table, domain, str(path), odd, text.place, reading)
        codes = codes if alone is None else codes[alone[kept]]
    if len(codes) < domain.min_rows:
        # Without the number of records: log lines are often collected and stored.
        raise DataError(
            f"{path} has fewer rows than min_rows of the schema, {domain.min_rows}, which every "
            "party must have; do not take part, or ask for a schema with a lower one"
            + "".join(f"; {each}" for each in odd.of_file[:1])
            + "".join(f"; some rows are excluded: {why}" for why in odd.reasons[:3])
        )
    return PrivateRows(codes, content, odd)


def _holds_table(path: Path) -> bool:
    return any(map(_is_table, [path] if path.is_file() else path.iterdir()))


def _is_table(file: Path) -> bool:
    return file.name.casefold().endswith(TABLE_SUFFIXES)


def _alone(text: TextTable, group: str, strict: bool, odd: Odd) -> NDArray[np.bool_]:
    """Return whether each row is the only one of its patient.

    Patients are identified as for neighbour votes: 12 and 12.0 are equal, and nan is missing.
    """
    patients = text.column(group, "group")
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
