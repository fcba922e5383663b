"""The file of a party's ledger, its tables, and the head that is noted next to it.

One SQLite file, append-only and hash-chained. ``entries`` is the chain; ``queries`` has the hashes
of each batch, and ``units`` those of the units that vote in a series, to which the chain commits by
digest. None contains a vote.

A party that continues with an older copy of its ledger, or with none, does not know its later answers, and
could be made to answer twice. The head file has one line, number and digest of the last entry. It may lag
behind the ledger after a power cut or on a full disk, and then detects less; it is never ahead of it.
Rolling back the whole home rolls back this file, too.
"""

from __future__ import annotations

import contextlib
import os
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from party.ledger.entries import RULES
from party.ledger.history import History
from party.ledger.state import LedgerState
from pate.errors import LedgerError
from pate.runtime.home import write_file
from pate.storage.durable_file import DurableFile
from pate.storage.hash_chain import Head
from pate.storage.ledger import append_only, check_schema, each_entry, require_entry

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from pate.storage.ledger import Transaction

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


# --- the last head, next to the file --------------------------------------------------------------


#: A head as text, its number with leading zeros.
_LINE: Final = re.compile(r"0*(?=\d)(\d+:[0-9a-f]{64})\n", re.ASCII)
_LENGTH: Final = 20 + 1 + 64 + 1
#: Files that a party creates only after its ledger.
_LATER: Final = ("noise.db", "votes.db", "bundles.db")
_REMEDY: Final = (
    "restore the newest backup with `pate-party restore`; if the missing entries are lost, "
    "`pate-party forget --entries-lost` continues without them"
)


class HeadFile:
    """The head file of one ledger, and the note that entries of it were lost."""

    def __init__(self, ledger: Path) -> None:
        self._ledger = ledger
        self._path = ledger.with_suffix(".head")
        self._lost = ledger.with_suffix(".lost")

    def note_loss(self) -> None:
        """Note, durably, that entries of the ledger may be lost; its next writer records it."""
        write_file(self._lost, b"")

    @property
    def loss_noted(self) -> bool:
        """Whether a loss is noted that the ledger may not have recorded."""
        return self._lost.exists()

    def loss_recorded(self) -> None:
        """Remove the note: the ledger has it. If that fails, it is recorded again, without harm."""
        with contextlib.suppress(OSError):
            self._lost.unlink(missing_ok=True)

    def read(self) -> Head | None:
        """Return the last noted head; None if there is none.

        An empty or incomplete line counts as none: a power cut may leave one.
        """
        try:
            text = self._path.read_text("ascii")
        except (OSError, ValueError):
            return None
        if len(text) != _LENGTH or not (found := _LINE.fullmatch(text)):
            return None
        try:
            return Head.parse(found[1])
        except LedgerError as error:
            raise LedgerError(f"{self._path} is damaged or foreign: {error}; {_REMEDY}") from (
                error
            )

    def note(self, head: Head) -> None:
        """Note a head that is durable in the ledger; on failure the file lags behind.

        One line of fixed length in one write: a killed process leaves the old or the new line.
        """
        with contextlib.suppress(OSError):
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                line = f"{head.seq:020}:{head.digest.hex()}\n".encode()
                os.ftruncate(file, os.pwrite(file, line, 0))
            finally:
                os.close(file)

    def require_ledger(self) -> None:
        """Check that a ledger that existed still exists."""
        if self._ledger.exists():
            return
        signs = [
            path for path in (self._path, *map(self._ledger.with_name, _LATER)) if path.exists()
        ]
        if signs:
            raise LedgerError(
                f"{self._ledger} is missing, though this party had one ({signs[0].name} exists): {_REMEDY}"
            )

    def require_noted(self, head: Head | None, require: Callable[[Head], object]) -> None:
        """Check that the ledger, or a copy of it, has the head that was read before; ``require`` looks."""
        if head is None or not head.seq:
            return
        try:
            require(head)
        except LedgerError as error:
            raise LedgerError(
                f"{self._ledger} is an older copy, or another ledger: it lacks entry "
                f"{head.seq}, {head.digest.hex()[:12]}…, which this party has written: {_REMEDY}"
            ) from error
