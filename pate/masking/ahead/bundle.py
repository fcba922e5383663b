"""One-time bundles: a party's keys for one sum, with shares of its secrets, made before the sum."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from pate.errors import ProtocolError
from pate.masking.encoding import decode, digest, draw, encode, whole
from pate.masking.keys import (
    BOX_BYTES,
    SECRET_BYTES,
    KeyPair,
    commitment,
    seal_shares,
    unseal_shares,
)
from pate.masking.messages import Keys, check_bytes
from pate.masking.roster import verify
from pate.masking.shamir import from_bytes, split, to_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from pate.masking.ahead.terms import BundleRoster


@dataclass(frozen=True)
class Bundle:
    """The public part of a bundle.

    Attributes:
        owner: name of the party.
        number: counts the owner's bundles for a roster, from 0.
        roster: digest of it, 32 bytes.
        keys: ``share_key`` is the owner's key for the boxes of this bundle; the signature is over
            all of the above, too.
    """

    owner: str
    number: int
    roster: bytes
    keys: Keys

    @cached_property
    def digest(self) -> bytes:
        """Identifies the bundle: SHA-256 of all but the signature, 32 bytes."""
        return digest("bundle", *self._parts())

    def check(self, roster: BundleRoster) -> None:
        """Check that its owner made it for a roster.

        Raises:
            ProtocolError: otherwise; names the owner.
        """
        roster.check_parties([self.owner], "a list of bundles")
        if self.roster != roster.digest:
            raise ProtocolError(f"{self} is for another roster")
        self.keys.check(self.owner)
        if self.keys.mask_key == self.keys.share_key:
            raise ProtocolError(f"{self} has one key for two uses")
        verify(
            roster.identities[self.owner],
            self.keys.signature,
            encode("signed bundle", *self._parts()),
            f"{self} is not signed by its identity",
        )

    def signed(self, identity: Ed25519PrivateKey) -> Bundle:
        """Return it with the owner's signature."""
        keys, signature = self.keys, identity.sign(encode("signed bundle", *self._parts()))
        return Bundle(
            self.owner,
            self.number,
            self.roster,
            Keys(keys.mask_key, keys.share_key, keys.seed_commitment, signature),
        )

    def committed(self, seed: bytes) -> bytes:
        """Return the commitment to ``seed`` if it is that of this bundle, 32 bytes."""
        about = digest("bundle seed", self.roster, whole(self.number))
        return commitment(about, self.owner, seed)

    def __str__(self) -> str:
        return f"bundle {self.number} of {self.owner}"

    def _parts(self) -> tuple[bytes, ...]:
        keys = self.keys
        return (
            self.roster,
            self.owner.encode(),
            whole(self.number),
            keys.mask_key,
            keys.share_key,
            keys.seed_commitment,
        )


@dataclass(frozen=True, repr=False)
class Secrets:
    """The owner's part of a bundle, until it has masked with it.

    Attributes:
        mask: private mask key, 32 bytes.
        seed: of its own mask, 32 bytes.
        shares: its own shares of the seed and of the mask key.
    """

    mask: bytes
    seed: bytes
    shares: tuple[int, int]

    def to_bytes(self) -> bytes:
        """Return all of it, as :meth:`from_bytes` reads it."""
        return encode("secrets", self.mask, self.seed, *map(to_bytes, self.shares))

    @classmethod
    def from_bytes(cls, raw: bytes) -> Secrets:
        """Return what :meth:`to_bytes` wrote.

        Raises:
            StateError: for other bytes.
        """
        mask, seed, *shares = decode("secrets", raw)
        return cls(mask, seed, pair_of(shares, "a stored share"))


def pair_of(shares: list[bytes], what: str) -> tuple[int, int]:
    """Return two shares from their bytes."""
    first, second = shares
    return from_bytes(first, what), from_bytes(second, what)


def make_bundle(
    roster: BundleRoster,
    owner: str,
    identity: Ed25519PrivateKey,
    number: int,
    random: Callable[[int], bytes],
) -> tuple[Bundle, dict[str, bytes], Secrets]:
    """Make a bundle.

    The private key of its boxes is forgotten here: only the recipients open them.

    Args:
        roster: for which it is made.
        owner: name of the party.
        identity: its signing key, the one of the roster.
        number: of the bundle.
        random: returns that many uniform bytes, such as ``secrets.token_bytes``.

    Returns:
        The public part; a box of 82 bytes for each other party; and the owner's secrets.
    """
    mask, share = KeyPair.make(random), KeyPair.make(random)
    seed = draw(random, SECRET_BYTES)
    bare = Bundle(owner, number, roster.digest, Keys(mask.public, share.public, b"", b""))
    keys = Keys(mask.public, share.public, bare.committed(seed), b"")
    bundle = Bundle(owner, number, roster.digest, keys).signed(identity)
    at = list(roster.points.values())
    of_seed = split(seed, roster.threshold, at, random)
    of_key = split(mask.private, roster.threshold, at, random)
    parts = {name: (of_seed[point], of_key[point]) for name, point in roster.points.items()}
    boxes = {
        name: seal_shares(
            share.agree(roster.keys[name], name), _box(bundle, roster, name), parts[name]
        )
        for name in roster.names
        if name != owner
    }
    return bundle, boxes, Secrets(mask.private, seed, parts[owner])


def open_box(
    bundle: Bundle, roster: BundleRoster, recipient: str, sealing: KeyPair, box: bytes
) -> tuple[int, int]:
    """Return the shares of a bundle's seed and mask key that its owner sealed for a party.

    Raises:
        ProtocolError: if the box does not open or holds no shares; names the owner.
    """
    check_bytes(box, BOX_BYTES, f"the box of {bundle}")
    secret = sealing.agree(bundle.keys.share_key, bundle.owner)
    about = _box(bundle, roster, recipient)
    return unseal_shares(secret, about, bundle.owner, recipient, box)


def _box(bundle: Bundle, roster: BundleRoster, recipient: str) -> bytes:
    """Return what a box is bound to: its bundle, with all its keys, and its recipient."""
    return encode("box ahead", bundle.digest, recipient.encode(), roster.keys[recipient])
