"""How a SQLite file of ours is opened so that what is committed is on the disk, and what it may say."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final

from pate.errors import StateError

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

#: Beginnings of SQLite's error names: the disk is full, read-only, failing, or closed to this user.
DISK: Final = ("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")
#: Somebody else holds the file.
IN_USE: Final = ("SQLITE_BUSY", "SQLITE_LOCKED")
#: What the operating system says in the cases of :data:`DISK`.
DISK_ERRNO: Final = frozenset({
    errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.EFBIG,
})  # fmt: skip


def make_durable(link: sqlite3.Connection, path: Path, *, read_only: bool) -> None:
    """Configure a connection: a write-ahead log, and a commit that is on the disk when it returns.

    Args:
        link: to the file, fresh.
        path: of the file, for the message.
        read_only: only look; the file is as another process configured it.

    Raises:
        StateError: if the disk does not support a write-ahead log, as some network disks.
    """
    if read_only:
        link.execute("PRAGMA query_only = ON")
    else:
        (mode,) = link.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":  # SQLite answers with the old mode where it cannot
            raise StateError(f"{path.parent} does not support a write-ahead log; use a local disk")
    for pragma in (
        "synchronous = FULL",
        "fullfsync = ON",  # on macOS plain fsync leaves data in the drive's cache
        "checkpoint_fullfsync = ON",
        "foreign_keys = ON",
        "recursive_triggers = ON",
        "trusted_schema = OFF",
        "cell_size_check = ON",
    ):
        link.execute(f"PRAGMA {pragma}")
