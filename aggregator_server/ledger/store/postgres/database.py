"""A ledger in a database: created atomically, written by one process at a time, durably.

The one writer is the session with the campaign's lock, which writes everything. So a lost
connection loses the lock and the ability to write: this server then writes nothing more and never
reconnects, whatever another server does.

One address may lead to two writable databases (a failed failover, a started copy), each of which
grants its lock. So the campaign's folder is locked, too, and this server stops once the folder has
other content than it wrote itself.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Self

import psycopg

from aggregator_server.ledger.store import tables
from aggregator_server.ledger.store.database import Lock
from aggregator_server.ledger.store.place import (
    InDatabase,
    read_anchor,
    require_closed_folder,
    write_anchor,
)
from aggregator_server.ledger.store.postgres import layout
from aggregator_server.ledger.store.postgres.faults import lost, translated
from aggregator_server.ledger.store.postgres.session import (
    Facts,
    connect,
    facts_of,
    require_durable,
    take_lock,
)
from pate.errors import LedgerError, PateError, StateError, UnreachableError
from pate.runtime.failpoints import reach
from pate.runtime.home import private_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pate.storage.entries import Transaction
    from pate.storage.hash_chain import Head


class _Transaction:
    """One transaction of a session."""

    def __init__(self, link: psycopg.Connection[Any]) -> None:
        self._link = link

    def execute(self, question: str, values: Sequence[Any] = (), /) -> psycopg.Cursor[Any]:
        """Run a query, or write a row; ``?`` stands for a value."""
        if not values:
            return self._link.execute(question.encode())
        return self._link.execute(question.replace("?", "%s").encode(), values)


class PostgresDatabase:
    """An open ledger in a database.

    Attributes:
        place: with the last entry that was known when it was opened.
    """

    def __init__(
        self,
        place: InDatabase,
        link: psycopg.Connection[Any] | None = None,
        lock: Lock | None = None,
    ) -> None:
        """Store a ledger's place, its writing session, if any, and its folder's lock."""
        self.place = place
        self._lock = lock
        #: The folder's content, as far as this process knows.
        self._noted = None if link is None else read_anchor(place.anchor)
        self._link = link
        #: Idle sessions for reading.
        self._idle: list[psycopg.Connection[Any]] = []
        self._closed = False

    @classmethod
    def create(cls, place: InDatabase, fill: Callable[[Transaction], None]) -> Self:
        """Create a ledger with the content of ``fill`` in one transaction, and open it.

        Raises:
            StateError: if it exists, existed, or another process uses it.
            UnreachableError: if the database does not answer.
            DiskError: if its disk, or that of the campaign's folder, is full or not writable.
        """
        require_closed_folder(private_directory(place.anchor.parent))
        if place.head is not None:
            raise StateError(_gone(place))
        database = cls._locked(place)
        with database.closed_on_error():
            if database.place.head is not None and not database.is_there():
                raise StateError(_gone(database.place))
            if database.is_there():
                raise StateError(
                    f"a ledger exists already: {place}; `pate-server resume` it, or choose another "
                    "--campaign"
                )
        try:
            # Before it exists: from now on this campaign has no other place.
            database.note(place)
            with database.writing() as db:
                schema = layout.quoted(place.schema)
                db.execute(f"CREATE SCHEMA {schema}")
                db.execute(f"COMMENT ON SCHEMA {schema} IS '{layout.COMMENT}'")
                tables.make(db, tables.POSTGRES)
                layout.shut_out(db)
                fill(db)
                reach("ledger-drafted")
        except BaseException:
            # Unless it certainly does not exist, the folder keeps its anchor.
            with suppress(PateError):
                if not database.is_there():
                    place.anchor.unlink(missing_ok=True)
            database.close()
            raise
        return database

    @classmethod
    def open(cls, place: InDatabase) -> Self:
        """Open a ledger for writing.

        Raises:
            StateError: if there is none, another process uses it, or a newer version wrote it.
            LedgerError: if it is not one.
            UnreachableError: if the database does not answer.
        """
        database = cls._locked(place)
        with database.closed_on_error():
            database.require_there()
            with database.reading() as db:
                layout.require_ours(db)
                tables.require_layout(db)
        return database

    @classmethod
    def examine(cls, place: InDatabase) -> Self:
        """Open a ledger for reading only, also while a server writes it.

        Raises:
            StateError: if there is none.
            UnreachableError: if the database does not answer.
        """
        database = cls(place)
        with database.closed_on_error():
            database.require_there()
        return database

    @classmethod
    def exists(cls, place: InDatabase) -> bool:
        """Return whether there is a ledger.

        Raises:
            StateError: if there was one, but it is missing.
            UnreachableError: if the database does not answer.
        """
        database = cls(place)
        try:
            found = database.is_there()
        finally:
            database.close()
        if not found and place.head is not None:
            raise StateError(_gone(place))
        return found

    @staticmethod
    def facts(place: InDatabase) -> Facts:
        """Return facts about the database.

        Raises:
            UnreachableError: if it does not answer.
            StateError: if the server is not suitable for a ledger.
        """
        with translated(place):
            return facts_of(place)

    @contextmanager
    def closed_on_error(self) -> Iterator[None]:
        """Close it if the block raises, since the caller gets no object to close."""
        try:
            yield
        except BaseException:
            self.close()
            raise

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        """One durable transaction: committed when the block ends, undone if it raises."""
        link = self._link
        if link is None:
            raise StateError(f"{self.place} is open for reading only")
        if link.closed:
            raise UnreachableError(lost(self.place, "the connection was lost"))
        with translated(self.place), link.transaction():
            require_durable(link, self.place.schema)
            yield _Transaction(link)

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """A consistent view of the committed state."""
        with translated(self.place):
            link = self._reader()
            try:
                with link.transaction():
                    yield _Transaction(link)
            except BaseException:
                link.close()
                raise
            self._idle.append(link)
            if self._closed:
                self._close_readers()

    def _reader(self) -> psycopg.Connection[Any]:
        while self._idle:
            link = self._idle.pop()
            with suppress(psycopg.Error):
                link.execute("SELECT")  # it may be lost meanwhile
                link.rollback()
                return link
            link.close()
        return connect(self.place, read_only=True)

    def _close_readers(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def check(self, db: Transaction, *, pages: bool = False) -> None:
        """Compare the schema's content with that of a new ledger.

        Pages are not checked: the database checks what it reads, and all was read.

        Raises:
            LedgerError: if anything is missing, changed or new.
            StateError: if others may read or change it, or a newer version wrote it.
        """
        del pages
        layout.require_ours(db)
        tables.require_layout(db)
        if odd := layout.differences(db):
            raise LedgerError(f"the ledger's tables or triggers were altered: {', '.join(odd)}")
        layout.require_alone(db)

    def remember(self, head: Head) -> None:
        """Record in the folder that an entry is in the database.

        Raises:
            StateError: if the folder has other content than this process wrote.
            DiskError: if the campaign's folder cannot be written.
        """
        self.note(self.place.at(head))

    def newest_known(self) -> Head | None:
        """Return an entry that must be there, if one is known."""
        return self.place.head

    def could_be_older(self, seq: int) -> bool:
        """Return whether entries after number ``seq`` cannot be excluded."""
        noted = self._noted
        # A newly created ledger has its first entry, which is not yet in the folder.
        return noted is None or (noted.head is None and seq > 1)

    def note(self, place: InDatabase) -> None:
        """Write the ledger's anchor into the campaign's folder, and lock the folder from now on.

        Raises:
            StateError: if another server has locked it, or it has unexpected content.
            DiskError: if it cannot be written.
        """
        if self._lock is None:
            private_directory(place.anchor.parent)
            self._lock = Lock(place.anchor)
        if read_anchor(place.anchor) != self._noted:
            raise StateError(
                f"{place.anchor} differs from what this server wrote last: another server uses "
                "this campaign, or its folder was restored; this one writes nothing more. Find "
                "out which database is newer before you `pate-server resume`"
            )
        write_anchor(place)
        self._noted = place

    def close(self) -> None:
        """Close all connections, and release the lock with them."""
        self._closed = True
        self._close_readers()
        if self._link is not None:
            self._link.close()  # in whatever state
        if self._lock is not None:
            self._lock.release()

    @classmethod
    def _locked(cls, place: InDatabase) -> Self:
        # A missing folder is created and locked once there is something to write.
        lock = Lock(place.anchor) if place.anchor.parent.is_dir() else None
        try:
            # Again, now that no one else can change it.
            held = read_anchor(place.anchor)
            if held is not None and (held.address, held.schema) != (place.address, place.schema):
                raise StateError(f"{place.anchor} names another place than {place}: try again")
            place = held or place
            with translated(place):
                link = connect(place, read_only=False)
                try:
                    take_lock(link, place)
                    return cls(place, link, lock)
                except BaseException:
                    link.close()
                    raise
        except BaseException:
            if lock is not None:
                lock.release()
            raise

    def is_there(self) -> bool:
        """Return whether the schema exists."""
        with self.reading() as db:
            (found,) = db.execute(
                "SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = ?)",
                (self.place.schema,),
            ).fetchone()
            return bool(found)

    def require_there(self) -> None:
        """Check that the schema exists.

        Raises:
            StateError: if there is none.
        """
        if not self.is_there():
            raise StateError(
                f"there is no ledger: {self.place}"
                if self.place.head is None
                else _gone(self.place)
            )


def _gone(place: InDatabase) -> str:
    return (
        f"{place}: the ledger of this campaign existed up to its entry {place.head} and is "
        "missing; restore the database, or a backup under another --campaign"
    )
