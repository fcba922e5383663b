"""What a party stores of its bundles and rounds, whatever happens to its process.

A server may ask for bundles and never use them. Their secrets are dropped when the campaign that asked
has ended, the party has another sealing key, or a year is over; so is a roster of which no bundle is left.
The number of a dropped bundle is not used again. A party masks in no round with it, so dropping reveals
nothing (docs/proofs/envelopes.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

from pate.errors import RefusedError
from pate.masking.encoding import HASH_BYTES, decode, encode, whole

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Self

    from pate.masking.ahead.bundle import Bundle

#: Most bundles that wait for a round, of all that one key asked for: for one roster, and in all.
MOST_OF_ROSTER: Final = 1_024
MOST_OF_KEY: Final = 4_096
#: How long a bundle waits, in seconds.
LONGEST: Final = 365 * 86_400


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

        An entry of one of these keys with other content is refused. After a ``DiskError`` nothing may leave.
        """


# --- bundles that wait for a round ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks for bundles."""

    key: bytes  # of the campaign, 32 bytes
    campaign: bytes  # its id
    at: int  # when, in seconds since 1970


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A bundle that waits; its key in the store is that of the bundle: roster and number."""

    bundle: bytes
    sealing: bytes
    key: bytes
    campaign: bytes
    since: int

    def to_bytes(self) -> bytes:
        since = whole(max(0, self.since))
        return encode("waiting", self.bundle, self.sealing, self.key, self.campaign, since)

    @classmethod
    def from_bytes(cls, raw: bytes) -> Self:
        bundle, sealing, key, campaign, since = decode("waiting", raw)
        return cls(bundle, sealing, key, campaign, int.from_bytes(since, "little"))


def place_of(roster: bytes, number: int) -> bytes:
    """Return the key of a bundle's entries, by the digest of its roster and its number."""
    return roster + whole(number)


def _roster_of(place: bytes) -> bytes:
    return place[:HASH_BYTES]


def waits(bundle: Bundle, sealing: bytes, asker: Asker) -> dict[Place, bytes]:
    """Return the entry of a bundle that waits."""
    made = _Waiting(bundle.digest, sealing, asker.key, asker.campaign, asker.at)
    return {(Kind.WAITING, place_of(bundle.roster, bundle.number)): made.to_bytes()}


def require_room(store: Store, roster: bytes, asker: Asker, sealing: bytes, more: int) -> None:
    """Drop what waits in vain, and check that some more bundles may wait."""
    drop_stale(store, sealing, asker.at)
    of_key = [place for place, each in _waiting(store).items() if each.key == asker.key]
    of_roster = [place for place in of_key if place.startswith(roster)]
    for count, most, whose in (
        (len(of_roster), MOST_OF_ROSTER, "for these parties"),
        (len(of_key), MOST_OF_KEY, "for campaigns of this key"),
    ):
        if count + more > most:
            raise RefusedError(
                f"{count} bundles {whose} wait for a round, and {most} may; they are dropped when their "
                "campaign ends, after a year, or by `pate-party new-sealing-key`"
            )


def drop_stale(store: Store, sealing: bytes, now: int) -> int:
    """Drop the bundles made for another sealing key, or more than a year ago; return their number."""
    return _drop(
        store,
        {
            place: each
            for place, each in _waiting(store).items()
            if each.sealing != sealing or now - each.since > LONGEST
        },
    )


def drop_of(store: Store, campaign: bytes) -> int:
    """Drop the bundles that a campaign asked for, and return their number."""
    found = _waiting(store).items()
    return _drop(store, {place: each for place, each in found if each.campaign == campaign})


def _waiting(store: Store) -> dict[bytes, _Waiting]:
    found = store.find(Kind.WAITING).items()
    return {place: _Waiting.from_bytes(raw) for place, raw in found}


def _drop(store: Store, dropped: dict[bytes, _Waiting]) -> int:
    if dropped:
        left = store.find(Kind.MADE).keys() - dropped.keys()
        needless = {_roster_of(place) for place in dropped} - {_roster_of(place) for place in left}
        store.change(
            {(Kind.DROPPED, place): each.bundle for place, each in dropped.items()},
            [
                *((Kind.WAITING, place) for place in dropped),
                *((Kind.MADE, place) for place in dropped),
                *((Kind.UNUSED, each.bundle) for each in dropped.values()),
                *((Kind.ROSTER, roster) for roster in needless),
            ],
        )
    return len(dropped)
