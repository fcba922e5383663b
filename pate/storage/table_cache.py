"""Tables of Theorem 6+ kept on disk, since building one takes seconds.

A table depends on public parameters alone (mu and the orders), so neither a file nor its name says
anything about votes. Kept under the user's cache directory; it may be deleted at any time.

A table that is too low would understate what a campaign costs. So a file is believed only if it
belongs to this user, nobody else can write to it, the digest at its head is that of its content
and of what was asked for, and the content can be a table. Anything else is built again and written
over. A place that cannot be read or written costs time, never an error.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import stat
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import platformdirs

from pate.accounting.arrays import check_orders, check_positive
from pate.accounting.bounds import theorem6_plus
from pate.accounting.bounds.theorem6_plus import Table
from pate.errors import AccountingError, DiskError
from pate.runtime.home import private_directory, write_file

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

#: Of the layout of the file. What the values mean is :data:`theorem6_plus.VERSION`.
_FORMAT: Final = 1
_MAGIC: Final = b"pate table\n"
_DIGEST_BYTES: Final = 32
#: A table of 500 orders has 16 MB.
_LARGEST: Final = 2**28
#: As many tables are kept, the ones written last.
_KEPT: Final = 64


def default_folder() -> Path:
    """Return where tables are kept unless told otherwise: the user's cache directory."""
    return Path(platformdirs.user_cache_dir("pate", appauthor=False)) / "tables"


def cached_table(mu: float, orders: ArrayLike, folder: Path | None = None) -> Table:
    """Return the table of Theorem 6+ for ``mu`` and ``orders``, from disk or built now.

    Args:
        mu: as for :func:`pate.accounting.bounds.theorem6_plus.rdp`.
        orders: (orders,) Renyi orders.
        folder: where tables are kept; :func:`default_folder` if left out.

    Raises:
        AccountingError: for a mu or an order that makes no sense.
    """
    mu, checked = check_positive(mu, "mu"), check_orders(orders)
    key = _key(mu, checked.tolist())
    folder = default_folder() if folder is None else folder
    path = folder / f"{key.hex()}.table"
    table = _read(path, key)
    if table is None or table.mu != mu or not np.array_equal(table.orders, checked):
        table = Table.build(mu, checked, theorem6_plus.KNOTS, theorem6_plus.TIGHTNESS)
        with contextlib.suppress(DiskError):
            _write(path, key, table)
    return table


def _key(mu: float, orders: list[float]) -> bytes:
    """Return the digest of all that the values of a table depend on."""
    asked = {
        "format": _FORMAT,
        "bound": f"theorem 6+, {theorem6_plus.VERSION}",
        "knots": theorem6_plus.KNOTS,
        "tightness": theorem6_plus.TIGHTNESS.hex(),
        "mu": mu.hex(),
        "orders": [order.hex() for order in orders],
    }
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).digest()


def _write(path: Path, key: bytes, table: Table) -> None:
    content = io.BytesIO()
    np.savez(content, allow_pickle=False, **table.to_arrays())
    body = content.getvalue()
    private_directory(path.parent)
    write_file(path, _MAGIC + _digest(key, body) + body)
    _drop_old(path.parent)


def _drop_old(folder: Path) -> None:
    """Delete the oldest tables beyond those that are kept."""
    with contextlib.suppress(OSError):
        by_age = sorted(folder.glob("*.table"), key=lambda path: path.stat().st_mtime)
        for path in by_age[:-_KEPT]:
            path.unlink(missing_ok=True)


def _read(path: Path, key: bytes) -> Table | None:
    """Return the table in the file, or None if there is none that can be believed."""
    try:
        content = _own_file(path)
    except OSError:
        return None
    head = len(_MAGIC) + _DIGEST_BYTES
    body = content[head:]
    if content[:head] != _MAGIC + _digest(key, body):
        return None
    # These are bytes that somebody wrote with care; they may yet be no table, or no archive.
    try:
        with np.load(io.BytesIO(body), allow_pickle=False) as arrays:
            return Table.from_arrays({name: arrays[name] for name in arrays.files})
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, zlib.error, AccountingError):
        return None


def _own_file(path: Path) -> bytes:
    """Return the bytes of a plain file of this user's, to which nobody else can write.

    Raises:
        OSError: if it is not there, or is something else.
    """
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:  # noqa: PTH123  (of a descriptor)
        found = os.fstat(file.fileno())
        own = found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if not (stat.S_ISREG(found.st_mode) and own and found.st_size <= _LARGEST):
            raise PermissionError(f"{path} is not a file of this user's alone")
        return file.read(_LARGEST + 1)


def _digest(key: bytes, body: bytes) -> bytes:
    return hashlib.sha256(key + body).digest()
