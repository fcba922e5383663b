"""The server's side of a masked sum: takes five or six answers of each party, and unmasks the sum.

An honest server learns nothing else; docs/proofs/masked-sum.md says what a malicious one learns.
Parties are not trusted: all their messages are checked, and all they can do is falsify their own
votes, or make an attempt fail.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np

from pate.errors import ProtocolError, QuorumError, UsageError
from pate.masking.announced import (
    Announced,
    KeyTree,
    check_keys,
    check_survivors,
    survivors_to_sign,
)
from pate.masking.context import Phase, phases
from pate.masking.encoding import check_bytes
from pate.masking.keys import BOX_BYTES, Keys, check_unlike
from pate.masking.masks import Collected, Unmasking
from pate.masking.proofs.transcript import commit_seed
from pate.masking.ring import ChaChaStream, LinkedStream, MaskStream, Ring, VoteStream
from pate.masking.shamir import UnmaskingShares

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from pate.masking.announced import KnownKeys, Outline
    from pate.masking.context import Context
    from pate.masking.ring import Residues


class SumServer(ABC):
    """The steps from masked votes to their sum, whether keys came in the same attempt or ahead.

    A refused message changes nothing. A repeated answer is ignored; a different one from the same party
    in the same phase is refused, and so is one that comes after its phase was closed. ``survivors`` is
    empty until their masked votes are in, and proved if required. ``faults`` has pairs (owner of the
    secret, sender of the share) of inconsistent shares that were not needed: one of the two is at
    fault.
    """

    def __init__(
        self,
        context: Context,
        order: Sequence[Phase],
        parties: Collection[str],
        stream: MaskStream,
    ) -> None:
        self.context = context
        self.phase = order[0]
        self.survivors: tuple[str, ...] = ()
        self.faults: tuple[tuple[str, str], ...] = ()
        self._order = order
        self._awaited = frozenset(parties)
        self._stream = stream
        self._total = stream.ring.reduce(np.zeros(context.values, dtype=np.int64))
        self._to_sign = b""
        self._masked: dict[str, bytes] = {}
        self._signed: dict[str, bytes] = {}
        self._openings: dict[str, UnmaskingShares] = {}
        self._answers: dict[Phase, Mapping[str, object]] = {
            Phase.MASKED: self._masked,
            Phase.CONSISTENCY: self._signed,
            Phase.UNMASK: self._openings,
        }
        self._result: NDArray[np.int64] | None = None

    @property
    @abstractmethod
    def _known(self) -> KnownKeys:
        """The keys of all parties; ProtocolError before they are announced."""

    @property
    @abstractmethod
    def _dealers(self) -> Collection[str]:
        """Names of the parties that shared their secrets."""

    @property
    def awaited(self) -> frozenset[str]:
        """Parties that may answer in this phase, because they answered in all earlier ones."""
        return self._awaited

    @property
    def answered(self) -> frozenset[str]:
        """Parties that have answered in this phase."""
        return frozenset(self._answers.get(self.phase, ()))

    @property
    def enough(self) -> bool:
        """Whether enough parties answered to continue."""
        answered = self.answered
        if self.phase is Phase.DONE or len(answered) < self.context.roster.threshold:
            return False
        if self.phase is Phase.KEYS:
            return True
        graph = self._known.graph
        if self.phase is Phase.CONSISTENCY and len(answered & graph.signers) < graph.threshold:
            return False
        # Every participant needs a threshold of holders; for unmasking, every dropout, too.
        parties = answered
        if self.phase is Phase.CONSISTENCY:
            parties = frozenset(self.survivors)
        elif self.phase is Phase.UNMASK:
            parties = frozenset(self.survivors) | self._dropped()
        return graph.enough(answered, parties)

    def take_signature(self, name: str, signature: bytes) -> None:
        """Take a party's signature over the list of survivors."""
        self._expect(Phase.CONSISTENCY, name)
        if self._is_repeated(self._signed, name, signature):
            return
        # Once for all: with a thousand parties the list is long.
        self._to_sign = self._to_sign or survivors_to_sign(self._known, self.survivors)
        check_survivors(self.context, name, self._to_sign, signature)
        self._signed[name] = signature

    def take_unmasking(self, name: str, opening: UnmaskingShares) -> None:
        """Take the shares that a party reveals."""
        self._expect(Phase.UNMASK, name)
        if not isinstance(opening, UnmaskingShares):
            raise ProtocolError(f"{name} sent something other than unmasking shares")
        if self._is_repeated(self._openings, name, opening):
            return
        holders = self._known.graph.holders(name)
        alive = frozenset(self.survivors)
        if opening.seed_shares.keys() != holders & alive:
            raise ProtocolError(f"{name} did not reveal a seed share of each survivor it should")
        if opening.key_shares.keys() != holders & frozenset(self._dealers) - alive:
            raise ProtocolError(f"{name} did not reveal a key share of each dropout it should")
        opening.check(name)
        self._openings[name] = opening

    def advance(self) -> None:
        """Close the phase with the parties that answered.

        Raises:
            QuorumError: if they are too few; nothing is revealed and more may still answer.
            ProtocolError: if the shares do not reconstruct the secrets, or the sum is not that of
                the proved votes.
        """
        if self.phase is Phase.DONE:
            raise ProtocolError("this masked sum is finished")
        answered, needed = self.answered, self.context.roster.threshold
        if not self.enough:
            raise QuorumError(
                f"{len(answered)} parties of {len(self._awaited)} answered with "
                f"{self.phase.value}, {needed} are needed"
                + (
                    ", and some party has too few neighbours left"
                    if len(answered) >= needed
                    else ""
                )
            )
        self._close(answered)
        self.phase = self._order[self._order.index(self.phase) + 1]
        self._awaited = frozenset() if self.phase is Phase.DONE else self._next(answered)

    def result(self) -> NDArray[np.int64]:
        """Return the sum over the survivors: (rows, classes) residues in [0, 2^bits)."""
        if self._result is None:
            raise ProtocolError(f"there is no sum yet: the server waits for {self.phase.value}")
        return self._result.copy()

    def _close(self, answered: frozenset[str]) -> None:
        """Draw the conclusions from the answers of this phase."""
        if self.phase is (Phase.PROOFS if Phase.PROOFS in self._order else Phase.MASKED):
            self.survivors = tuple(sorted(answered))
        elif self.phase is Phase.UNMASK:
            self._result = self._unmasked()

    def _next(self, answered: frozenset[str]) -> frozenset[str]:
        """Return the parties that may answer in the next phase."""
        return answered

    def _unmasked(self) -> NDArray[np.int64]:
        known, alive = self._known, frozenset(self.survivors)
        total, unmasking = self._total.copy(), Unmasking(known, self._stream)
        dropouts = {name: sorted(known.graph.neighbours(name) & alive) for name in self._dropped()}
        unmasking.remove(total, self.survivors, dropouts, self._openings)
        self.faults = tuple(sorted(unmasking.faults))
        return self._counts(total).reshape(self.context.matrix.shape)

    def _counts(self, total: Residues) -> NDArray[np.int64]:
        """Return the sums of votes, (rows * classes,), from an unmasked total."""
        counts: NDArray[np.int64] = total.astype(np.int64)
        return counts

    def _dropped(self) -> frozenset[str]:
        """Parties that shared secrets but did not vote, and that survivors mask with."""
        alive, graph = frozenset(self.survivors), self._known.graph
        gone = frozenset(self._dealers) - alive
        return frozenset(name for name in gone if graph.neighbours(name) & alive)

    def _expect(self, phase: Phase, name: str) -> None:
        if self.phase is not phase:
            late = " (too late)" if phase is Phase.MASKED and self.survivors else ""
            raise ProtocolError(
                f"{phase.value} of {name!r:.80}, while the server waits for {self.phase.value}{late}"
            )
        if name not in self._awaited:
            raise ProtocolError(
                f"{phase.value} of {name!r:.80}, which takes no part in this sum or missed a phase"
            )

    def _is_repeated(self, earlier: Mapping[str, object], name: str, answer: object) -> bool:
        """Return whether a party has given this answer before; ProtocolError if another one."""
        if name not in earlier:
            return False
        if earlier[name] != answer:
            raise ProtocolError(f"{name} sent {self.phase.value} a second time, and other ones")
        return True


class ServerMasking(SumServer):
    """The server's side of one attempt whose keys come first.

    The seed of proofs is drawn for this attempt, secret until all masked votes are in; its hash is in the
    context. ``signatures`` has those over the list of survivors, of those that sign for all.
    """

    def __init__(
        self,
        context: Context,
        *,
        stream: VoteStream | None = None,
        seed: bytes | None = None,
    ) -> None:
        fixed = None if context.proofs is None else context.proofs.seed_hash
        if (None if seed is None else commit_seed(seed)) != fixed:
            raise UsageError(
                "a masked sum with proofs needs the seed whose hash is in its context, and one "
                "without proofs no seed"
            )
        votes = stream or ChaChaStream(Ring(context.matrix.bits))
        linked = None if seed is None else LinkedStream(votes, context.links)
        super().__init__(context, phases(proved=seed is not None), context.names, linked or votes)
        self.signatures: Mapping[str, bytes] = {}
        self._seed = seed
        self._collected = (
            None if seed is None or linked is None else Collected(context, seed, linked.ring)
        )
        self._keys: dict[str, Keys] = {}
        self._boxes: dict[str, dict[str, bytes]] = {}
        self._answers |= {Phase.KEYS: self._keys, Phase.SHARES: self._boxes}
        if self._collected is not None:
            self._answers[Phase.PROOFS] = self._collected.proved
        self._announced: Announced | None = None
        self._tree: KeyTree | None = None

    @property
    def _known(self) -> Announced:
        if self._announced is None:
            raise ProtocolError("a step of a masked sum before the keys are announced")
        return self._announced

    @property
    def _dealers(self) -> Collection[str]:
        return self._boxes.keys()

    def take_keys(self, name: str, keys: Keys) -> None:
        """Take the keys that a party announces."""
        self._expect(Phase.KEYS, name)
        if self._is_repeated(self._keys, name, keys):
            return
        check_keys(self.context, name, keys)
        check_unlike({**self._keys, name: keys})
        self._keys[name] = keys

    def take_boxes(self, name: str, boxes: Mapping[str, bytes]) -> None:
        """Take a party's sealed boxes, by recipient."""
        self._expect(Phase.SHARES, name)
        if self._is_repeated(self._boxes, name, dict(boxes)):
            return
        if boxes.keys() != self._known.graph.neighbours(name):
            raise ProtocolError(f"{name} did not seal one box for each of its neighbours")
        for recipient, box in boxes.items():
            check_bytes(box, BOX_BYTES, f"the box from {name} to {recipient}")
        self._boxes[name] = dict(boxes)

    def take_masked(self, name: str, packed: bytes) -> None:
        """Add a party's masked votes to the sum; if proofs are required, only after its proof."""
        self._expect(Phase.MASKED, name)
        if self._collected is not None:
            residues = self._collected.masked(name, packed)
        else:
            residues = self._stream.ring.unpack(packed, self.context.values)
        # Only a hash is stored: the votes are in the sum.
        earlier = hashlib.sha256(packed).digest()
        if self._is_repeated(self._masked, name, earlier):
            return
        if self._collected is not None:
            self._collected.keep(name, packed)
        else:
            self._stream.ring.add(self._total, residues)
        self._masked[name] = earlier

    @property
    def seed(self) -> bytes:
        """The seed of proofs, once all masked votes are in: a party that knew it earlier could cheat."""
        if self._seed is None or self._order.index(self.phase) < self._order.index(Phase.PROOFS):
            raise ProtocolError(f"the seed is secret while the server waits for {self.phase.value}")
        return self._seed

    def take_proof(self, name: str, proof: bytes) -> None:
        """Take the proof that a party's masked votes are valid, without which they are not summed."""
        self._expect(Phase.PROOFS, name)
        if (collected := self._collected) is None:
            raise ProtocolError("votes are not proved in this sum")
        if name in collected.proved and isinstance(proof, bytes):
            self._is_repeated(collected.proved, name, hashlib.sha256(proof).digest())
            return
        collected.take_proof(name, proof)

    def keys_for(self, name: str) -> dict[str, Keys]:
        """Return the request for shares: the keys of a party and all that it masks with."""
        self._expect(Phase.SHARES, name)
        known = self._known
        return {each: known.keys[each] for each in sorted(known.graph.holders(name))}

    def outline_for(self, name: str) -> Outline:
        """Return what belongs to :meth:`keys_for`: who announced keys, and hashes of the others'."""
        self._expect(Phase.SHARES, name)
        assert self._tree is not None  # noqa: S101 - grown with the keys
        return self._tree.outline(sorted(self._known.graph.holders(name)))

    def boxes_for(self, name: str) -> dict[str, bytes]:
        """Return the request for masked votes: the boxes for a party, by sender."""
        self._expect(Phase.MASKED, name)
        return {
            sender: self._boxes[sender][name]
            for sender in sorted(self._known.graph.neighbours(name) & self._boxes.keys())
        }

    def _close(self, answered: frozenset[str]) -> None:
        super()._close(answered)
        if self.phase is Phase.KEYS:
            self._announced = Announced(self.context, self._keys)
            self._tree = KeyTree(self._keys)
        elif self.phase is Phase.PROOFS and self._collected is not None:
            self._total = self._collected.total(self.survivors)
        elif self.phase is Phase.CONSISTENCY:
            signers = self._signed.keys() & self._known.graph.signers
            self.signatures = {name: self._signed[name] for name in sorted(signers)}

    def _counts(self, total: Residues) -> NDArray[np.int64]:
        if self._collected is None:
            return super()._counts(total)
        return self._collected.opened(total, self.survivors)
