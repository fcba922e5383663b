"""The parameters that all sides of a masked sum must agree on, and their digest.

Every signature, key and mask of an attempt is bound to :attr:`Context.digest`. If a server shows
two parties different queries, rosters, thresholds or widths, signatures do not verify, boxes do not
open and masks do not cancel.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Final

from pate.errors import ProtocolError, UsageError
from pate.masking.encoding import HASH_BYTES, KEY_BYTES, check_bytes, digest, encode, whole
from pate.masking.proofs.code import Shape
from pate.masking.ring import WIDTHS, LinkedRing, Ring, ring_bits

if TYPE_CHECKING:
    from collections.abc import Collection

    import numpy as np
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from numpy.typing import NDArray

    from pate.masking.proofs.transcript import Proofs

__all__ = [
    "VERSION", "Context", "Matrix", "Member", "Phase", "Roster", "check_threshold",
    "most_colluders", "phases", "ring_bits", "threshold_for",
]  # fmt: skip

#: Version of the protocol: its labels and order of steps.
VERSION: Final = 2
ID_BYTES: Final = 16
MOST_MEMBERS: Final = 4_096
#: Most values in one sum: 1 GiB at 32 bits.
MOST_VALUES: Final = 2**28
_LONGEST_NAME: Final = 64


class Phase(Enum):
    """The steps of a sum: what the server waits for, or what a party is asked for next."""

    KEYS = "keys"
    SHARES = "shares"
    MASKED = "masked votes"
    PROOFS = "proofs of votes"
    CONSISTENCY = "signatures of the list of survivors"
    UNMASK = "openings"
    DONE = "nothing more"
    #: A party ended it.
    FORGOTTEN = "nothing: it was ended"


def phases(*, proved: bool) -> tuple[Phase, ...]:
    """Return the steps of a sum whose keys come first, in their order."""
    return tuple(
        each
        for each in Phase
        if each is not Phase.FORGOTTEN and (proved or each is not Phase.PROOFS)
    )


@dataclass(frozen=True)
class Member:
    """A party of the roster."""

    name: str  # 1 to 64 printable characters
    identity: bytes  # Ed25519 public key, 32 bytes

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
class Roster:
    """The parties of a sum."""

    members: tuple[Member, ...]  # sorted by name; names and identities are unique. n of them.
    threshold: int  # t, least number of parties in a sum
    colluders: int  # c, most parties that may collude with the server

    def __post_init__(self) -> None:
        names = [member.name for member in self.members]
        if not isinstance(self.members, tuple) or len(names) > MOST_MEMBERS:
            raise ProtocolError(f"a roster of {len(names)}: at most {MOST_MEMBERS} can mask a sum")
        if names != sorted(set(names)):
            raise ProtocolError("the roster of a masked sum is not sorted, or has a name twice")
        if len({member.identity for member in self.members}) != len(names):
            raise ProtocolError("two parties of the roster of a masked sum have one identity")
        try:
            check_threshold(len(names), self.threshold, self.colluders)
        except UsageError as error:
            raise ProtocolError(f"a masked sum that would hide nothing: {error}") from error

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the parties, sorted."""
        return tuple(member.name for member in self.members)

    @cached_property
    def identities(self) -> dict[str, bytes]:
        """Identity by name."""
        return {member.name: member.identity for member in self.members}

    @cached_property
    def points(self) -> dict[str, int]:
        """Evaluation point of each party's shares: its place in the roster, from 1. Never 0."""
        return {name: place for place, name in enumerate(self.names, 1)}

    def check_own(self, name: str, identity: Ed25519PrivateKey) -> None:
        """Check a party's own place in the roster."""
        self.check_members([name], "this party's own place")
        if identity.public_key().public_bytes_raw() != self.identities[name]:
            raise ProtocolError(f"the roster has {name} with an identity that is not this party's")

    def check_members(self, names: Collection[str], what: str) -> None:
        """Raise ProtocolError if a name is not in the roster; ``what`` is for the message."""
        if len(names) > len(self.members):
            raise ProtocolError(f"{len(names)} parties in {what}, the roster has {len(self.names)}")
        for name in names:
            if not isinstance(name, str) or name not in self.identities:
                raise ProtocolError(f"{name!r:.80} in {what} is not in the roster")


@dataclass(frozen=True)
class Matrix:
    """The vote matrix that is summed."""

    batch: bytes  # hash of its queries in their order, 32 bytes
    rows: int  # queries of the batch
    classes: int  # columns
    bits: int  # width of the ring: 8, 16 or 32

    def __post_init__(self) -> None:
        check_bytes(self.batch, HASH_BYTES, "the batch hash of a masked sum")
        for value, what in ((self.rows, "queries"), (self.classes, "classes")):
            if type(value) is not int or value < 1:
                raise ProtocolError(f"a masked sum over {value!r} {what}")
        if self.count > MOST_VALUES:
            raise ProtocolError(
                f"{self.rows} queries of {self.classes} classes are too many for one masked sum: "
                f"at most {MOST_VALUES} counts"
            )
        if type(self.bits) is not int or self.bits not in WIDTHS:
            raise ProtocolError(f"a masked sum is in 8, 16 or 32 bits, got {self.bits!r}")

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and classes."""
        return self.rows, self.classes

    @property
    def count(self) -> int:
        """Number of values."""
        return self.rows * self.classes

    def check(self, values: NDArray[np.integer]) -> None:
        """Raise ProtocolError for values of another shape."""
        if values.shape != self.shape:
            raise ProtocolError(
                f"values to mask have shape {values.shape}, the sum is over {self.shape}"
            )


@dataclass(frozen=True)
class Context:
    """One attempt at the sum of one batch."""

    version: int  # of the protocol, :data:`VERSION`
    campaign: bytes  # id, 16 bytes
    attempt: bytes  # id, 16 bytes, new for each attempt
    roster: Roster  # its parties
    matrix: Matrix  # what is summed
    terms: bytes  # hash of all terms of the campaign, 32 bytes
    proofs: Proofs | None = None  # parameters of vote proofs; None if votes are not proved

    def __post_init__(self) -> None:
        if self.version != VERSION:
            raise ProtocolError(
                f"unknown version {self.version!r} of masked sums; this release has {VERSION}: "
                "install the same release everywhere"
            )
        check_bytes(self.campaign, ID_BYTES, "the campaign id of a masked sum")
        check_bytes(self.attempt, ID_BYTES, "the attempt id of a masked sum")
        check_bytes(self.terms, HASH_BYTES, "the terms hash of a masked sum")
        if self.proofs is not None:
            self.proofs.check(*self.matrix.shape, len(self.names), self.matrix.bits)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the roster, sorted."""
        return self.roster.names

    @cached_property
    def values(self) -> int:
        """Values that a party masks: its votes, and link masks if they are proved."""
        return self.matrix.count + self.links

    @cached_property
    def links(self) -> int:
        """Link masks of a party; none if votes are not proved."""
        if self.proofs is None:
            return 0
        tests, used = self.proofs.largest(*self.matrix.shape).linked
        return tests * used

    @property
    def masked_bytes(self) -> int:
        """Length of a party's masked votes, with a commitment before them if they are proved."""
        ring = Ring(self.matrix.bits)
        if self.proofs is None:
            return ring.packed_bytes(self.matrix.count)
        return HASH_BYTES + LinkedRing(ring, self.links).packed_bytes(self.values)

    def shape_of(self, name: str) -> Shape:
        """Return the shape of a party's votes as it proves them."""
        if self.proofs is None:
            raise UsageError("votes are not proved in this sum")
        code = self.proofs.largest(*self.matrix.shape).code
        return Shape(*self.matrix.shape, self.proofs.teachers[self.roster.points[name] - 1], code)

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 over an injective encoding of every field, 32 bytes."""
        matrix = self.matrix
        members = [
            part for each in self.roster.members for part in (each.name.encode(), each.identity)
        ]
        return digest(
            "context",
            whole(self.version),
            self.campaign,
            self.attempt,
            matrix.batch,
            encode("roster", *members),
            whole(matrix.rows),
            whole(matrix.classes),
            whole(matrix.bits),
            whole(self.roster.threshold),
            whole(self.roster.colluders),
            self.terms,
            *(() if self.proofs is None else (self.proofs.encoded(*matrix.shape),)),
        )


def check_threshold(parties: int, threshold: int, colluders: int) -> None:
    """Check the conditions for secrecy from a malicious server: 2t > n + c, t <= n, t - c >= 2 and c >= 0.

    Two lists of survivors, each signed by t parties, have 2t - n signers in common. Above c, one of
    them is honest, and no honest party signs two lists. And t - c parties of every sum are honest;
    with only one, its votes would be the sum.
    """
    for value, what in ((parties, "parties"), (threshold, "threshold"), (colluders, "colluders")):
        if type(value) is not int:
            raise UsageError(f"{what} must be a whole number, got {value!r}")
    n, t, c = parties, threshold, colluders
    said = f"n = {n} parties, at least t = {t} in a sum (--min-parties), c = {c} colluding (--colluders)"
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
    """
    return max(0, min((parties + 2) // 3 - 1, 2 * threshold - parties - 1, threshold - 2))
