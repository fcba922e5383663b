"""The hash chain of a party's ledger: what an entry is, its tables, and how a file is read back."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Final

from party.ledger_state import LedgerState
from pate.errors import LedgerError, PateError
from pate.runtime.hash_chain import canonical, entry_digest

if TYPE_CHECKING:
    import sqlite3

    from party.offer import Json

#: What tells the file from others: "patl" in ASCII.
APPLICATION_ID: Final = 0x7061746C
#: Of its entries' digests.
TAG: Final = b"pate party ledger entry v1\0"
_GENESIS: Final = hashlib.sha256(b"pate party ledger v1").digest()

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
    *(
        f"CREATE TRIGGER {table}_no_{verb} BEFORE {verb} ON {table} "
        "BEGIN SELECT RAISE(ABORT, 'this ledger is append-only'); END"
        for table in ("entries", "queries")
        for verb in ("update", "delete")
    ),
)


def check_tables(db: sqlite3.Connection) -> None:
    """Check that the file has the tables and triggers that make it append-only, and no others.

    Raises:
        LedgerError: otherwise.
    """
    found = {sql for (sql,) in db.execute("SELECT sql FROM sqlite_master") if sql is not None}
    if found != set(SCHEMA):
        raise LedgerError("the ledger's tables or triggers were altered")


def replayed(db: sqlite3.Connection) -> tuple[LedgerState, int, bytes]:
    """Read the whole chain, and return the books, the number of entries and the last digest.

    Raises:
        LedgerError: if any entry is not the one that may stand there.
    """
    state, seq, head = LedgerState(), 0, _GENESIS
    #: Queries by campaign and batch, each stored with its first answer.
    batches: dict[tuple[str, str], tuple[bytes, ...]] = {}
    stored = 0
    rows = db.execute(
        "SELECT seq, kind, body, previous, digest, written_at FROM entries ORDER BY seq"
    )
    for number, kind, text, previous, digest, at in rows:
        seq += 1
        if (number, previous) != (seq, head):
            raise LedgerError(f"entry {seq} is missing, or does not follow the one before it")
        if digest != entry_digest(TAG, seq, kind, text, previous, at):
            raise LedgerError(f"entry {seq} was altered: its digest does not hold")
        try:
            body = _parsed(text)
            batch = (str(body.get("campaign")), str(body.get("batch")))
            if kind == "answer" and body.get("again") is False:
                batches[batch] = _queries_of(db, seq)
                stored += len(batches[batch])
            hashes = batches.get(batch, ())
            state.follow(kind, body, at, hashes)
        except PateError as error:
            raise LedgerError(f"entry {seq} ({kind}) does not hold: {error}") from error
        head = digest
    if db.execute("SELECT count(*) FROM queries").fetchone()[0] != stored:
        raise LedgerError("the ledger holds queries that no entry is about")
    return state, seq, head


def _parsed(text: str) -> dict[str, Json]:
    try:
        body = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise LedgerError("it is not JSON") from error
    # One text per value: else two readers could take the same bytes for different things.
    if not isinstance(body, dict) or canonical(body) != text:
        raise LedgerError("it is not in canonical form")
    return body


def _queries_of(db: sqlite3.Connection, entry: int) -> tuple[bytes, ...]:
    rows = db.execute(
        "SELECT position, query FROM queries WHERE entry = ? ORDER BY position", (entry,)
    )
    found = []
    for at, (position, query) in enumerate(rows):
        if position != at:
            raise LedgerError(f"query {at} is missing")
        found.append(query)
    return tuple(found)
