"""The file of a party's ledger: its chain and its tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from party.ledger.campaigns import Entry
from party.ledger.history import History, not_alone, queries_of, tags_of, units_of
from party.ledger.rules import LedgerState
from pate.errors import LedgerError, PateError
from pate.storage.entries import append_only, check_schema, each_entry
from pate.storage.hash_chain import Chain, Head

if TYPE_CHECKING:
    import sqlite3

#: Identifies the file: "patl" in ASCII.
APPLICATION_ID: Final = 0x7061746C
CHAIN: Final = Chain(b"pate party ledger entry v1\0", b"pate party ledger v1")

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


def check_tables(db: sqlite3.Connection) -> int:
    """Check that the file has exactly the tables and triggers of an append-only ledger.

    Returns:
        A number that changes whenever a table, an index or a trigger is created or dropped. SQL
        cannot remove a row of an append-only table without that: if it changes, rows that were read
        may be gone.
    """
    check_schema(db, SCHEMA)
    version: int = db.execute("PRAGMA schema_version").fetchone()[0]
    return version


def replayed(db: sqlite3.Connection) -> tuple[LedgerState, Head]:
    """Read the whole chain, and return the state of the ledger and the chain's head."""
    for table in ("queries", "units"):  # that they agree with their indexes
        if (found := db.execute(f"PRAGMA integrity_check('{table}')").fetchone()[0]) != "ok":
            raise LedgerError(f"the file is damaged ({found})")
    state, head = LedgerState(), CHAIN.start
    history = History.within(db)
    alone, shared = History(None), not_alone(db)
    stored = tagged = voted = 0
    #: The batch of the previous entry, usually also that of the next one.
    latest: tuple[int | None, tuple[bytes, ...]] = (None, ())
    for entry in each_entry(db):
        body, seq = CHAIN.check(entry, head), entry.seq
        try:
            answer = seq
            if entry.kind != "answer" or body.get("again") is not False:
                batch = str(body.get("campaign")), str(body.get("batch"))
                answer = state.first_answer(*batch) or 0
            if answer != latest[0]:
                latest = answer, queries_of(db, answer) if answer else ()
            stored += len(latest[1]) if answer == seq else 0
            tags = tags_of(db, seq) if answer == seq else ()
            tagged += len(tags)
            units = units_of(db, seq) if answer == seq and "series" in body else ()
            voted += len(units)
            # Most queries are asked once: only the others need the history.
            state.follow(
                Entry(seq, entry.kind, body, entry.written_at, latest[1], tags, units),
                history if answer in shared else alone,
            )
        except PateError as error:
            raise LedgerError(f"entry {seq} ({entry.kind}) is invalid: {error}") from error
        head = entry.head
    for table, rows in (("queries", stored), ("tags", tagged), ("units", voted)):
        if db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] != rows:  # noqa: S608
            raise LedgerError(f"the ledger has {table} that belong to no entry")
    return state, head
