"""A campaign is sent to a party once: each later request has only the digest of its terms.

What was sent is checked when it arrives, and stored once the party has compared it with the terms that it
accepted. A request with the digest of another campaign cannot be read, and the party asks for the whole.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from pate.errors import ProtocolError
from protos.bounds import HASH_BYTES, check, length
from protos.pate.v1 import vote_pb2
from protos.terms import digest_of, offer_of

if TYPE_CHECKING:
    from pate.campaign.offer import Offer

#: Most campaigns that a party stores.
_MOST: Final = 8


class NotSentError(ProtocolError):
    """A request has the digest of a campaign that was not sent before, or is forgotten.

    Attributes:
        request: without its campaign.
    """

    def __init__(self, request: vote_pb2.PartyRequest) -> None:
        super().__init__("a request with the digest of a campaign that was not sent before")
        self.request = request


class Campaigns:
    """The campaigns that a party has accepted, as they were sent, the most recently used ones."""

    def __init__(self) -> None:
        self._of: OrderedDict[tuple[bytes, str], tuple[bytes, Offer, vote_pb2.Campaign]]
        self._of = OrderedDict()

    def complete(self, key: bytes, request: vote_pb2.PartyRequest) -> Offer:
        """Put the campaign into a request that has its digest, or check it and add the digest.

        Args:
            key: of the campaign, which signed the request.
            request: to be completed.

        Returns:
            What the campaign offers.

        Raises:
            NotSentError: if this campaign was not sent before.
            ProtocolError: if the request has both or neither, or its campaign is not valid.
        """
        if request.HasField("campaign"):
            check(not request.digest, "a request with a campaign and the digest of one")
            made = offer_of(key, request.campaign)
            request.digest = digest_of(request.campaign)
            return made
        length(request.digest, HASH_BYTES, "the digest of a campaign")
        for whose, (digest, offer, campaign) in self._of.items():
            if (whose[0], digest) == (key, request.digest):
                request.campaign.CopyFrom(campaign)
                self._of.move_to_end(whose)
                return offer
        raise NotSentError(request)

    def keep(self, offer: Offer, request: vote_pb2.PartyRequest) -> None:
        """Store the campaign of a request in place of an earlier one of its id.

        Args:
            offer: of the request, compared with the terms that this party accepted.
            request: completed.
        """
        whose = (offer.key, offer.campaign)
        if whose not in self._of or self._of[whose][0] != request.digest:
            campaign = vote_pb2.Campaign()
            campaign.CopyFrom(request.campaign)
            self._of[whose] = (request.digest, offer, campaign)
        self._of.move_to_end(whose)
        while len(self._of) > _MOST:
            self._of.popitem(last=False)
