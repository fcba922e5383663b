"""Masks: a key of 32 bytes stretched to a vector of uniform residues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

if TYPE_CHECKING:
    from pate.masking.ring import Residues, Ring


class MaskStream(Protocol):
    """Where masks come from. Tests put ideal ones, and tiny rings, in the place of ChaCha20."""

    @property
    def ring(self) -> Ring:
        """The ring of the masks, and of the sum."""

    def __call__(self, key: bytes, count: int) -> Residues:
        """Return the mask of a key: (count,) residues, the same each time.

        Args:
            key: 32 bytes, used for nothing else.
            count: rows times classes.
        """


class ChaChaStream:
    """The key stream of ChaCha20 (RFC 8439), read as little-endian integers.

    Its nonce and counter start at zero: every key is derived for one mask alone.
    """

    def __init__(self, ring: Ring) -> None:
        self.ring = ring

    def __call__(self, key: bytes, count: int) -> Residues:
        """See :class:`MaskStream`."""
        cipher = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
        return self.ring.from_uniform(cipher.update(bytes(self.ring.packed_bytes(count))))
