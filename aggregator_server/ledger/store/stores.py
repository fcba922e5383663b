"""The ledger at a place: a file, created atomically, opened by one process and written durably.

A ledger in a database has the same interface: ``writing`` and ``reading`` a transaction, ``check``,
the head that is noted outside of it, ``close``.
"""

from __future__ import annotations

from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from aggregator_server.ledger.store import tables
from aggregator_server.ledger.store.place import locked, require_closed_folder
from pate.errors import LedgerError, StateError
from pate.runtime.failpoints import reach
from pate.runtime.home import private_directory
from pate.storage.durable_file import DurableFile, connect, make_durable, make_file, translated
from pate.storage.ledger import check_schema

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator

    from aggregator_server.ledger.store.place import Place
    from aggregator_server.ledger.store.postgres import PostgresDatabase
    from pate.storage.hash_chain import Head
    from pate.storage.ledger import Transaction

    #: An open ledger.
    Store: TypeAlias = "Database | PostgresDatabase"


def exists(place: Place) -> bool:
    """Return whether there is a ledger; an error if one was there and is missing."""
    if isinstance(place, Path):
        return place.exists()
    from aggregator_server.ledger.store import postgres

    return postgres.exists(place)


def opened(
    place: Place, *, read_only: bool = False, fill: Callable[[Transaction], None] | None = None
) -> Store:
    """Open a ledger, as its one writer unless ``read_only``, which works while a server writes it.

    ``fill`` creates it with this content; after a crash it is there with all of it, or not at all.
    """
    if isinstance(place, Path):
        return Database(place, read_only=read_only, fill=fill)
    from aggregator_server.ledger.store.postgres import PostgresDatabase

    return PostgresDatabase(place, read_only=read_only, fill=fill)


@contextmanager
def or_closed(store: Store) -> Iterator[None]:
    """Close a ledger if the block raises."""
    try:
        yield
    except BaseException:
        store.close()
        raise


class Database(DurableFile):
    """An open ledger file; see :func:`opened`."""

    def __init__(
        self,
        path: Path,
        *,
        read_only: bool = False,
        fill: Callable[[Transaction], None] | None = None,
    ) -> None:
        self._opened = ExitStack()
        with or_closed(self):
            if fill is not None:
                require_closed_folder(private_directory(path.parent))
            elif not path.is_file():
                raise StateError(f"there is no ledger at {path}: check --home and --campaign")
            if not read_only:
                self._opened.enter_context(locked(path))
            if fill is not None:
                write_copy(path, fill)
            super().__init__(
                path, (), tables.APPLICATION_ID, damaged=LedgerError, read_only=read_only
            )
            if not read_only:
                with translated(path, LedgerError):
                    # An open connection avoids checkpointing and recreating the log at each commit.
                    link = self._opened.enter_context(closing(connect(path)))
                    make_durable(link, path, read_only=False)
                    link.execute("SELECT count(*) FROM entries").fetchone()

    def check(self, db: Transaction, *, pages: bool = False) -> None:
        """Compare tables and triggers with those of a new ledger, and check the file's pages."""
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
        self._opened.close()


def write_copy(path: Path, fill: Callable[[Transaction], None]) -> None:
    """Create a closed ledger file with the content of ``fill``: one file, without a log."""
    if path.exists():
        raise StateError(
            f"there is a ledger at {path} already; `pate-server resume` it, or choose another --campaign"
        )

    def made(db: sqlite3.Connection) -> None:
        for statement in tables.SQLITE:
            db.execute(statement)
        fill(db)

    with translated(path, LedgerError):
        make_file(path, tables.APPLICATION_ID, made, drafted=lambda: reach("ledger-drafted"))
