"""The parties that bundles are made for, and whether a sum of them takes consent."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from pate.errors import ProtocolError
from pate.masking.context import Member, Roster
from pate.masking.encoding import SIGNATURE_BYTES, check_bytes, decode, digest, encode, whole
from pate.masking.graph import COMPLETE_UP_TO
from pate.masking.keys import check_point, check_signature

if TYPE_CHECKING:
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
