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
    from collections.abc import Callable, Container, Iterator, Sequence
    from contextlib import AbstractContextManager

    from pate.storage.ledger import Transaction

#: Queries per SQL statement; any SQLite accepts that many values.
_AT_A_TIME: Final = 500
_PAIRS_AT_A_TIME: Final = 400
#: Above every entry's number.
_LAST: Final = 2**62


class History:
    """Earlier entries of a ledger's file; without ``reading``, which opens it, an empty history.

    While a ledger is read ``shared`` has the answers with a query that is in it more than once.
    """

    def __init__(
        self,
        reading: Callable[[], AbstractContextManager[Transaction]] | None = None,
        shared: Container[int] | None = None,
    ) -> None:
        self._reading = reading
        self._shared = shared
        #: The latest queries read: those of an answer are also those of its unmasking.
        self._latest: tuple[int, tuple[bytes, ...]] = (0, ())

    @classmethod
    def within(cls, db: Transaction) -> History:
        """Return the history for reading all of a ledger in one transaction."""
        rows = db.execute(
            "SELECT DISTINCT entry FROM queries WHERE query IN "
            "(SELECT query FROM queries GROUP BY query HAVING count(*) > 1)"
        )
        return cls(lambda: nullcontext(db), frozenset(entry for (entry,) in rows))

    def of(self, answer: int) -> History:
        """Return what may concern the queries of an answer: most queries are asked once."""
        return self if self._shared is None or answer in self._shared else History()

    def queries(self, answer: int) -> tuple[bytes, ...]:
        """Return the queries of a first answer, in order; LedgerError if one is missing."""
        if self._reading is None:
            return ()
        if answer != self._latest[0]:
            with self._reading() as db:
                rows = db.execute(
                    "SELECT position, query FROM queries WHERE entry = ? ORDER BY position",
                    (answer,),
                ).fetchall()
            for at, (position, _) in enumerate(rows):
                if position != at:
                    raise LedgerError(f"query {at} is missing")
            self._latest = answer, tuple(query for _, query in rows)
        return self._latest[1]

    def sharing(
        self, hashes: Sequence[bytes], before: int | None = None
    ) -> frozenset[tuple[str, str]]:
        """Return campaign and batch of every answer that has at least one of these queries."""
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
        """Return campaign and batch of every answer with other votes on one of these queries."""
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
        """Return those of these units that have voted, with the number of the answer."""
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


def _batch_of(db: Transaction, entry: int) -> tuple[str, str]:
    row = db.execute("SELECT body FROM entries WHERE seq = ?", (entry,)).fetchone()
    body = {} if row is None else json_value(row[0])
    if not isinstance(body, dict) or not {"campaign", "batch"} <= body.keys():
        raise LedgerError(f"entry {entry} is not an answer, but its queries exist")
    return str(body["campaign"]), str(body["batch"])


def _pieces(hashes: Sequence[bytes]) -> Iterator[tuple[bytes, ...]]:
    for first in range(0, len(hashes), _AT_A_TIME):
        yield tuple(hashes[first : first + _AT_A_TIME])


def _marks(values: Sequence[bytes]) -> str:
    return ", ".join("?" * len(values))
