"""The server's side of a round: masked votes, consent if it is taken, unmasking.

Its state can be stored after every answer and read again, so a server that was killed continues the
same round. The list of survivors is fixed once: a caller stores the state with it before it sends
that list to anyone.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.errors import ProtocolError, QuorumError, StateError
from pate.masking.encoding import decode, encode
from pate.masking.messages import UnmaskingShares, pairs_from_bytes, pairs_to_bytes
from pate.masking.ring import Ring
from pate.masking.roster import check_survivors
from pate.masking.server import Phase, is_repeated
from pate.masking.stream import ChaChaStream
from pate.masking.unmasking import Unmasking

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from pate.masking.ahead.round import Round
    from pate.masking.stream import VoteStream

_STATE: Final = "server ahead"


class ServerAhead:
    """The server's side of one round.

    A refused message changes nothing. A repeated answer is ignored; a different one from the same
    party in the same step is refused, and so is one that comes after its step was closed.

    Args:
        round_: with the bundles of all that may take part.
        stream: source of masks; default: ChaCha20 in the ring of the round.

    Attributes:
        phase: the current one.
        survivors: names of the parties in the sum, sorted; empty until their masked votes are in.
        faults: pairs (owner of the secret, sender of the share) of inconsistent shares that were
            not needed. One of the two is at fault.
    """

    def __init__(self, round_: Round, *, stream: VoteStream | None = None) -> None:
        self.round = round_
        self.phase = Phase.MASKED
        self.survivors: tuple[str, ...] = ()
        self.faults: tuple[tuple[str, str], ...] = ()
        self._stream = stream or ChaChaStream(Ring(round_.context.bits))
        self._total = self._stream.ring.reduce(np.zeros(round_.context.count, dtype=np.int64))
        self._hashes: dict[str, bytes] = {}
        self._signatures: dict[str, bytes] = {}
        self._consents: dict[str, bytes] = {}
        self._openings: dict[str, UnmaskingShares] = {}
        self._result: NDArray[np.int64] | None = None

    @property
    def awaited(self) -> frozenset[str]:
        """Parties that may answer in this phase."""
        if self.phase is Phase.DONE:
            return frozenset()
        return frozenset(self.round.bundles if self.phase is Phase.MASKED else self.survivors)

    @property
    def answered(self) -> frozenset[str]:
        """Parties that have answered in this phase."""
        answers: Mapping[Phase, Mapping[str, object]] = {
            Phase.MASKED: self._hashes,
            Phase.CONSISTENCY: self._consents,
            Phase.UNMASK: self._openings,
        }
        return frozenset(answers.get(self.phase, {}))

    @property
    def masked(self) -> dict[str, bytes]:
        """By survivor, its signature that it masked its votes; sorted by name."""
        return {name: self._signatures[name] for name in self.survivors}

    @property
    def consents(self) -> dict[str, bytes]:
        """Signatures of the list of survivors, by name, sorted; empty if none are taken."""
        return {name: self._consents[name] for name in sorted(self._consents)}

    def take_masked(self, name: str, packed: bytes, signature: bytes) -> None:
        """Add a party's masked votes to the sum.

        Raises:
            ProtocolError: if they are late, not the right number of residues, or not signed for
                this round.
        """
        self._expect(Phase.MASKED, name)
        residues = self._stream.ring.unpack(packed, self.round.context.count)
        # Only a hash is stored: the votes are in the sum.
        if is_repeated(self._hashes, name, hashlib.sha256(packed).digest(), self.phase):
            return
        self.round.check_masked(name, signature)
        self._stream.ring.add(self._total, residues)
        self._hashes[name] = hashlib.sha256(packed).digest()
        self._signatures[name] = signature

    def take_consent(self, name: str, signature: bytes) -> None:
        """Take a party's signature over the list of survivors.

        Raises:
            ProtocolError: if it does not verify.
        """
        self._expect(Phase.CONSISTENCY, name)
        if is_repeated(self._consents, name, signature, self.phase):
            return
        to_sign = self.round.survivors_to_sign(self.survivors)
        check_survivors(self.round.context, name, to_sign, signature)
        self._consents[name] = signature

    def take_unmasking(self, name: str, opening: UnmaskingShares) -> None:
        """Take the shares that a party reveals.

        Raises:
            ProtocolError: if they are not one share of every secret that it should reveal.
        """
        self._expect(Phase.UNMASK, name)
        if is_repeated(self._openings, name, opening, self.phase):
            return
        alive = frozenset(self.survivors)
        if opening.seed_shares.keys() != alive:
            raise ProtocolError(f"{name} did not reveal a seed share of each survivor")
        if opening.key_shares.keys() != self.round.bundles.keys() - alive:
            raise ProtocolError(f"{name} did not reveal a key share of each dropout")
        opening.check(name)
        self._openings[name] = opening

    def advance(self) -> None:
        """Close the phase with the parties that answered.

        Raises:
            QuorumError: if they are too few; nothing is revealed and more may still answer.
            ProtocolError: if the shares do not reconstruct the secrets; more may still answer.
        """
        if self.phase is Phase.DONE:
            raise ProtocolError("this round is finished")
        answered, needed = self.answered, self.round.threshold
        if len(answered) < needed:
            raise QuorumError(
                f"{len(answered)} parties of {len(self.awaited)} answered with "
                f"{self.phase.value}, {needed} are needed"
            )
        if self.phase is Phase.MASKED:
            self.survivors = tuple(sorted(answered))
            self.phase = Phase.CONSISTENCY if self.round.consent else Phase.UNMASK
        elif self.phase is Phase.CONSISTENCY:
            self.phase = Phase.UNMASK
        else:
            self._result = self._unmasked()
            self.phase = Phase.DONE

    def result(self) -> NDArray[np.int64]:
        """Return the sum over the survivors: (rows, classes) residues in [0, 2^bits).

        Raises:
            ProtocolError: before the last phase is closed.
        """
        if self._result is None:
            raise ProtocolError(f"there is no sum yet: the server waits for {self.phase.value}")
        return self._result.copy()

    def to_bytes(self) -> bytes:
        """Return the state, for :meth:`restore`."""
        openings = {name: each.to_bytes() for name, each in self._openings.items()}
        return encode(
            _STATE,
            self.round.digest,
            self.phase.name.encode(),
            self._stream.ring.pack(self._total),
            pairs_to_bytes(self._hashes),
            pairs_to_bytes(self._signatures),
            pairs_to_bytes(dict.fromkeys(self.survivors, b"")),
            pairs_to_bytes(self._consents),
            pairs_to_bytes(openings),
        )

    @classmethod
    def restore(cls, round_: Round, raw: bytes, *, stream: VoteStream | None = None) -> ServerAhead:
        """Return a server in the state that :meth:`to_bytes` wrote.

        Raises:
            StateError: for other bytes, or those of another round.
        """
        digest, phase, total, hashes, signatures, survivors, consents, openings = decode(
            _STATE, raw
        )
        if digest != round_.digest:
            raise StateError("the stored state is of another round")
        made = cls(round_, stream=stream)
        made.phase = Phase[phase.decode()]
        made._total = made._stream.ring.unpack(total, round_.context.count)
        made._hashes = pairs_from_bytes(hashes)
        made._signatures = pairs_from_bytes(signatures)
        made.survivors = tuple(pairs_from_bytes(survivors))
        made._consents = pairs_from_bytes(consents)
        made._openings = {
            name: UnmaskingShares.from_bytes(each)
            for name, each in pairs_from_bytes(openings).items()
        }
        if made.phase is Phase.DONE:
            made._result = made._unmasked()
        return made

    def _unmasked(self) -> NDArray[np.int64]:
        total, unmasking = self._total.copy(), Unmasking(self.round, self._stream)
        dropouts = dict.fromkeys(self.round.bundles.keys() - set(self.survivors), self.survivors)
        unmasking.remove(total, self.survivors, dropouts, self._openings)
        self.faults = tuple(sorted(unmasking.faults))
        counts: NDArray[np.int64] = total.astype(np.int64)
        return counts.reshape(self.round.context.rows, self.round.context.classes)

    def _expect(self, phase: Phase, name: str) -> None:
        if name not in self.round.bundles:
            raise ProtocolError(f"{name!r:.80} does not take part in this round")
        if self.phase is not phase or name not in self.awaited:
            late = (
                " (its votes came too late)" if self.survivors and name not in self.awaited else ""
            )
            raise ProtocolError(
                f"{phase.value} of {name}, while the server waits for {self.phase.value}{late}"
            )
