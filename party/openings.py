"""Which queries' sums this party opened, with whom: so that no two of them can be subtracted.

A part of :mod:`party.ledger_state`. The difference of two sums over the same votes shows the votes of
whoever is in one of them alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pate.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from party.offer import Offer


@dataclass(frozen=True)
class How:
    """Whose votes are in a sum that was opened: two sums that differ in it show votes.

    Attributes:
        survivors: names and identity keys; a name alone may be another party elsewhere.
        source: of our own votes.
    """

    survivors: tuple[tuple[str, str], ...]
    source: str


@dataclass(frozen=True)
class _Opening:
    offer: Offer
    batch: str
    how: How


class Openings:
    """The openings so far."""

    def __init__(self) -> None:
        #: By query and campaign: the first batch in which it was opened, and how, which is the
        #: same in every other batch of that campaign.
        self._held: dict[bytes, dict[str, _Opening]] = {}

    def add(self, offer: Offer, batch: str, how: How, hashes: Sequence[bytes]) -> None:
        """Keep an opening that was checked."""
        made = _Opening(offer, batch, how)
        for each in hashes:
            self._held.setdefault(each, {}).setdefault(offer.campaign, made)

    def check(
        self, offer: Offer, batch: str, how: How, hashes: Sequence[bytes], *, allow_other: bool
    ) -> None:
        """Check that a batch may be opened.

        Args:
            offer: of its campaign.
            batch: its digest, hex.
            how: whose votes are in its sum.
            hashes: of its queries.
            allow_other: whether queries that another campaign opened otherwise may be opened.

        Raises:
            RefusedError: if the difference of its sum and an earlier one would show votes.
        """
        for each in set(hashes):
            for campaign, earlier in self._held.get(each, {}).items():
                # Votes of teachers less votes of records are nobody's votes.
                if earlier.offer.records_vote == offer.records_vote:
                    same = campaign == offer.campaign
                    _check_query(offer, batch, how, earlier, allow=allow_other and not same)
        if _exact_records(offer) and not allow_other:
            self._check_exact(offer, how)

    def _check_exact(self, offer: Offer, how: How) -> None:
        """Check that exact sums of records' votes are all of the same parties and data.

        Whatever the queries are, each record is in the sum once: the difference of two sums, added
        up over the queries, is how many records of each class are in one of them alone.
        """
        others = {
            campaign: earlier.how
            for opened in self._held.values()
            for campaign, earlier in opened.items()
            if campaign != offer.campaign and _exact_records(earlier.offer)
        }
        for campaign, theirs in others.items():
            if theirs != how:
                raise RefusedError(
                    f"exact sums of records' votes were opened in campaign {campaign[:8]} with "
                    "other parties or other data of ours: the difference of two sums would show how "
                    "many records of each class one of them has; noise by the parties "
                    "(--noise distributed), or repeat_queries = 'allow', would permit it"
                )


def _check_query(offer: Offer, batch: str, how: How, earlier: _Opening, *, allow: bool) -> None:
    same = earlier.offer.campaign == offer.campaign
    if earlier.how != how and not allow:
        others = "other parties" if earlier.how.survivors != how.survivors else "other data of ours"
        where = "in another batch" if same else f"in campaign {earlier.offer.campaign[:8]}"
        raise RefusedError(
            f"a query of batch {batch[:8]} was opened before, {where}, with {others}: the "
            "difference of two sums would show votes"
            + ("" if same else "; repeat_queries = 'allow' would permit it")
        )
    if same and earlier.batch != batch and offer.noise == "distributed":
        raise RefusedError(
            f"a query of batch {batch[:8]} was opened in batch {earlier.batch[:8]} before: two "
            "noisy sums of the same votes are less private than one; if the public set "
            "holds inputs twice, leave the copies out"
        )


def _exact_records(offer: Offer) -> bool:
    return offer.records_vote and offer.noise == "central"
