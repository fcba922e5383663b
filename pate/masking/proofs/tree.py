"""A hash tree over the columns of a codeword matrix: one root, and paths to some leaves.

Leaves, inner nodes and other hashes of a proof begin with different bytes. A leaf includes its
owner, its position and a salt of 32 bytes, which hides a column that is not opened.

Source: Merkle, "A certified digital signature", CRYPTO 1989.
"""

from __future__ import annotations

import hashlib
from typing import Final

HASH_BYTES: Final = 32
SALT_BYTES: Final = 32
_LEAF: Final = b"\0"
_NODE: Final = b"\1"


def leaf(binding: bytes, place: int, salt: bytes, column: bytes) -> bytes:
    """Return the hash of a column.

    Args:
        binding: of the statement, 32 bytes.
        place: of the column, below 2^32.
        salt: 32 bytes.
        column: its symbols.
    """
    return hashlib.sha256(_LEAF + binding + place.to_bytes(4, "little") + salt + column).digest()


def grow(leaves: list[bytes]) -> list[list[bytes]]:
    """Return all levels, from the leaves (a power of two of them) to the root."""
    levels = [leaves]
    while len(levels[-1]) > 1:
        below = levels[-1]
        levels.append(
            [
                hashlib.sha256(_NODE + left + right).digest()
                for left, right in zip(below[::2], below[1::2], strict=True)
            ]
        )
    return levels


def path(levels: list[list[bytes]], place: int) -> bytes:
    """Return the siblings on the way from a leaf to the root, one after the other."""
    return b"".join(level[place >> depth ^ 1] for depth, level in enumerate(levels[:-1]))


def climb(node: bytes, place: int, siblings: bytes) -> bytes:
    """Return the root that a leaf at a place and the siblings on its way lead to."""
    for depth in range(len(siblings) // HASH_BYTES):
        other = siblings[depth * HASH_BYTES : (depth + 1) * HASH_BYTES]
        pair = other + node if place >> depth & 1 else node + other
        node = hashlib.sha256(_NODE + pair).digest()
    return node
