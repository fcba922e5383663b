"""Vectors of two parts, votes and link masks, each summed in its own group.

Link masks are added modulo the prime, exactly, and only their sum is revealed. As integers in a
ring of 2^32 or 2^64 they would have carries, by which the server could test guesses of a party's
votes, each of which determines the link mask.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.errors import ProtocolError
from pate.masking.proofs.field import ELEMENT_BYTES, FIELD

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pate.masking.ring import Residues, Ring

_CONTAINER: Final = np.dtype(np.uint32)


@dataclass(frozen=True)
class LinkedRing:
    """Residues modulo 2^bits followed by elements of the field of proofs.

    Attributes:
        votes: the ring of the first part.
        links: elements of the second part.
    """

    votes: Ring
    links: int

    def reduce(self, values: NDArray[np.integer]) -> Residues:
        """Return integers, votes of any sign and then elements, as one vector (count,)."""
        count = values.size - self.links
        joined = np.empty(values.size, _CONTAINER)
        joined[:count] = self.votes.reduce(values[:count])
        joined[count:] = values[count:] % FIELD.prime
        return joined

    def join(self, votes: Residues, links: NDArray[np.uint64]) -> Residues:
        """Return the two parts as one vector."""
        return np.concatenate([votes.astype(_CONTAINER), links.astype(_CONTAINER)])

    def split(self, total: Residues) -> tuple[Residues, NDArray[np.uint64]]:
        """Return the two parts of a vector."""
        count = total.size - self.links
        return total[:count].astype(self.votes.dtype), total[count:].astype(np.uint64)

    def add(self, total: Residues, other: Residues) -> None:
        """Add ``other`` to ``total``, in place."""
        (votes, links), (more, others) = self.split(total), self.split(other)
        self.votes.add(votes, more)
        total[:] = self.join(votes, FIELD.mod(links + others))

    def subtract(self, total: Residues, other: Residues) -> None:
        """Subtract ``other`` from ``total``, in place."""
        (votes, links), (less, others) = self.split(total), self.split(other)
        self.votes.subtract(votes, less)
        total[:] = self.join(votes, FIELD.minus(links, others))

    def packed_bytes(self, count: int) -> int:
        """Return the packed size of a vector of ``count`` residues and elements in bytes."""
        return self.votes.packed_bytes(count - self.links) + ELEMENT_BYTES * self.links

    def pack(self, residues: Residues) -> bytes:
        """Return a vector as little-endian unsigned integers."""
        votes, links = self.split(residues)
        return self.votes.pack(votes) + FIELD.write(links)

    def unpack(self, packed: bytes, count: int) -> Residues:
        """Return the vector of ``count`` residues and elements that :meth:`pack` packed.

        Raises:
            ProtocolError: for other bytes.
        """
        if not isinstance(packed, bytes) or len(packed) != self.packed_bytes(count):
            raise ProtocolError(
                f"masked votes with link masks have {len(packed)} bytes, "
                f"{self.packed_bytes(count)} are expected"
            )
        at = self.votes.packed_bytes(count - self.links)
        links = np.frombuffer(packed[at:], "<u4").astype(np.uint64)
        if links.size and int(links.max()) >= FIELD.prime:
            raise ProtocolError("a masked link is not an element of the field")
        return self.join(self.votes.unpack(packed[:at], count - self.links), links)
