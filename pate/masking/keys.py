"""Keys of one sum: two X25519 pairs and a seed of each party, and all keys derived from them.

A derived key is HKDF-SHA256 (RFC 5869) over one secret, with its purpose in ``info``: the context,
all announced keys, and the names and public keys of those who share it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from pate.errors import ProtocolError
from pate.masking.encoding import (
    HASH_BYTES,
    KEY_BYTES,
    SIGNATURE_BYTES,
    check_bytes,
    digest,
    draw,
)
from pate.masking.shamir import SECRET_BYTES, SHARE_BYTES, from_bytes, split, to_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_TAG_BYTES: Final = 16
#: Two shares, sealed.
BOX_BYTES: Final = 2 * SHARE_BYTES + _TAG_BYTES
#: The prime of X25519's field (RFC 7748): a key at or above it encodes another key again.
_X25519_PRIME: Final = 2**255 - 19
#: The u-coordinates of all points of low order, on the curve and on its twist: secrets agreed on
#: with one of them are public.
_LOW_ORDER: Final = frozenset(
    {
        0,
        1,
        _X25519_PRIME - 1,
        0x00B8495F16056286FDB1329CEB8D09DA6AC49FF1FAE35616AEB8413B7C7AEBE0,
        0x57119FD0DD4E22D8868E1C58C45C44045BEF839C55B1D0B1248C50A3BC959C5F,
    }
)


def check_point(key: object, what: str) -> None:
    """Check that an X25519 public key is of high order and in canonical form."""
    check_bytes(key, KEY_BYTES, what)
    assert isinstance(key, bytes)  # noqa: S101 - checked
    point = int.from_bytes(key, "little")
    if point >= _X25519_PRIME:
        raise ProtocolError(f"{what} is not a key in its one written form")
    if point in _LOW_ORDER:
        raise ProtocolError(f"{what} is a point of low order: no secret can be agreed on with it")


@dataclass(frozen=True)
class Keys:
    """What a party announces for one attempt."""

    mask_key: bytes  # X25519 public key that pair masks come from, 32 bytes
    share_key: bytes  # X25519 public key that shares are sealed for, 32 bytes
    seed_commitment: bytes  # hash of the seed of its own mask, 32 bytes
    signature: bytes  # Ed25519, by its identity, over the context and all of the above, 64 bytes

    @property
    def parts(self) -> tuple[bytes, bytes, bytes, bytes]:
        """All fields in their order."""
        return self.mask_key, self.share_key, self.seed_commitment, self.signature

    def check(self, name: str) -> None:
        """Check sizes, and that the keys are of high order and in canonical form."""
        for key, kind in ((self.mask_key, "mask key"), (self.share_key, "share key")):
            check_point(key, f"the {kind} of {name}")
        check_bytes(self.seed_commitment, HASH_BYTES, f"the commitment of {name}")
        check_bytes(self.signature, SIGNATURE_BYTES, f"the signature of {name}")


def check_unlike(keys: Mapping[str, Keys]) -> None:
    """Check that no key is there twice, of one party or of two."""
    seen: dict[bytes, str] = {}
    for name in sorted(keys):
        if keys[name].mask_key == keys[name].share_key:
            raise ProtocolError(f"{name} announced one key for two uses")
        for key in (keys[name].mask_key, keys[name].share_key):
            if seen.setdefault(key, name) != name:
                raise ProtocolError(f"{seen[key]} and {name} announced the same key")


@dataclass(frozen=True, repr=False)
class KeyPair:
    """An X25519 pair."""

    private: bytes  # 32 bytes, as drawn; shared among the holders

    @classmethod
    def make(cls, random: Callable[[int], bytes]) -> KeyPair:
        """Draw a pair."""
        return cls(draw(random, SECRET_BYTES))

    @cached_property
    def public(self) -> bytes:
        """The public key, 32 bytes."""
        return self._key.public_key().public_bytes_raw()

    def agree(self, peer: bytes, whose: str) -> bytes:
        """Return the Diffie-Hellman secret with the owner of a public key, 32 bytes."""
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


@dataclass(frozen=True, repr=False)
class OneTime:
    """A party's secrets for one sum."""

    mask: KeyPair  # pair that its pair masks come from
    share: KeyPair  # pair that shares of the others' secrets, or of its own, are sealed with
    seed: bytes  # of its own mask, 32 bytes

    @classmethod
    def make(cls, random: Callable[[int], bytes]) -> OneTime:
        """Draw all of it."""
        return cls(KeyPair.make(random), KeyPair.make(random), draw(random, SECRET_BYTES))

    def deal(
        self, threshold: int, points: Mapping[str, int], random: Callable[[int], bytes]
    ) -> dict[str, tuple[int, int]]:
        """Return a share of the seed and one of the mask key for each holder."""
        at = list(points.values())
        of_seed = split(self.seed, threshold, at, random)
        of_key = split(self.mask.private, threshold, at, random)
        return {name: (of_seed[point], of_key[point]) for name, point in points.items()}

    def boxes(
        self,
        dealt: Mapping[str, tuple[int, int]],
        keys: Mapping[str, bytes],
        about: Callable[[str], bytes],
    ) -> dict[str, bytes]:
        """Return a sealed box of 82 bytes with its shares for each recipient, whose ``keys`` these are."""
        return {
            name: seal(self.share, key, name, about(name), dealt[name])
            for name, key in keys.items()
        }


def commitment(context: bytes, name: str, seed: bytes) -> bytes:
    """Return a party's commitment to its seed of 32 uniform bytes: a hash, both hiding and binding."""
    return digest("seed", context, name.encode(), seed)


def seal(own: KeyPair, peer: bytes, whose: str, about: bytes, shares: tuple[int, int]) -> bytes:
    """Return a box (82 bytes) with shares of the sender's seed and mask key.

    ``about`` names this box and no other; it is in the box's key, and its associated data.
    """
    # The key seals only this box, so a fixed nonce is used once.
    return ChaCha20Poly1305(derive(own.agree(peer, whose), about)).encrypt(
        bytes(12), b"".join(map(to_bytes, shares)), about
    )


def unseal(
    own: KeyPair, peer: bytes, about: bytes, box: bytes, *, sender: str, recipient: str
) -> tuple[int, int]:
    """Return the shares that ``sender``, whose public key is ``peer``, sealed with :func:`seal`."""
    check_bytes(box, BOX_BYTES, f"the box from {sender}")
    try:
        opened = ChaCha20Poly1305(derive(own.agree(peer, sender), about)).decrypt(
            bytes(12), box, about
        )
    except InvalidTag as error:
        raise ProtocolError(
            f"the box from {sender} to {recipient} does not open: {sender} sealed it wrongly or "
            "under other keys, or the server changed it"
        ) from error
    said = f"a share from {sender} to {recipient}"
    return from_bytes(opened[:SHARE_BYTES], said), from_bytes(opened[SHARE_BYTES:], said)


def derive(secret: bytes, info: bytes) -> bytes:
    """Return the key of 32 bytes for one purpose, from a secret."""
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(secret)


def check_signature(identity: bytes, signature: bytes, signed: bytes, otherwise: str) -> None:
    """Check an Ed25519 signature."""
    try:
        Ed25519PublicKey.from_public_bytes(identity).verify(signature, signed)
    except (InvalidSignature, ValueError) as error:  # ValueError: an identity that is not a point
        raise ProtocolError(otherwise) from error
