"""A party's ledger in its file: its chain, its tables, and how it is read back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from party.ledger.campaigns import Entry
from party.ledger.history import History, not_alone, queries_of, tags_of
from party.ledger.rules import LedgerState
from pate.errors import LedgerError, PateError
from pate.storage.entries import append_only, check_schema, each_entry, lacking
from pate.storage.hash_chain import Chain, Head

if TYPE_CHECKING:
    import sqlite3

#: What tells the file from others: "patl" in ASCII.
APPLICATION_ID: Final = 0x7061746C
CHAIN: Final = Chain(b"pate party ledger entry v1\0", b"pate party ledger v1")

#: By which a query of an earlier batch is found.
_INDEX: Final = "CREATE INDEX queries_by_query ON queries (query)"
#: Of the votes on each query; a ledger that an earlier version began has none; see
#: :mod:`party.ledger.sent_votes`.
_TAGS: Final = (
    (
        "CREATE TABLE tags (entry INTEGER NOT NULL REFERENCES entries (seq), position INTEGER NOT NULL, "
        "tag BLOB NOT NULL, PRIMARY KEY (entry, position)) STRICT, WITHOUT ROWID"
    ),
    *append_only("tags", "this ledger is append-only"),
)
#: What a ledger that was begun by an earlier version lacks.
_LATER: Final = (_INDEX, *_TAGS)
#: Makes the tables, and the triggers that keep them append-only.
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
    *_LATER,
)


def complete(db: sqlite3.Connection) -> None:
    """Give a ledger that was begun by an earlier version what it lacks.

    Raises:
        LedgerError: if its tables and triggers are not what they should be.
    """
    check_tables(db)
    for statement in lacking(db, _LATER):
        db.execute(statement)


def check_tables(db: sqlite3.Connection) -> int:
    """Check that the file has the tables and triggers that make it append-only, and no others.

    What came later may be missing: an older ledger that is only looked at has none of it. The table
    of tags is there with its triggers or not at all.

    Returns:
        A number that changes whenever a table, an index or a trigger is made or dropped. Plain SQL
        takes no row out of an append-only table without that: if it is another than it was, what
        was read may be gone.

    Raises:
        LedgerError: otherwise.
    """
    check_schema(db, SCHEMA, _LATER if len(lacking(db, _TAGS)) == len(_TAGS) else (_INDEX,))
    version: int = db.execute("PRAGMA schema_version").fetchone()[0]
    return version


def replayed(db: sqlite3.Connection) -> tuple[LedgerState, Head]:
    """Read the whole chain, and return the state of the ledger and the chain's head.

    Raises:
        LedgerError: if any entry is not the one that may stand there.
    """
    _check_pages(db)
    state, head = LedgerState(), CHAIN.start
    history = History.within(db)
    alone, shared = History(None), not_alone(db)
    stored = tagged = 0
    #: The batch that the entry before was about: the next one is about it, too, as a rule.
    held: tuple[int | None, tuple[bytes, ...]] = (None, ())
    for entry in each_entry(db):
        body, seq = CHAIN.check(entry, head), entry.seq
        try:
            answer = seq
            if entry.kind != "answer" or body.get("again") is not False:
                batch = str(body.get("campaign")), str(body.get("batch"))
                answer = state.first_answer(*batch) or 0
            if answer != held[0]:
                held = answer, queries_of(db, answer) if answer else ()
            stored += len(held[1]) if answer == seq else 0
            tags = tags_of(db, seq) if answer == seq and "votes" in body else ()
            tagged += len(tags)
            # Most queries are asked once: only of the others does the past say anything.
            state.follow(
                Entry(seq, entry.kind, body, entry.written_at, held[1], tags),
                history if answer in shared else alone,
            )
        except PateError as error:
            raise LedgerError(f"entry {seq} ({entry.kind}) does not hold: {error}") from error
        head = entry.head
    if db.execute("SELECT count(*) FROM queries").fetchone()[0] != stored:
        raise LedgerError("the ledger holds queries that no entry is about")
    if not lacking(db, _TAGS) and db.execute("SELECT count(*) FROM tags").fetchone()[0] != tagged:
        raise LedgerError("the ledger holds tags of votes that no entry is about")
    return state, head


def _check_pages(db: sqlite3.Connection) -> None:
    """Check that table and index of the queries say the same.

    Raises:
        LedgerError: if they do not.
    """
    found = db.execute("PRAGMA integrity_check('queries')").fetchone()[0]
    if found != "ok":
        raise LedgerError(f"the file is damaged ({found})")
