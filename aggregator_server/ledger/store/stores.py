"""Opening the ledger at a place of either kind."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from aggregator_server.ledger.store.database import Database
from pate.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from aggregator_server.ledger.store.place import InDatabase, Place
    from aggregator_server.ledger.store.postgres.database import PostgresDatabase
    from aggregator_server.ledger.store.postgres.session import Facts
    from pate.storage.entries import Transaction
    from pate.storage.hash_chain import Head


class Store(Protocol):
    """An open ledger: the common interface of :class:`Database` and :class:`PostgresDatabase`."""

    def writing(self) -> AbstractContextManager[Transaction]:
        """One durable transaction: committed when the block ends, undone if it raises."""

    def reading(self) -> AbstractContextManager[Transaction]:
        """A consistent view of the committed state."""

    def check(self, db: Transaction, *, pages: bool = False) -> None:
        """Check that its tables and triggers are those of a new ledger, and its pages intact."""

    def remember(self, head: Head) -> None:
        """Record the head of a committed entry."""

    def newest_known(self) -> Head | None:
        """Return an entry that must be in it, if one is known."""

    def could_be_older(self, seq: int) -> bool:
        """Return whether there may have been unknown entries after number ``seq``."""

    def close(self) -> None:
        """Close it and release its lock."""


def exists(place: Place) -> bool:
    """Return whether there is a ledger at a place.

    Raises:
        StateError: if there was one, but it is missing.
        UnreachableError: if its database does not answer.
    """
    return place.exists() if isinstance(place, Path) else _postgres().exists(place)


def create(place: Place, fill: Callable[[Transaction], None]) -> Store:
    """Create a ledger with the content of ``fill``, and open it; see ``create`` of either kind."""
    if isinstance(place, Path):
        return Database.create(place, fill)
    return _postgres().create(place, fill)


def open_for_writing(place: Place) -> Store:
    """Open a ledger as its one writer; see the ``open`` of either kind."""
    return Database.open(place) if isinstance(place, Path) else _postgres().open(place)


def examine(place: Place) -> Store:
    """Open a ledger for reading only; see the ``examine`` of either kind."""
    return Database.examine(place) if isinstance(place, Path) else _postgres().examine(place)


@contextmanager
def or_closed(store: Store) -> Iterator[None]:
    """Close a ledger if the block raises."""
    try:
        yield
    except BaseException:
        store.close()
        raise


def _postgres() -> type[PostgresDatabase]:
    try:
        from aggregator_server.ledger.store.postgres.database import PostgresDatabase
    except ImportError as error:
        raise UsageError(
            "a ledger in a database needs psycopg: pip install 'federated-pate[postgres]'"
        ) from error
    return PostgresDatabase


def facts(place: InDatabase) -> Facts:
    """Connect to a database as for opening a ledger, and return its facts; nothing is written.

    Raises:
        UnreachableError: if it does not answer.
        StateError: if the server is not suitable for a ledger.
    """
    return _postgres().facts(place)
