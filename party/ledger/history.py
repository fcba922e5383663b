"""History queries on a party's ledger file: which answers had a query, and with which votes.

The index of ``queries`` is not covered by the chain: it is checked against the table whenever a
ledger is opened. So no hash of a query has to be in memory.
"""

from __future__ import annotations

from contextlib import nullcontext
from itertools import chain
from typing import TYPE_CHECKING, Final

from pate.errors import LedgerError
from pate.foreign import json_value

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Container, Iterator, Sequence
    from contextlib import AbstractContextManager

#: Queries per SQL statement; any SQLite accepts that many values.
_AT_A_TIME: Final = 500
_PAIRS_AT_A_TIME: Final = 400
#: Above every entry's number.
_LAST: Final = 2**62


class History:
    """Earlier entries of a ledger's file.

    Args:
        reading: provides a connection for one query. None: an empty history.
    """

    def __init__(
        self, reading: Callable[[], AbstractContextManager[sqlite3.Connection]] | None
    ) -> None:
        self._reading = reading

    @classmethod
    def within(cls, db: sqlite3.Connection) -> History:
        """Return the history within one transaction."""
        return cls(lambda: nullcontext(db))

    def sharing(
        self, hashes: Sequence[bytes], before: int | None = None
    ) -> frozenset[tuple[str, str]]:
        """Return campaign and batch of every answer that has at least one of these queries.

        Args:
            hashes: of the queries.
            before: number of an entry; only earlier answers count. None: all count.
        """
        if self._reading is None:
            return frozenset()
        with self._reading() as db:
            found = {
                entry
                for some in _pieces(hashes)
                for (entry,) in db.execute(
                    f"SELECT DISTINCT entry FROM queries WHERE query IN ({_marks(some)}) "  # noqa: S608
                    "AND entry < ?",
                    (*some, _LAST if before is None else before),
                )
            }
            return frozenset(_batch_of(db, entry) for entry in found)

    def clashing(
        self, hashes: Sequence[bytes], tags: Sequence[bytes], before: int | None = None
    ) -> frozenset[tuple[str, str]]:
        """Return campaign and batch of every answer with other votes on one of these queries.

        Args:
            hashes: of the queries.
            tags: of the votes on them.
            before: as of :meth:`sharing`.
        """
        if self._reading is None:
            return frozenset()
        pairs = list(zip(hashes, tags, strict=True))
        with self._reading() as db:
            found: set[int] = set()
            for first in range(0, len(pairs), _PAIRS_AT_A_TIME):
                some = pairs[first : first + _PAIRS_AT_A_TIME]
                rows = db.execute(
                    f"WITH asked (query, tag) AS (VALUES {', '.join(['(?, ?)'] * len(some))}) "  # noqa: S608
                    "SELECT DISTINCT queries.entry FROM asked "
                    "JOIN queries ON queries.query = asked.query "
                    "JOIN tags ON tags.entry = queries.entry AND tags.position = queries.position "
                    "WHERE queries.entry < ? AND tags.tag <> asked.tag",
                    (*chain.from_iterable(some), _LAST if before is None else before),
                )
                found.update(entry for (entry,) in rows)
            return frozenset(_batch_of(db, entry) for entry in found)

    def voted(self, units: Sequence[bytes], before: int | None = None) -> dict[bytes, int]:
        """Return those of these units that have voted, with the number of the answer.

        Args:
            units: hashes; see :mod:`party.ledger.series`.
            before: as of :meth:`sharing`.
        """
        if self._reading is None:
            return {}
        with self._reading() as db:
            return {
                unit: entry
                for some in _pieces(units)
                for unit, entry in db.execute(
                    f"SELECT unit, entry FROM units WHERE unit IN ({_marks(some)}) AND entry < ?",  # noqa: S608
                    (*some, _LAST if before is None else before),
                )
            }

    def known(
        self, hashes: Sequence[bytes], first: int, last: int, answers: Container[int]
    ) -> frozenset[bytes]:
        """Return those of these queries that are in any of ``answers``, from ``first`` to ``last``."""
        if self._reading is None:
            return frozenset()
        with self._reading() as db:
            return frozenset(
                query
                for some in _pieces(hashes)
                for query, entry in db.execute(
                    f"SELECT query, entry FROM queries WHERE query IN ({_marks(some)}) "  # noqa: S608
                    "AND entry BETWEEN ? AND ?",
                    (*some, first, last),
                )
                if entry in answers
            )


def queries_of(db: sqlite3.Connection, entry: int) -> tuple[bytes, ...]:
    """Return the queries of a first answer, in order."""
    rows = db.execute(
        "SELECT position, query FROM queries WHERE entry = ? ORDER BY position", (entry,)
    )
    found = []
    for at, (position, query) in enumerate(rows):
        if position != at:
            raise LedgerError(f"query {at} is missing")
        found.append(query)
    return tuple(found)


def tags_of(db: sqlite3.Connection, entry: int) -> tuple[bytes, ...]:
    """Return the tags of a first answer's votes, in order; see :mod:`party.ledger.sent_votes`."""
    rows = db.execute("SELECT tag FROM tags WHERE entry = ? ORDER BY position", (entry,))
    return tuple(tag for (tag,) in rows)


def units_of(db: sqlite3.Connection, entry: int) -> tuple[bytes, ...]:
    """Return the units that vote in a first answer, ascending; see :mod:`party.ledger.series`."""
    rows = db.execute("SELECT unit FROM units WHERE entry = ? ORDER BY unit", (entry,))
    return tuple(unit for (unit,) in rows)


def not_alone(db: sqlite3.Connection) -> frozenset[int]:
    """Return the numbers of the answers with a query that is in the ledger more than once."""
    return frozenset(
        entry
        for (entry,) in db.execute(
            "SELECT DISTINCT entry FROM queries WHERE query IN "
            "(SELECT query FROM queries GROUP BY query HAVING count(*) > 1)"
        )
    )


def _batch_of(db: sqlite3.Connection, entry: int) -> tuple[str, str]:
    row = db.execute("SELECT body FROM entries WHERE seq = ?", (entry,)).fetchone()
    if row is None:
        raise LedgerError(f"entry {entry} is missing, but its queries exist")
    body = json_value(row[0])
    return str(body["campaign"]), str(body["batch"])


def _pieces(hashes: Sequence[bytes]) -> Iterator[tuple[bytes, ...]]:
    for first in range(0, len(hashes), _AT_A_TIME):
        yield tuple(hashes[first : first + _AT_A_TIME])


def _marks(values: Sequence[bytes]) -> str:
    return ", ".join("?" * len(values))
