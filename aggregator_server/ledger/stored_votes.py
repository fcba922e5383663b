"""Reading summed votes and the student's predictions from a ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from aggregator_server.ledger import encoding
from pate.errors import LedgerError
from pate.storage.entries import each_row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aggregator_server.ledger.encoding import Probabilities
    from aggregator_server.ledger.state import CampaignState
    from aggregator_server.ledger.store.stores import Store
    from pate.votes import Counts


def all_counts(store: Store, state: CampaignState) -> Counts:
    """Return all summed votes: (queries, classes) int64, zeros where there are none.

    Where records vote in rounds they are those of the last one.
    """
    whole = np.zeros((state.spec.queries, len(state.classes)), dtype=np.int64)
    with store.reading() as db:
        for first, count, blob in each_row(db, "batches", ("first", "count", "counts")):
            votes = encoding.unpack_counts(blob, count, len(state.classes))
            whole[list(state.voted.at(range(first, first + count)))] = votes
    return whole


def counts_of(store: Store, state: CampaignState, queries: Sequence[int]) -> Counts:
    """Return the summed votes of some queries, (queries, classes) int64, in their order.

    Where records vote in rounds they are those of the current one.
    Each batch with one of them is read once, and one is in memory at a time.

    Raises:
        LedgerError: if there are none for one of them.
    """
    found = np.empty((len(queries), len(state.classes)), dtype=np.int64)
    places = [state.voted.place_of(query) for query in queries]
    start = state.places.start
    at = np.array([-1 if place is None else start + place for place in places], dtype=np.int64)
    firsts = np.array([batch.first for batch in state.batches], dtype=np.int64)
    ends = firsts + [batch.count for batch in state.batches]
    of = np.searchsorted(firsts, at, side="right") - 1
    if bool(np.any((at < 0) | (of < 0))) or bool(np.any(at >= ends[of])):
        raise LedgerError("there are no votes in the ledger on some of these queries")
    with store.reading() as db:
        for each in np.unique(of).tolist():
            batch = state.batches[each]
            (blob,) = db.execute(
                "SELECT counts FROM batches WHERE first = ?", (batch.first,)
            ).fetchone()
            rows = np.flatnonzero(of == each)
            votes = encoding.view_counts(blob, batch.count, len(state.classes))
            found[rows] = votes[at[rows] - batch.first]
    return found


def predictions_for(store: Store, state: CampaignState, round_: int) -> Probabilities | None:
    """Return the student's predictions for a round, or None: (queries, classes) float32."""
    with store.reading() as db:
        row = db.execute(
            "SELECT probabilities FROM predictions WHERE round = ?", (round_,)
        ).fetchone()
    if row is None:
        return None
    return encoding.unpack_probabilities(row[0], state.spec.queries, len(state.classes))
