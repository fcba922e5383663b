"""A ledger file: created atomically, opened by one process at a time, written durably."""

from __future__ import annotations

import fcntl
import os
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Self

from aggregator_server.ledger.store import tables
from aggregator_server.ledger.store.place import require_closed_folder
from pate.errors import LedgerError, StateError
from pate.runtime.failpoints import reach
from pate.runtime.home import private_directory
from pate.storage.durable_file import DurableFile, make_file
from pate.storage.entries import check_schema
from pate.storage.sqlite import connect, make_durable, translated

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable
    from pathlib import Path

    from pate.storage.entries import Transaction
    from pate.storage.hash_chain import Head


class Lock:
    """An advisory lock on ``<ledger>.lock``, released when the process ends in any way."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(path.name + ".lock")
        with translated(self._path, StateError):
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._file)
            raise StateError(
                f"{path} is in use by another server; stop that one, or choose another --campaign"
            ) from error

    def release(self) -> None:
        """Release the ledger. The lock file stays: removing it would race."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class Database(DurableFile):
    """An open ledger file; with a lock, this process may write it."""

    def __init__(self, path: Path, lock: Lock | None) -> None:
        if not path.is_file():
            raise StateError(f"there is no ledger at {path}")
        self._lock = lock
        self._kept: sqlite3.Connection | None = None
        super().__init__(
            path, (), tables.APPLICATION_ID, damaged=LedgerError, read_only=lock is None
        )
        if lock is not None:
            with self.reading() as db:
                tables.require_layout(db, numbered=True)
            with translated(path, LedgerError), ExitStack() as undone:
                # An open connection avoids checkpointing and recreating the log at each commit.
                link = undone.enter_context(closing(connect(path)))
                make_durable(link, path, read_only=False)
                link.execute("SELECT count(*) FROM entries").fetchone()
                self._kept = link
                undone.pop_all()

    @classmethod
    def create(cls, path: Path, fill: Callable[[Transaction], None]) -> Self:
        """Create a ledger file with the content of ``fill``, and open it.

        After a crash it exists with its first entry or not at all.

        Raises:
            StateError: if it exists, or another process uses it.
            DiskError: if the disk is full or not writable.
        """
        require_closed_folder(private_directory(path.parent))
        lock = Lock(path)
        try:
            write_copy(path, fill)
            return cls(path, lock)
        except BaseException:
            lock.release()
            raise

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open a ledger file for writing.

        Raises:
            StateError: if there is none, another process uses it, or a newer version wrote it.
            LedgerError: if the file is not a ledger.
        """
        if not path.is_file():
            raise StateError(f"there is no ledger at {path}")
        lock = Lock(path)
        try:
            return cls(path, lock)
        except BaseException:
            lock.release()
            raise

    @classmethod
    def examine(cls, path: Path) -> Self:
        """Open a ledger file for reading only, also while a server writes it.

        Raises:
            StateError: if there is none.
        """
        return cls(path, None)

    def check(self, db: Transaction, *, pages: bool = False) -> None:
        """Compare tables and triggers with those of a new ledger, and check the file's pages.

        Raises:
            LedgerError: if one is missing, changed or new, or the file is damaged.
            StateError: if a newer version wrote it.
        """
        tables.require_layout(db, numbered=True)
        check_schema(db, tables.SQLITE)
        for pragma in ("integrity_check", "foreign_key_check") if pages else ():
            said = [str(row[0]) for row in db.execute(f"PRAGMA {pragma}")]
            if said not in (["ok"], []):
                raise LedgerError(f"the file is damaged: {'; '.join(said[:3])}")

    def remember(self, head: Head) -> None:
        """Do nothing: a file has what was committed to it."""

    def newest_known(self) -> Head | None:
        """Return None: no head is noted next to a file."""
        return None

    def could_be_older(self, seq: int) -> bool:  # noqa: ARG002
        """Return False: a file is in the folder itself."""
        return False

    def close(self) -> None:
        """Close the file and release the lock."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None
        if self._lock is not None:
            self._lock.release()


def write_copy(path: Path, fill: Callable[[Transaction], None]) -> None:
    """Create a closed ledger file with the content of ``fill``: one file, without a log.

    Raises:
        StateError: if it exists.
        DiskError: if the disk is full or not writable.
    """
    if path.exists():
        raise StateError(
            f"there is a ledger at {path} already; `pate-server resume` it, or choose another --campaign"
        )

    def made(db: sqlite3.Connection) -> None:
        tables.make(db, tables.SQLITE)
        fill(db)

    with translated(path, LedgerError):
        make_file(path, tables.APPLICATION_ID, made, drafted=lambda: reach("ledger-drafted"))
