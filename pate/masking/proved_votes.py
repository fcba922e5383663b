"""The server's state of a masked sum with vote proofs, until the survivors are known."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

from pate.masking.messages import check_bytes
from pate.masking.proofs.link import check_link
from pate.masking.proofs.transcript import Statement
from pate.masking.proofs.tree import HASH_BYTES
from pate.masking.proofs.verifier import verify

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pate.masking.context import Context
    from pate.masking.proofs.field import Elements
    from pate.masking.proofs.segments import LinkedRing
    from pate.masking.ring import Residues


class Collected:
    """Commitments, masked votes and links of one attempt.

    Args:
        context: of the attempt.
        seed: of its proofs, 32 bytes; the context has its hash.
        ring: of masked votes and links.

    Attributes:
        proved: hash of the accepted proof, by party.
    """

    def __init__(self, context: Context, seed: bytes, ring: LinkedRing) -> None:
        self._context = context
        self._seed = seed
        self._ring = ring
        self._packed: dict[str, bytes] = {}
        self._links: dict[str, Elements] = {}
        self.proved: dict[str, bytes] = {}

    def masked(self, name: str, packed: bytes) -> Residues:
        """Return the masked values of a party's message, which follow its commitment.

        Raises:
            ProtocolError: if it has another length, or is out of range.
        """
        check_bytes(packed, self._context.masked_bytes, f"what {name} masked")
        return self._ring.unpack(packed[HASH_BYTES:], self._context.values)

    def keep(self, name: str, packed: bytes) -> None:
        """Store a party's message: it is not in the sum before its votes are proved."""
        self._packed[name] = packed

    def take_proof(self, name: str, proof: bytes) -> None:
        """Check a proof.

        Raises:
            ProtocolError: if it does not hold; names the party.
        """
        statement = Statement(self._context.shape_of(name), self._context.digest, name)
        commitment = self._packed[name][:HASH_BYTES]
        self._links[name] = verify(statement, commitment, self._seed, proof)
        self.proved[name] = hashlib.sha256(proof).digest()

    def total(self, survivors: Sequence[str]) -> Residues:
        """Return the masked sum over these parties, and drop their masked values."""
        total = self._ring.reduce(np.zeros(self._context.values, dtype=np.int64))
        for name in survivors:
            self._ring.add(total, self.masked(name, self._packed[name]))
        self._packed.clear()
        return total

    def opened(self, total: Residues, survivors: Sequence[str]) -> NDArray[np.int64]:
        """Return the sum of votes, (count,), from an unmasked total.

        Raises:
            ProtocolError: if it is not of the votes that the survivors proved; names no party.
        """
        context = self._context
        votes, masks = self._ring.split(total)
        counts = votes.astype(np.int64)
        shapes = [context.shape_of(name) for name in survivors]
        check_link(
            shapes[0],
            context.digest,
            self._seed,
            links=[self._links[name] for name in survivors],
            votes=counts.reshape(context.rows, context.classes),
            masks=masks.reshape(shapes[0].linked),
            teachers=sum(shape.teachers for shape in shapes),
        )
        return counts
