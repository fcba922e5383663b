"""The server's side of a round: masked votes, consent if it is taken, unmasking.

Its state can be stored after every answer and read again, so a server that was killed continues the
same round. The list of survivors is fixed once: a caller stores the state with it before it sends
that list to anyone.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from pate.errors import StateError
from pate.masking.context import Phase
from pate.masking.encoding import decode, encode, pairs_from_bytes, pairs_to_bytes
from pate.masking.ring import ChaChaStream, Ring
from pate.masking.server import SumServer
from pate.masking.shamir import UnmaskingShares

if TYPE_CHECKING:
    from collections.abc import Collection

    from pate.masking.ahead.bundle import Round
    from pate.masking.ring import VoteStream

_STATE: Final = "server ahead"


class ServerAhead(SumServer):
    """The server's side of one round, with the bundles of all that may take part."""

    def __init__(self, round_: Round, *, stream: VoteStream | None = None) -> None:
        order = [Phase.MASKED, Phase.CONSISTENCY, Phase.UNMASK, Phase.DONE]
        if not round_.consent:
            order.remove(Phase.CONSISTENCY)
        votes = stream or ChaChaStream(Ring(round_.context.matrix.bits))
        super().__init__(round_.context, order, round_.bundles, votes)
        self.round = round_
        self._signatures: dict[str, bytes] = {}

    @property
    def _known(self) -> Round:
        return self.round

    @property
    def _dealers(self) -> Collection[str]:
        return self.round.bundles.keys()

    @property
    def masked(self) -> dict[str, bytes]:
        """By survivor, its signature that it masked its votes; sorted by name."""
        return {name: self._signatures[name] for name in self.survivors}

    @property
    def consents(self) -> dict[str, bytes]:
        """Signatures of the list of survivors, by name, sorted; empty if none are taken."""
        return {name: self._signed[name] for name in sorted(self._signed)}

    def take_masked(self, name: str, packed: bytes, signature: bytes) -> None:
        """Add a party's masked votes to the sum."""
        self._expect(Phase.MASKED, name)
        residues = self._stream.ring.unpack(packed, self.context.values)
        # Only a hash is stored: the votes are in the sum.
        earlier = hashlib.sha256(packed).digest()
        if self._is_repeated(self._masked, name, earlier):
            return
        self.round.check_masked(name, signature)
        self._stream.ring.add(self._total, residues)
        self._masked[name] = earlier
        self._signatures[name] = signature

    def to_bytes(self) -> bytes:
        """Return the state, for :meth:`restore`."""
        openings = {name: each.to_bytes() for name, each in self._openings.items()}
        return encode(
            _STATE,
            self.round.digest,
            self.phase.name.encode(),
            self._stream.ring.pack(self._total),
            pairs_to_bytes(self._masked),
            pairs_to_bytes(self._signatures),
            pairs_to_bytes(dict.fromkeys(self.survivors, b"")),
            pairs_to_bytes(self._signed),
            pairs_to_bytes(openings),
        )

    @classmethod
    def restore(cls, round_: Round, raw: bytes, *, stream: VoteStream | None = None) -> ServerAhead:
        """Return a server in the state that :meth:`to_bytes` wrote."""
        digest, phase, total, masked, signatures, survivors, signed, openings = decode(_STATE, raw)
        if digest != round_.digest:
            raise StateError("the stored state is of another round")
        made = cls(round_, stream=stream)
        made.phase = Phase[phase.decode()]
        made._total = made._stream.ring.unpack(total, round_.context.values)
        made._masked.update(pairs_from_bytes(masked))
        made._signatures.update(pairs_from_bytes(signatures))
        made.survivors = tuple(pairs_from_bytes(survivors))
        made._signed.update(pairs_from_bytes(signed))
        for name, each in pairs_from_bytes(openings).items():
            made._openings[name] = UnmaskingShares.from_bytes(each)
        if made.phase is Phase.DONE:
            made._awaited, made._result = frozenset(), made._unmasked()
        elif made.phase is not Phase.MASKED:
            made._awaited = frozenset(made.survivors)
        return made

    def _next(self, answered: frozenset[str]) -> frozenset[str]:
        del answered  # a survivor that gave no consent may still reveal its shares
        return frozenset(self.survivors)
