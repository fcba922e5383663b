"""The layout of a vote matrix in rows of a code, and the resulting sizes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.errors import UsageError
from pate.masking.encoding import encode, whole
from pate.masking.proofs.code import DEGREES, Code
from pate.masking.proofs.field import ELEMENT_BYTES, Elements
from pate.masking.proofs.tree import HASH_BYTES, SALT_BYTES

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Most symbols of one party's codewords: 128 MiB, and a few times that temporarily.
MOST_SYMBOLS: Final = 2**25


@dataclass(frozen=True)
class Shape:
    """A vote matrix and the code that carries it.

    Bit i of the counts of one class, for one block of queries, is one row: in the order of class,
    bit and block. Slots after the last query are zero, and proved to be.

    Attributes:
        queries: rows of the vote matrix.
        classes: its columns.
        teachers: k, the sum of each of its rows.
        code: the same for all parties of a sum.

    Raises:
        UsageError: if such a proof is impossible or too large.
    """

    queries: int
    classes: int
    teachers: int
    code: Code

    def __post_init__(self) -> None:
        for value, what in (
            (self.queries, "queries"),
            (self.classes, "classes"),
            (self.teachers, "teachers"),
        ):
            if type(value) is not int or value < 1:
                raise UsageError(f"a proof about {value!r} {what}")
        # Then a sum of counts cannot equal k by wrapping modulo the prime.
        if self.classes << self.bits >= self.code.field.prime:
            raise UsageError(
                f"{self.teachers} teachers and {self.classes} classes are too many to prove votes: "
                "leave out --vote-proofs"
            )
        if self.width * self.code.length > MOST_SYMBOLS:
            raise UsageError(
                f"{self.queries} queries of {self.classes} classes with {self.teachers} teachers "
                "are too many to prove in one batch: take smaller batches, or leave out "
                "--vote-proofs"
            )

    @property
    def bits(self) -> int:
        """Bits of a count, those of k."""
        return self.teachers.bit_length()

    @property
    def blocks(self) -> int:
        """Rows that the counts of one class fill, for each bit."""
        return -(-self.queries // self.code.slots)

    @property
    def rows(self) -> int:
        """Rows of bits."""
        return self.classes * self.bits * self.blocks

    @property
    def width(self) -> int:
        """Symbols of a column: rows of bits, and for each test three rows of masks."""
        return self.rows + 3 * self.code.tests

    @property
    def linked(self) -> tuple[int, int]:
        """Shape of a link and of its masks: tests, and slots that are in use."""
        return self.code.tests, min(self.queries, self.code.slots)

    @property
    def depth(self) -> int:
        """Siblings on the way to the root."""
        return self.code.length.bit_length() - 1

    @property
    def shown(self) -> int:
        """Elements of the three kinds of polynomials: of degree, degree and 2 * degree."""
        return 4 * self.code.tests * self.code.degree

    @property
    def proof_bytes(self) -> int:
        """Length of every proof."""
        column = ELEMENT_BYTES * self.width + SALT_BYTES + HASH_BYTES * self.depth
        return ELEMENT_BYTES * self.shown + self.code.columns * column

    @property
    def encoded(self) -> bytes:
        """The shape as bytes, for hashing."""
        code = self.code
        figures = (
            *(self.queries, self.classes, self.teachers),
            *(code.degree, code.columns, code.tests, code.stretch, code.field.prime),
        )
        return encode("shape of a proof", *map(whole, figures))

    def padded(self, counts: NDArray[np.integer]) -> Elements:
        """Return (queries, classes) counts, not negative, as (classes, blocks, slots)."""
        out = np.zeros((self.classes, self.blocks * self.code.slots), np.uint64)
        out[:, : self.queries] = counts.T
        return out.reshape(self.classes, self.blocks, self.code.slots)

    def planes(self, counts: NDArray[np.integer]) -> Elements:
        """Return the bits of counts: (rows, slots)."""
        places = np.arange(self.bits, dtype=np.uint64)[None, :, None, None]
        planes = self.padded(counts)[:, None] >> places & np.uint64(1)
        return planes.reshape(self.rows, self.code.slots)

    def spread(self, weights: Elements) -> Elements:
        """Return weights by (tests, classes, blocks) of counts as weights by (tests, rows) of bits."""
        scale = np.uint64(1) << np.arange(self.bits, dtype=np.uint64)
        by_row = weights[:, :, None, :] * scale[None, None, :, None]
        return self.code.field.mod(by_row).reshape(len(weights), self.rows)

    def totals(self, weights: Elements) -> Elements:
        """Return weights by (tests, blocks) of row totals as weights by (tests, rows) of bits."""
        return self.spread(np.repeat(weights[:, None], self.classes, axis=1))

    def target(self, weights: Elements) -> Elements:
        """Return the required weighted totals, (tests, degree) coefficients.

        The polynomials that are weight * k at queries, and 0 at slots after the last and elsewhere.
        """
        wanted = np.zeros((self.blocks, self.code.degree), np.uint64)
        k = np.full((self.queries, 1), self.teachers, np.int64)
        wanted[:, : self.code.slots] = replace(self, classes=1).padded(k)[0]
        return self.code.interpolate(self.code.field.combine(weights, wanted))


def code_for(queries: int, classes: int, teachers: int) -> Code:
    """Return the code of a sum, the one with the shortest largest proof.

    Args:
        queries: of the batch.
        classes: columns of a vote matrix.
        teachers: the largest k of the roster, so that all parties use the same code.

    Raises:
        UsageError: if no code is suitable.
    """
    found: list[Shape] = []
    problem: UsageError | None = None
    for degree in DEGREES:
        try:
            found.append(Shape(queries, classes, teachers, Code(degree)))
        except UsageError as error:
            problem = error
    if not found:
        raise problem or UsageError("no code is suitable for proofs")
    return min(found, key=lambda shape: shape.proof_bytes).code
