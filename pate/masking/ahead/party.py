"""A party's side of rounds: bundles ahead, masked votes, consent, unmasking.

Every answer is durable before it is returned; the same request gets the same answer, after any
restart, and another one in its place is refused for good. A malicious server learns at most one sum
of a round: a party masks in one round with a bundle, unmasks one list of survivors in it, itself
among them, all of whom signed that they masked in this same round, and unmasks one round of a batch
(with consent another one, of the same survivors). Proof: docs/proofs/envelopes.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pate.errors import ProtocolError, RefusedError
from pate.masking.ahead.bundle import (
    Bundle,
    BundleRoster,
    Secrets,
    make_bundle,
    pair_of,
    sign_sealing,
)
from pate.masking.ahead.store import Kind, drop_of, place_of, require_room, waits
from pate.masking.announced import open_boxes, survivors_to_sign
from pate.masking.encoding import decode, encode, pairs_from_bytes, pairs_to_bytes
from pate.masking.keys import KeyPair, Keys
from pate.masking.masks import hide, revealed
from pate.masking.ring import ChaChaStream, Ring
from pate.masking.shamir import UnmaskingShares, to_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from numpy.typing import NDArray

    from pate.masking.ahead.bundle import Round
    from pate.masking.ahead.store import Asker, Store
    from pate.masking.ring import VoteStream


@dataclass(frozen=True, kw_only=True, repr=False)
class PartyAhead:
    """One party's bundles and rounds, by its signing key in the rosters and its sealing key."""

    name: str
    identity: Ed25519PrivateKey
    pair: KeyPair  # that shares are sealed for
    store: Store
    random: Callable[[int], bytes]
    stream: VoteStream | None = None

    def sealing(self) -> tuple[bytes, bytes]:
        """Return the public sealing key (32 bytes) and the identity's signature over it (64)."""
        return self.pair.public, sign_sealing(self.name, self.identity, self.pair.public)

    def bundles(
        self, roster: BundleRoster, first: int, count: int, asker: Asker
    ) -> list[tuple[Bundle, dict[str, bytes]]]:
        """Return bundles of these numbers, with a box for each other party; new ones are made."""
        self._check_own(roster)
        numbers = range(first, first + count)
        missing = [
            number
            for number in numbers
            if self.store.get(Kind.MADE, place_of(roster.digest, number)) is None
        ]
        if missing:
            require_room(self.store, roster.digest, asker, self.pair.public, len(missing))
        return [self._bundle(roster, number, asker) for number in numbers]

    def roster(self, digest: bytes) -> BundleRoster:
        """Return a roster that this party made bundles for."""
        raw = self.store.get(Kind.ROSTER, digest)
        if raw is None:
            raise RefusedError(
                "bundles for a roster that this party has none for: it made none, or they were dropped "
                "with their campaign, after a year or by `pate-party new-sealing-key`"
            )
        return BundleRoster.from_bytes(raw)

    def begin(self, round_: Round, boxes: Mapping[str, bytes], note: bytes = b"") -> None:
        """Bind all bundles of a round to it, before anything is computed; a repetition is allowed."""
        digest, name = round_.digest, self.name
        if self.store.get(Kind.SHARES, digest) or self.store.get(Kind.MASKED, digest):
            return
        self._check_own(round_.roster)
        if name not in round_.bundles:
            raise ProtocolError(f"{name} is asked to mask in a round without its bundle")
        for bundle in round_.bundles.values():
            if self.store.get(Kind.BOUND, bundle.digest) not in (None, digest):
                raise RefusedError(f"{bundle} was in another round: a bundle is used once")
        own = round_.bundles[name]
        secrets = self._secrets(own)
        if boxes.keys() != round_.bundles.keys() - {name}:
            raise ProtocolError("the boxes of a round are not one of each other party")
        held = open_boxes(round_, name, self.pair, boxes) | {name: secrets.shares}
        attempt = round_.context.campaign + round_.context.attempt
        self.store.change(
            {
                **{(Kind.BOUND, each.digest): digest for each in round_.bundles.values()},
                (Kind.ATTEMPT, attempt): digest,
                (Kind.SHARES, digest): _shares_to_bytes(held),
                (Kind.NOTE, digest): note,
            }
        )

    def mask(self, round_: Round, values: Callable[[], NDArray[Any]]) -> tuple[bytes, bytes]:
        """Mask this party's votes with all others of a round that :meth:`begin` began.

        ``values`` returns (rows, classes) integers of any sign: votes, with noise if there is any. It
        is not called once they are masked. The signature says that they are masked.
        """
        digest = round_.digest
        signature = round_.sign_masked(self.name, self.identity)
        if (given := self.store.get(Kind.MASKED, digest)) is not None:
            return given, signature
        if self.store.get(Kind.SHARES, digest) is None:
            raise ProtocolError("votes are to be masked in a round that was not begun")
        found = values()
        round_.context.matrix.check(found)
        own = round_.bundles[self.name]
        secrets = self._secrets(own)
        packed = hide(
            round_,
            self.name,
            (KeyPair(secrets.mask), secrets.seed),
            found,
            round_.bundles.keys() - {self.name},
            self.stream or ChaChaStream(Ring(round_.context.matrix.bits)),
        )
        waited = (Kind.WAITING, place_of(own.roster, own.number))
        self.store.change({(Kind.MASKED, digest): packed}, [(Kind.UNUSED, own.digest), waited])
        return packed, signature

    def sign(self, round_: Round, masked: Mapping[str, bytes]) -> bytes:
        """Sign the list of survivors, in a round that takes consent; no second list is signed."""
        if not round_.consent:
            raise ProtocolError("a round without consent, and a list of survivors to sign")
        self._require_masked(round_)
        survivors = round_.survivors(self.name, masked)
        self._require_same(Kind.SIGNED, round_, _names(survivors))
        self.store.change({(Kind.SIGNED, round_.digest): _names(survivors)})
        return self.identity.sign(survivors_to_sign(round_, survivors))

    def check_list(
        self, round_: Round, masked: Mapping[str, bytes], consents: Mapping[str, bytes]
    ) -> tuple[str, ...]:
        """Check as :meth:`choose` that this party could reveal shares for a list; fix nothing."""
        self._require_masked(round_)
        survivors = round_.survivors(self.name, masked)
        round_.check_consents(survivors, consents)
        names = _names(survivors)
        if self.store.get(Kind.SIGNED, round_.digest) not in (None, names):
            raise RefusedError("the list of survivors is not the one that this party signed")
        self._require_same(Kind.CHOSEN, round_, names)
        place, once = _unmasked(round_, names)
        if self.store.get(*place) not in (None, once):
            raise RefusedError(
                "the batch was unmasked in another round: the difference of two sums would reveal "
                "votes"
            )
        return survivors

    def choose(
        self, round_: Round, masked: Mapping[str, bytes], consents: Mapping[str, bytes]
    ) -> tuple[str, ...]:
        """Fix the list of survivors, sorted, that this party reveals shares for; reveals nothing yet.

        Another list is refused, and so is another round of this batch that was unmasked without consent
        or with other survivors.
        """
        survivors = self.check_list(round_, masked, consents)
        names = _names(survivors)
        place, once = _unmasked(round_, names)
        self.store.change({(Kind.CHOSEN, round_.digest): names, place: once})
        return survivors

    def unmask(self, round_: Round) -> UnmaskingShares:
        """Reveal the shares for the chosen list: of seeds of survivors, and of mask keys of all others."""
        digest = round_.digest
        chosen = self.store.get(Kind.CHOSEN, digest)
        if chosen is None:
            raise ProtocolError("a sum is to be unmasked before its survivors are fixed")
        if (given := self.store.get(Kind.REVEALED, digest)) is not None:
            return UnmaskingShares.from_bytes(given)
        raw = self.store.get(Kind.SHARES, digest)
        if raw is None:
            raise RefusedError("the shares of this round are forgotten")
        held = _shares_from_bytes(raw)
        alive = {name.decode() for name in decode("survivors", chosen)}
        opening = revealed(held, alive)
        self.store.change({(Kind.REVEALED, digest): opening.to_bytes()}, [(Kind.SHARES, digest)])
        return opening

    def note(self, campaign: bytes, attempt: bytes) -> bytes:
        """Return the note of the round of an attempt."""
        digest = self.store.get(Kind.ATTEMPT, campaign + attempt)
        note = None if digest is None else self.store.get(Kind.NOTE, digest)
        if note is None:
            raise ProtocolError("a step of a round that was not begun here")
        return note

    def takes_part(self, campaign: bytes) -> bool:
        """Return whether a round of a campaign was begun here."""
        return bool(self.store.find(Kind.ATTEMPT, campaign))

    def forget(self, campaign: bytes) -> None:
        """Remove all secrets of a campaign's rounds and bundles; what was bound stays bound."""
        rounds = set(self.store.find(Kind.ATTEMPT, campaign).values())
        bound = {bundle for bundle, at in self.store.find(Kind.BOUND).items() if at in rounds}
        self.store.change(
            {},
            [(Kind.SHARES, each) for each in rounds] + [(Kind.UNUSED, each) for each in bound],
        )
        drop_of(self.store, campaign)

    def _bundle(
        self, roster: BundleRoster, number: int, asker: Asker
    ) -> tuple[Bundle, dict[str, bytes]]:
        place = place_of(roster.digest, number)
        raw = self.store.get(Kind.MADE, place)
        if raw is not None:
            return _made_from_bytes(raw, self.name, number, roster)
        if self.store.get(Kind.DROPPED, place) is not None:
            raise RefusedError(
                f"bundle {number} for these parties was dropped: its campaign has ended, or it waited "
                "for a year"
            )
        bundle, boxes, secrets = make_bundle(roster, self.name, self.identity, number, self.random)
        self.store.change(
            {
                (Kind.ROSTER, roster.digest): roster.to_bytes(),
                (Kind.MADE, place): encode(
                    "made bundle", *bundle.keys.parts, pairs_to_bytes(boxes)
                ),
                (Kind.UNUSED, bundle.digest): secrets.to_bytes(),
                **waits(bundle, self.pair.public, asker),
            }
        )
        return bundle, boxes

    def _check_own(self, roster: BundleRoster) -> None:
        name = self.name
        roster.plain.check_own(name, self.identity)
        if roster.keys[name] != self.pair.public:
            raise ProtocolError(
                f"the roster has {name} with another sealing key than it has now: bundles are "
                "made again, for its new key"
            )

    def _secrets(self, own: Bundle) -> Secrets:
        raw = self.store.get(Kind.UNUSED, own.digest)
        if raw is None:
            raise RefusedError(f"{own} was used before, or is not of this home")
        return Secrets.from_bytes(raw)

    def _require_masked(self, round_: Round) -> None:
        if self.store.get(Kind.MASKED, round_.digest) is None:
            raise ProtocolError("a list of survivors, before this party has masked its votes")

    def _require_same(self, kind: Kind, round_: Round, names: bytes) -> None:
        if self.store.get(kind, round_.digest) not in (None, names):
            raise RefusedError(
                "another list of survivors was given for this round: a party takes one, once"
            )


def _unmasked(round_: Round, names: bytes) -> tuple[tuple[Kind, bytes], bytes]:
    """Return where it is stored how a batch was unmasked, and what is there for this list."""
    place = (Kind.UNMASKED, round_.context.campaign + round_.context.matrix.batch)
    # A list that t parties signed makes one sum of any round; another list may make several.
    return place, names if round_.consent else round_.digest


def _names(survivors: Sequence[str]) -> bytes:
    return encode("survivors", *(name.encode() for name in survivors))


def _shares_to_bytes(held: Mapping[str, tuple[int, int]]) -> bytes:
    parts = [(name.encode(), *map(to_bytes, held[name])) for name in sorted(held)]
    return encode("held shares", *(each for part in parts for each in part))


def _shares_from_bytes(raw: bytes) -> dict[str, tuple[int, int]]:
    parts = decode("held shares", raw)
    return {
        parts[at].decode(): pair_of(parts[at + 1 : at + 3], "a stored share")
        for at in range(0, len(parts), 3)
    }


def _made_from_bytes(
    raw: bytes, owner: str, number: int, roster: BundleRoster
) -> tuple[Bundle, dict[str, bytes]]:
    *keys, boxes = decode("made bundle", raw)
    return Bundle(owner, number, roster.digest, Keys(*keys)), pairs_from_bytes(boxes)
