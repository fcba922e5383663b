"""A party's part in masked sums: one attempt at a time and campaign, each step once.

Here the votes meet their masks. What leaves before the last step is uniformly random to everybody,
and the last step opens no more than one sum: the party's ledger sees to that over restarts and
attempts, :mod:`pate.masking.party` within one.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pate.errors import ProtocolError
from pate.masking.party import PartyMasking
from pate.noise.exact import require_production
from pate.noise.shares import draw_share
from pate.runtime.failpoints import reach
from protos import masked
from protos.pate.v1 import vote_pb2
from protos.terms import digest_of, share_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from party.ledger.ledger import PartyLedger
    from party.voting.noise_shares import NoiseShares
    from pate.noise.exact import Noise
    from pate.votes import Counts

#: Campaigns whose masked sums may be under way at the same time.
_MOST_OPEN: Final = 8


@dataclass
class _Attempt:
    """One attempt at the sum of one batch."""

    asked: vote_pb2.AskKeys
    hashes: Sequence[bytes]
    masking: PartyMasking
    #: Digest of the votes that the ledger has recorded for it.
    recorded: bytes = b""
    survivors: tuple[str, ...] = ()


class MaskedVotes:
    """Takes a party through the five steps of masked sums.

    Args:
        name: of the party.
        identity: its signing key.
        ledger: its own; an opening is in it before it leaves.
        shares: its noise shares, kept so that one batch has one.
        noise: where they are drawn from.

    Raises:
        UsageError: for a seeded source of noise.
    """

    def __init__(
        self,
        *,
        name: str,
        identity: Ed25519PrivateKey,
        ledger: PartyLedger,
        shares: NoiseShares,
        noise: Noise,
    ) -> None:
        require_production(noise)
        self._name = name
        self._identity = identity
        self._ledger = ledger
        self._shares = shares
        self._noise = noise
        self._open: OrderedDict[bytes, _Attempt] = OrderedDict()

    def keys(
        self,
        campaign: vote_pb2.Campaign,
        asked: vote_pb2.AskKeys,
        hashes: Sequence[bytes],
    ) -> vote_pb2.MaskingKeys:
        """Begin an attempt, which ends the one before it in this campaign.

        Args:
            campaign: checked, with its terms.
            asked: which attempt, and what is to be voted on.
            hashes: of its queries, in its order, of our own copy.

        Raises:
            ProtocolError: if there can be no such sum, or the same attempt is about other queries.
        """
        held = self._open.get(campaign.id)
        if held is not None and held.asked.attempt == asked.attempt and held.asked != asked:
            raise ProtocolError("the same attempt at a masked sum, over other queries")
        if held is None or held.asked.attempt != asked.attempt:
            if held is not None:
                held.masking.forget()
            masking = PartyMasking(
                masked.context_of(campaign, asked),
                name=self._name,
                identity=self._identity,
                random=secrets.token_bytes,
            )
            held = _Attempt(asked, hashes, masking)
            self._open[campaign.id] = held
            self._open.move_to_end(campaign.id)
            while len(self._open) > _MOST_OPEN:
                self._open.popitem(last=False)[1].masking.forget()
        return masked.keys_to_wire(held.masking.keys())

    def boxes(self, campaign: vote_pb2.Campaign, asked: vote_pb2.AskShares) -> vote_pb2.Boxes:
        """Seal shares of our secrets for the others; see :mod:`pate.masking.party`."""
        held = self._held(campaign, asked.attempt)
        keys = {each.party: masked.keys_from_wire(each.keys) for each in asked.keys}
        return vote_pb2.Boxes(boxes=masked.boxes_to_wire(held.masking.shares(keys)))

    def batch(self, campaign: vote_pb2.Campaign, attempt: bytes) -> vote_pb2.Batch:
        """Return what an attempt is about."""
        return self._held(campaign, attempt).asked.batch

    def masked(
        self,
        campaign: vote_pb2.Campaign,
        asked: vote_pb2.AskMasked,
        *,
        votes: Callable[[], Counts],
        check: Callable[[Counts], None],
        record: Callable[[Counts], None],
    ) -> vote_pb2.MaskedVotes:
        """Mask our votes, and our noise share with them if the campaign has it.

        Args:
            campaign: checked, with its terms.
            asked: what the server sent.
            votes: computes the votes, (rows, classes) int64.
            check: compares them with all that left before.
            record: does so, too, and has it in the party's ledger that they leave; called before
                they do, and after their noise is durable: so a ledger that knows of an answer, and
                any copy of it that was made before one of the noise, has its noise.
        """
        held = self._held(campaign, asked.attempt)
        values = votes()
        which = hashlib.sha256(values.astype("<i8").tobytes()).digest()
        new = held.recorded != which
        if new:
            check(values)
        masked_values = values
        share = share_of(campaign)
        if share is not None:
            batch = held.asked.batch.digest
            masked_values = values + self._shares.share(
                campaign.id,
                batch,
                values,
                lambda cells: draw_share(self._noise, share, cells),
                answered=self._ledger.answered(campaign.id.hex(), batch),
            )
        if new:
            record(values)
            held.recorded = which
        packed = held.masking.mask(masked.boxes_from_wire(asked.boxes), masked_values)
        return vote_pb2.MaskedVotes(packed=packed)

    def proof(self, campaign: vote_pb2.Campaign, asked: vote_pb2.AskProof) -> vote_pb2.VoteProof:
        """Prove that what we masked are the votes of our teachers, and show nothing else."""
        held = self._held(campaign, asked.attempt)
        proof = held.masking.prove(asked.seed)
        reach("votes-proved")
        return vote_pb2.VoteProof(content=proof)

    def consent(self, campaign: vote_pb2.Campaign, asked: vote_pb2.AskConsent) -> vote_pb2.Consent:
        """Sign the list of those whose votes are in the sum."""
        held = self._held(campaign, asked.attempt)
        signature = held.masking.sign_survivors(tuple(asked.survivors))
        held.survivors = tuple(asked.survivors)
        reach("survivors-signed")
        return vote_pb2.Consent(signature=signature)

    def opening(
        self, campaign: vote_pb2.Campaign, asked: vote_pb2.AskOpening, *, allow_other: bool
    ) -> vote_pb2.Opening:
        """Reveal the shares that open the sum, if these queries were opened with nobody else.

        Args:
            campaign: checked, with its terms.
            asked: what the server sent.
            allow_other: whether another campaign may have opened the same queries.

        Raises:
            RefusedError: if these queries were opened before, with other parties in the sum: the
                difference of the two would show votes.
            DiskError: if it cannot be recorded; then nothing leaves.
        """
        held = self._held(campaign, asked.attempt)
        signatures = {each.party: each.signature for each in asked.signatures}
        opening = held.masking.unmask(signatures)
        self._ledger.open_batch(
            campaign.id.hex(),
            held.asked.batch.digest,
            held.hashes,
            held.survivors,
            allow_other=allow_other,
        )
        reach("opening-recorded")
        return masked.unmasking_to_wire(opening)

    def forget(self, campaign: bytes) -> None:
        """Wipe what is left of a campaign's secrets."""
        held = self._open.pop(campaign, None)
        if held is not None:
            held.masking.forget()

    def _held(self, campaign: vote_pb2.Campaign, attempt: bytes) -> _Attempt:
        held = self._open.get(campaign.id)
        if held is None or held.asked.attempt != attempt:
            raise ProtocolError("a step of a masked sum that was not begun here, or is over")
        # Under other terms than the masks are bound to, in another order of classes say, the
        # votes would be others, and the difference of two sums would show them.
        if not hmac.compare_digest(digest_of(campaign), held.masking.context.terms):
            raise ProtocolError("a step of a masked sum on other terms than it was begun on")
        return held
