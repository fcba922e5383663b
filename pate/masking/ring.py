"""The groups of votes and masks: integers modulo 2^bits, with link masks behind them if votes are proved.

A mask is a key of 32 bytes, stretched to a vector of uniform residues.

Link masks are added modulo the prime of proofs, exactly, and only their sum is revealed. As integers in
a ring of 2^32 or 2^64 they would have carries, by which the server could test guesses of a party's
votes, each of which determines the link mask.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final, Protocol

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from numpy.typing import NDArray

from pate.errors import ProtocolError, UsageError
from pate.masking.proofs.code import DRAWN_BYTES, ELEMENT_BYTES, FIELD

#: Residues in the container type of their ring: uint8, uint16 or uint32.
Residues = NDArray[np.unsignedinteger]

#: Widths in messages. Each fills its container, so addition wraps and no bit is wasted.
WIDTHS: Final = (8, 16, 32)
#: Counter 0, and a nonce that no mask of votes has.
_LINK_NONCE: Final = bytes(8) + b"pate/lnk"
_CONTAINER: Final = np.dtype(np.uint32)


class Group(Protocol):
    """The group operations that a masked sum needs; :class:`Ring` is the group of votes."""

    def reduce(self, values: NDArray[np.integer]) -> Residues:
        """Return integers as elements, in a new array."""

    def add(self, total: Residues, other: Residues) -> None:
        """Add ``other`` to ``total``, in place."""

    def subtract(self, total: Residues, other: Residues) -> None:
        """Subtract ``other`` from ``total``, in place."""

    def pack(self, residues: Residues) -> bytes:
        """Return elements as bytes."""

    def unpack(self, packed: bytes, count: int) -> Residues:
        """Return the elements that :meth:`pack` packed; ProtocolError for other bytes."""


@dataclass(frozen=True)
class Ring:
    """The integers modulo 2^bits.

    Campaigns use only :data:`WIDTHS`. Other widths are for exhaustive tests on tiny rings; each
    value fills a container, so such messages are longer than necessary.
    """

    bits: int  # 1 to 32

    def __post_init__(self) -> None:
        if type(self.bits) is not int or not 1 <= self.bits <= WIDTHS[-1]:
            raise UsageError(f"a ring has 1 to {WIDTHS[-1]} bits, got {self.bits!r}")

    @property
    def size(self) -> int:
        """Number of residues."""
        return 1 << self.bits

    @cached_property
    def width(self) -> int:
        """Bits of the container of one residue: 8, 16 or 32."""
        return next(width for width in WIDTHS if width >= self.bits)

    @cached_property
    def dtype(self) -> np.dtype[np.unsignedinteger]:
        """The container, in the byte order of this machine."""
        return np.dtype(f"u{self.width // 8}")

    def packed_bytes(self, count: int) -> int:
        """Return the packed size of ``count`` residues in bytes."""
        return count * self.width // 8

    def reduce(self, values: NDArray[np.integer]) -> Residues:
        """Return integers of any sign and shape as residues, in a new array.

        >>> Ring(8).reduce(np.array([-1, 256, 3])).tolist()
        [255, 0, 3]
        """
        if not np.issubdtype(values.dtype, np.integer):
            raise UsageError(f"only integers have residues, got {values.dtype}")
        # Casting to a narrower unsigned type keeps the low bits, the residue.
        residues: Residues = values.astype(np.int64).astype(self.dtype)
        self._wrap(residues)
        return residues

    def add(self, total: Residues, other: Residues) -> None:
        """Add ``other`` to ``total``, in place."""
        np.add(total, other, out=total)
        self._wrap(total)

    def subtract(self, total: Residues, other: Residues) -> None:
        """Subtract ``other`` from ``total``, in place."""
        np.subtract(total, other, out=total)
        self._wrap(total)

    def from_uniform(self, raw: bytes) -> Residues:
        """Return one uniform residue per little-endian container of uniform bytes."""
        residues: Residues = np.frombuffer(raw, self.dtype.newbyteorder("<")).astype(self.dtype)
        self._wrap(residues)
        return residues

    def pack(self, residues: Residues) -> bytes:
        """Return residues as little-endian unsigned integers, in C order."""
        return residues.astype(self.dtype.newbyteorder("<")).tobytes()

    def unpack(self, packed: bytes, count: int) -> Residues:
        """Return the ``count`` residues that :meth:`pack` packed, shape (count,)."""
        if not isinstance(packed, bytes) or len(packed) != self.packed_bytes(count):
            raise ProtocolError(
                f"masked votes have {len(packed)} bytes, {self.packed_bytes(count)} are expected"
            )
        residues: Residues = np.frombuffer(packed, self.dtype.newbyteorder("<")).astype(self.dtype)
        if self.bits < self.width and residues.size and int(residues.max()) >= self.size:
            raise ProtocolError(f"a masked vote is not a residue modulo 2^{self.bits}")
        return residues

    def _wrap(self, residues: Residues) -> None:
        if self.bits < self.width:
            np.bitwise_and(residues, self.dtype.type(self.size - 1), out=residues)


@dataclass(frozen=True)
class LinkedRing:
    """Residues modulo 2^bits followed by elements of the field of proofs."""

    votes: Ring  # the ring of the first part
    links: int  # elements of the second part

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
        """Return the vector of ``count`` residues and elements that :meth:`pack` packed."""
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


def centred(residues: NDArray[np.integer], bits: int) -> NDArray[np.int64]:
    """Return residues modulo 2^bits as their representatives in [-2^(bits-1), 2^(bits-1)).

    >>> centred(np.array([0, 127, 128, 255]), 8).tolist()
    [0, 127, -128, -1]
    """
    size = Ring(bits).size
    wide = residues.astype(np.int64)
    if wide.size and (int(wide.min()) < 0 or int(wide.max()) >= size):
        raise UsageError(f"a value is not a residue modulo 2^{bits}")
    signed: NDArray[np.int64] = np.where(wide >= size // 2, wide - size, wide)
    return signed


def ring_bits(largest: int) -> int:
    """Return the least of 8, 16 and 32 bits that represent every integer of [-largest, largest].

    >>> ring_bits(127), ring_bits(128)
    (8, 16)
    """
    if largest >= 0:
        for bits in WIDTHS:
            if 2 * largest < 1 << bits:
                return bits
    raise UsageError(
        f"sums up to {largest} votes do not fit {WIDTHS[-1]} bits: fewer teachers or less noise"
    )


# --- masks --------------------------------------------------------------------------------------


class MaskStream(Protocol):
    """Source of masks. Tests replace ChaCha20 by ideal masks and tiny rings."""

    @property
    def ring(self) -> Group:
        """The group of the masks, and of the sum."""

    def __call__(self, key: bytes, count: int) -> Residues:
        """Return the mask of a key: (count,) residues, deterministic."""


class VoteStream(MaskStream, Protocol):
    """Masks of votes only."""

    @property
    def ring(self) -> Ring:
        """The ring of votes."""


class ChaChaStream:
    """The key stream of ChaCha20 (RFC 8439) from zero, as little-endian integers: one mask a key."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring

    def __call__(self, key: bytes, count: int) -> Residues:
        """See :class:`MaskStream`."""
        cipher = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
        return self.ring.from_uniform(cipher.update(bytes(self.ring.packed_bytes(count))))


class LinkedStream:
    """Masks of votes, followed by link masks, which tie them to their proofs.

    Both come from one key: those of votes as without proofs, those of links from the key stream of
    ChaCha20 under another nonce, 16 bytes for each element, within 2^-99 of uniform.
    """

    def __init__(self, votes: VoteStream, links: int) -> None:
        self.ring = LinkedRing(votes.ring, links)
        self._votes = votes

    def __call__(self, key: bytes, count: int) -> Residues:
        """Return the mask of a key: (count,) residues, deterministic. A key is used for nothing else."""
        links = self.ring.links
        cipher = Cipher(algorithms.ChaCha20(key, _LINK_NONCE), mode=None).encryptor()
        elements = FIELD.reduce(cipher.update(bytes(DRAWN_BYTES * links)))
        return self.ring.join(self._votes(key, count - links), elements)
