"""One ledger file: made whole or not at all, opened by one process at a time, written durably."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Final, Self

from sqlalchemy import create_engine, event
from sqlalchemy.pool import QueuePool

from aggregator_server.ledger.store import layout
from aggregator_server.ledger.store.faults import translated
from aggregator_server.ledger.store.place import require_closed_folder
from pate.errors import StateError
from pate.runtime.failpoints import reach
from pate.storage.sqlite import make_durable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from sqlalchemy import Connection, Engine

    from aggregator_server.ledger.chain import Head

_WAIT_SECONDS: Final = 10.0


class Lock:
    """An advisory lock on ``<ledger>.lock``, gone when the process ends, however it ends."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(path.name + ".lock")
        with translated(self._path):
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._file)
            raise StateError(
                f"{path} is in use by another server; stop that one, or choose another --campaign"
            ) from error

    def release(self) -> None:
        """Let others have the ledger. The lock file stays: removing it would race."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class Database:
    """An open ledger file.

    Every commit is on the disk when it returns (WAL with ``synchronous=FULL``); readers see the
    state as of the last commit and never wait for the writer.

    Attributes:
        path: the SQLite file.
    """

    def __init__(self, path: Path, lock: Lock | None) -> None:
        self.path = path
        self._lock = lock
        self._engine = _engine(path, read_only=lock is None)

    @classmethod
    def create(cls, path: Path, fill: Callable[[Connection], None]) -> Self:
        """Make a ledger file and write into it what ``fill`` writes; then open it.

        It is made under another name and renamed, so that after a crash it is there with its
        first entry or not there at all.

        Raises:
            StateError: if there is one already, or another process is at it.
            DiskError: if the disk is full or not writable.
        """
        with translated(path):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            require_closed_folder(path.parent)
        lock = Lock(path)
        try:
            with translated(path):
                _make(path, fill)
        except BaseException:
            lock.release()
            raise
        return cls(path, lock)

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open a ledger file for writing.

        Raises:
            StateError: if there is none, another process has it, or a newer version wrote it.
            LedgerError: if the file is not a ledger.
        """
        if not path.is_file():
            raise StateError(f"there is no ledger at {path}")
        database = cls(path, Lock(path))
        try:
            with database.writing() as connection:
                layout.ensure(connection)
        except BaseException:
            database.close()
            raise
        return database

    @classmethod
    def examine(cls, path: Path) -> Self:
        """Open a ledger file for reading alone, also while a server writes it.

        Raises:
            StateError: if there is none.
        """
        if not path.is_file():
            raise StateError(f"there is no ledger at {path}")
        return cls(path, None)

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """One durable transaction: committed when the block ends, undone if it raises."""
        with (
            translated(self.path),
            self._engine.connect() as plain,
            plain.execution_options(pate_writer=True) as connection,
            connection.begin(),
        ):
            yield connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """One consistent view of what is committed."""
        with translated(self.path), self._engine.connect() as connection, connection.begin():
            yield connection

    def remember(self, head: Head) -> None:
        """Do nothing: a file holds what was committed to it."""

    def newest_known(self) -> Head | None:
        """Return None: what must be there is not noted beside a file."""
        return None

    def could_be_older(self, seq: int) -> bool:  # noqa: ARG002
        """Return False: a file is in the folder itself, and not elsewhere."""
        return False

    def close(self) -> None:
        """Close the file and give up the lock."""
        self._engine.dispose()
        if self._lock is not None:
            self._lock.release()


def write_copy(path: Path, fill: Callable[[Connection], None]) -> None:
    """Make a ledger file that nobody has open, of what ``fill`` writes: one file, without a log.

    Raises:
        StateError: if there is one already.
        DiskError: if the disk is full or not writable.
    """
    with translated(path):
        _make(path, fill)
        with closing(sqlite3.connect(path, isolation_level=None)) as link:
            link.execute("PRAGMA journal_mode = DELETE")
        _sync(path)


def _make(path: Path, fill: Callable[[Connection], None]) -> None:
    if path.exists():
        raise StateError(
            f"there is a ledger at {path} already; `pate-server resume` it, or choose another --campaign"
        )
    if (wal := path.with_name(path.name + "-wal")).exists():
        # SQLite would replay the orphan's pages into the new file.
        raise StateError(f"{wal} belongs to a ledger that is gone; move it away")
    draft = path.with_name(path.name + ".new")
    for leftover in (draft, *(draft.with_name(draft.name + end) for end in ("-wal", "-shm"))):
        leftover.unlink(missing_ok=True)
    os.close(os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    engine = _engine(draft)
    try:
        with (
            engine.connect() as plain,
            plain.execution_options(pate_writer=True) as connection,
            connection.begin(),
        ):
            connection.exec_driver_sql(f"PRAGMA application_id = {layout.APPLICATION_ID}")
            layout.upgrade(connection)
            fill(connection)
    finally:
        engine.dispose()  # the last connection moves the log into the file and removes it
    if draft.with_name(draft.name + "-wal").exists():
        raise StateError(f"{draft} could not be completed; try again")
    _sync(draft)
    reach("ledger-drafted")
    draft.rename(path)
    _sync(path.parent)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _engine(path: Path, *, read_only: bool = False) -> Engine:
    where = f"{path.absolute().as_uri()}?mode=rw"

    def connect() -> sqlite3.Connection:
        # No implicit transactions of the driver: BEGIN is ours, see below.
        link = sqlite3.connect(
            where, uri=True, timeout=_WAIT_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            make_durable(link, path, read_only=read_only)
        except BaseException:
            link.close()
            raise
        return link

    engine = create_engine("sqlite+pysqlite://", creator=connect, poolclass=QueuePool)

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A writer takes the write lock first: a read that turns into a write may be refused.
        writer = connection.get_execution_options().get("pate_writer", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writer else "BEGIN")

    return engine
