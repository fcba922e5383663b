"""Tables of Theorem 6+ kept on disk, since building one takes seconds.

A table depends only on public parameters (mu and the orders), so neither a file nor its name
reveals anything about votes. The cache is in the user's cache directory and may be deleted at any
time.

A table that is too low would understate what a campaign costs. So a file is used only if it belongs
to this user, no one else can write to it, the digest at its head matches its content and its
parameters, and the content is a valid table. Any other file is rebuilt and overwritten. A folder
that cannot be read or written costs time, never an error.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import platformdirs

from pate.accounting.arrays import check_orders, check_positive
from pate.accounting.bounds import theorem6_plus
from pate.accounting.bounds.theorem6_plus import Table
from pate.errors import AccountingError, DiskError
from pate.foreign import npz_arrays
from pate.runtime.home import private_directory, write_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike

#: Magic and version of the file layout. :data:`theorem6_plus.VERSION` is that of the values.
_FORMAT: Final = 1
_MAGIC: Final = b"pate table\n"
_DIGEST_BYTES: Final = 32
#: A table of 500 orders has 16 MB.
_LARGEST: Final = 2**28
#: Number of tables kept, the latest ones.
_KEPT: Final = 64


def default_folder() -> Path:
    """Return the default folder of tables: the user's cache directory."""
    return Path(platformdirs.user_cache_dir("pate", appauthor=False)) / "tables"


def cached_table(
    mu: float,  # as for :func:`pate.accounting.bounds.theorem6_plus.rdp`
    orders: ArrayLike,  # (orders,) Renyi orders
    folder: Path | None = None,  # of the tables; default: :func:`default_folder`
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Table:
    """Return the table of Theorem 6+ for ``mu`` and ``orders``, from disk or built now."""
    mu, checked = check_positive(mu, "mu"), check_orders(orders)
    key = _key(mu, checked.tolist())
    folder = default_folder() if folder is None else folder
    path = folder / f"{key.hex()}.table"
    table = _read(path, key)
    if table is None or table.mu != mu or not np.array_equal(table.orders, checked):
        table = Table.build(mu, checked, theorem6_plus.KNOTS, theorem6_plus.TIGHTNESS, progress)
        with contextlib.suppress(DiskError):
            _write(path, key, table)
    return table


def _key(mu: float, orders: list[float]) -> bytes:
    """Return the digest of all parameters of a table."""
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
    """Delete the oldest tables above the limit."""
    with contextlib.suppress(OSError):
        by_age = sorted(folder.glob("*.table"), key=lambda path: path.stat().st_mtime)
        for path in by_age[:-_KEPT]:
            path.unlink(missing_ok=True)


def _read(path: Path, key: bytes) -> Table | None:
    """Return the table in the file, or None if there is no trustworthy one."""
    try:
        content = _own_file(path)
    except OSError:
        return None
    head = len(_MAGIC) + _DIGEST_BYTES
    body = content[head:]
    if content[:head] != _MAGIC + _digest(key, body):
        return None
    # The digest matches, but the bytes may still be no table, or no archive.
    try:
        return Table.from_arrays(npz_arrays(io.BytesIO(body), _LARGEST))
    except (ValueError, AccountingError):
        return None


def _own_file(path: Path) -> bytes:
    """Return the bytes of a regular file that only this user can write."""
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:  # noqa: PTH123  (of a descriptor)
        found = os.fstat(file.fileno())
        own = found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if not (stat.S_ISREG(found.st_mode) and own and found.st_size <= _LARGEST):
            raise PermissionError(f"{path} is not writable by only this user")
        return file.read(_LARGEST + 1)


def _digest(key: bytes, body: bytes) -> bytes:
    return hashlib.sha256(key + body).digest()
