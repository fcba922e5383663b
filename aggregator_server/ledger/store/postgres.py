"""A ledger in a database: created atomically, written by one process at a time, durably.

The one writer is the session with the campaign's lock, which writes everything. So a lost
connection loses the lock and the ability to write: this server then writes nothing more and never
reconnects, whatever another server does. A reader has a session for each view.

One address may lead to two writable databases (a failed failover, a started copy), each of which
grants its lock. So the campaign's folder is locked, too, and this server stops once the folder has
other content than it wrote itself.
"""

from __future__ import annotations

from contextlib import ExitStack, closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from aggregator_server.ledger.store import tables
from aggregator_server.ledger.store.place import (
    InDatabase,
    locked,
    read_anchor,
    require_closed_folder,
    write_anchor,
)
from aggregator_server.ledger.store.session import (
    connect,
    lost,
    require_fit,
    take_lock,
    translated,
)
from pate.errors import PateError, StateError, UnreachableError
from pate.runtime.failpoints import reach
from pate.runtime.home import private_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import psycopg

    from pate.storage.hash_chain import Head
    from pate.storage.ledger import Transaction


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
    """An open ledger in a database; the arguments are those of a ledger file."""

    def __init__(
        self,
        place: InDatabase,
        *,
        read_only: bool = False,
        fill: Callable[[Transaction], None] | None = None,
    ) -> None:
        self.place = place
        self._link: psycopg.Connection[Any] | None = None
        #: The folder's content, as far as this process knows.
        self._noted: InDatabase | None = None
        self._locked = False
        self._opened = ExitStack()
        with ExitStack() as undone:
            undone.callback(self.close)
            if fill is not None:
                require_closed_folder(private_directory(place.anchor.parent))
                if place.head is not None:
                    raise _gone(place)
            if not read_only:
                self._become_writer()
            there = exists(self.place)
            if fill is not None:
                if there:
                    raise StateError(
                        f"a ledger exists already: {place}; `pate-server resume` it, or choose "
                        "another --campaign"
                    )
                self._make(fill)
            elif not there:
                raise StateError(f"there is no ledger: {place}")
            undone.pop_all()

    def _become_writer(self) -> None:
        place = self.place
        if place.anchor.parent.is_dir():  # else it is locked once there is something to write
            self._lock_folder()
        # Again, now that no one else can change it.
        self._noted = read_anchor(place.anchor)
        self.place = self._noted or place
        if (self.place.address, self.place.schema) != (place.address, place.schema):
            raise StateError(f"{place.anchor} names another place than {place}: try again")
        with translated(place):
            link = self._opened.enter_context(closing(connect(self.place, read_only=False)))
            take_lock(link, self.place)
        self._link = link

    def _lock_folder(self) -> None:
        self._opened.enter_context(locked(self.place.anchor))
        self._locked = True

    def _make(self, fill: Callable[[Transaction], None]) -> None:
        """Create the ledger with the content of ``fill`` in one transaction."""
        try:
            # Before it exists: from now on this campaign has no other place.
            self._note(self.place)
            with self.writing() as db:
                tables.make(db, self.place.schema)
                fill(db)
                reach("ledger-drafted")
        except BaseException:
            # Unless it certainly does not exist, the folder keeps its anchor.
            with suppress(PateError):
                if not exists(self.place):
                    self.place.anchor.unlink(missing_ok=True)
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
            require_fit(link, self.place.schema)
            yield _Transaction(link)

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """A consistent view of the committed state."""
        with _view(self.place) as db:
            yield db

    def check(self, db: Transaction, *, pages: bool = False) -> None:
        """Compare the schema's content with that of a new ledger.

        Pages are not checked: the database checks what it reads, and all was read.
        """
        del pages
        tables.check(db)

    def remember(self, head: Head) -> None:
        """Record in the folder that an entry is in the database."""
        self._note(self.place.at(head))

    def newest_known(self) -> Head | None:
        """Return an entry that must be there, if one is known."""
        return self.place.head

    def could_be_older(self, seq: int) -> bool:
        """Return whether entries after number ``seq`` cannot be excluded."""
        noted = self._noted
        # A newly created ledger has its first entry, which is not yet in the folder.
        return noted is None or (noted.head is None and seq > 1)

    def _note(self, place: InDatabase) -> None:
        """Write the ledger's anchor into the campaign's folder, and lock the folder from now on."""
        if not self._locked:
            self._lock_folder()
        if read_anchor(place.anchor) != self._noted:
            raise StateError(
                f"{place.anchor} differs from what this server wrote last: another server uses "
                "this campaign, or its folder was restored; this one writes nothing more. Find "
                "out which database is newer before you `pate-server resume`"
            )
        write_anchor(place)
        self._noted = place

    def close(self) -> None:
        """Close the session, and release the lock with it."""
        self._opened.close()


@contextmanager
def _view(place: InDatabase) -> Iterator[Transaction]:
    with (
        translated(place),
        closing(connect(place, read_only=True)) as link,
        link.transaction(),
    ):
        yield _Transaction(link)


def exists(place: InDatabase) -> bool:
    """Return whether there is a ledger; StateError if there was one, but it is missing."""
    with _view(place) as db:
        there = tables.is_there(db, place.schema)
    if not there and place.head is not None:
        raise _gone(place)
    return there


def _gone(place: InDatabase) -> StateError:
    return StateError(
        f"{place}: the ledger of this campaign existed up to its entry {place.head} and is "
        "missing; restore the database, or a backup under another --campaign"
    )
