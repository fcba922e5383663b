"""Freshness: whether the ledger to resume is the campaign's newest.

A ledger in a database may be stale: a restored dump, a standby that missed the end. The campaign's
folder knows the newest entry; if the folder is lost, the operator has to state it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pate.errors import UsageError

if TYPE_CHECKING:
    from aggregator_server.ledger.state import CampaignState
    from aggregator_server.ledger.store.place import Place
    from aggregator_server.ledger.store.stores import Store
    from pate.storage.hash_chain import Head


def must_close(
    place: Place, store: Store, state: CampaignState, *, head: Head | None, close: bool
) -> bool:
    """Return whether an opened ledger is closed where it ends: if that was asked for.

    Args:
        place: of the ledger.
        store: the open ledger.
        state: of its campaign.
        head: the newest that is known from elsewhere, and was found in it.
        close: whether to close it.

    Raises:
        UsageError: if it may be stale, and it is neither to be closed nor is its head known.
    """
    if state.phase == "finished":  # nothing can follow
        return False
    if not close and head is None and store.could_be_older(state.head.seq):
        raise UsageError(
            f"{place} ends at entry {state.head.seq}, is {state.phase}, and its folder here "
            "does not know whether that is its newest entry: with a stale database, later "
            "spending would be repeated. Give `pate-server resume` --head with the last head "
            "of the server, from a source other than this database; or --close, which keeps "
            "these labels, answers no further query, and is safe whatever was lost"
        )
    return close
