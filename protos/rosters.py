"""The roster of a masked campaign, sent once to each party: later requests have only its hash.

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

#: Most rosters that a party stores, one a campaign.
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
    """The rosters of the campaigns that a party has answered, the most recently used ones."""

    def __init__(self) -> None:
        self._of: OrderedDict[tuple[bytes, bytes], tuple[bytes, vote_pb2.Terms]] = OrderedDict()

    def complete(self, key: bytes, request: vote_pb2.PartyRequest) -> None:
        """Put the roster into a request that has its hash.

        Args:
            key: of the campaign, which signed the request.
            request: to be completed.

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
        whose = (key, request.campaign.id)
        sent, terms = self._of.get(whose, (b"", vote_pb2.Terms()))
        check(
            sent == request.roster, "a request with the hash of a roster that was not sent before"
        )
        self._of.move_to_end(whose)
        request.campaign.terms.roster.extend(terms.roster)
        request.roster = b""

    def keep(self, key: bytes, campaign: vote_pb2.Campaign) -> None:
        """Store the roster of a campaign, if it has one, in place of an earlier one of it.

        Args:
            key: of the campaign.
            campaign: read with its checks, and with terms that were compared with those that this party
                accepted.
        """
        roster = campaign.terms.roster
        if not roster:
            return
        whose, sent = (key, campaign.id), roster_hash(roster)
        if self._of.get(whose, (b"",))[0] != sent:
            self._of[whose] = (sent, vote_pb2.Terms(roster=roster))
        self._of.move_to_end(whose)
        while len(self._of) > _MOST:
            self._of.popitem(last=False)
