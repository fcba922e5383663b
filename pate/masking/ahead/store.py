"""What a party must remember between the steps of a round, whatever happens to its process."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


class Kind(Enum):
    """Kinds of entries, with their keys."""

    #: Public part and boxes of an own bundle, by digest of its roster and number; removed if it is dropped.
    MADE = "made"
    #: Who asked for an own bundle, by the same; removed once it has masked, or is dropped.
    WAITING = "waiting"
    #: Digest of an own bundle that was dropped before it masked, by the same.
    DROPPED = "dropped"
    #: The roster that bundles are made for, by its digest; removed if all its bundles are dropped.
    ROSTER = "roster"
    #: Secrets of an own bundle, by its digest; removed once it has masked, or is dropped.
    UNUSED = "unused"
    #: The one round of a bundle, its owner whoever, by digest of the bundle.
    BOUND = "bound"
    #: The round of an attempt, by campaign and attempt.
    ATTEMPT = "attempt"
    #: Shares received for a round, by its digest; removed once it is unmasked.
    SHARES = "shares"
    #: The masked votes of a round, by its digest.
    MASKED = "masked"
    #: The list of survivors that this party signed for a round, by its digest.
    SIGNED = "signed"
    #: The list of survivors that this party reveals shares for, by digest of the round.
    CHOSEN = "chosen"
    #: How a batch is unmasked, by campaign and batch: the one round, or with consent the one list.
    UNMASKED = "unmasked"
    #: The shares that it revealed, by digest of the round.
    REVEALED = "revealed"
    #: The request of a round, by its digest: for the caller.
    NOTE = "note"


#: Kinds whose entries are removed: secrets, and what belongs to bundles that were dropped.
REMOVED: Final = (Kind.UNUSED, Kind.SHARES, Kind.WAITING, Kind.MADE, Kind.ROSTER)

#: An entry's kind and key.
Place = tuple[Kind, bytes]


class Store(Protocol):
    """Entries that are written once."""

    def get(self, kind: Kind, key: bytes) -> bytes | None:
        """Return an entry, or None."""

    def find(self, kind: Kind, prefix: bytes = b"") -> dict[bytes, bytes]:
        """Return all entries of a kind whose keys begin so, by key."""

    def change(self, add: Mapping[Place, bytes], remove: Collection[Place] = ()) -> None:
        """Add entries and remove others: all of it, durably, or nothing.

        Raises:
            RefusedError: if there is an entry of one of these keys with other content.
            DiskError: if it cannot be made durable; then nothing may leave.
        """
