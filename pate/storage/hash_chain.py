"""The hash chain of a ledger: each entry is bound to all earlier ones."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from pate.errors import LedgerError, UsageError
from pate.foreign import json_value

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Values of an entry's body: JSON without NaN and infinities.
Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
#: The text form of a head, with a bound on the number of entries.
_HEAD: Final = re.compile(r"(0|[1-9][0-9]{0,17}):([0-9a-f]{64})", re.ASCII)


def canonical(body: object) -> str:
    """Return the canonical JSON text of ``body``: sorted keys, no spaces, ASCII, no NaN."""
    return json.dumps(
        body, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    )


@dataclass(frozen=True)
class Head:
    """The last entry of a chain: stored elsewhere, it reveals truncation."""

    seq: int
    digest: bytes  # (32,) bytes, of the last one

    def __str__(self) -> str:
        return f"{self.seq}:{self.digest.hex()}"

    @classmethod
    def parse(cls, text: str) -> Head:
        """Read back what ``str`` made."""
        if not (found := _HEAD.fullmatch(text)):
            raise LedgerError(f"{text!r:.120} is not a ledger head (number:digest)")
        return cls(int(found[1]), bytes.fromhex(found[2]))

    @classmethod
    def given(cls, text: str | None) -> Head | None:
        """Return the head given with --head, None if there is none."""
        try:
            return None if text is None else cls.parse(text.strip())
        except LedgerError as error:
            raise UsageError(f"--head: {error}") from error


@dataclass(frozen=True)
class Entry:
    """One row of a ledger."""

    seq: int
    kind: str
    body: str
    previous: bytes  # (32,) bytes, digest of the entry before, the chain's genesis for the first
    digest: bytes  # (32,) bytes, SHA-256 over all other fields
    written_at: str  # UTC time, ISO 8601; recorded, not relied upon

    @property
    def head(self) -> Head:
        """The chain's head if this is its last entry."""
        return Head(self.seq, self.digest)


class Chain:
    """The chain of one kind of ledger.

    ``tag``: domain separation from other kinds of ledgers; ``genesis``: the text whose hash the
    first entry follows.
    """

    def __init__(self, tag: bytes, genesis: bytes) -> None:
        self._tag = tag
        #: The head of an empty ledger.
        self.start: Final = Head(0, hashlib.sha256(genesis).digest())

    def after(self, head: Head, kind: str, body: Mapping[str, Json], written_at: str) -> Entry:
        """Return the entry that follows ``head``."""
        seq, text = head.seq + 1, canonical(body)
        digest = self._digest(seq, kind, text, head.digest, written_at)
        return Entry(seq, kind, text, head.digest, digest, written_at)

    def check(self, entry: Entry, head: Head) -> dict[str, Json]:
        """Check number, link, digest and form of an entry, and return its body."""
        seq = head.seq + 1
        if entry.seq != seq:
            raise LedgerError(f"entry {seq} is missing: found {entry.seq} in its place")
        if entry.previous != head.digest:
            raise LedgerError(f"entry {seq} does not follow the entry before it")
        if entry.digest != self._digest(seq, entry.kind, entry.body, head.digest, entry.written_at):
            raise LedgerError(f"entry {seq} was altered: its digest does not match")
        try:
            body: object = json_value(entry.body)
            # One text per value, or two readers could interpret the same bytes differently.
            if isinstance(body, dict) and canonical(body) == entry.body:
                return body
        except (ValueError, RecursionError) as error:
            raise LedgerError(f"entry {seq} is not JSON") from error
        raise LedgerError(f"entry {seq} is not in canonical form")

    def _digest(self, seq: int, kind: str, body: str, previous: bytes, written_at: str) -> bytes:
        """Return the digest that binds an entry to all before it, 32 bytes."""
        whole = hashlib.sha256(self._tag + previous + seq.to_bytes(8, "big"))
        for text in (kind, body, written_at):
            piece = text.encode()
            whole.update(len(piece).to_bytes(8, "big") + piece)
        return whole.digest()
