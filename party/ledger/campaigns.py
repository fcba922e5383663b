"""The state of a campaign, and an entry, as used by the rules of a party's ledger.

A part of :mod:`party.ledger.rules`. Campaigns are in memory, a few kilobytes each; hashes of
queries are not: a party answers millions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from party.ledger.accountant import Totals
from party.ledger.records import BatchRecord, CampaignRecord, EndingRecord
from party.ledger.sent_votes import Given

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from party.ledger.history import History
    from party.ledger.series import UnitVotes
    from party.ledger.unmaskings import How
    from party.offer import Offer
    from pate.storage.hash_chain import Json


@dataclass(frozen=True)
class Entry:
    """One entry of the chain, read back.

    Attributes:
        seq: its number, from 1 on.
        kind: of the entry.
        body: of the entry.
        at: when it was written.
        hashes: of the queries of its batch; empty without a batch.
        tags: of the votes on them, if its first answer has some; see
            :mod:`party.ledger.sent_votes`.
        units: that vote in it, if its first answer has some; see :mod:`party.ledger.series`.
    """

    seq: int
    kind: str
    body: dict[str, Json]
    at: str
    hashes: Sequence[bytes] = ()
    tags: Sequence[bytes] = ()
    units: Sequence[bytes] = ()


@dataclass
class Campaign:
    """The state of a campaign for the rules.

    Attributes:
        offer: the terms, as far as known.
        joined_at: UTC.
        last: number of the last entry about it.
        batches: by their digests, in the order of their first answers.
        digests: of all queries of a batch, by batch.
        answers: number of the entry that is the first answer to a batch, and that batch.
        votes: digest of the tags of a batch's votes, by batch; absent in old ledgers.
        hows: whose votes are in the sum of an unmasked batch, by batch.
        queries: number of distinct queries answered.
        source: digest of the data and settings behind its votes; empty before the first.
        matrix: digest of what determines records' votes; see
            :func:`party.ledger.sent_votes.matrix_of`.
        view: of our data; see :func:`party.ledger.sent_votes.view_of`.
        units: that voted in it; None outside a series, and before its first answer.
        forgotten: whether entries of this ledger may have been lost since it voted.
        ending: None while it may continue.
    """

    offer: Offer
    joined_at: str
    last: int
    batches: dict[str, BatchRecord] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    answers: dict[int, str] = field(default_factory=dict)
    votes: dict[str, str] = field(default_factory=dict)
    hows: dict[str, How] = field(default_factory=dict)
    queries: int = 0
    source: str = ""
    matrix: str = ""
    view: str = ""
    units: UnitVotes | None = None
    forgotten: bool = False
    ending: EndingRecord | None = None

    @property
    def asked(self) -> int:
        """Queries summed over batches."""
        return sum(each.queries for each in self.batches.values())

    def new(self, hashes: Iterable[bytes], history: History) -> int:
        """Return how many distinct queries of ``hashes`` it was never asked before."""
        found = set(hashes)
        if self.answers:
            first, last = min(self.answers), max(self.answers)
            found -= history.known(tuple(found), first, last, self.answers)
        return len(found)

    @property
    def given(self) -> Given:
        """The value to compare new votes with."""
        return Given(self.offer, self.source, self.matrix, self.view, self.units)

    @property
    def totals(self) -> Totals:
        """The accountant's input."""
        return Totals(self.offer, self.queries, self.asked)

    def record(self) -> CampaignRecord:
        """Return it as a value."""
        return CampaignRecord(
            self.offer,
            self.joined_at,
            self.last,
            self.queries,
            tuple(self.batches.values()),
            self.ending,
            self.view,
            0 if self.units is None else self.units.number,
        )
