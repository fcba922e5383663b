"""The hash chain: what an entry of the ledger is, and how the next one is bound to all before it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pate.errors import LedgerError
from pate.storage.hash_chain import canonical, entry_digest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pate.storage.hash_chain import Json

_TAG: Final = b"pate ledger entry v1\0"

#: What the first entry names as the digest before it.
GENESIS: Final = hashlib.sha256(b"pate ledger v1").digest()

#: Every kind of entry there is, in the order of a campaign.
KINDS: Final = (
    "open", "roster", "opening", "votes", "charge", "release", "round-end", "predictions", "close",
)  # fmt: skip


@dataclass(frozen=True)
class Head:
    """The last entry of a chain: kept elsewhere, it shows whether entries were cut off.

    Attributes:
        seq: number of entries.
        digest: (32,) bytes, of the last one.
    """

    seq: int
    digest: bytes

    def __str__(self) -> str:
        return f"{self.seq}:{self.digest.hex()}"

    @classmethod
    def parse(cls, text: str) -> Head:
        """Read back what ``str`` made.

        Raises:
            LedgerError: if it is not a head.
        """
        seq, _, digest = text.partition(":")
        try:
            head = cls(int(seq), bytes.fromhex(digest))
        except ValueError as error:
            raise LedgerError(f"{text!r} is not a ledger head (number:digest)") from error
        if len(head.digest) != 32 or str(head) != text:
            raise LedgerError(f"{text!r} is not a ledger head (number:digest)")
        return head


@dataclass(frozen=True)
class Entry:
    """One row of the ledger.

    Attributes:
        seq: from 1, without gaps.
        kind: one of :data:`KINDS`.
        body: canonical JSON of an object.
        previous: (32,) bytes, digest of the entry before, :data:`GENESIS` for the first.
        digest: (32,) bytes, SHA-256 over all other fields.
        written_at: UTC time, ISO 8601; told, not relied upon.
    """

    seq: int
    kind: str
    body: str
    previous: bytes
    digest: bytes
    written_at: str

    @classmethod
    def after(
        cls, head: Head | None, kind: str, body: Mapping[str, Json], written_at: str
    ) -> Entry:
        """Return the entry that follows ``head``."""
        seq, previous = (head.seq + 1, head.digest) if head else (1, GENESIS)
        text = canonical(body)
        return cls(
            seq,
            kind,
            text,
            previous,
            entry_digest(_TAG, seq, kind, text, previous, written_at),
            written_at,
        )

    @property
    def head(self) -> Head:
        """The chain's head when this is its last entry."""
        return Head(self.seq, self.digest)

    def check(self, head: Head | None) -> dict[str, Json]:
        """Check number, link, digest and form, and return the body.

        Raises:
            LedgerError: if this is not the entry that was written after ``head``.
        """
        seq, previous = (head.seq + 1, head.digest) if head else (1, GENESIS)
        if self.seq != seq:
            raise LedgerError(f"entry {seq} is missing: found {self.seq} in its place")
        if self.previous != previous:
            raise LedgerError(f"entry {seq} does not follow the entry before it")
        if self.digest != entry_digest(_TAG, seq, self.kind, self.body, previous, self.written_at):
            raise LedgerError(f"entry {seq} was altered: its digest does not hold")
        if self.kind not in KINDS:
            raise LedgerError(f"entry {seq} has the unknown kind {self.kind!r}")
        try:
            body = json.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise LedgerError(f"entry {seq} is not JSON") from error
        # One text per value: else two readers could take the same bytes for different things.
        if not isinstance(body, dict) or canonical(body) != self.body:
            raise LedgerError(f"entry {seq} is not in canonical form")
        return body
