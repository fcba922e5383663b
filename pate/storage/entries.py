"""The tables of a ledger, in a SQLite file or a PostgreSQL database: append-only, read in order.

Every ledger has the table ``entries``, its chain, and further tables that the chain commits to. A
role names its tables; writing, reading and checking are here. The SQL is common to both databases,
with ``?`` for values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from pate.errors import LedgerError, StateError
from pate.storage.hash_chain import Entry, Head

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

#: A row outside the chain: the name of its table, and its values by column.
Row: TypeAlias = tuple[str, Mapping[str, object]]

_COLUMNS: Final = ("seq", "kind", "body", "previous", "digest", "written_at")
#: Rows in memory at a time while a table is read; one may be a batch of votes.
_AT_A_TIME: Final = 64


class Found(Protocol):
    """The result of a query."""

    def fetchone(self) -> Any:
        """Return the next row, or None."""

    def fetchall(self) -> list[Any]:
        """Return all further rows."""

    def __iter__(self) -> Iterator[Any]: ...


class Transaction(Protocol):
    """One transaction on a ledger; a connection of :mod:`sqlite3` is one."""

    def execute(self, question: str, values: Sequence[Any] = ..., /) -> Found:
        """Run a query, or write a row."""


def append(db: Transaction, entry: Entry, rows: Iterable[Row] = ()) -> None:
    """Write an entry, and the rows of other tables that belong to it.

    ``db``: the transaction; once it is committed, the entry is durable; ``rows``: that the chain
    commits to; their column ``entry`` is filled in.
    """
    if (last_head(db) or Head(0, entry.previous)) != Head(entry.seq - 1, entry.previous):
        raise StateError("the ledger was written by another process; stop that one")
    insert(db, "entries", {name: getattr(entry, name) for name in _COLUMNS})
    for table, row in rows:
        insert(db, table, {"entry": entry.seq, **row})


def insert(db: Transaction, table: str, row: Mapping[str, object]) -> None:
    """Write one row, given by column."""
    places = ", ".join("?" * len(row))
    db.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({places})", tuple(row.values()))  # noqa: S608


def each_row(
    db: Transaction, table: str, columns: Sequence[str], where: str = "", values: Sequence[Any] = ()
) -> Iterator[Any]:
    """Yield the rows of a table, a few in memory at a time.

    ``columns``: wanted; the first is the table's key, a number, by which rows come in order.
    """
    key, after = columns[0], tuple[Any, ...]()
    while True:
        wanted = [each for each in (where, f"{key} > ?" if after else "") if each]
        some = db.execute(
            f"SELECT {', '.join(columns)} FROM {table}"  # noqa: S608
            + (f" WHERE {' AND '.join(wanted)}" if wanted else "")
            + f" ORDER BY {key} LIMIT {_AT_A_TIME}",
            (*values, *after),
        ).fetchall()
        yield from some
        if len(some) < _AT_A_TIME:
            return
        if after and some[-1][0] <= after[0]:
            raise LedgerError(f"the file is damaged: rows of {table} are out of order")
        after = (some[-1][0],)


def each_entry(
    db: Transaction, least: int = 1, kinds: Sequence[str] | None = None
) -> Iterator[Entry]:
    """Yield the stored entries of a chain, unchecked, a few at a time.

    ``least``: number of the first entry wanted; at 1 all are, whatever their numbers.
    """
    conditions, values = [], list[Any]()
    if least > 1:
        conditions.append("seq >= ?")
        values.append(least)
    if kinds is not None:
        conditions.append(f"kind IN ({', '.join('?' * len(kinds))})")
        values.extend(kinds)
    for row in each_row(db, "entries", _COLUMNS, " AND ".join(conditions), values):
        yield Entry(*row)


def last_head(db: Transaction) -> Head | None:
    """Return the stored head of the chain, None if it is empty."""
    row = db.execute("SELECT seq, digest FROM entries ORDER BY seq DESC LIMIT 1").fetchone()
    return None if row is None else Head(*row)


def require_entry(db: Transaction, head: Head) -> None:
    """Check that a verified chain has an entry that is known from elsewhere."""
    row = db.execute("SELECT digest FROM entries WHERE seq = ?", (head.seq,)).fetchone()
    if row is None:
        last = last_head(db)
        raise LedgerError(
            f"entry {head.seq} was in this ledger and is missing: it ends at {last.seq if last else 0}"
        )
    if row[0] != head.digest:
        raise LedgerError(f"entry {head.seq} differs from the expected {head}")


def append_only(table: str, said: str) -> tuple[str, ...]:
    """Return triggers that make a SQLite table append-only."""
    return tuple(
        f"CREATE TRIGGER {table}_no_{verb.lower()} BEFORE {verb} ON {table} "
        f"BEGIN SELECT RAISE(ABORT, '{said}'); END"
        for verb in ("UPDATE", "DELETE")
    )


def check_schema(db: Transaction, wanted: Collection[str]) -> None:
    """Check that a SQLite file has exactly the tables and triggers of an append-only ledger."""
    rows = db.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL")
    found = {(name.casefold(), _named(sql)[1]) for name, sql in rows}
    if odd := found ^ set(map(_named, wanted)):
        names = ", ".join(sorted({name for name, _ in odd}))
        raise LedgerError(f"the ledger's tables or triggers were altered: {names}")


def _named(statement: str) -> tuple[str, str]:
    """Return the name that a statement creates, and its normalised text."""
    text = " ".join(statement.split()).casefold()
    return text.split()[2], text
