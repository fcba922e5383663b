"""Batches: the queries of a campaign in portions of bounded memory.

A batch is a contiguous range of the queries that are voted on. Its end depends only on public
numbers, by one rule for every campaign: never on votes, nor on who is connected.
docs/architecture.md explains why the same parties are in the sum of every batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aggregator_server.exchange.aggregation import Batch
from pate.campaign.order import query_of_round
from pate.data.values import batch_hash
from pate.errors import UsageError

if TYPE_CHECKING:
    from aggregator_server.ledger.state import CampaignState
    from pate.data.values import Inputs

#: Counts of one batch, queries times classes: at most half a MiB, for example 13,107 queries of 10
#: classes. Each batch costs its own keys and round trips, and needs all parties of the first one,
#: so smaller ones would be no better.
BATCH_COUNTS: Final = 2**17


def next_places(state: CampaignState, most: int = BATCH_COUNTS) -> range | None:
    """Return the places of the next queries to vote on; None if all have votes."""
    # A batch whose unmasking has begun is asked for again unchanged. One release is one matrix a round.
    gap = next(iter(state.missing_votes), None)
    if gap is None or state.spec.one_release:
        return gap
    if any((each.first, each.count) == (gap.start, len(gap)) for each in state.openings):
        return gap
    return gap[: max(1, most // len(state.classes))]


def batch_at(state: CampaignState, inputs: Inputs, places: range, shown: bytes = b"") -> Batch:
    """Return the batch of the queries at ``places``; ``shown``: bytes of the model of a round."""
    rows = state.voted.at(places)
    hashes = inputs.take(rows).row_hashes()
    if not state.spec.in_rounds:
        return Batch(rows, batch_hash(hashes))
    hashes = [query_of_round(each, state.round, shown) for each in hashes]
    return Batch(rows, batch_hash(hashes), state.round, shown)


def check_apart(state: CampaignState, inputs: Inputs, most: int = BATCH_COUNTS) -> None:
    """Check before the first batch that no query is in two, if votes contain the parties' noise."""
    # Two noisy sums of the same votes are less private than one, so no party unmasks a second.
    if not state.spec.sums.distributed or state.spec.one_release or state.openings:
        return
    size = max(1, most // len(state.classes))
    if len(state.voted) <= size:
        return
    found: dict[bytes, int] = {}
    for first in range(0, len(state.voted), size):
        rows = state.voted.rows[first : first + size]
        for row, each in zip(rows, inputs.take(rows).row_hashes(), strict=True):
            batch, same = found.setdefault(each, first), row
            if batch != first:
                raise UsageError(
                    f"input {same} of the public set is repeated, and this campaign asks for "
                    "its queries in several batches, each with its own noise: no party votes "
                    "on a query twice; remove the duplicates"
                )
