"""Bundles that wait for a round: who asked for them, how many there may be, and when they are dropped.

A server may ask for bundles and never use them. Their secrets are dropped when the campaign that asked
has ended, the party has another sealing key, or a year is over; so is a roster of which no bundle is left.
The number of a dropped bundle is not used again. A party masks in no round with it, so dropping reveals
nothing (docs/proofs/envelopes.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pate.errors import RefusedError
from pate.masking.ahead.store import Kind
from pate.masking.encoding import decode, encode, whole

if TYPE_CHECKING:
    from typing import Self

    from pate.masking.ahead.bundle import Bundle
    from pate.masking.ahead.store import Place, Store

#: Most bundles that wait for a round, of all that one key asked for: for one roster, and in all.
MOST_OF_ROSTER: Final = 1_024
MOST_OF_KEY: Final = 4_096
#: How long a bundle waits, in seconds.
LONGEST: Final = 365 * 86_400
_DIGEST_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks for bundles.

    Attributes:
        key: of the campaign, 32 bytes.
        campaign: its id.
        at: when, in seconds since 1970.
    """

    key: bytes
    campaign: bytes
    at: int


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
    return place[:_DIGEST_BYTES]


def waits(bundle: Bundle, sealing: bytes, asker: Asker) -> dict[Place, bytes]:
    """Return the entry of a bundle that waits.

    Args:
        bundle: new, of this party.
        sealing: the party's public sealing key.
        asker: who asks for it.
    """
    made = _Waiting(bundle.digest, sealing, asker.key, asker.campaign, asker.at)
    return {(Kind.WAITING, place_of(bundle.roster, bundle.number)): made.to_bytes()}


def require_room(store: Store, roster: bytes, asker: Asker, sealing: bytes, more: int) -> None:
    """Drop what waits in vain, and check that some more bundles may wait.

    Args:
        store: of the party.
        roster: digest of the parties that they are made for, 32 bytes.
        asker: who asks for them.
        sealing: the party's public sealing key.
        more: their number.

    Raises:
        RefusedError: if too many wait already.
    """
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
