"""Bundles of keys ahead in a party's ledger: each number is one bundle, and a bundle is in one round.

The store of bundles follows both rules by itself. This list is for a home whose store was put back to an
earlier state and whose ledger was not: what the store forgot, the ledger has.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

from pate.errors import LedgerError, RefusedError
from pate.masking.encoding import HASH_BYTES
from pate.storage.ledger import Step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pate.storage.hash_chain import Entry

_MOST_NUMBER: Final = 2**32


@dataclass(frozen=True, slots=True)
class ListedBundle:
    """A bundle of this party that left; ``round`` is the digest of the one it masks in, empty before that."""

    roster: str
    number: int
    digest: str
    round: str
    at: str


class Listing:
    """The bundles that left."""

    def __init__(self) -> None:
        self.made: dict[tuple[bytes, int], bytes] = {}
        self.listed: dict[bytes, ListedBundle] = {}

    def bundles(self) -> tuple[ListedBundle, ...]:
        """Return all bundles, in the order in which they were listed."""
        return tuple(self.listed.values())

    def new(self, roster: bytes, first: int, bundles: Sequence[bytes]) -> range:
        """Return which of these bundles are not listed, from the first such to the last; empty: none."""
        known = [self.made.get((roster, first + at)) for at in range(len(bundles))]
        for at, (each, made) in enumerate(zip(known, bundles, strict=True)):
            if each not in (None, made):
                raise RefusedError(
                    f"another bundle {first + at} for these parties left before: its secrets are "
                    "lost, and no other one takes its number"
                )
        new = [at for at, each in enumerate(known) if each is None]
        return range(new[0], new[-1] + 1) if new else range(0)

    def has_used(self, bundle: bytes, round_: bytes) -> bool:
        """Return whether a bundle is listed with this round."""
        found = self.listed.get(bundle)
        if found is None:
            raise RefusedError(
                "a bundle that is not in our ledger: the ledger is older than the bundles"
            )
        if found.round not in ("", round_.hex()):
            raise RefusedError(
                f"bundle {found.number} masked in another round, by our ledger: a bundle is used once"
            )
        return bool(found.round)


class HasBundles(Protocol):
    """The part of a ledger's state that is about bundles."""

    bundles: Listing


@dataclass(frozen=True)
class BundlesMade(Step["HasBundles"]):
    """Bundles that are about to leave, by consecutive numbers of a roster."""

    kind = "bundles"
    roster: bytes
    first: int
    made: tuple[bytes, ...]

    def __post_init__(self) -> None:
        _check_digests(self.roster, *self.made)

    def follow(self, state: HasBundles, at: Entry) -> HasBundles:
        """List them; no number has two bundles."""
        if not self.made or not 0 <= self.first <= _MOST_NUMBER - len(self.made):
            raise LedgerError(f"{len(self.made)} bundles from number {self.first!r:.40}")
        listing = state.bundles
        listing.new(self.roster, self.first, self.made)
        for number, digest in enumerate(self.made, self.first):
            made = ListedBundle(self.roster.hex(), number, digest.hex(), "", at.written_at)
            listing.made[self.roster, number] = digest
            listing.listed.setdefault(digest, made)
        return state


@dataclass(frozen=True)
class BundleUsed(Step["HasBundles"]):
    """The round that votes are about to be masked in with a bundle."""

    kind = "bundle"
    bundle: bytes
    round: bytes

    def __post_init__(self) -> None:
        _check_digests(self.bundle, self.round)

    def follow(self, state: HasBundles, at: Entry) -> HasBundles:
        """Use a listed bundle in one round."""
        del at
        if not state.bundles.has_used(self.bundle, self.round):
            found = state.bundles.listed[self.bundle]
            state.bundles.listed[self.bundle] = replace(found, round=self.round.hex())
        return state


def _check_digests(*digests: bytes) -> None:
    if any(len(each) != HASH_BYTES for each in digests):
        raise LedgerError("an entry of bundles with a digest that is not 32 bytes")
