"""One ledger in a database: made whole or not at all, written by one process at a time, durably.

The one writer is the session that holds the campaign's lock, and everything is written by that
session. So a connection that is lost takes the lock and the way to write with it: whatever another
server does meanwhile, this one writes nothing any more, and never connects again.

One address may lead to two databases that both take writes (a failover gone wrong, a copy that was
brought up), and each gives its lock away. So the campaign's folder is locked, too, and this server
stops once the folder says anything else than what it wrote there itself.
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
        """Ask something, or write a row; ``?`` in it stands for a value."""
        if not values:
            return self._link.execute(question.encode())
        return self._link.execute(question.replace("?", "%s").encode(), values)


class PostgresDatabase:
    """An open ledger in a database.

    Attributes:
        place: where it is, with the last entry that was known when it was opened.
    """

    def __init__(
        self,
        place: InDatabase,
        link: psycopg.Connection[Any] | None = None,
        lock: Lock | None = None,
    ) -> None:
        """Take a ledger's place, the session that may write there, if any, and its folder's lock."""
        self.place = place
        self._lock = lock
        #: What the folder says, as far as this process knows.
        self._noted = None if link is None else read_anchor(place.anchor)
        self._link = link
        #: Sessions that only read, and wait for the next one who does.
        self._idle: list[psycopg.Connection[Any]] = []
        self._closed = False

    @classmethod
    def create(cls, place: InDatabase, fill: Callable[[Transaction], None]) -> Self:
        """Make a ledger and write into it what ``fill`` writes, all in one transaction; open it.

        Raises:
            StateError: if there is one already, there was one, or another process is at it.
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
                    f"there is a ledger already: {place}; `pate-server resume` it, or choose another "
                    "--campaign"
                )
        try:
            # Before it exists: from now on this campaign is nowhere else.
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
            # Unless it is certain that there is none, the folder goes on saying where to look.
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
            StateError: if there is none, another process has it, or a newer version wrote it.
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
        """Say whether there is a ledger.

        Raises:
            StateError: if there was one, and it is gone.
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
        """Return what kind of database it is.

        Raises:
            UnreachableError: if it does not answer.
            StateError: if it is no server that a ledger can be trusted to.
        """
        with translated(place):
            return facts_of(place)

    @contextmanager
    def closed_on_error(self) -> Iterator[None]:
        """Close it if the block raises: nobody gets an object to close."""
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
        """One consistent view of what is committed."""
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
                link.execute("SELECT")  # it may have been lost since
                link.rollback()
                return link
            link.close()
        return connect(self.place, read_only=True)

    def _close_readers(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def check(self, db: Transaction, *, pages: bool = False) -> None:
        """Compare all that is in the schema with what a new ledger has there.

        Pages are not looked at: the database checks what it reads, and all was read.

        Raises:
            LedgerError: if anything is missing, changed or new, or a newer version wrote it.
            StateError: if others may read or change it.
        """
        del pages
        layout.require_ours(db)
        tables.require_layout(db, LedgerError)
        if odd := layout.differences(db):
            raise LedgerError(f"the ledger's tables or triggers were altered: {', '.join(odd)}")
        layout.require_alone(db)

    def remember(self, head: Head) -> None:
        """Write down that an entry is in the database, where the database cannot forget it.

        Raises:
            StateError: if the folder says something else than what this process wrote there.
            DiskError: if the campaign's folder cannot be written.
        """
        self.note(self.place.at(head))

    def newest_known(self) -> Head | None:
        """Return an entry that must be there, if one is known."""
        return self.place.head

    def could_be_older(self, seq: int) -> bool:
        """Say whether nothing here shows that there never was an entry after number ``seq``."""
        noted = self._noted
        # One that was only just made has its first entry, of which the folder was not told.
        return noted is None or (noted.head is None and seq > 1)

    def note(self, place: InDatabase) -> None:
        """Write into the campaign's folder where its ledger is, and hold the folder from now on.

        Raises:
            StateError: if another server holds it, or it says something else than was known.
            DiskError: if it cannot be written.
        """
        if self._lock is None:
            private_directory(place.anchor.parent)
            self._lock = Lock(place.anchor)
        if read_anchor(place.anchor) != self._noted:
            raise StateError(
                f"{place.anchor} is not as this server wrote it last: another server is at this "
                "campaign, or its folder was put back; this one writes nothing more. Find out which "
                "database went on before you `pate-server resume`"
            )
        write_anchor(place)
        self._noted = place

    def close(self) -> None:
        """Close all connections, and give up the lock with them."""
        self._closed = True
        self._close_readers()
        if self._link is not None:
            self._link.close()  # whatever state it is in
        if self._lock is not None:
            self._lock.release()

    @classmethod
    def _locked(cls, place: InDatabase) -> Self:
        # A folder that is not there is made, and locked, once there is something to say in it.
        lock = Lock(place.anchor) if place.anchor.parent.is_dir() else None
        try:
            # Again, now that nobody else can change it.
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
        """Say whether there is a schema of that name."""
        with self.reading() as db:
            (found,) = db.execute(
                "SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = ?)",
                (self.place.schema,),
            ).fetchone()
            return bool(found)

    def require_there(self) -> None:
        """Check that there is one.

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
        f"{place}: the ledger of this campaign was there, up to its entry {place.head}, and is gone; "
        "put the database back, or restore a backup under another --campaign"
    )
