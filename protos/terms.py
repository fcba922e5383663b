"""A campaign on the wire: its text, sent to a party once, and the digest of it in every later request.

What was sent is checked when it arrives, and stored once the party has compared it with the terms that it
accepted. A request with the digest of another campaign cannot be read, and the party asks for the whole.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from pate.campaign.announced import LONGEST_TEXT, Announced
from pate.campaign.offer import Offer
from pate.codes import code_of
from pate.errors import ProtocolError, UsageError
from pate.foreign import inflated
from pate.masking.ring import ring_bits
from protos.bounds import HASH_BYTES, check, length

if TYPE_CHECKING:
    from protos.pate.v1 import vote_pb2

#: Most campaigns that a party stores.
_MOST: Final = 8
#: What texts have in common: packed with it, that of a small campaign takes a third. A part of the protocol.
_COMMON: Final = (
    b'{"mechanism":"confident-gnmax","sigma1":"125","sigma2":"40","threshold":188,"votes_per_unit":1}'
    b'{"mechanism":"distributed-neighbour","scale":null,"share":"","honest":4,"code":"dense-64 residual",'
    b'"adjacency":"change"}"composition":"zcdp""embeddings """images 28x28x1""table ""code":"each-1000"'
    b'"series":"","most_votes":4095,"most_votes":null,"noise":"distributed""aggregation":"plain"'
    b'"unit":"patient""classes":null,"classes":["0","1","2","3","4","5","6","7","8","9"]'
    b'{"announced":{"aggregation":"masked","aggregator":"confident-gnmax","classes":["0","1"],"colluders":1,'
    b'"delta":1e-05,"epsilon":2.0,"id":"0","min_parties":3,"most_votes":null,"noise":"central",'
    b'"public_set":"","queries":10000,"rounds":1,"schema":"","unit":"record","vote_proofs":false,'
    b'"wanted_teachers":10},"settled":{"cap":"1/10","composition":"gdp","mechanisms":[{"mechanism":"gnmax",'
    b'"sigma":"40","votes_per_unit":1}],"roster":[{"identity":"","name":"","teachers":10},{"identity":"'
)


def packed(text: str) -> bytes:
    """Return the text of a campaign, packed for a message."""
    packer = zlib.compressobj(
        zlib.Z_BEST_COMPRESSION, zlib.DEFLATED, -zlib.MAX_WBITS, zdict=_COMMON
    )
    return packer.compress(text.encode()) + packer.flush()


def offer_in(key: bytes, content: bytes) -> Offer:
    """Return the campaign that a party was sent.

    ``key``: that signed it, 32 bytes.
    """
    return Offer.of_text(key, _unpacked(content))


def announced_in(content: bytes) -> Announced:
    """Return what is announced of the campaign that a student was sent; errors as above."""
    return Announced.of_text(_unpacked(content))


def _unpacked(content: bytes) -> bytes:
    try:
        return inflated(content, LONGEST_TEXT, _COMMON)
    except ValueError as error:
        raise ProtocolError(f"the terms of a campaign: {error}") from error


class NotSentError(ProtocolError):
    """A request has the digest of a campaign that was not sent before, or is forgotten."""

    def __init__(self, request: vote_pb2.PartyRequest) -> None:
        super().__init__("a request with the digest of a campaign that was not sent before")
        self.request = request


class Campaigns:
    """The campaigns that a party has accepted, as they were sent, the most recently used ones."""

    def __init__(self) -> None:
        self._of: OrderedDict[tuple[bytes, str], Offer] = OrderedDict()

    def of(self, key: bytes, request: vote_pb2.PartyRequest) -> Offer:
        """Return the campaign of a request: that in it, checked, or the one of its digest.

        ``key``: of the campaign, which signed the request.
        """
        if request.campaign:
            check(not request.digest, "a request with a campaign and the digest of one")
            return offer_in(key, request.campaign)
        length(request.digest, HASH_BYTES, "the digest of a campaign")
        for whose, offer in self._of.items():
            if (whose[0], offer.digest) == (key, request.digest):
                self._of.move_to_end(whose)
                return offer
        raise NotSentError(request)

    def keep(self, offer: Offer) -> None:
        """Store a campaign in place of an earlier one of its id.

        ``offer``: of a request, compared with the terms that this party accepted.
        """
        whose = (offer.key, offer.campaign)
        self._of[whose] = offer
        self._of.move_to_end(whose)
        while len(self._of) > _MOST:
            self._of.popitem(last=False)


def bits_of(offer: Offer, rows: int, round_: int = 0) -> int:
    """Return the width of the integers of a masked sum over ``rows`` queries: 8, 16 or 32 bits.

    With noise the sum exceeds the bound with probability 2^-60; a sum that wrapped would be wrong, but
    equally private.
    """
    settled, code = offer.require_settled(), code_of(offer.announced.code)
    shares, most = settled.shares(round_), code.bounds(settled.teachers)[1]
    try:
        if shares is None:
            return ring_bits(most) if code.in_directions else exact_bits(most)
        cells = rows * len(offer.announced.classes or ())
        return ring_bits(most + shares.reach(len(settled.roster), cells))
    except UsageError as error:
        raise ProtocolError(f"a sum that is too large: {error}") from error


def exact_bits(teachers: int) -> int:
    """Return the width of the integers of a sum without noise: 8, 16 or 32 bits.

    The sum is in [0, M], which takes as many residues as [-M/2, M/2].

    >>> exact_bits(254), exact_bits(1000)
    (8, 16)
    """
    return ring_bits((teachers + 1) // 2)
