"""Records of a campaign in a party's ledger, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from party.ledger.accountant import Totals

if TYPE_CHECKING:
    from pate.campaign.offer import Offer


@dataclass(frozen=True)
class BatchRecord:
    """A batch that this party answered.

    Attributes:
        batch: its digest, hex.
        queries: number of queries.
        answered_at: times at which votes on it left, UTC.
        survivors: with whom its sum was unmasked; None if it was not.
        opened_at: time of the unmasking, UTC.
    """

    batch: str
    queries: int
    answered_at: tuple[str, ...]
    survivors: tuple[str, ...] | None = None
    opened_at: str | None = None


@dataclass(frozen=True, slots=True)
class EndingRecord:
    """The server's report of the end of a campaign.

    Attributes:
        queries_asked: queries put to the mechanism, each round counted separately.
        labels_released: labels released by the server.
        epsilon: of the cap.
        delta: of that epsilon.
        at: time of the report, UTC.
        cause: why it ended before it asked for votes; empty otherwise.
    """

    queries_asked: int
    labels_released: int
    epsilon: float
    delta: float
    at: str
    cause: str = ""


@dataclass(frozen=True, slots=True)
class FileRecord:
    """An envelope with our answers, as a file that left.

    Attributes:
        number: of the envelope that it answers, among those of the campaign for us.
        answers: SHA-256 of that file, hex.
        digest: SHA-256 of our file, hex.
        size: of our file, in bytes.
        at: when it was recorded, UTC: just before it appeared.
    """

    number: int
    answers: str
    digest: str
    size: int
    at: str


@dataclass(frozen=True)
class CampaignRecord:
    """A party's ledger's content about one campaign.

    Attributes:
        offer: the terms, as far as known; its ``queries`` are meaningless here.
        joined_at: UTC.
        last: number of the last entry about it.
        queries: number of distinct queries answered.
        batches: in the order of their first answers.
        ending: None while it may continue.
        view: of our data; see :func:`party.ledger.sent_votes.view_of`.
        units: votes of units in it, if it is a campaign of a series.
        files: envelopes that left, in order.
    """

    offer: Offer
    joined_at: str
    last: int
    queries: int = 0
    batches: tuple[BatchRecord, ...] = ()
    ending: EndingRecord | None = None
    view: str = ""
    units: int = 0
    files: tuple[FileRecord, ...] = ()

    @property
    def asked(self) -> int:
        """Queries summed over batches."""
        return sum(each.queries for each in self.batches)

    @property
    def opened(self) -> tuple[BatchRecord, ...]:
        """The batches whose sum was unmasked."""
        return tuple(each for each in self.batches if each.survivors is not None)

    @property
    def totals(self) -> Totals:
        """The accountant's input."""
        return Totals(self.offer, self.queries, self.asked)
