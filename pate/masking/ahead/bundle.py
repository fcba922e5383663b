"""Bundles: who they are made for, a party's one-time keys with shares of its secrets, and the rounds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from pate.errors import ProtocolError, QuorumError
from pate.masking.announced import check_consents
from pate.masking.context import Member, Roster
from pate.masking.encoding import SIGNATURE_BYTES, check_bytes, decode, digest, encode, whole
from pate.masking.graph import COMPLETE_UP_TO, Degree, Graph
from pate.masking.keys import (
    Keys,
    OneTime,
    check_point,
    check_signature,
    check_unlike,
    commitment,
)
from pate.masking.shamir import from_bytes, to_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from pate.masking.context import Context

#: Most parties of a roster. The proof needs that everybody masks with everybody.
MOST_PARTIES: Final = COMPLETE_UP_TO


def takes_consent(parties: int, threshold: int, colluders: int, *, noisy: bool) -> bool:
    """Return whether a sum needs a step in which the parties sign the list of survivors.

    Without it a lying server may show each party another list. It then still sees one sum at most.
    That sum has at least t - c honest parties if n - c > (n - t)(n - t + 1); otherwise it may have
    as few as two (docs/proofs/envelopes.md, section 5). Exact sums of several campaigns are kept
    apart by their lists, so they take consent unless nobody may be missing.

    >>> takes_consent(5, 4, 1, noisy=True), takes_consent(5, 3, 0, noisy=True)
    (False, True)
    >>> takes_consent(25, 17, 8, noisy=True), takes_consent(25, 22, 8, noisy=True)
    (True, False)
    """
    missing = parties - threshold
    if not missing:
        return False
    return not noisy or parties - colluders <= missing * (missing + 1)


@dataclass(frozen=True)
class Sealed:
    """A party's sealing key."""

    member: Member  # the party
    key: bytes  # X25519 public key that shares are sealed for, 32 bytes
    signature: bytes  # Ed25519, by its identity, over its name and the key, 64 bytes

    def __post_init__(self) -> None:
        name = self.member.name
        check_point(self.key, f"the sealing key of {name}")
        check_bytes(self.signature, SIGNATURE_BYTES, f"the signature of the sealing key of {name}")
        check_signature(
            self.member.identity,
            self.signature,
            _sealing_to_sign(name, self.key),
            f"the sealing key of {name} is not signed by its identity",
        )


def sign_sealing(name: str, identity: Ed25519PrivateKey, key: bytes) -> bytes:
    """Return a party's signature over its sealing key, 64 bytes."""
    return identity.sign(_sealing_to_sign(name, key))


def _sealing_to_sign(name: str, key: bytes) -> bytes:
    return encode("signed sealing key", name.encode(), key)


@dataclass(frozen=True)
class BundleRoster:
    """The parties that bundles are made for: each deals shares to all of them."""

    parties: tuple[Sealed, ...]  # sorted by name; names, identities and keys are unique. n of them.
    threshold: int  # t: shares that reconstruct a secret, and least number of parties in a sum
    colluders: int  # c, most parties that may collude with the server

    def __post_init__(self) -> None:
        if len(self.parties) > MOST_PARTIES:
            raise ProtocolError(
                f"a roster of {len(self.parties)} for bundles: at most {MOST_PARTIES} can all mask "
                "with one another"
            )
        if len({each.key for each in self.parties}) != len(self.parties):
            raise ProtocolError("two parties of the roster of bundles have one key")
        _ = self.plain  # which checks that they fit

    @cached_property
    def plain(self) -> Roster:
        """The same parties without their keys."""
        return Roster(tuple(each.member for each in self.parties), self.threshold, self.colluders)

    @cached_property
    def keys(self) -> dict[str, bytes]:
        """Sealing key by name."""
        return {each.member.name: each.key for each in self.parties}

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of all but the signatures, 32 bytes."""
        parts = [
            part
            for each in self.parties
            for part in (each.member.name.encode(), each.member.identity, each.key)
        ]
        return digest(
            "bundle roster", whole(self.threshold), whole(self.colluders), encode("parties", *parts)
        )

    def check_fits(self, context: Context) -> None:
        """Check that bundles for this roster serve a sum."""
        if self.plain.members != context.roster.members:
            raise ProtocolError("the bundles are for another roster than the campaign's")
        if self.plain != context.roster:
            raise ProtocolError(
                f"the bundles are for t = {self.threshold} and c = {self.colluders}, the campaign "
                f"has t = {context.roster.threshold} and c = {context.roster.colluders}"
            )

    def to_bytes(self) -> bytes:
        """Return all of it, as :meth:`from_bytes` reads it."""
        parts = [
            part
            for each in self.parties
            for part in (each.member.name.encode(), each.member.identity, each.key, each.signature)
        ]
        return encode("stored roster", whole(self.threshold), whole(self.colluders), *parts)

    @classmethod
    def from_bytes(cls, raw: bytes) -> BundleRoster:
        """Return the roster that :meth:`to_bytes` wrote."""
        threshold, colluders, *parts = decode("stored roster", raw)
        parties = tuple(
            Sealed(Member(parts[at].decode(), parts[at + 1]), parts[at + 2], parts[at + 3])
            for at in range(0, len(parts), 4)
        )
        return cls(
            parties, int.from_bytes(threshold, "little"), int.from_bytes(colluders, "little")
        )


# Bundles


@dataclass(frozen=True)
class Bundle:
    """The public part of a bundle."""

    owner: str  # name of the party
    number: int  # counts the owner's bundles for a roster, from 0
    roster: bytes  # digest of it, 32 bytes
    # ``share_key`` is the owner's key for the boxes of this bundle; the signature is over all of the
    # above, too
    keys: Keys

    @cached_property
    def digest(self) -> bytes:
        """Identifies the bundle: SHA-256 of all but the signature, 32 bytes."""
        return digest("bundle", *self._parts())

    def check(self, roster: BundleRoster) -> None:
        """Check that its owner made it for a roster."""
        roster.plain.check_members([self.owner], "a list of bundles")
        if self.roster != roster.digest:
            raise ProtocolError(f"{self} is for another roster")
        self.keys.check(self.owner)
        check_signature(
            roster.plain.identities[self.owner],
            self.keys.signature,
            encode("signed bundle", *self._parts()),
            f"{self} is not signed by its identity",
        )

    def signed(self, identity: Ed25519PrivateKey) -> Bundle:
        """Return it with the owner's signature."""
        signature = identity.sign(encode("signed bundle", *self._parts()))
        return replace(self, keys=replace(self.keys, signature=signature))

    def committed(self, seed: bytes) -> bytes:
        """Return the commitment to ``seed`` if it is that of this bundle, 32 bytes."""
        about = digest("bundle seed", self.roster, whole(self.number))
        return commitment(about, self.owner, seed)

    def __str__(self) -> str:
        return f"bundle {self.number} of {self.owner}"

    def box(self, recipient: str, key: bytes) -> bytes:
        """Return what a box is bound to: this bundle, with all its keys, and its recipient's key."""
        return encode("box ahead", self.digest, recipient.encode(), key)

    def _parts(self) -> tuple[bytes, ...]:
        return (self.roster, self.owner.encode(), whole(self.number), *self.keys.parts[:-1])


@dataclass(frozen=True, repr=False)
class Secrets:
    """The owner's part of a bundle, until it has masked with it."""

    mask: bytes  # private mask key, 32 bytes
    seed: bytes  # of its own mask, 32 bytes
    shares: tuple[int, int]  # its own shares of the seed and of the mask key

    def to_bytes(self) -> bytes:
        """Return all of it, as :meth:`from_bytes` reads it."""
        return encode("secrets", self.mask, self.seed, *map(to_bytes, self.shares))

    @classmethod
    def from_bytes(cls, raw: bytes) -> Secrets:
        """Return what :meth:`to_bytes` wrote."""
        mask, seed, *shares = decode("secrets", raw)
        return cls(mask, seed, pair_of(shares, "a stored share"))


def pair_of(shares: list[bytes], what: str) -> tuple[int, int]:
    """Return two shares from their bytes."""
    first, second = shares
    return from_bytes(first, what), from_bytes(second, what)


def make_bundle(
    roster: BundleRoster,
    owner: str,
    identity: Ed25519PrivateKey,
    number: int,
    random: Callable[[int], bytes],
) -> tuple[Bundle, dict[str, bytes], Secrets]:
    """Make a bundle: its public part, a box for each other party, and the owner's secrets."""
    # The private key of its boxes is forgotten here: only the recipients open them.
    own = OneTime.make(random)
    bare = Bundle(owner, number, roster.digest, Keys(own.mask.public, own.share.public, b"", b""))
    keys = replace(bare.keys, seed_commitment=bare.committed(own.seed))
    bundle = replace(bare, keys=keys).signed(identity)
    parts = own.deal(roster.threshold, roster.plain.points, random)
    others = {name: key for name, key in roster.keys.items() if name != owner}
    boxes = own.boxes(parts, others, lambda name: bundle.box(name, others[name]))
    return bundle, boxes, Secrets(own.mask.private, own.seed, parts[owner])


@dataclass(frozen=True, eq=False)
class Round:
    """The bundles of a sum, each signed by its owner."""

    context: Context  # of the attempt; its votes are not proved
    roster: BundleRoster  # that all bundles are made for
    bundles: Mapping[str, Bundle]  # by owner, sorted by it: the parties that take part
    consent: bool  # whether the parties sign the list of survivors before they unmask

    def __post_init__(self) -> None:
        self.roster.check_fits(self.context)
        if self.context.proofs is not None:
            raise ProtocolError("votes are not proved in a sum whose keys come ahead")
        needed = self.context.roster.threshold
        if len(self.bundles) < needed:
            raise QuorumError(f"{len(self.bundles)} parties take part, {needed} are needed")
        for name in sorted(self.bundles):
            bundle = self.bundles[name]
            if bundle.owner != name:
                raise ProtocolError(f"{bundle} is listed for {name!r:.80}")
            bundle.check(self.roster)
        object.__setattr__(
            self, "bundles", {name: self.bundles[name] for name in sorted(self.bundles)}
        )
        check_unlike(self.keys)

    @cached_property
    def keys(self) -> dict[str, Keys]:
        """Keys by name."""
        return {name: bundle.keys for name, bundle in self.bundles.items()}

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of context, roster and bundles, 32 bytes; bound to every mask and signature."""
        return digest(
            "ahead",
            self.context.digest,
            self.roster.digest,
            whole(self.consent),
            *(bundle.digest for bundle in self.bundles.values()),
        )

    @cached_property
    def graph(self) -> Graph:
        """Everybody masks with everybody, and t shares reconstruct a secret."""
        degree = Degree(len(self.bundles) - 1, self.context.roster.threshold, complete=True)
        return Graph(tuple(self.bundles), degree)

    def committed(self, name: str, seed: bytes) -> bytes:
        """Return the commitment to ``seed`` if it is that of the bundle of ``name``."""
        return self.bundles[name].committed(seed)

    def box(self, sender: str, recipient: str) -> bytes:
        """Return what a box of a bundle is bound to."""
        return self.bundles[sender].box(recipient, self.roster.keys[recipient])

    def sign_masked(self, name: str, identity: Ed25519PrivateKey) -> bytes:
        """Return a party's signature that it has masked its votes in this round, 64 bytes."""
        return identity.sign(self._masked_to_sign(name))

    def check_masked(self, name: str, signature: bytes) -> None:
        """Check a party's signature that it has masked its votes in this round."""
        if name not in self.bundles:
            raise ProtocolError(f"{name!r:.80} takes no part in this round")
        check_bytes(signature, SIGNATURE_BYTES, f"the signature of {name}")
        check_signature(
            self.context.roster.identities[name],
            signature,
            self._masked_to_sign(name),
            f"{name} did not sign that it masked its votes in this round: it was shown another one",
        )

    def survivors(self, own: str, masked: Mapping[str, bytes]) -> tuple[str, ...]:
        """Return the names on a list of survivors, sorted, after checking all that a party can."""
        needed = self.graph.threshold
        if len(masked) < needed:
            raise QuorumError(f"{len(masked)} parties survive, {needed} are needed for a sum")
        for name in sorted(masked):
            self.check_masked(name, masked[name])
        if own not in masked:
            raise ProtocolError(f"{own} is asked to unmask a sum without it")
        return tuple(sorted(masked))

    def check_consents(self, survivors: Sequence[str], consents: Mapping[str, bytes]) -> None:
        """Check that t survivors signed their list, or none did if the round takes no consent."""
        if self.consent:
            check_consents(self, survivors, consents)
        elif consents:
            raise ProtocolError("signatures of the list of survivors, which are not taken")

    def _masked_to_sign(self, name: str) -> bytes:
        return encode("signed masked ahead", self.context.digest, self.digest, name.encode())
