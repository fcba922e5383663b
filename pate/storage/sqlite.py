"""Opening SQLite files with durable commits, and translating their errors."""

from __future__ import annotations

import errno
import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from pate.errors import DiskError, PateError, StateError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: Beginnings of SQLite's error names: the disk is full, read-only, failing, or closed to this user.
_DISK: Final = ("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")
#: Another process has locked the file.
_IN_USE: Final = ("SQLITE_BUSY", "SQLITE_LOCKED")
#: Error numbers of the operating system in the cases of :data:`_DISK`.
_DISK_ERRNO: Final = frozenset({
    errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.EFBIG,
})  # fmt: skip
_WAIT_SECONDS: Final = 30.0


def connect(path: Path) -> sqlite3.Connection:
    """Connect to an existing file; the caller begins transactions."""
    where = f"{path.absolute().as_uri()}?mode=rw"
    return sqlite3.connect(
        where, uri=True, timeout=_WAIT_SECONDS, isolation_level=None, check_same_thread=False
    )


def make_durable(link: sqlite3.Connection, path: Path, *, read_only: bool) -> None:
    """Configure a connection: a write-ahead log, and a commit that is on the disk when it returns.

    ``read_only``: configure nothing; another process configured the file.
    """
    if read_only:
        link.execute("PRAGMA query_only = ON")
    else:
        (mode,) = link.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":  # SQLite answers with the old mode if it cannot
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


@contextmanager
def translated(path: object, damaged: type[PateError]) -> Iterator[None]:
    """Translate errors of SQLite and of the file system on ``path``."""
    try:
        yield
    except sqlite3.Error as error:
        name = str(getattr(error, "sqlite_errorname", ""))
        if name.startswith(_DISK):
            raise DiskError(f"{path} cannot be written ({error}); make room") from error
        if name.startswith(_IN_USE):
            raise StateError(f"{path} is in use by another process ({error})") from error
        raise damaged(f"{path} is damaged ({error})") from error
    except OSError as error:
        if error.errno in _DISK_ERRNO:
            raise DiskError(f"{path}: {error.strerror}; make room") from error
        raise StateError(f"{path}: {error.strerror or error}") from error
