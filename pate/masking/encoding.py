"""The bytes of a masked sum: sizes, and an injective encoding of a list of byte strings."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from pate.errors import ProtocolError, StateError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

KEY_BYTES: Final = 32
HASH_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64
_DOMAIN: Final = "pate/v1/masking/"


def encode(label: str, *parts: bytes) -> bytes:
    """Return an injective encoding of a label and parts: each after its length, 8 bytes.

    Everything that is signed, hashed or used in a key derivation is encoded here under its own
    label, so bytes made for one use are never valid for another.

    >>> encode("x", b"ab", b"") == encode("x", b"a", b"b")
    False
    """
    whole = ((_DOMAIN + label).encode(), *parts)
    return b"".join([len(part).to_bytes(8, "little") + part for part in whole])


def decode(label: str, raw: bytes) -> list[bytes]:
    """Return the parts that :func:`encode` wrote under this label."""
    found, at = [], 0
    while at < len(raw):
        size = int.from_bytes(raw[at : at + 8], "little")
        found.append(raw[at + 8 : at + 8 + size])
        at += 8 + size
    if not found or encode(label, *found[1:]) != raw:
        raise StateError(f"stored bytes of a masked sum ({label}) are damaged")
    return found[1:]


def digest(label: str, *parts: bytes) -> bytes:
    """Return the SHA-256 hash (32 bytes) of :func:`encode`."""
    return hashlib.sha256(encode(label, *parts)).digest()


def whole(number: int) -> bytes:
    """Return a non-negative integer below 2^64 as 8 bytes."""
    return number.to_bytes(8, "little")


def draw(random: Callable[[int], bytes], count: int) -> bytes:
    """Return ``count`` bytes of a random source; UsageError if it gives fewer: no short secret is used."""
    raw = random(count)
    if len(raw) != count:
        raise UsageError(
            f"the source of random bytes gave {len(raw)} instead of {count}: give one such as "
            "secrets.token_bytes"
        )
    return raw


def check_bytes(value: object, length: int, what: str) -> None:
    """Raise ProtocolError unless ``value`` is a byte string of that length."""
    if not isinstance(value, bytes):
        raise ProtocolError(f"{what} is {type(value).__name__}, not bytes")
    if len(value) != length:
        raise ProtocolError(f"{what} has {len(value)} bytes, not {length}")


def pairs_to_bytes(by_name: Mapping[str, bytes]) -> bytes:
    """Return byte strings by name, as :func:`pairs_from_bytes` reads them."""
    return encode("pairs", *(p for name in sorted(by_name) for p in (name.encode(), by_name[name])))


def pairs_from_bytes(raw: bytes) -> dict[str, bytes]:
    """Return what :func:`pairs_to_bytes` wrote, sorted by name."""
    parts = decode("pairs", raw)
    return {parts[at].decode(): parts[at + 1] for at in range(0, len(parts), 2)}
