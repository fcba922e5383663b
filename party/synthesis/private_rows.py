"""A party's own table, as a generator takes it: checked against the public schema, row by row."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from party.synthesis.coding import encode
from pate.data.images import entries
from pate.data.read import read_inputs
from pate.data.tables import read_csv, read_parquet
from pate.data.values import Table, content_hash
from pate.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from party.synthesis.domain import Domain
    from pate.data.values import Inputs

_TABLES: Final = (".csv", ".csv.gz", ".parquet")
_DIGEST: Final = b"pate party synthesis data v1\0"
_IMAGES: Final = (
    "{} holds no table (.csv, .csv.gz or .parquet), and only rows of a table can be synthesised: "
    "no private generator of images is good enough at a hospital's size; let images be labelled by "
    "--aggregator neighbour, or take a public set of images that look alike"
)


@dataclass(frozen=True, eq=False)
class PrivateRows:
    """Rows that a release is made of.

    Attributes:
        codes: (n, attributes) codes, one row per unit of privacy.
        content: digest of the table, 32 bytes; secret, since tables can be guessed.
    """

    codes: NDArray[np.intp]
    content: bytes

    def digest(self, key: bytes) -> str:
        """Return a digest that tells this home alone which table it was, hex."""
        return hmac.digest(key, _DIGEST + self.content, hashlib.sha256).hex()


def read_rows(
    path: Path, domain: Domain, *, group: str | None = None, drop: Sequence[str] = ()
) -> PrivateRows:
    """Read a table and check it.

    Args:
        path: a file, or a folder that holds one.
        domain: the public schema.
        group: the column that names the patient of each row; it may not be in the schema.
        drop: columns to leave out; those that it has not are no error.

    Raises:
        DataError: if it holds no table, or one that the schema does not describe; a patient has
            two rows; or there are fewer rows than every party is said to have.
    """
    if path.exists() and not _holds_table(path):
        raise DataError(_IMAGES.format(path))
    if group is not None and path.exists():
        table: Inputs = _one_row_each(path, group, drop)
    else:
        table = read_inputs(path, drop=drop)
    if not isinstance(table, Table):
        raise DataError(_IMAGES.format(path))
    codes = encode(table, domain, str(path))
    if len(codes) < domain.min_rows:
        # Not how many there are: lines like this are collected and kept by many a machine.
        raise DataError(
            f"{path} has fewer rows than min_rows of the schema, {domain.min_rows}, which every "
            "party promises to have; take no part in this, or ask for a schema with a lower one"
        )
    return PrivateRows(codes, content_hash(table))


def _holds_table(path: Path) -> bool:
    return any(map(_is_table, [path] if path.is_file() else path.iterdir()))


def _is_table(file: Path) -> bool:
    return file.name.casefold().endswith(_TABLES)


def _one_row_each(path: Path, group: str, drop: Sequence[str]) -> Table:
    """Return the table without the column ``group``, of which every value occurs once.

    Patients are told apart as they are where records vote: 12 and 12.0 are one, and nan is none.
    """
    files = [each for each in ([path] if path.is_file() else entries(path)) if _is_table(each)]
    if len(files) != 1:
        raise DataError(f"{path} holds {len(files)} tables; give the path of one file")
    (file,) = files
    parquet = file.name.casefold().endswith(".parquet")
    text = read_parquet(file) if parquet else read_csv(file)
    patients = text.column(group, "group")
    at: dict[str, int] = {}
    again = min(
        (first for row, name in enumerate(patients) if (first := at.setdefault(name, row)) < row),
        default=None,
    )
    if again is not None:
        raise DataError(
            f"{path}: the patient of row {again + 1} (column {group}) has several rows, and a "
            "release for patients takes one row each: keep one per patient, such as the last visit, "
            "chosen by a rule that looks at that patient alone"
        )
    return text.table((group, *drop))
