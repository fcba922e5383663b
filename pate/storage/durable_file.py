"""A SQLite file with durable, atomic transactions, readable only by its owner."""

from __future__ import annotations

import errno
import os
import sqlite3
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Final

from pate.errors import DiskError, PateError, StateError
from pate.runtime.home import private_directory, sync

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
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


#: Number of the layout of all files of this version, in ``PRAGMA user_version``. A change of any file's
#: tables raises it, so that other versions refuse the file by its name.
LAYOUT: Final = 1
#: Suffixes of SQLite's companion files.
_LEFT: Final = ("-journal", "-wal", "-shm")


class DurableFile:
    """Transactions on one file: what was committed is on the disk (WAL, ``synchronous=FULL``).

    A connection lives as long as its transaction, so any thread may use it. Readers see the last
    commit, and never wait for a writer.
    """

    def __init__(
        self,
        path: Path,  # the file; made with its tables if it is absent, unless ``read_only``
        schema: tuple[str, ...],  # statements that create the tables of an empty file
        application_id: int,
        *,
        damaged: type[PateError] = StateError,  # the error for a damaged or foreign file
        read_only: bool = False,  # open for reading, also while another process writes
        # whether deleted content is overwritten in the file, and not only unlinked
        overwrite: bool = False,
    ) -> None:
        self._overwrite = overwrite
        self.path = path
        self._damaged = damaged
        self._read_only = read_only
        self._id = application_id
        if read_only:
            if not path.is_file():
                raise StateError(f"there is no file {path}: check --home")
            with self.reading():
                return
        private_directory(path.parent)
        with self._translated():
            if not path.exists():
                make_file(
                    path,
                    application_id,
                    lambda db: [db.execute(each) for each in schema],
                    damaged=damaged,
                )
            elif not path.stat().st_size:  # SQLite would treat it as a new database
                raise damaged(f"{path} is damaged: it is empty; restore it from a backup")
            path.chmod(0o600)
        with self.writing():  # refuses a file of another kind or layout
            pass

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One durable transaction: committed when the block ends, undone if it raises."""
        with self._translated(), self._transaction("BEGIN IMMEDIATE") as db:
            yield db

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A consistent view of the committed state."""
        with self._translated(), self._transaction("BEGIN") as db:
            yield db

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        with closing(connect(self.path)) as db:
            make_durable(db, self.path, read_only=self._read_only)
            if self._overwrite:
                db.execute("PRAGMA secure_delete = ON")
            db.execute(begin)
            if db.execute("PRAGMA application_id").fetchone()[0] != self._id:
                raise self._damaged(f"{self.path} is not a file of this kind; move it away")
            # Before any look at the tables: those of another version are not altered ones.
            if (found := db.execute("PRAGMA user_version").fetchone()[0]) != LAYOUT:
                raise StateError(of_another_version(str(self.path), found, LAYOUT))
            try:
                yield db
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise

    def _translated(self) -> AbstractContextManager[None]:
        return translated(self.path, self._damaged)


def of_another_version(what: str, found: int, known: int) -> str:
    """Return the line that refuses a file or a database of another version."""
    age = "a newer" if found > known else "an older"
    return (
        f"{what} was written by {age} version: its layout is {found}, this version reads {known}; "
        "install that version"
    )


def make_file(
    path: Path,  # of the file, which does not exist
    application_id: int,
    fill: Callable[[sqlite3.Connection], object],
    *,
    damaged: type[PateError] = StateError,  # the error for a log without its file
    drafted: Callable[[], object] = lambda: None,
) -> None:
    """Create a file atomically: fill it under another name, then rename it."""
    if (orphan := path.with_name(path.name + "-wal")).exists():
        # SQLite would replay the orphan's pages into the new file.
        raise damaged(f"{orphan} belongs to a missing file; restore that file or remove this one")
    draft = path.with_name(path.name + ".new")
    for leftover in (draft, *(draft.with_name(draft.name + end) for end in _LEFT)):
        leftover.unlink(missing_ok=True)
    os.close(os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    with closing(connect(draft)) as db:
        for pragma in ("synchronous = FULL", "fullfsync = ON", "foreign_keys = ON"):
            db.execute(f"PRAGMA {pragma}")
        db.execute("BEGIN IMMEDIATE")
        db.execute(f"PRAGMA application_id = {application_id}")
        db.execute(f"PRAGMA user_version = {LAYOUT}")
        fill(db)
        db.execute("COMMIT")
    drafted()
    draft.rename(path)
    sync(path.parent)
