"""The hash chain of a party's ledger: what an entry is, its tables, and how a file is read back."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from party.ledger.campaigns import Entry, Nothing
from party.ledger.history import FilePast, not_alone, parsed, queries_of, tags_of
from party.ledger.rules import LedgerState
from pate.errors import LedgerError, PateError

if TYPE_CHECKING:
    import sqlite3

#: What tells the file from others: "patl" in ASCII.
APPLICATION_ID: Final = 0x7061746C
_GENESIS: Final = hashlib.sha256(b"pate party ledger v1").digest()

#: By which a query of an earlier batch is found.
_INDEX: Final = "CREATE INDEX queries_by_query ON queries (query)"
#: Of the votes on each query; a ledger that an earlier version began has none; see
#: :mod:`party.ledger.sent_votes`.
_TAGS: Final = (
    "CREATE TABLE tags (entry INTEGER NOT NULL REFERENCES entries (seq), position INTEGER NOT NULL, "
    "tag BLOB NOT NULL, PRIMARY KEY (entry, position)) STRICT, WITHOUT ROWID"
)


def _guards(table: str) -> tuple[str, ...]:
    return tuple(
        f"CREATE TRIGGER {table}_no_{verb} BEFORE {verb} ON {table} "
        "BEGIN SELECT RAISE(ABORT, 'this ledger is append-only'); END"
        for verb in ("update", "delete")
    )


#: What a ledger that was begun by an earlier version lacks.
_LATER: Final = (_INDEX, _TAGS, *_guards("tags"))
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
    *_guards("entries"),
    *_guards("queries"),
    *_LATER,
)


def complete(db: sqlite3.Connection) -> None:
    """Give a ledger that was begun by an earlier version what it lacks.

    Raises:
        LedgerError: if its tables and triggers are not what they should be.
    """
    check_tables(db)
    held = _statements(db)
    for statement in _LATER:
        if statement not in held:
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
    held = _statements(db)
    tags = {_TAGS, *_guards("tags")}
    if held | set(_LATER) != set(SCHEMA) or held & tags not in (set(), tags):
        raise LedgerError("the ledger's tables or triggers were altered")
    version: int = db.execute("PRAGMA schema_version").fetchone()[0]
    return version


def _statements(db: sqlite3.Connection) -> set[str]:
    return {sql for (sql,) in db.execute("SELECT sql FROM sqlite_master") if sql is not None}


def replayed(db: sqlite3.Connection) -> tuple[LedgerState, int, bytes]:
    """Read the whole chain, and return the books, the number of entries and the last digest.

    Raises:
        LedgerError: if any entry is not the one that may stand there.
    """
    _check_pages(db)
    state, seq, head = LedgerState(), 0, _GENESIS
    past = FilePast.within(db)
    alone, shared = Nothing(), not_alone(db)
    stored = tagged = 0
    #: The batch that the entry before was about: the next one is about it, too, as a rule.
    held: tuple[int | None, tuple[bytes, ...]] = (None, ())
    rows = db.execute(
        "SELECT seq, kind, body, previous, digest, written_at FROM entries ORDER BY seq"
    )
    for number, kind, text, previous, digest, at in rows:
        seq += 1
        if (number, previous) != (seq, head):
            raise LedgerError(f"entry {seq} is missing, or does not follow the one before it")
        try:
            body = parsed(seq, kind, text, previous, digest, at)
            answer = seq
            if kind != "answer" or body.get("again") is not False:
                batch = str(body.get("campaign")), str(body.get("batch"))
                answer = state.first_answer(*batch) or 0
            if answer != held[0]:
                held = answer, queries_of(db, answer) if answer else ()
            stored += len(held[1]) if answer == seq else 0
            tags = tags_of(db, seq) if answer == seq and "votes" in body else ()
            tagged += len(tags)
            # Most queries are asked once: only of the others does the past say anything.
            state.follow(
                Entry(seq, kind, body, at, held[1], tags), past if answer in shared else alone
            )
        except PateError as error:
            raise LedgerError(f"entry {seq} ({kind}) does not hold: {error}") from error
        head = digest
    if db.execute("SELECT count(*) FROM queries").fetchone()[0] != stored:
        raise LedgerError("the ledger holds queries that no entry is about")
    if _TAGS in _statements(db) and db.execute("SELECT count(*) FROM tags").fetchone()[0] != tagged:
        raise LedgerError("the ledger holds tags of votes that no entry is about")
    return state, seq, head


def _check_pages(db: sqlite3.Connection) -> None:
    """Check that table and index of the queries say the same.

    Raises:
        LedgerError: if they do not.
    """
    found = db.execute("PRAGMA integrity_check('queries')").fetchone()[0]
    if found != "ok":
        raise LedgerError(f"the file is damaged ({found})")
