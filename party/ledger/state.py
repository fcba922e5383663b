"""The state of a party's ledger: what its entries have recorded, and what they forbid.

Kinds of entries: :mod:`party.ledger.entries`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from party.ledger.accountant import Bounds, LedgerView, Totals
from party.ledger.bundles import Listing
from party.ledger.history import History
from party.ledger.sent_votes import (
    Earlier,
    How,
    queries_digest,
)
from party.ledger.synthesis import Syntheses
from pate.errors import RefusedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from party.ledger.campaigns import Campaign
    from pate.campaign.offer import Offer


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

    def campaigns(self) -> tuple[Campaign, ...]:
        """Return every campaign, in the order in which they were joined."""
        return tuple(each.copy() for each in self.joined.values())

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
