"""Masks: a key of 32 bytes stretched to a vector of uniform residues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from pate.masking.proofs.field import DRAWN_BYTES, FIELD
from pate.masking.proofs.segments import LinkedRing

if TYPE_CHECKING:
    from pate.masking.ring import Group, Residues, Ring

#: Counter 0, and a nonce that no mask of votes has.
_LINK_NONCE: Final = bytes(8) + b"pate/lnk"


class MaskStream(Protocol):
    """Source of masks. Tests replace ChaCha20 by ideal masks and tiny rings."""

    @property
    def ring(self) -> Group:
        """The group of the masks, and of the sum."""

    def __call__(self, key: bytes, count: int) -> Residues:
        """Return the mask of a key: (count,) residues, deterministic.

        Args:
            key: 32 bytes, used for nothing else.
            count: rows times classes, plus link masks if votes are proved.
        """


class VoteStream(MaskStream, Protocol):
    """Masks of votes only."""

    @property
    def ring(self) -> Ring:
        """The ring of votes."""


class ChaChaStream:
    """The key stream of ChaCha20 (RFC 8439), read as little-endian integers.

    Its nonce and counter start at zero: every key is derived for only one mask.
    """

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

    Args:
        votes: source of the masks of votes.
        links: number of link masks of a party.
    """

    def __init__(self, votes: VoteStream, links: int) -> None:
        self.ring = LinkedRing(votes.ring, links)
        self._votes = votes

    def __call__(self, key: bytes, count: int) -> Residues:
        """See :class:`MaskStream`."""
        links = self.ring.links
        cipher = Cipher(algorithms.ChaCha20(key, _LINK_NONCE), mode=None).encryptor()
        elements = FIELD.reduce(cipher.update(bytes(DRAWN_BYTES * links)))
        return self.ring.join(self._votes(key, count - links), elements)
