"""What the hash chains of ledgers share: one text per value, and one digest per entry."""

from __future__ import annotations

import hashlib
import json
from typing import TypeAlias

#: What the body of an entry is made of: JSON without floats that are not numbers.
Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


def canonical(body: object) -> str:
    """Return the one JSON text of ``body``: sorted keys, no spaces, ASCII, no NaN."""
    return json.dumps(
        body, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    )


def entry_digest(
    tag: bytes, seq: int, kind: str, body: str, previous: bytes, written_at: str
) -> bytes:
    """Return the digest that binds an entry to all before it, 32 bytes.

    Args:
        tag: tells the entries of one kind of ledger from those of any other.
        seq: number of the entry.
        kind: of the entry.
        body: its canonical text.
        previous: digest of the entry before it, 32 bytes.
        written_at: when, as text.
    """
    whole = hashlib.sha256(tag + previous + seq.to_bytes(8, "big"))
    for text in (kind, body, written_at):
        piece = text.encode()
        whole.update(len(piece).to_bytes(8, "big") + piece)
    return whole.digest()
