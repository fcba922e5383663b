"""What a party's ledger says of a campaign, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from party.ledger.accountant import Totals

if TYPE_CHECKING:
    from party.offer import Offer


@dataclass(frozen=True)
class BatchRecord:
    """A batch that this party answered.

    Attributes:
        batch: its digest, hex.
        queries: how many it has.
        answered_at: when votes left for it, the first time and each one after, UTC.
        survivors: with whom its sum was opened; None if that did not happen.
        opened_at: when, UTC.
    """

    batch: str
    queries: int
    answered_at: tuple[str, ...]
    survivors: tuple[str, ...] | None = None
    opened_at: str | None = None


@dataclass(frozen=True, slots=True)
class EndingRecord:
    """How the server said that a campaign ended.

    Attributes:
        queries_asked: queries put to the mechanism, each round by itself.
        labels_released: labels that left the server.
        epsilon: what the cap is worth.
        delta: at which it is.
        at: when we were told, UTC.
    """

    queries_asked: int
    labels_released: int
    epsilon: float
    delta: float
    at: str


@dataclass(frozen=True)
class CampaignRecord:
    """All that a party's ledger has of one campaign.

    Attributes:
        offer: the terms, as far as they were ever known; its ``queries`` mean nothing here.
        joined_at: UTC.
        last: number of the last entry about it.
        queries: different queries of which votes left.
        batches: in the order of their first answers.
        ending: None while it may go on.
        view: how our data were seen; see :func:`party.ledger.sent_votes.view_of`.
    """

    offer: Offer
    joined_at: str
    last: int
    queries: int = 0
    batches: tuple[BatchRecord, ...] = ()
    ending: EndingRecord | None = None
    view: str = ""

    @property
    def asked(self) -> int:
        """Queries summed over different batches."""
        return sum(each.queries for each in self.batches)

    @property
    def opened(self) -> tuple[BatchRecord, ...]:
        """The batches whose sum was opened."""
        return tuple(each for each in self.batches if each.survivors is not None)

    @property
    def totals(self) -> Totals:
        """What an accountant looks at."""
        return Totals(self.offer, self.queries, self.asked)
