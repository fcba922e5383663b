"""One ledger in a database: made whole or not at all, written by one process at a time, durably.

The one writer is the session that holds the campaign's lock, and everything is written by that
session. So a connection that is lost takes the lock and the way to write with it: whatever another
server does meanwhile, this one writes nothing any more, and never connects again.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Self

from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool, QueuePool

from aggregator_server.store import layout
from aggregator_server.store.place import InDatabase, require_closed_folder, write_anchor
from aggregator_server.store.postgres.faults import lost, translated
from aggregator_server.store.postgres.layout import COMMENT
from aggregator_server.store.postgres.session import (
    Facts,
    connect,
    facts_of,
    require_durable,
    take_lock,
)
from pate.errors import PateError, StateError, UnreachableError
from pate.runtime.failpoints import reach
from pate.runtime.home import private_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import psycopg
    from sqlalchemy import Connection, Engine

    from aggregator_server.chain import Head

_DIALECT: Final = "postgresql+psycopg://"
_OPTIONS: Final[dict[str, Any]] = {
    "use_native_hstore": False,
    "hide_parameters": True,  # they are votes
    # Every transaction ends by itself, and one of a lost connection cannot be undone again.
    "pool_reset_on_return": None,
}


class PostgresDatabase:
    """An open ledger in a database.

    Attributes:
        place: where it is, with the last entry that was known when it was opened.
    """

    def __init__(self, place: InDatabase, link: psycopg.Connection[Any] | None = None) -> None:
        """Take a ledger's place, and the session that may write there, if there is to be one."""
        self.place = place
        self._link = link
        self._writer = None if link is None else _on(link).connect()
        self._readers = create_engine(
            _DIALECT,
            creator=lambda: connect(place, read_only=True),
            poolclass=QueuePool,
            pool_pre_ping=True,
            **_OPTIONS,
        )

    @classmethod
    def create(cls, place: InDatabase, fill: Callable[[Connection], None]) -> Self:
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
        try:
            if database.is_there():
                raise StateError(
                    f"there is a ledger already: {place}; `pate-server resume` it, or choose another "
                    "--campaign"
                )
        except BaseException:
            database.close()
            raise
        try:
            # Before it exists: from now on this campaign is nowhere else.
            write_anchor(place)
            with database.writing() as connection:
                quoted = connection.dialect.identifier_preparer.quote_identifier(place.schema)
                connection.exec_driver_sql(f"CREATE SCHEMA {quoted}")
                connection.exec_driver_sql(f"COMMENT ON SCHEMA {quoted} IS '{COMMENT}'")
                layout.upgrade(connection)
                fill(connection)
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
        try:
            database.require_there()
            with database.writing() as connection:
                layout.ensure(connection)
        except BaseException:
            database.close()
            raise
        return database

    @classmethod
    def examine(cls, place: InDatabase) -> Self:
        """Open a ledger for reading alone, also while a server writes it.

        Raises:
            StateError: if there is none.
            UnreachableError: if the database does not answer.
        """
        database = cls(place)
        try:
            database.require_there()
        except BaseException:
            database.close()
            raise
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
    def writing(self) -> Iterator[Connection]:
        """One durable transaction: committed when the block ends, undone if it raises."""
        writer, link = self._writer, self._link
        if writer is None or link is None:
            raise StateError(f"{self.place} is open for reading alone")
        if writer.closed or writer.invalidated or link.closed:
            raise UnreachableError(lost(self.place, "the connection was lost"))
        with translated(self.place), writer.begin():
            require_durable(link, self.place.schema)
            yield writer

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """One consistent view of what is committed."""
        with translated(self.place), self._readers.connect() as connection, connection.begin():
            yield connection

    def remember(self, head: Head) -> None:
        """Write down that an entry is in the database, where the database cannot forget it.

        Raises:
            DiskError: if the campaign's folder cannot be written.
        """
        write_anchor(self.place.at(head))

    def close(self) -> None:
        """Close all connections, and give up the lock with them."""
        self._readers.dispose()
        if self._link is not None:
            self._link.close()  # whatever state it is in

    @classmethod
    def _locked(cls, place: InDatabase) -> Self:
        with translated(place):
            link = connect(place, read_only=False)
            try:
                take_lock(link, place)
                return cls(place, link)
            except BaseException:
                link.close()
                raise

    def is_there(self) -> bool:
        """Say whether there is a schema of that name."""
        with self.reading() as connection:
            question = text(
                "SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = :schema)"
            )
            return bool(connection.execute(question, {"schema": self.place.schema}).scalar_one())

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


def _on(link: psycopg.Connection[Any]) -> Engine:
    """Return an engine that has this one connection, and never makes another."""
    links = [link]

    def once() -> psycopg.Connection[Any]:
        if not links:
            raise UnreachableError("the connection of the one writer was lost")
        return links.pop()

    return create_engine(_DIALECT, creator=once, poolclass=NullPool, **_OPTIONS)


def _gone(place: InDatabase) -> str:
    return (
        f"{place}: the ledger of this campaign was there, up to its entry {place.head}, and is gone; "
        "put the database back, or restore a backup under another --campaign"
    )
