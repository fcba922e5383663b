"""The state of a party's ledger: what its entries have recorded, and what they forbid.

Campaigns are in memory. Hashes of queries are not, since a party answers millions: they are looked up in the
file, whose index of ``queries`` is not covered by the chain and is checked against the table at each opening.
"""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime
from itertools import chain, groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from party.ledger.accountant import Bounds, LedgerView, Totals
from party.ledger.bundles import Listing
from party.ledger.sent_votes import (
    Earlier,
    How,
    queries_digest,
)
from party.ledger.synthesis import Syntheses
from pate.errors import LedgerError, RefusedError, UsageError
from pate.foreign import json_value

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from party.ledger.campaigns import Campaign, CampaignRecord
    from pate.campaign.offer import Offer
    from pate.storage.entries import Transaction


class LedgerState:
    """The ledger as of one entry; ``rows`` counts those of other tables that entries commit to."""

    def __init__(self, history: History | None = None) -> None:
        self.history = history or History()
        self.joined: dict[str, Campaign] = {}
        self.rows: Counter[str] = Counter()
        #: Releases of synthetic rows.
        self.syntheses = Syntheses()
        #: Bounds of the home's own accountant.
        self.bounds = Bounds()
        #: Bundles of keys ahead that left.
        self.bundles = Listing()

    @property
    def in_series(self) -> bool:
        """Whether units have voted in a series: then it matters whether an entry is lost."""
        return any(each.units is not None for each in self.joined.values())

    def campaigns(self) -> tuple[CampaignRecord, ...]:
        """Return a record of every campaign, in the order in which they were joined."""
        return tuple(each.record() for each in self.joined.values())

    def totals(self) -> tuple[Totals, ...]:
        """Return totals of the answers, by campaign, in the same order."""
        return tuple(each.totals for each in self.joined.values())

    def unanswered(self, key: bytes, since: datetime, now: datetime) -> list[datetime]:
        """Return when campaigns of a key were joined that had no votes, after ``since``, sorted.

        A clock that was ahead has joined them later than ``now``; they do not count.
        """
        joined = (
            datetime.fromisoformat(each.joined_at)
            for each in self.joined.values()
            if each.offer.key == key and not each.batches
        )
        return sorted(at for at in joined if since < at <= now)

    def campaign(self, campaign: str) -> Campaign:
        """Return a campaign; RefusedError if it was never joined."""
        current = self.joined.get(campaign)
        if current is None:
            raise RefusedError(f"campaign {campaign[:8]} was never joined by this party")
        return current

    def holds(self, campaign: str, batch: str) -> bool:
        """Return whether a batch was answered."""
        current = self.joined.get(campaign)
        return current is not None and batch in current.batches

    def voted(
        self,
        offer: Offer,
        units: Sequence[bytes],
        before: int | None = None,
    ) -> frozenset[bytes]:
        """Return those of these units that have voted in another campaign than the offer's.

        Hashes of units are different in each series.
        """
        current = self.joined.get(offer.campaign)
        own = {} if current is None else current.answers
        history = self.history if before is None else self.history.of(before)
        found = history.voted(units, before)
        return frozenset(unit for unit, entry in found.items() if entry not in own)

    def view(self, offer: Offer, batch: str | None, hashes: Sequence[bytes] | None) -> LedgerView:
        """Return the ledger after ``offer`` is answered."""
        if hashes is not None and len(hashes) != offer.queries:
            raise UsageError(f"{len(hashes)} hashes for {offer.queries} queries")
        current = self.joined.get(offer.campaign)
        totals = [each.totals for name, each in self.joined.items() if name != offer.campaign]
        known = offer if current is None else offer.after(current.offer)
        queries, asked = (0, 0) if current is None else (current.queries, current.asked)
        if current is None or batch is None or batch not in current.batches:
            asked += offer.queries
            if hashes is None:
                queries += offer.queries
            else:
                queries += (
                    len(set(hashes)) if current is None else current.new(hashes, self.history)
                )
        totals.append(Totals(known, queries, asked))
        return LedgerView(
            tuple(totals),
            (offer.campaign, offer.queries),
            current is not None,
            self.syntheses.paid(),
        )

    def needs(self, offer: Offer) -> bool:
        """Return whether ``offer`` has new terms."""
        current = self.joined.get(offer.campaign)
        return current is None or replace(offer.after(current.offer), queries=0) != current.offer

    def among(self, campaigns: Iterable[str]) -> Iterator[Campaign]:
        """Yield the known ones of these campaigns, in a fixed order."""
        return (self.joined[name] for name in sorted(campaigns) if name in self.joined)

    def opened(
        self, batches: Iterable[tuple[str, str]], campaign: str, how: How
    ) -> Iterator[Earlier]:
        """Yield those of these batches whose sums were unmasked, and could be subtracted.

        Skips batches that are not in the ledger (yet), and those of other campaigns that were
        unmasked with the same parties and data: an equal sum reveals nothing new.
        """
        for other, these in groupby(sorted(batches), key=itemgetter(0)):
            current = self.joined.get(other)
            if current is None or (other != campaign and set(current.hows.values()) <= {how}):
                continue
            for _, batch in these:
                if batch in current.hows:
                    yield Earlier(current.offer, batch, current.hows[batch])

    def hows(self) -> Iterator[tuple[Offer, How]]:
        """Yield of each unmasked sum the terms, and whose votes are in it."""
        for current in self.joined.values():
            for how in dict.fromkeys(current.hows.values()):
                yield current.offer, how

    def opened_as(
        self,
        campaign: str,
        batch: str,
        hashes: Sequence[bytes],
        survivors: Sequence[str],
    ) -> bool:
        """Return whether exactly this unmasking is recorded."""
        current = self.joined.get(campaign)
        record = None if current is None else current.batches.get(batch)
        return (
            current is not None
            and record is not None
            and record.survivors == tuple(sorted(survivors))
            and current.digests[batch] == queries_digest(hashes)
        )


# --- earlier entries, from the file ---------------------------------------------------------------


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
