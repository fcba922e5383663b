"""Is the ledger that is about to be gone on with the campaign's newest?

One in a database may be an older one: a dump put back, a standby that missed the end. The campaign's
folder knows the newest entry; where the folder is lost, somebody has to say.
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
    """Say whether a ledger that was opened may only be closed.

    Args:
        place: of the ledger.
        store: the open ledger.
        state: where its campaign stands.
        head: the newest that is known from elsewhere, and was found in it.
        close: whether to close it if it may be an older one.

    Raises:
        UsageError: if it may be an older one and neither ``head`` nor ``close`` is given, or if
            ``close`` is and it is known.
    """
    if state.phase == "finished":  # nothing can follow
        return False
    if head is None and store.could_be_older(state.head.seq):
        if close:
            return True
        raise UsageError(
            f"{place} ends at entry {state.head.seq}, is {state.phase}, and its folder here does not "
            "know whether that is its newest: were the database an older one, what came after would "
            "be spent a second time. Give `pate-server resume` --head with the last head that the "
            "server had, known from elsewhere than this database; or --close, which keeps these "
            "labels, answers nothing more, and is safe whatever was lost"
        )
    if close:
        raise UsageError("--close is for a ledger whose newest entry is not known: leave it out")
    return False
