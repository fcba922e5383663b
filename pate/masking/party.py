"""A party's side of a masked sum: five or six answers, each given once, in a fixed order.

A malicious server learns at most one sum, over at least t - c honest parties: every key, box and
mask is bound to the context and to the digest of all announced keys; a list of survivors is valid
when t parties have signed it, and an honest party signs only one; it reveals of another party a
share of the seed or of the mask key, never both; it does not mask with a sender whose box it did
not get, and signs no list with it; and masks are used for one answer, which is stored. Proof:
docs/proofs/masked-sum.md, sections 3 to 5.

The sixth answer proves its votes, if the context requires it, after they are masked and before any
party signs the list of survivors. A box that does not open stops the party before its votes are
masked, and the error names the sender: continuing without that sender would be safe but useless,
since others have masked with it.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from pate.errors import ProtocolError, QuorumError, RefusedError
from pate.masking.announced import (
    Announced,
    Outline,
    check_consents,
    open_boxes,
    sign_keys,
    survivors_to_sign,
)
from pate.masking.context import Phase, phases
from pate.masking.encoding import SIGNATURE_BYTES, check_bytes
from pate.masking.keys import BOX_BYTES, Keys, OneTime, commitment
from pate.masking.masks import hide, revealed
from pate.masking.proofs.argument import Prover
from pate.masking.proofs.transcript import SEED_BYTES, Statement, commit_seed
from pate.masking.ring import ChaChaStream, LinkedStream, MaskStream, Ring, VoteStream
from pate.masking.shamir import UnmaskingShares

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from numpy.typing import NDArray

    from pate.masking.context import Context

Answer = TypeVar("Answer")
Value = TypeVar("Value")


class Answers:
    """The answers of one attempt; proofs of votes take one more phase."""

    def __init__(self, *, proved: bool = False) -> None:
        self.phase = Phase.KEYS
        self._order = phases(proved=proved)
        self._given: dict[Phase, tuple[object, object]] = {}

    def given(self, phase: Phase, request: object, kind: type[Answer]) -> Answer | None:
        """Return the stored answer to a repeated request, None if the next phase is asked for."""
        if self.phase is Phase.FORGOTTEN:
            raise RefusedError("this attempt at a masked sum is over: begin another one")
        if phase in self._given:
            before, answer = self._given[phase]
            if before != request:
                raise RefusedError(
                    f"asked for {phase.value} a second time, with another request: an attempt answers one"
                )
            assert isinstance(answer, kind)  # noqa: S101 - what give() was given
            return answer
        if phase is not self.phase:
            raise ProtocolError(f"asked for {phase.value}, and the next is {self.phase.value}")
        return None

    def give(self, phase: Phase, request: object, answer: Answer) -> Answer:
        """Store an answer, advance to the next phase, and return the answer."""
        self._given[phase] = (request, answer)
        self.phase = self._order[self._order.index(phase) + 1]
        return answer

    def forget(self) -> None:
        """Drop all answers and refuse further requests."""
        self.phase = Phase.FORGOTTEN
        self._given = {}


class PartyMasking:
    """One party's side of one attempt: a repeated request gets the same answer, another is refused."""

    def __init__(
        self,
        context: Context,
        *,
        name: str,
        identity: Ed25519PrivateKey,
        random: Callable[[int], bytes],
        stream: VoteStream | None = None,
    ) -> None:
        context.roster.check_own(name, identity)
        self.context = context
        self.name = name
        self._identity = identity
        self._random = random
        votes = stream or ChaChaStream(Ring(context.matrix.bits))
        proved = context.proofs is not None
        self._stream: MaskStream = LinkedStream(votes, context.links) if proved else votes
        self._answers = Answers(proved=proved)
        self._prover: Prover | None = None
        self._own: OneTime | None = None
        self._keys: Keys | None = None
        self._announced: Announced | None = None
        #: Shares (of the seed, of the mask key) that this party received, by owner of the secrets.
        self._held: dict[str, tuple[int, int]] = {}
        #: The boxes that were opened before the votes existed, and what is in them.
        self._boxes: tuple[dict[str, bytes], dict[str, tuple[int, int]]] | None = None
        self._survivors: tuple[str, ...] = ()

    @property
    def phase(self) -> Phase:
        """The next phase."""
        return self._answers.phase

    def keys(self) -> Keys:
        """Generate and sign the keys of this attempt."""
        if (given := self._answers.given(Phase.KEYS, None, Keys)) is not None:
            return given
        own = OneTime.make(self._random)
        committed = commitment(self.context.digest, self.name, own.seed)
        bare = Keys(own.mask.public, own.share.public, committed, b"")
        signed = sign_keys(self.context, self.name, self._identity, bare)
        self._own, self._keys = own, signed
        return self._answers.give(Phase.KEYS, None, signed)

    def shares(self, keys: Mapping[str, Keys], outline: Outline | None = None) -> dict[str, bytes]:
        """Share the seed and the mask key among this party's neighbours: a sealed box of 82 bytes each.

        ``keys`` are of this party and all its neighbours, ``outline`` has hashes of those that are left out.
        """
        self.context.roster.check_members(keys, "a list of keys")
        for name, each in keys.items():
            if not isinstance(each, Keys):
                raise ProtocolError(f"{name} announced something that is not its keys")
            each.check(name)
        outline = Outline(tuple(sorted(keys))) if outline is None else outline
        self.context.roster.check_members(outline.names, "a list of keys")
        request = (outline, dict(keys))
        if (sealed := self._answers.given(Phase.SHARES, request, dict)) is not None:
            return dict(sealed)
        if keys.get(self.name) != self._keys:
            raise ProtocolError(f"{self.name} is missing in a list of keys, or with other keys")
        announced = Announced(self.context, keys, outline)
        holders = announced.graph.holders(self.name)
        missing = sorted(holders - keys.keys())
        if missing:
            raise ProtocolError(
                f"the keys of {missing[0]} are missing, which masks with {self.name}"
            )
        own, points = _kept(self._own), self.context.roster.points
        parts = own.deal(
            announced.graph.threshold,
            {name: points[name] for name in sorted(holders)},
            self._random,
        )
        others = {name: keys[name].share_key for name in sorted(holders - {self.name})}
        boxes = own.boxes(parts, others, lambda name: announced.box(self.name, name))
        self._announced = announced
        self._held = {self.name: parts[self.name]}
        return dict(self._answers.give(Phase.SHARES, request, boxes))

    def check_boxes(self, boxes: Mapping[str, bytes]) -> None:
        """Check that votes may be masked with these boxes, before the votes exist."""
        request = self._request_of(boxes)
        if self._answers.given(Phase.MASKED, request, bytes) is None:
            self._opened(request)

    def mask(self, boxes: Mapping[str, bytes], values: NDArray[np.integer]) -> bytes:
        """Mask this party's votes with all neighbours whose boxes arrived; ``boxes`` are by sender.

        Values are (rows, classes) integers of any sign: votes, with noise if there is any. They are
        ignored in a repeated request: other values under the same masks would reveal the difference.
        The answer has residues as little-endian unsigned integers. If votes are proved, it has 32 bytes
        of a commitment to them, masked votes, and masked link masks of four bytes each.
        """
        request = self._request_of(boxes)
        if (given := self._answers.given(Phase.MASKED, request, bytes)) is not None:
            return given
        held = self._opened(request)
        announced, own = _kept(self._announced), _kept(self._own)
        self.context.matrix.check(values)
        committed, prover = b"", self._prover_of(values)
        if prover is not None:
            committed = prover.commitment
            values = np.concatenate([values.ravel(), prover.link_masks.ravel().astype(np.int64)])
        secrets = own.mask, own.seed
        masked = committed + hide(
            announced, self.name, secrets, values, sorted(boxes), self._stream
        )
        self._held.update(held)
        self._prover = prover
        # From here on only the received shares and the secrets of the vote proof are needed.
        self._own, self._boxes = None, None
        return self._answers.give(Phase.MASKED, request, masked)

    def _request_of(self, boxes: Mapping[str, bytes]) -> dict[str, bytes]:
        """Return boxes by sender, each of a party of the roster and of its size."""
        self.context.roster.check_members(boxes, "a list of boxes")
        for sender, box in boxes.items():
            check_bytes(box, BOX_BYTES, f"the box from {sender}")
        return dict(boxes)

    def _opened(self, boxes: dict[str, bytes]) -> dict[str, tuple[int, int]]:
        """Return the shares in boxes of enough neighbours, by sender."""
        if self._boxes is not None and self._boxes[0] == boxes:
            return self._boxes[1]
        announced = _kept(self._announced)
        graph = announced.graph
        strangers = sorted(boxes.keys() - graph.neighbours(self.name))
        if strangers:
            raise ProtocolError(f"a box from {strangers[0]}, which does not mask with {self.name}")
        if len(boxes) + 1 < graph.threshold:
            raise QuorumError(
                f"{len(boxes)} neighbours and {self.name} shared their secrets, "
                f"{graph.threshold} are needed"
            )
        held = open_boxes(announced, self.name, _kept(self._own).share, boxes)
        self._boxes = boxes, held
        return held

    def prove(self, seed: bytes) -> bytes:
        """Prove that the masked votes are valid, for the server's seed whose hash is in the context.

        Any other seed is refused: by choosing seeds for each party a server could read single votes.
        """
        check_bytes(seed, SEED_BYTES, "the seed of proofs")
        if (given := self._answers.given(Phase.PROOFS, seed, bytes)) is not None:
            return given
        fixed = self.context.proofs.seed_hash if self.context.proofs is not None else b""
        if not hmac.compare_digest(commit_seed(seed), fixed):
            raise ProtocolError("the seed of proofs is not the one of this attempt")
        proof = _kept(self._prover).prove(seed)
        self._prover = None
        return self._answers.give(Phase.PROOFS, seed, proof)

    def sign_survivors(self, survivors: Sequence[str]) -> bytes:
        """Sign the list of parties whose masked votes are in the sum.

        The signature is over the sorted list, the context and the announced keys. Refused is a list
        that names a party twice, one outside the roster or a neighbour that this party has not masked
        with, one without this party, one of fewer than t, and a second list.
        """
        self.context.roster.check_members(survivors, "a list of survivors")
        ordered = tuple(sorted(survivors))
        if (given := self._answers.given(Phase.CONSISTENCY, ordered, bytes)) is not None:
            return given
        announced = _kept(self._announced)
        listed = frozenset(ordered)
        if len(listed) != len(ordered):
            raise ProtocolError("the list of survivors has a party twice")
        if len(listed) < self.context.roster.threshold:
            raise QuorumError(
                f"{len(listed)} parties survive, {self.context.roster.threshold} are needed for a sum"
            )
        if self.name not in listed:
            raise ProtocolError(f"{self.name} is asked to sign a list of survivors without it")
        unknown = sorted(listed - set(announced.names))
        if unknown:
            raise ProtocolError(f"{unknown[0]} is listed as a survivor but announced no keys")
        unmasked = sorted((listed & announced.graph.neighbours(self.name)) - self._held.keys())
        if unmasked:
            raise ProtocolError(
                f"{unmasked[0]} is listed as a survivor, but its box never came to {self.name}"
            )
        signature = self._identity.sign(survivors_to_sign(announced, ordered))
        self._survivors = ordered
        return self._answers.give(Phase.CONSISTENCY, ordered, signature)

    def unmask(self, signatures: Mapping[str, bytes]) -> UnmaskingShares:
        """Reveal the shares that unmask the sum over the list that this party signed.

        Signatures over that list are of survivors among :attr:`pate.masking.graph.Graph.signers`, as many as
        reconstruct a secret. The answer has a share of the seed of each survivor, and of the mask key of each
        dropout that sealed a box; as far as this party received shares.
        """
        self.context.roster.check_members(signatures, "a list of signatures")
        for name, signature in signatures.items():
            check_bytes(signature, SIGNATURE_BYTES, f"the signature of {name}")
        request = dict(signatures)
        if (given := self._answers.given(Phase.UNMASK, request, UnmaskingShares)) is not None:
            return given
        check_consents(_kept(self._announced), self._survivors, signatures)
        opening = revealed(self._held, frozenset(self._survivors))
        self._held = {}
        return self._answers.give(Phase.UNMASK, request, opening)

    def forget(self) -> None:
        """Drop all secrets and answers; every further request is refused."""
        self._answers.forget()
        self._own = self._announced = self._prover = self._boxes = None
        self._held = {}

    def _prover_of(self, values: NDArray[np.integer]) -> Prover | None:
        if self.context.proofs is None:
            return None
        context, name = self.context, self.name
        return Prover(Statement(context.shape_of(name), context.digest, name), values, self._random)


def _kept(value: Value | None) -> Value:
    """Return a value of an earlier phase, which the order of phases guarantees."""
    if value is None:
        raise ProtocolError("a step of a masked sum before its prerequisites")
    return value
