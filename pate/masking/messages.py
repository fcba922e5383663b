"""Structured messages of parties in a masked sum: keys and unmasking shares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pate.errors import ProtocolError
from pate.masking.encoding import decode, encode
from pate.masking.shamir import from_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

KEY_BYTES: Final = 32
HASH_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64
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


def check_bytes(value: object, length: int, what: str) -> None:
    """Raise ProtocolError unless ``value`` is a byte string of that length."""
    if not isinstance(value, bytes):
        raise ProtocolError(f"{what} is {type(value).__name__}, not bytes")
    if len(value) != length:
        raise ProtocolError(f"{what} has {len(value)} bytes, not {length}")


def check_point(key: object, what: str) -> None:
    """Check that an X25519 public key is of high order and in canonical form.

    Raises:
        ProtocolError: otherwise; ``what`` is for the message.
    """
    check_bytes(key, KEY_BYTES, what)
    assert isinstance(key, bytes)  # noqa: S101 - checked
    point = int.from_bytes(key, "little")
    if point >= _X25519_PRIME:
        raise ProtocolError(f"{what} is not a key in its one written form")
    if point in _LOW_ORDER:
        raise ProtocolError(f"{what} is a point of low order: no secret can be agreed on with it")


@dataclass(frozen=True)
class Keys:
    """What a party announces for one attempt.

    Attributes:
        mask_key: X25519 public key that pair masks come from, 32 bytes.
        share_key: X25519 public key that shares are sealed for, 32 bytes.
        seed_commitment: hash of the seed of its own mask, 32 bytes.
        signature: Ed25519, by its identity, over the context and all of the above, 64 bytes.
    """

    mask_key: bytes
    share_key: bytes
    seed_commitment: bytes
    signature: bytes

    def check(self, name: str) -> None:
        """Check sizes, and that the keys are of high order and in canonical form.

        Raises:
            ProtocolError: otherwise; names the party.
        """
        for key, kind in ((self.mask_key, "mask key"), (self.share_key, "share key")):
            check_point(key, f"the {kind} of {name}")
        check_bytes(self.seed_commitment, HASH_BYTES, f"the commitment of {name}")
        check_bytes(self.signature, SIGNATURE_BYTES, f"the signature of {name}")


@dataclass(frozen=True)
class UnmaskingShares:
    """The shares that one party reveals, by the owner of the secret.

    Attributes:
        seed_shares: of the seeds of the own masks of survivors, 33 bytes each.
        key_shares: of the mask keys of dropouts, 33 bytes each.
    """

    seed_shares: Mapping[str, bytes]
    key_shares: Mapping[str, bytes]

    def check(self, name: str) -> None:
        """Check that every share is an element of the field, and no party is in both.

        Raises:
            ProtocolError: otherwise; names the party ``name`` that revealed it.
        """
        for shares, kind in ((self.seed_shares, "seed"), (self.key_shares, "key")):
            for peer, share in shares.items():
                from_bytes(share, f"the share of the {kind} of {peer} from {name}")
        both = sorted(self.seed_shares.keys() & self.key_shares.keys())
        if both:
            raise ProtocolError(f"{name} revealed both the seed and the key of {both[0]}")

    def to_bytes(self) -> bytes:
        """Return both, as :meth:`from_bytes` reads them."""
        return encode(
            "revealed shares", pairs_to_bytes(self.seed_shares), pairs_to_bytes(self.key_shares)
        )

    @classmethod
    def from_bytes(cls, raw: bytes) -> UnmaskingShares:
        """Return what :meth:`to_bytes` wrote.

        Raises:
            StateError: for other bytes.
        """
        return cls(*map(pairs_from_bytes, decode("revealed shares", raw)))


def pairs_to_bytes(by_name: Mapping[str, bytes]) -> bytes:
    """Return byte strings by name, as :func:`pairs_from_bytes` reads them."""
    return encode("pairs", *(p for name in sorted(by_name) for p in (name.encode(), by_name[name])))


def pairs_from_bytes(raw: bytes) -> dict[str, bytes]:
    """Return what :func:`pairs_to_bytes` wrote, sorted by name.

    Raises:
        StateError: for other bytes.
    """
    parts = decode("pairs", raw)
    return {parts[at].decode(): parts[at + 1] for at in range(0, len(parts), 2)}
