"""The file of a party's ledger, its tables, and the head that is noted next to it.

One SQLite file, append-only and hash-chained. ``entries`` is the chain; ``queries`` has the hashes
of each batch, and ``units`` those of the units that vote in a series, to which the chain commits by
digest. None contains a vote.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from party.ledger.entries import RULES
from party.ledger.head_file import HeadFile
from party.ledger.history import History
from party.ledger.state import LedgerState
from pate.errors import LedgerError
from pate.storage.durable_file import DurableFile
from pate.storage.entries import append_only, check_schema, each_entry, require_entry

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from pate.storage.entries import Transaction
    from pate.storage.hash_chain import Head

#: Identifies the file: "patl" in ASCII.
APPLICATION_ID: Final = 0x7061746C
#: Creates the tables, and the triggers that keep them append-only. ``tags`` has those of the votes on
#: each query (:mod:`party.ledger.sent_votes`), ``units`` those that have voted in a series, each once
#: (:mod:`party.ledger.series`). The index finds a query of an earlier batch.
SCHEMA: Final = (
    (
        "CREATE TABLE entries (seq INTEGER PRIMARY KEY, kind TEXT NOT NULL, body TEXT NOT NULL, "
        "previous BLOB NOT NULL, digest BLOB NOT NULL UNIQUE, written_at TEXT NOT NULL) STRICT"
    ),
    (
        "CREATE TABLE queries (entry INTEGER NOT NULL REFERENCES entries (seq), position INTEGER NOT "
        "NULL, query BLOB NOT NULL, PRIMARY KEY (entry, position)) STRICT, WITHOUT ROWID"
    ),
    *append_only("entries", "this ledger is append-only"),
    *append_only("queries", "this ledger is append-only"),
    "CREATE INDEX queries_by_query ON queries (query)",
    (
        "CREATE TABLE tags (entry INTEGER NOT NULL REFERENCES entries (seq), position INTEGER NOT NULL, "
        "tag BLOB NOT NULL, PRIMARY KEY (entry, position)) STRICT, WITHOUT ROWID"
    ),
    *append_only("tags", "this ledger is append-only"),
    (
        "CREATE TABLE units (entry INTEGER NOT NULL REFERENCES entries (seq), unit BLOB NOT NULL "
        "UNIQUE, PRIMARY KEY (entry, unit)) STRICT, WITHOUT ROWID"
    ),
    *append_only("units", "this ledger is append-only"),
)


def check_tables(db: Transaction) -> int:
    """Check that the file has exactly the tables and triggers of an append-only ledger.

    Returns a number that changes whenever a table, an index or a trigger is created or dropped. SQL
    cannot remove a row of an append-only table without that: if it changes, rows that were read may
    be gone.
    """
    check_schema(db, SCHEMA)
    version: int = db.execute("PRAGMA schema_version").fetchone()[0]
    return version


def replayed(db: Transaction) -> tuple[LedgerState, Head]:
    """Read the whole chain, and return the state of the ledger and the chain's head."""
    for table in ("queries", "units"):  # that they agree with their indexes
        if (found := db.execute(f"PRAGMA integrity_check('{table}')").fetchone()[0]) != "ok":
            raise LedgerError(f"the file is damaged ({found})")
    state, head = RULES.replay(LedgerState(History.within(db)), each_entry(db), db)
    for table in ("queries", "tags", "units"):
        if db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] != state.rows[table]:  # noqa: S608
            raise LedgerError(f"the ledger has {table} that belong to no entry")
    return state, head


class LedgerFile:
    """The file of a party's ledger; arguments and errors as of the ledger."""

    def __init__(self, path: Path, *, read_only: bool) -> None:
        self.head_file = None if read_only else HeadFile(path)
        noted = None
        if self.head_file is not None:
            self.head_file.require_ledger()
            noted = self.head_file.read()  # before the ledger, which may grow meanwhile
        self._file = DurableFile(
            path, SCHEMA, APPLICATION_ID, damaged=LedgerError, read_only=read_only
        )
        self.path = path
        #: State and head as of the opening.
        self.found = self.read()
        if self.head_file is not None:
            self.head_file.require_noted(noted, self.require)
            self.head_file.note(self.found[1])

    def reading(self) -> AbstractContextManager[sqlite3.Connection]:
        """A consistent view of the committed state."""
        return self._file.reading()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One durable transaction; LedgerError if the tables were altered since they were read."""
        with self._file.writing() as db:
            yield db
            if check_tables(db) != self._tables:
                raise LedgerError(f"{self.path} was altered by another process; stop that one")

    def remember(self, head: Head) -> None:
        """Note a head that is durable here."""
        if self.head_file is not None:
            self.head_file.note(head)

    def read(self) -> tuple[LedgerState, Head]:
        """Read and verify every entry; return the state and the head."""
        with self.reading() as db:
            self._tables = check_tables(db)
            state, head = replayed(db)
        state.history = History(self.reading)
        return state, head

    def require(self, head: Head) -> None:
        """Check that the ledger has an entry known from elsewhere."""
        with self.reading() as db:
            require_entry(db, head)
