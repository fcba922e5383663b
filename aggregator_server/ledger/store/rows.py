"""The rows of a ledger: written with an entry, and carried whole from one place to another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import insert, select

from aggregator_server.ledger.store import tables

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection, Table

    from aggregator_server.ledger.chain import Entry

#: A row for one of the tables beside the chain.
Row = tuple["Table", "Mapping[str, object]"]

#: Rows in memory at a time while a ledger is carried over; one may be a batch of votes.
_AT_A_TIME: Final = 64


def write_entry(connection: Connection, entry: Entry, rows: Sequence[Row] = ()) -> None:
    """Write an entry and the rows that belong to it, in the transaction of ``connection``."""
    # That the chain there ends where ours does is seen to by the tables: numbers have no gaps, and
    # digests are unique.
    connection.execute(
        insert(tables.entries).values(
            seq=entry.seq,
            kind=entry.kind,
            body=entry.body,
            previous=entry.previous,
            digest=entry.digest,
            written_at=entry.written_at,
        )
    )
    for table, row in rows:
        connection.execute(insert(table).values(entry=entry.seq, **row))


def releases(rows: Sequence[Mapping[str, object]]) -> list[Row]:
    """Return rows for the table of releases."""
    return [(tables.releases, row) for row in rows]


def carry_over(source: Connection, target: Connection) -> None:
    """Copy all rows of a ledger into a new one, unchecked."""
    for table in tables.metadata.sorted_tables:
        first = next(iter(table.primary_key.columns))
        question = select(table).order_by(first).execution_options(yield_per=_AT_A_TIME)
        with source.execute(question) as found:
            for some in found.mappings().partitions():
                target.execute(insert(table), [dict(row) for row in some])
