"""Sums that this party unmasked, and with whom, so that no two of them can be subtracted.

The difference of two sums over the same queries reveals the
votes of parties in only one of them.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pate.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pate.campaign.offer import Offer


@dataclass(frozen=True, slots=True)
class How:
    """Whose votes are in an unmasked sum: two sums that differ in it reveal votes.

    ``survivors`` covers identity keys, since a name may be another party elsewhere.
    """

    survivors: bytes
    source: str

    @classmethod
    def of(cls, survivors: Sequence[str], offer: Offer, source: str) -> How:
        """Return whose votes are in a sum of a campaign."""
        keys = dict(zip(offer.roster or (), offer.identities or (), strict=False))
        text = json.dumps([[name, keys.get(name, "")] for name in survivors])
        return cls(hashlib.sha256(text.encode()).digest(), source)


@dataclass(frozen=True)
class Earlier:
    """A sum that was unmasked before."""

    offer: Offer
    batch: str
    how: How


def check_unmasking(
    offer: Offer, batch: str, how: How, earlier: Iterable[Earlier], *, allow_other: bool
) -> None:
    """Check that a batch may be unmasked, given earlier sums with at least one of its queries.

    The difference of its sum and an earlier one may reveal no votes. ``allow_other``: whether
    another campaign may have unmasked them with other parties or data.
    """
    for each in earlier:
        # The difference between votes of teachers and of records reveals no votes.
        if each.offer.records_vote == offer.records_vote:
            if offer.sums.distributed and offer.continues(each.offer):
                continue  # noisy sums of a series, in which no unit votes twice
            same = each.offer.campaign == offer.campaign
            _check_query(offer, batch, how, each, allow=allow_other and not same)


def check_exact(offer: Offer, how: How, others: Iterable[tuple[Offer, How]]) -> None:
    """Check that exact sums of records' votes all have the same parties and data.

    Whatever the queries, each record is in the sum once: the difference of two sums, added up over
    the queries, is the number of records of each class in only one of them.
    """
    if not exact_records(offer):
        return
    for theirs, opened in others:
        if theirs.campaign != offer.campaign and exact_records(theirs) and opened != how:
            raise RefusedError(
                f"exact sums of records' votes were unmasked in campaign {theirs.campaign[:8]} "
                "with other parties or other data of ours: the difference of two sums would "
                "reveal how many records of each class one of them has; noise by the parties "
                "(--noise distributed), or repeat_queries = 'allow', would permit it"
            )


def _check_query(offer: Offer, batch: str, how: How, earlier: Earlier, *, allow: bool) -> None:
    same = earlier.offer.campaign == offer.campaign
    if earlier.how != how and not allow:
        others = "other parties" if earlier.how.survivors != how.survivors else "other data of ours"
        where = "in another batch" if same else f"in campaign {earlier.offer.campaign[:8]}"
        raise RefusedError(
            f"a query of batch {batch[:8]} was unmasked before, {where}, with {others}: the "
            "difference of two sums would reveal votes"
            + ("" if same else "; repeat_queries = 'allow' would permit it")
        )
    if same and earlier.batch != batch and offer.sums.distributed:
        raise RefusedError(
            f"a query of batch {batch[:8]} was unmasked in batch {earlier.batch[:8]} before: "
            "two noisy sums of the same votes are less private than one; if the public set has "
            "duplicate inputs, remove them"
        )


def exact_records(offer: Offer) -> bool:
    """Return whether the sums of a campaign are records' votes without noise."""
    return offer.records_vote and not offer.sums.distributed
