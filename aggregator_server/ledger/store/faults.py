"""What SQLite and the operating system say, in the words of our error tree."""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sqlalchemy.exc import SQLAlchemyError

from pate.errors import DiskError, LedgerError, StateError
from pate.storage.sqlite import DISK, DISK_ERRNO, IN_USE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn errors of SQLite and of the file system on ``path`` into ours.

    Raises:
        DiskError: the disk is full, read-only, failing, or closed to this user.
        StateError: somebody else holds the file, or it is a folder.
        LedgerError: the file is damaged, or a rule of its tables was broken.
    """
    try:
        yield
    except SQLAlchemyError as error:
        original = getattr(error, "orig", None)
        raise _of_sqlite(
            original if isinstance(original, sqlite3.Error) else error, path
        ) from error
    except sqlite3.Error as error:
        raise _of_sqlite(error, path) from error
    except OSError as error:
        if error.errno in DISK_ERRNO:
            raise DiskError(
                f"{path}: {error.strerror}; make room, then `pate-server resume`"
            ) from error
        raise StateError(f"{path}: {error.strerror or error}") from error


def _of_sqlite(error: Exception, path: Path) -> DiskError | StateError | LedgerError:
    name = str(getattr(error, "sqlite_errorname", ""))
    if name.startswith(DISK):
        return DiskError(f"{path} cannot be written ({error}); free space, then resume")
    if name.startswith(IN_USE):
        return StateError(f"{path} is in use by another process ({error})")
    return LedgerError(f"{path} does not hold: {error}")
