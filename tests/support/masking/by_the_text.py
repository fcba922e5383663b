"""The formulas of the masked sum, written down once more, without its code."""

from __future__ import annotations

import hashlib
import hmac

import numpy as np

PRIME = 2**256 + 297


def encoded(label: str, *parts: bytes) -> bytes:
    """Every part after its length; the label of its use first."""
    return b"".join(
        len(part).to_bytes(8, "little") + part
        for part in (b"pate/v1/masking/" + label.encode(), *parts)
    )


def sha(label: str, *parts: bytes) -> bytes:
    return hashlib.sha256(encoded(label, *parts)).digest()


def hkdf(secret: bytes, info: bytes) -> bytes:
    """RFC 5869 with SHA-256, no salt, 32 bytes."""
    extracted = hmac.digest(bytes(32), secret, "sha256")
    return hmac.digest(extracted, info + b"\1", "sha256")


def number(value: int) -> bytes:
    return value.to_bytes(8, "little")


def chacha_blocks(key: bytes, count: int) -> list[bytes]:
    """RFC 8439, 2.3, with a nonce of zeros and the counter from 0."""
    found = []
    for counter in range(-(-count // 64)):
        start = [*np.frombuffer(b"expand 32-byte k" + key, "<u4").tolist(), counter, 0, 0, 0]
        state = list(start)

        def quarter(a: int, b: int, c: int, d: int, words: list[int] = state) -> None:
            for into, by, other, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
                words[into] = (words[into] + words[by]) % 2**32
                mixed = words[other] ^ words[into]
                words[other] = (mixed << turn | mixed >> 32 - turn) % 2**32

        for _ in range(10):
            for at in range(4):
                quarter(at, at + 4, at + 8, at + 12)
            for at in range(4):
                quarter(at, (at + 1) % 4 + 4, (at + 2) % 4 + 8, (at + 3) % 4 + 12)
        words = [(one + other) % 2**32 for one, other in zip(state, start, strict=True)]
        found.append(np.array(words, "<u4").tobytes())
    return found


def value_at(point: int, secret: bytes, drawn: bytes) -> int:
    """A polynomial with the secret at 0 and the drawn coefficients, at a point."""
    assert len(drawn) % 48 == 0
    rising = [secret] + [drawn[at : at + 48] for at in range(0, len(drawn), 48)]
    total = 0
    for power, each in enumerate(rising):
        total += int.from_bytes(each, "little") * point**power
    return total % PRIME
