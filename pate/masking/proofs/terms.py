"""The parameters of vote proofs that all sides of a masked sum must agree on."""

from __future__ import annotations

from dataclasses import dataclass

from pate.errors import ProtocolError, UsageError
from pate.masking.encoding import encode, whole
from pate.masking.proofs.field import FIELD
from pate.masking.proofs.shape import Shape, code_for
from pate.masking.proofs.transcript import SEED_BYTES, commit_seed

__all__ = ["Proofs", "commit_seed"]


@dataclass(frozen=True)
class Proofs:
    """Proofs of valid votes in one attempt.

    Attributes:
        teachers: k of each party, in the order of the roster.
        seed_hash: :func:`commit_seed` of the seed that the server drew for this attempt and reveals
            when all masked votes are in; 32 bytes.

    Raises:
        ProtocolError: for invalid values.
    """

    teachers: tuple[int, ...]
    seed_hash: bytes

    def __post_init__(self) -> None:
        if not isinstance(self.seed_hash, bytes) or len(self.seed_hash) != SEED_BYTES:
            raise ProtocolError(f"the hash of the seed of proofs must be {SEED_BYTES} bytes")
        if not isinstance(self.teachers, tuple) or not self.teachers:
            raise ProtocolError("proofs of votes need the number of teachers of each party")
        if any(type(each) is not int or each < 1 for each in self.teachers):
            raise ProtocolError("proofs of votes need a whole number of teachers of each party")

    def check(self, queries: int, classes: int, parties: int, bits: int) -> None:
        """Check that votes of these sizes can be proved and their sums do not wrap.

        Raises:
            ProtocolError: otherwise.
        """
        if len(self.teachers) != parties:
            raise ProtocolError(
                f"proofs have the teachers of {len(self.teachers)} parties, the roster has {parties}"
            )
        if sum(self.teachers) >= min(1 << bits, FIELD.prime):
            raise ProtocolError(
                f"sums of {sum(self.teachers)} votes cannot be proved in {bits} bits"
            )
        try:
            self.largest(queries, classes)
        except UsageError as error:
            raise ProtocolError(str(error)) from error

    def largest(self, queries: int, classes: int) -> Shape:
        """Return the shape of the votes of the largest party; all use its code.

        Raises:
            UsageError: if there is none.
        """
        most = max(self.teachers)
        return Shape(queries, classes, most, code_for(queries, classes, most))

    def encoded(self, queries: int, classes: int) -> bytes:
        """Return all fields and the resulting code as bytes, for hashing."""
        shape = self.largest(queries, classes).encoded
        return encode("proofs", shape, self.seed_hash, *map(whole, self.teachers))
