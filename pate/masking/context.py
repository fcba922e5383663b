"""The parameters that all sides of a masked sum must agree on, and their digest.

Every signature, key and mask of an attempt is bound to :attr:`Context.digest`. If a server shows
two parties different queries, rosters, thresholds or widths, signatures do not verify, boxes do not
open and masks do not cancel.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from pate.errors import ProtocolError, UsageError
from pate.masking.encoding import digest, encode, whole
from pate.masking.messages import HASH_BYTES, KEY_BYTES, check_bytes
from pate.masking.proofs.segments import LinkedRing
from pate.masking.proofs.shape import Shape
from pate.masking.ring import WIDTHS, Ring, ring_bits

if TYPE_CHECKING:
    from collections.abc import Collection

    from pate.masking.proofs.terms import Proofs

__all__ = [
    "VERSION",
    "Context",
    "Member",
    "check_threshold",
    "most_colluders",
    "ring_bits",
    "threshold_for",
]

#: Version of the protocol: its labels and order of steps.
VERSION: Final = 2
ID_BYTES: Final = 16
MOST_MEMBERS: Final = 4_096
#: Most values in one sum: 1 GiB at 32 bits.
MOST_VALUES: Final = 2**28
_LONGEST_NAME: Final = 64


@dataclass(frozen=True)
class Member:
    """A party of the roster.

    Attributes:
        name: 1 to 64 printable characters.
        identity: Ed25519 public key, 32 bytes.
    """

    name: str
    identity: bytes

    def __post_init__(self) -> None:
        name = self.name
        if (
            not isinstance(name, str)
            or not name.isprintable()
            or not 0 < len(name) <= _LONGEST_NAME
        ):
            raise ProtocolError(
                f"{name!r:.80} cannot be a party's name: 1 to {_LONGEST_NAME} printable characters"
            )
        check_bytes(self.identity, KEY_BYTES, f"the identity of {name}")


@dataclass(frozen=True)
class Context:
    """One attempt at the sum of one batch.

    Attributes:
        version: of the protocol, :data:`VERSION`.
        campaign: id, 16 bytes.
        attempt: id, 16 bytes, new for each attempt.
        batch: hash of the queries in their order, 32 bytes.
        members: the roster, sorted by name; names and identities are unique. n of them.
        rows: queries of the batch.
        classes: columns of a vote matrix.
        bits: width of the ring: 8, 16 or 32.
        threshold: t, least number of parties in a sum.
        colluders: c, most parties that may collude with the server.
        terms: hash of all terms of the campaign, 32 bytes.
        proofs: parameters of vote proofs; None if votes are not proved.

    Raises:
        ProtocolError: if a field is out of bounds, or they do not fit together.
    """

    version: int
    campaign: bytes
    attempt: bytes
    batch: bytes
    members: tuple[Member, ...]
    rows: int
    classes: int
    bits: int
    threshold: int
    colluders: int
    terms: bytes
    proofs: Proofs | None = None

    def __post_init__(self) -> None:
        if self.version != VERSION:
            raise ProtocolError(
                f"unknown version {self.version!r} of masked sums; this release has {VERSION}: "
                "install the same release everywhere"
            )
        check_bytes(self.campaign, ID_BYTES, "the campaign id of a masked sum")
        check_bytes(self.attempt, ID_BYTES, "the attempt id of a masked sum")
        check_bytes(self.batch, HASH_BYTES, "the batch hash of a masked sum")
        check_bytes(self.terms, HASH_BYTES, "the terms hash of a masked sum")
        names = [member.name for member in self.members]
        if not isinstance(self.members, tuple) or len(names) > MOST_MEMBERS:
            raise ProtocolError(f"a roster of {len(names)}: at most {MOST_MEMBERS} can mask a sum")
        if names != sorted(set(names)):
            raise ProtocolError("the roster of a masked sum is not sorted, or has a name twice")
        if len({member.identity for member in self.members}) != len(names):
            raise ProtocolError("two parties of the roster of a masked sum have one identity")
        for value, what in ((self.rows, "queries"), (self.classes, "classes")):
            if type(value) is not int or value < 1:
                raise ProtocolError(f"a masked sum over {value!r} {what}")
        if self.rows * self.classes > MOST_VALUES:
            raise ProtocolError(
                f"{self.rows} queries of {self.classes} classes are too many for one masked sum: "
                f"at most {MOST_VALUES} counts"
            )
        if type(self.bits) is not int or self.bits not in WIDTHS:
            raise ProtocolError(f"a masked sum is in 8, 16 or 32 bits, got {self.bits!r}")
        try:
            check_threshold(len(names), self.threshold, self.colluders)
        except UsageError as error:
            raise ProtocolError(f"a masked sum that would hide nothing: {error}") from error
        if self.proofs is not None:
            self.proofs.check(self.rows, self.classes, len(names), self.bits)

    @property
    def count(self) -> int:
        """Values of a vote matrix."""
        return self.rows * self.classes

    @cached_property
    def values(self) -> int:
        """Values that a party masks: its votes, and link masks if they are proved."""
        return self.count + self.links

    @cached_property
    def links(self) -> int:
        """Link masks of a party; none if votes are not proved."""
        if self.proofs is None:
            return 0
        tests, used = self.proofs.largest(self.rows, self.classes).linked
        return tests * used

    @property
    def masked_bytes(self) -> int:
        """Length of a party's masked votes, with a commitment before them if they are proved."""
        ring = Ring(self.bits)
        if self.proofs is None:
            return ring.packed_bytes(self.count)
        return HASH_BYTES + LinkedRing(ring, self.links).packed_bytes(self.values)

    def shape_of(self, name: str) -> Shape:
        """Return the shape of a party's votes as it proves them.

        Raises:
            UsageError: if votes are not proved.
        """
        if self.proofs is None:
            raise UsageError("votes are not proved in this sum")
        code = self.proofs.largest(self.rows, self.classes).code
        return Shape(self.rows, self.classes, self.proofs.teachers[self.points[name] - 1], code)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the roster, sorted."""
        return tuple(member.name for member in self.members)

    @cached_property
    def identities(self) -> dict[str, bytes]:
        """Identity by name."""
        return {member.name: member.identity for member in self.members}

    @cached_property
    def points(self) -> dict[str, int]:
        """Evaluation point of each party's shares: its place in the roster, from 1. Never 0."""
        return {name: place for place, name in enumerate(self.names, 1)}

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 over an injective encoding of every field, 32 bytes."""
        roster = [part for each in self.members for part in (each.name.encode(), each.identity)]
        return digest(
            "context",
            whole(self.version),
            self.campaign,
            self.attempt,
            self.batch,
            encode("roster", *roster),
            whole(self.rows),
            whole(self.classes),
            whole(self.bits),
            whole(self.threshold),
            whole(self.colluders),
            self.terms,
            *(() if self.proofs is None else (self.proofs.encoded(self.rows, self.classes),)),
        )

    def check_members(self, names: Collection[str], what: str) -> None:
        """Raise ProtocolError if a name is not in the roster; ``what`` is for the message."""
        if len(names) > len(self.members):
            raise ProtocolError(f"{len(names)} parties in {what}, the roster has {len(self.names)}")
        for name in names:
            if not isinstance(name, str) or name not in self.identities:
                raise ProtocolError(f"{name!r:.80} in {what} is not in the roster")


def check_threshold(parties: int, threshold: int, colluders: int) -> None:
    """Check the conditions for secrecy from a malicious server.

    Two lists of survivors, each signed by t parties, have 2t - n signers in common. Above c, one of
    them is honest, and no honest party signs two lists. And t - c parties of every sum are honest;
    with only one, its votes would be the sum.

    Args:
        parties: n, of the roster.
        threshold: t, least number of parties in a sum.
        colluders: c, most parties that may collude with the server.

    Raises:
        UsageError: unless 2t > n + c, t <= n, t - c >= 2 and c >= 0.
    """
    for value, what in ((parties, "parties"), (threshold, "threshold"), (colluders, "colluders")):
        if type(value) is not int:
            raise UsageError(f"{what} must be a whole number, got {value!r}")
    said = f"n = {parties} parties, at least t = {threshold} in a sum, c = {colluders} colluding"
    if colluders < 0:
        raise UsageError(f"{said}: c cannot be negative")
    if threshold > parties:
        raise UsageError(f"{said}: t cannot be more than n")
    if threshold - colluders < 2:
        raise UsageError(f"{said}: t - c must be at least 2, or a sum may be one party's votes")
    if 2 * threshold <= parties + colluders:
        raise UsageError(
            f"{said}: 2t must be more than n + c, or a server could have two sums unmasked: "
            f"take t = {(parties + colluders) // 2 + 1} or more"
        )


def threshold_for(parties: int, colluders: int | None = None) -> tuple[int, int]:
    """Return the default t and c for a roster.

    Without ``colluders``, t is the least above 2n/3 and c the most below n/3 that it allows.

    >>> threshold_for(5), threshold_for(25), threshold_for(25, colluders=2)
    ((4, 1), (17, 8), (17, 2))

    Args:
        parties: n, of the roster.
        colluders: c, most parties that may collude with the server.

    Raises:
        UsageError: if no t will do.
    """
    threshold = 2 * parties // 3 + 1
    if colluders is None:
        colluders = most_colluders(parties, threshold)
    else:
        threshold = max(threshold, (parties + colluders) // 2 + 1, colluders + 2)
    check_threshold(parties, threshold, colluders)
    return threshold, colluders


def most_colluders(parties: int, threshold: int) -> int:
    """Return the most colluders, below a third of the roster, that sums of ``threshold`` tolerate.

    >>> most_colluders(25, 17), most_colluders(5, 3)
    (8, 0)

    Args:
        parties: n, of the roster.
        threshold: t, least number of parties in a sum.
    """
    return max(0, min((parties + 2) // 3 - 1, 2 * threshold - parties - 1, threshold - 2))
