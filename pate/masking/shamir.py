"""Shamir's secret sharing of 32-byte secrets over a prime field.

A secret is the value at 0 of a uniformly random polynomial of degree threshold - 1, a share its
value at a point. Any ``threshold`` shares reconstruct the secret; fewer are independent of it.

Python's integers do not run in constant time. The process that splits or combines has the secrets
anyway; it is assumed that no one else measures its time (docs/proofs/masked-sum.md).

Source: Shamir, "How to share a secret", CACM 22(11), 1979.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pate.errors import ProtocolError, UsageError
from pate.masking.encoding import decode, draw, encode, pairs_from_bytes, pairs_to_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

#: The least prime above 2^256: every secret of 32 bytes is an element of its field.
PRIME: Final = 2**256 + 297
SECRET_BYTES: Final = 32
SHARE_BYTES: Final = 33
#: Bytes drawn for a coefficient and reduced: within 2^-127 of uniform.
_DRAWN: Final = 48


def split(
    secret: bytes, threshold: int, points: Sequence[int], random: Callable[[int], bytes]
) -> dict[int, int]:
    """Share a secret among distinct points from 1 to 2^32 - 1; any ``threshold`` shares reconstruct it."""
    if len(secret) != SECRET_BYTES:
        raise UsageError(f"a secret to share has {SECRET_BYTES} bytes, got {len(secret)}")
    if not 1 <= threshold <= len(points):
        raise UsageError(f"a threshold of {threshold} does not fit {len(points)} shares")
    if len(set(points)) != len(points) or not all(0 < point < 2**32 for point in points):
        raise UsageError("the points of shares are distinct and from 1 to 2^32 - 1")
    raw = draw(random, _DRAWN * (threshold - 1))
    rising = [int.from_bytes(secret, "little")] + [
        int.from_bytes(raw[at : at + _DRAWN], "little") % PRIME for at in range(0, len(raw), _DRAWN)
    ]
    falling = rising[::-1]
    shares = {}
    for point in points:
        value = 0
        # Points are small, so one reduction at the end is faster than one per step.
        for coefficient in falling:
            value = value * point + coefficient
        shares[point] = value % PRIME
    return shares


def weights(points: Sequence[int], at: int = 0) -> tuple[int, ...]:
    """Return Lagrange weights: f(at) = sum of weight * f(point), for the points in their order."""
    if len(set(points)) != len(points):
        raise UsageError("two shares at the same point")
    found = []
    for own in points:
        above, below = 1, 1
        for other in points:
            if other != own:
                above *= at - other
                below *= own - other
        found.append(above * pow(below % PRIME, -1, PRIME) % PRIME)
    return tuple(found)


def combine(shares: Iterable[int], by: Sequence[int]) -> int:
    """Return the sum of shares times the :func:`weights` ``by``, in the same order."""
    return sum(share * weight for share, weight in zip(shares, by, strict=True)) % PRIME


def secret_of(value: int) -> bytes | None:
    """Return a field element as a secret of 32 bytes, or None if it is too large."""
    return value.to_bytes(SECRET_BYTES, "little") if value < 2 ** (8 * SECRET_BYTES) else None


def to_bytes(share: int) -> bytes:
    """Return a share as 33 bytes, little-endian."""
    return share.to_bytes(SHARE_BYTES, "little")


def from_bytes(raw: bytes, what: str) -> int:
    """Return the share that :func:`to_bytes` wrote."""
    if not isinstance(raw, bytes) or len(raw) != SHARE_BYTES:
        raise ProtocolError(f"{what} does not have {SHARE_BYTES} bytes")
    share = int.from_bytes(raw, "little")
    if share >= PRIME:
        raise ProtocolError(f"{what} is no element of the field")
    return share


@dataclass(frozen=True)
class UnmaskingShares:
    """The shares that one party reveals, by the owner of the secret."""

    seed_shares: Mapping[str, bytes]  # of the seeds of the own masks of survivors, 33 bytes each
    key_shares: Mapping[str, bytes]  # of the mask keys of dropouts, 33 bytes each

    def check(self, name: str) -> None:
        """Check that every share is an element of the field, and no party is in both."""
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
        """Return what :meth:`to_bytes` wrote."""
        return cls(*map(pairs_from_bytes, decode("revealed shares", raw)))
