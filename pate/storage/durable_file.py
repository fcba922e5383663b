"""A small SQLite file that is written durably or not at all, for its owner alone."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Final

from pate.errors import DiskError, PateError, StateError
from pate.runtime.home import private_directory, sync_directory
from pate.storage.sqlite import DISK, DISK_ERRNO, IN_USE, make_durable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_WAIT_SECONDS: Final = 30.0


class DurableFile:
    """Transactions on one file: what was committed is on the disk (WAL, ``synchronous=FULL``).

    A connection lives as long as its transaction, so any thread may come.

    Args:
        path: the file; made with its tables if it is absent, unless ``read_only``.
        schema: statements that make the tables of an empty file.
        application_id: what tells this kind of file from others.
        damaged: the error for a file that is not what it should be.
        read_only: only look, also while another process writes.

    Raises:
        DiskError: if it cannot be made or read.
        StateError: if it is absent and only to be looked at, or another process holds it.
    """

    def __init__(
        self,
        path: Path,
        schema: tuple[str, ...],
        application_id: int,
        *,
        damaged: type[PateError] = StateError,
        read_only: bool = False,
    ) -> None:
        self.path = path
        self._damaged = damaged
        self._read_only = read_only
        self._id = application_id
        if read_only:
            if not path.is_file():
                raise StateError(f"there is no file {path}")
            with self.reading():
                return
        private_directory(path.parent)
        with self._translated():
            if not path.exists():
                self._make(schema)
            elif not path.stat().st_size:  # SQLite would take it for a new database
                raise damaged(f"{path} is damaged: it is empty; restore it from a backup")
            path.chmod(0o600)
        with self.writing():
            return

    def _make(self, schema: tuple[str, ...]) -> None:
        """Make the file under another name, and rename it: it has its tables or is not there."""
        path = self.path
        if (orphan := path.with_name(path.name + "-wal")).exists():
            # SQLite would replay the orphan's pages into the new file.
            raise self._damaged(f"{orphan} belongs to a file that is gone; restore or remove it")
        draft = path.with_name(path.name + ".new")
        for leftover in (draft, *(draft.with_name(draft.name + end) for end in ("-wal", "-shm"))):
            leftover.unlink(missing_ok=True)
        os.close(os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        with closing(_connect(draft)) as db:
            db.execute("PRAGMA synchronous = FULL")
            db.execute("BEGIN IMMEDIATE")
            for statement in (f"PRAGMA application_id = {self._id}", *schema):
                db.execute(statement)
            db.execute("COMMIT")
        draft.rename(path)
        sync_directory(path.parent)

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One durable transaction: committed when the block ends, undone if it raises.

        Raises:
            DiskError: if it cannot be made durable.
            StateError: if another process holds the file for too long.
        """
        with self._translated(), self._transaction("BEGIN IMMEDIATE") as db:
            yield db

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """One consistent view of what is committed."""
        with self._translated(), self._transaction("BEGIN") as db:
            yield db

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        with closing(_connect(self.path)) as db:
            make_durable(db, self.path, read_only=self._read_only)
            db.execute(begin)
            self._check_kind(db)
            try:
                yield db
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise
            try:
                db.execute("COMMIT")
            except sqlite3.Error:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise

    def _check_kind(self, db: sqlite3.Connection) -> None:
        if db.execute("PRAGMA application_id").fetchone()[0] != self._id:
            raise self._damaged(f"{self.path} is not a file of this kind; move it away")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn errors of SQLite and of the file system into ours."""
        try:
            yield
        except sqlite3.Error as error:
            name = str(getattr(error, "sqlite_errorname", ""))
            if name.startswith(DISK):
                raise DiskError(f"{self.path} cannot be written ({error}); make room") from error
            if name.startswith(IN_USE):
                raise StateError(f"{self.path} is in use by another process ({error})") from error
            raise self._damaged(f"{self.path} is damaged ({error})") from error
        except OSError as error:
            if error.errno in DISK_ERRNO:
                raise DiskError(f"{self.path}: {error.strerror}") from error
            raise StateError(f"{self.path}: {error.strerror or error}") from error


def _connect(path: Path) -> sqlite3.Connection:
    # No implicit transactions of the driver: BEGIN is ours.
    where = f"{path.absolute().as_uri()}?mode=rw"
    return sqlite3.connect(where, uri=True, timeout=_WAIT_SECONDS, isolation_level=None)
