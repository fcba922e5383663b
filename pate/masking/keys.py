"""Keys of one attempt: two X25519 pairs and a seed, and all keys derived from them.

A derived key is HKDF-SHA256 (RFC 5869) over one secret, with its purpose in ``info``: the context,
all announced keys, and the names and public keys of those who share it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from pate.errors import ProtocolError
from pate.masking.encoding import digest, draw, encode
from pate.masking.shamir import SHARE_BYTES, from_bytes, to_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pate.masking.context import Context
    from pate.masking.messages import Keys

SECRET_BYTES: Final = 32
_TAG_BYTES: Final = 16
#: Two shares, sealed.
BOX_BYTES: Final = 2 * SHARE_BYTES + _TAG_BYTES


class KnownKeys(Protocol):
    """The keys of all parties of a sum, from this attempt or from bundles made ahead."""

    @property
    def context(self) -> Context:
        """Of the attempt."""

    @property
    def keys(self) -> Mapping[str, Keys]:
        """By name."""

    @property
    def digest(self) -> bytes:
        """Of the context and all keys, 32 bytes."""

    @property
    def threshold(self) -> int:
        """Number of shares that reconstruct a secret."""

    def committed(self, name: str, seed: bytes) -> bytes:
        """Return the commitment to ``seed`` if it is that of ``name``, 32 bytes."""


@dataclass(frozen=True, repr=False)
class KeyPair:
    """An X25519 pair.

    Attributes:
        private: 32 bytes, as drawn; shared among the holders.
    """

    private: bytes

    @classmethod
    def make(cls, random: Callable[[int], bytes]) -> KeyPair:
        """Draw a pair."""
        return cls(draw(random, SECRET_BYTES))

    @cached_property
    def public(self) -> bytes:
        """The public key, 32 bytes."""
        return self._key.public_key().public_bytes_raw()

    def agree(self, peer: bytes, whose: str) -> bytes:
        """Return the Diffie-Hellman secret with the owner of a public key, 32 bytes.

        Raises:
            ProtocolError: if the key is a point of low order, which would make it public.
        """
        if peer in self._agreed:
            return self._agreed[peer]
        try:
            secret = self._key.exchange(X25519PublicKey.from_public_bytes(peer))
        except ValueError as error:  # the secret would be all zeros
            raise ProtocolError(
                f"the key of {whose} is a point of low order: no secret can be agreed on with it"
            ) from error
        self._agreed[peer] = secret
        return secret

    @cached_property
    def _agreed(self) -> dict[bytes, bytes]:
        """Cached secrets by public key: each is expensive, and serves a box in either direction."""
        return {}

    @cached_property
    def _key(self) -> X25519PrivateKey:
        return X25519PrivateKey.from_private_bytes(self.private)


def commitment(context: bytes, name: str, seed: bytes) -> bytes:
    """Return a party's commitment to its seed, 32 bytes.

    The seed is 32 uniform bytes, so the hash is both hiding and binding.

    Args:
        context: digest of it.
        name: of the party.
        seed: 32 bytes.
    """
    return digest("seed", context, name.encode(), seed)


def own_mask_key(announced: KnownKeys, name: str, seed: bytes) -> bytes:
    """Return the key of a party's own mask."""
    return _derive(
        seed, encode("own mask", announced.context.digest, announced.digest, name.encode())
    )


def pair_mask_key(announced: KnownKeys, own: KeyPair, name: str, peer: str) -> bytes:
    """Return the key of the mask of ``name``, whose mask pair is ``own``, and ``peer``.

    It is the same from both sides.

    Raises:
        ProtocolError: if the peer's key is of low order.
    """
    secret = own.agree(announced.keys[peer].mask_key, peer)
    both = [
        part
        for each in sorted((name, peer))
        for part in (each.encode(), announced.keys[each].mask_key)
    ]
    return _derive(secret, encode("pair mask", announced.context.digest, announced.digest, *both))


def seal(
    announced: KnownKeys, own: KeyPair, sender: str, recipient: str, shares: tuple[int, int]
) -> bytes:
    """Return a box (82 bytes) with shares of the sender's seed and mask key.

    Raises:
        ProtocolError: if the recipient's key is of low order.
    """
    secret = own.agree(announced.keys[recipient].share_key, recipient)
    return seal_shares(secret, _box(announced, sender, recipient), shares)


def unseal(
    announced: KnownKeys, own: KeyPair, sender: str, recipient: str, box: bytes
) -> tuple[int, int]:
    """Return the shares of the sender's seed and mask key.

    Raises:
        ProtocolError: if the box does not open or holds no shares; names the sender.
    """
    secret = own.agree(announced.keys[sender].share_key, sender)
    return unseal_shares(secret, _box(announced, sender, recipient), sender, recipient, box)


def seal_shares(secret: bytes, about: bytes, shares: tuple[int, int]) -> bytes:
    """Return a box (82 bytes) under a key of its own, from an agreed secret.

    Args:
        secret: 32 bytes.
        about: names this box and no other; its associated data.
        shares: of a seed and of a mask key.
    """
    # The key seals only this box, so a fixed nonce is used once.
    return ChaCha20Poly1305(_derive(secret, about)).encrypt(
        bytes(12), b"".join(map(to_bytes, shares)), about
    )


def unseal_shares(
    secret: bytes, about: bytes, sender: str, recipient: str, box: bytes
) -> tuple[int, int]:
    """Return what :func:`seal_shares` sealed.

    Raises:
        ProtocolError: if the box does not open or holds no shares; names the sender.
    """
    try:
        opened = ChaCha20Poly1305(_derive(secret, about)).decrypt(bytes(12), box, about)
    except InvalidTag as error:
        raise ProtocolError(
            f"the box from {sender} to {recipient} does not open: {sender} sealed it wrongly or "
            "under other keys, or the server changed it"
        ) from error
    if len(opened) != 2 * SHARE_BYTES:
        raise ProtocolError(f"the box from {sender} to {recipient} does not hold two shares")
    said = f"a share from {sender} to {recipient}"
    return from_bytes(opened[:SHARE_BYTES], said), from_bytes(opened[SHARE_BYTES:], said)


def _box(announced: KnownKeys, sender: str, recipient: str) -> bytes:
    """Return the context of a box, for its key and as associated data."""
    return encode(
        "box",
        announced.context.digest,
        announced.digest,
        sender.encode(),
        announced.keys[sender].share_key,
        recipient.encode(),
        announced.keys[recipient].share_key,
    )


def _derive(secret: bytes, info: bytes) -> bytes:
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(secret)
