"""A party's part in masked sums: one attempt per campaign at a time, each step once.

Here the votes are masked. Everything that leaves before the last step is uniformly random to
others, and the last step unmasks at most one sum: the party's ledger ensures that over restarts and
attempts, :mod:`pate.masking.party` within one.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from party.voting.casting import with_noise
from pate.errors import ProtocolError
from pate.masking.party import PartyMasking
from pate.noise.exact import require_production
from pate.runtime.failpoints import reach
from protos import masked
from protos.masked import names_from_bits
from protos.pate.v1 import vote_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from party.ledger.ledger import PartyLedger
    from party.voting.casting import NoiseShares
    from pate.campaign.offer import Offer
    from pate.noise.exact import NoiseInShares
    from pate.votes import Counts

#: Most campaigns with masked sums in progress.
_MOST_OPEN: Final = 8


@dataclass
class _Attempt:
    """One attempt at the sum of one batch."""

    asked: vote_pb2.AskKeys
    hashes: Sequence[bytes]
    masking: PartyMasking
    #: Digest of the votes recorded in the ledger for it.
    recorded: bytes = b""
    survivors: tuple[str, ...] = ()


@dataclass(kw_only=True, eq=False, repr=False)
class MaskedSums:
    """A party's part in masked sums of either kind: noise is stored first, and what leaves is recorded."""

    name: str
    identity: Ed25519PrivateKey
    ledger: PartyLedger
    shares: NoiseShares
    noise: NoiseInShares

    def __post_init__(self) -> None:
        require_production(self.noise)

    def _with_noise(self, offer: Offer, batch: vote_pb2.Batch, votes: Counts) -> Counts:
        """Return votes with our noise share, if the campaign uses them."""
        answered = self.ledger.answered(offer.campaign, batch.digest)
        return with_noise(offer, batch, votes, self.shares, self.noise, answered=answered)


@dataclass(kw_only=True, eq=False, repr=False)
class MaskedVotes(MaskedSums):
    """Takes a party through the five steps of sums whose keys come first; what it answered is in memory."""

    _open: OrderedDict[str, _Attempt] = field(default_factory=OrderedDict, init=False)

    def keys(
        self,
        offer: Offer,
        asked: vote_pb2.AskKeys,
        hashes: Sequence[bytes],
    ) -> vote_pb2.MaskingKeys:
        """Start an attempt on our own copy of a batch, which ends an earlier one in this campaign."""
        ongoing = self._open.get(offer.campaign)
        if (
            ongoing is not None
            and ongoing.asked.attempt == asked.attempt
            and ongoing.asked != asked
        ):
            raise ProtocolError("the same attempt at a masked sum, over other queries")
        if ongoing is None or ongoing.asked.attempt != asked.attempt:
            if ongoing is not None:
                ongoing.masking.forget()
            masking = PartyMasking(
                masked.context_of(offer, asked),
                name=self.name,
                identity=self.identity,
                random=secrets.token_bytes,
            )
            ongoing = _Attempt(asked, hashes, masking)
            self._open[offer.campaign] = ongoing
            self._open.move_to_end(offer.campaign)
            while len(self._open) > _MOST_OPEN:
                self._open.popitem(last=False)[1].masking.forget()
        return masked.keys_to_wire(ongoing.masking.keys())

    def boxes(self, offer: Offer, asked: vote_pb2.AskShares) -> vote_pb2.Boxes:
        """Seal shares of our secrets for the others; see :mod:`pate.masking.party`."""
        ongoing = self._held(offer, asked.attempt)
        keys = {each.party: masked.keys_from_wire(each.keys) for each in asked.keys}
        outline = masked.outline_from_wire(asked, ongoing.masking.context.names)
        return vote_pb2.Boxes(boxes=masked.boxes_to_wire(ongoing.masking.shares(keys, outline)))

    def batch(self, offer: Offer, attempt: bytes) -> vote_pb2.Batch:
        """Return the batch of an attempt."""
        return self._held(offer, attempt).asked.batch

    def masked(
        self,
        offer: Offer,
        asked: vote_pb2.AskMasked,
        *,
        votes: Callable[[], Counts],
        check: Callable[[Counts], None],
        record: Callable[[Counts], None],
    ) -> vote_pb2.MaskedVotes:
        """Mask our votes, with our noise share if the campaign uses them.

        ``check`` compares them with all earlier votes. ``record`` does so, too, and records them in
        the party's ledger, before they leave and after their noise is durable: so for every answer
        in a ledger, or in an earlier copy of it, the noise is stored.
        """
        ongoing = self._held(offer, asked.attempt)
        # Before anything is stored: what is, is in the ledger a moment later, which bounds it.
        boxes = masked.boxes_from_wire(asked.boxes)
        ongoing.masking.check_boxes(boxes)
        values = votes()
        which = hashlib.sha256(values.astype("<i8").tobytes()).digest()
        new = ongoing.recorded != which
        if new:
            check(values)
        hidden = self._with_noise(offer, ongoing.asked.batch, values)
        # First, so that a step that is refused leaves no entry. Nothing leaves before the entry is there.
        packed = ongoing.masking.mask(boxes, hidden)
        if new:
            record(values)
            ongoing.recorded = which
        return vote_pb2.MaskedVotes(packed=packed)

    def proof(self, offer: Offer, asked: vote_pb2.AskProof) -> vote_pb2.VoteProof:
        """Prove in zero knowledge that the masked votes are well formed."""
        ongoing = self._held(offer, asked.attempt)
        proof = ongoing.masking.prove(asked.seed)
        reach("votes-proved")
        return vote_pb2.VoteProof(content=proof)

    def consent(self, offer: Offer, asked: vote_pb2.AskConsent) -> vote_pb2.Consent:
        """Sign the list of parties in the sum."""
        ongoing = self._held(offer, asked.attempt)
        roster = ongoing.masking.context.names
        survivors = names_from_bits(asked.survivors, roster, "a list of survivors")
        signature = ongoing.masking.sign_survivors(survivors)
        ongoing.survivors = survivors
        reach("survivors-signed")
        return vote_pb2.Consent(signature=signature)

    def opening(
        self, offer: Offer, asked: vote_pb2.AskOpening, *, allow_other: bool
    ) -> vote_pb2.Opening:
        """Reveal the shares that unmask the sum, if no other survivors were used before."""
        ongoing = self._held(offer, asked.attempt)
        opening = ongoing.masking.unmask(masked.signatures_from_wire(asked.signatures))
        batch, of = ongoing.asked.batch.digest, ongoing.survivors
        self.ledger.open_batch(offer.campaign, batch, ongoing.hashes, of, allow_other=allow_other)
        reach("opening-recorded")
        return masked.unmasking_to_wire(opening)

    def forget(self, campaign: bytes) -> None:
        """Delete a campaign's remaining secrets."""
        ongoing = self._open.pop(campaign.hex(), None)
        if ongoing is not None:
            ongoing.masking.forget()

    def _held(self, offer: Offer, attempt: bytes) -> _Attempt:
        ongoing = self._open.get(offer.campaign)
        if ongoing is None or ongoing.asked.attempt != attempt:
            raise ProtocolError("a step of a masked sum that was not started here, or is over")
        # Under other terms, such as another order of classes, the votes would change, and the
        # difference of two sums would reveal them.
        if not hmac.compare_digest(offer.digest, ongoing.masking.context.terms):
            raise ProtocolError("a step of a masked sum with other terms than it was started with")
        return ongoing
