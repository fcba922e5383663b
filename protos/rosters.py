"""The roster of a campaign, sent once to each party: later requests have only its hash.

A request without its roster is completed with the one that has this hash before anything reads it, so all
checks see the same message as if the roster had been in it.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from pate.masking.encoding import digest, whole
from protos.bounds import HASH_BYTES, check, length
from protos.pate.v1 import vote_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Most rosters that a party stores, each of another campaign.
_MOST: Final = 8


def roster_hash(roster: Iterable[vote_pb2.Member]) -> bytes:
    """Return the SHA-256 hash of a roster: names, identities and teachers in their order, 32 bytes."""
    parts = (
        part
        for each in roster
        for part in (each.name.encode(), each.identity, whole(each.teachers))
    )
    return digest("roster of a campaign", *parts)


def without_roster(campaign: vote_pb2.Campaign) -> vote_pb2.Campaign:
    """Return a campaign without the members of its roster."""
    short = vote_pb2.Campaign()
    short.CopyFrom(campaign)
    del short.terms.roster[:]
    return short


class Rosters:
    """The rosters that a party was sent, the most recently used ones."""

    def __init__(self) -> None:
        self._by_hash: OrderedDict[bytes, vote_pb2.Terms] = OrderedDict()

    def complete(self, request: vote_pb2.PartyRequest) -> None:
        """Put the roster into a request that has its hash.

        Raises:
            ProtocolError: if this roster was not sent before, or there is one in the request, too.
        """
        if not request.roster:
            return
        length(request.roster, HASH_BYTES, "the hash of a roster")
        check(
            request.campaign.HasField("terms") and not request.campaign.terms.roster,
            "a request with a roster and the hash of one, or without terms",
        )
        known = self._by_hash.get(request.roster)
        check(known is not None, "a request with the hash of a roster that was not sent before")
        assert known is not None  # noqa: S101 - checked
        self._by_hash.move_to_end(request.roster)
        request.campaign.terms.roster.extend(known.roster)
        request.roster = b""

    def keep(self, campaign: vote_pb2.Campaign) -> None:
        """Store the roster of a campaign, checked, if it has one."""
        if not campaign.terms.roster:
            return
        key = roster_hash(campaign.terms.roster)
        if key not in self._by_hash:
            self._by_hash[key] = vote_pb2.Terms(roster=campaign.terms.roster)
        self._by_hash.move_to_end(key)
        while len(self._by_hash) > _MOST:
            self._by_hash.popitem(last=False)
