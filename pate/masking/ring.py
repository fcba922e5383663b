"""Integers modulo 2^bits, the group of votes, masks and their sums."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from pate.errors import ProtocolError, UsageError

#: Residues in the container type of their ring: uint8, uint16 or uint32.
Residues = NDArray[np.unsignedinteger]

#: Widths in messages. Each fills its container, so addition wraps and no bit is wasted.
WIDTHS: Final = (8, 16, 32)


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

    Attributes:
        bits: 1 to 32.
    """

    bits: int

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
        """Return the ``count`` residues that :meth:`pack` packed, shape (count,).

        Raises:
            ProtocolError: for other bytes.
        """
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


def centred(residues: NDArray[np.integer], bits: int) -> NDArray[np.int64]:
    """Return residues modulo 2^bits as their representatives in [-2^(bits-1), 2^(bits-1)).

    >>> centred(np.array([0, 127, 128, 255]), 8).tolist()
    [0, 127, -128, -1]

    Args:
        residues: of any shape, each in [0, 2^bits).
        bits: width of the ring, 1 to 32.

    Raises:
        UsageError: if one is outside.
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

    Args:
        largest: greatest magnitude that a sum may have, noise included; in votes.

    Raises:
        UsageError: if 32 bits are too few, or it is negative.
    """
    if largest >= 0:
        for bits in WIDTHS:
            if 2 * largest < 1 << bits:
                return bits
    raise UsageError(
        f"sums up to {largest} votes do not fit {WIDTHS[-1]} bits: fewer teachers or less noise"
    )
