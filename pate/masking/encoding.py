"""One way to turn a list of byte strings into one, and back into no other list."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from pate.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

_DOMAIN: Final = "pate/v1/masking/"


def encode(label: str, *parts: bytes) -> bytes:
    """Return an injective encoding of a label and parts: each after its length, 8 bytes.

    What is signed, hashed or put into a key derivation goes through here, each use under a label
    of its own, so bytes made for one use never stand for another.

    >>> encode("x", b"ab", b"") == encode("x", b"a", b"b")
    False
    """
    whole = ((_DOMAIN + label).encode(), *parts)
    return b"".join(len(part).to_bytes(8, "little") + part for part in whole)


def digest(label: str, *parts: bytes) -> bytes:
    """Return the SHA-256 hash (32 bytes) of :func:`encode`."""
    return hashlib.sha256(encode(label, *parts)).digest()


def whole(number: int) -> bytes:
    """Return a non-negative integer below 2^64 as 8 bytes."""
    return number.to_bytes(8, "little")


def draw(random: Callable[[int], bytes], count: int) -> bytes:
    """Return ``count`` bytes of a random source.

    Raises:
        UsageError: if it gave another number of them; a short secret must not be used.
    """
    raw = random(count)
    if len(raw) != count:
        raise UsageError(
            f"the source of random bytes gave {len(raw)} instead of {count}: give one such as "
            "secrets.token_bytes"
        )
    return raw
