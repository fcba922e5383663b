"""The code of rows, polynomials of low degree on a long domain, and the layout of votes in such rows.

A row has ``degree`` coefficients. It is given by its values on the subgroup of that order: data in
the first ``slots`` places, random elements in the other ``columns``. It is encoded on ``length``
points, a coset disjoint from that subgroup and the next larger one. So any ``columns`` symbols of a
codeword are uniformly random, whatever its data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from pate.errors import UsageError
from pate.masking.encoding import HASH_BYTES, draw, encode, whole

if TYPE_CHECKING:
    from collections.abc import Callable

# Integers modulo a prime below 2^31, in numpy: arithmetic, uniform elements, transforms.

#: Residues, each below the prime.
Elements = NDArray[np.uint64]

#: Random bytes per uniform element.
DRAWN_BYTES: Final = 16
#: Bytes of an element in messages: a little-endian unsigned integer.
ELEMENT_BYTES: Final = 4


@dataclass(frozen=True)
class Field:
    """The integers modulo a prime: :data:`FIELD`; tests use tiny primes to count all cases."""

    prime: int  # below 2^31, so that a product and many sums of products fit 64 bits
    generator: int  # of the group of units

    def __post_init__(self) -> None:
        if not 2 < self.prime < 2**31:
            raise UsageError(
                f"the prime of proofs must be above 2 and below 2^31, got {self.prime}"
            )

    def mod(self, x: Elements) -> Elements:
        """Return numbers below 2^64 as residues."""
        p = np.uint64(self.prime)
        # Ten times faster than numpy's %, which has no vector form.
        residues: Elements = x - x // p * p
        return residues

    def minus(self, a: Elements, b: Elements) -> Elements:
        """Return a - b for residues."""
        return self.mod(a + (np.uint64(self.prime) - b))

    def root(self, order: int) -> int:
        """Return an element of that order, which divides prime - 1."""
        if (self.prime - 1) % order:
            raise UsageError(f"no element modulo {self.prime} has the order {order}")
        return pow(self.generator, (self.prime - 1) // order, self.prime)

    def powers(self, base: int, count: int) -> Elements:
        """Return 1, base, base^2, ...: (count,)."""
        return _powers(self, base, count)

    def transform(self, x: Elements, root: int) -> Elements:
        """Return the values of (rows, n) polynomials at all powers of a root of unity of order n.

        Source: Stockham's order of the fast Fourier transform, radix 2.
        """
        rows, n = x.shape
        p = np.uint64(self.prime)
        left, step = n // 2, 1
        while left:
            x = x.reshape(rows, 2, left, step)
            y = np.empty((rows, left, 2, step), np.uint64)
            total = x[:, 0] + x[:, 1]
            # Values below p wrap to something huge.
            np.minimum(total, total - p, out=y[:, :, 0])
            twiddle = self.powers(pow(root, step, self.prime), left)[:, None]
            y[:, :, 1] = self.mod((x[:, 0] + (p - x[:, 1])) * twiddle)
            x, left, step = y, left // 2, step * 2
        return x.reshape(rows, n)

    def combine(self, weights: Elements, rows: Elements) -> Elements:
        """Return the matrix product of (a, b) and (b, c), b below 2^16."""
        if len(rows) >= 2**16:
            raise UsageError(f"{len(rows)} rows are too many for one combination")
        # With weights in halves of 16 bits, 2^16 products of less than 2^47 fit 64 bits.
        half = np.uint64(16)
        high = self.mod((weights >> half) @ rows)
        low = self.mod((weights & np.uint64(0xFFFF)) @ rows)
        return self.mod((high << half) + low)

    def reduce(self, raw: bytes) -> Elements:
        """Return one element for every 16 uniform bytes, within 2^-99 of uniform."""
        words = np.frombuffer(raw, "<u8").astype(np.uint64).reshape(-1, 2)
        high = np.uint64(2**64 % self.prime)
        return self.mod(self.mod(words[:, 1]) * high + self.mod(words[:, 0]))

    def uniform(self, random: Callable[[int], bytes], *shape: int) -> Elements:
        """Draw elements, each within 2^-99 of uniform."""
        return self.reduce(draw(random, DRAWN_BYTES * math.prod(shape))).reshape(shape)

    def write(self, elements: Elements) -> bytes:
        """Return elements in C order, four bytes each."""
        return elements.astype("<u4").tobytes()


#: Its group of units has a subgroup of every order 2^i up to 2^27.
FIELD: Final = Field(15 * 2**27 + 1, 31)


@lru_cache(maxsize=128)
def _powers(field: Field, base: int, count: int) -> Elements:
    found = np.ones(1, np.uint64)
    while len(found) < count:
        factor = np.uint64(pow(base, len(found), field.prime))
        found = np.concatenate([found, field.mod(found * factor)])
    found = found[:count]
    found.flags.writeable = False
    return found


# The code

#: Candidate lengths of rows.
DEGREES: Final = (512, 1024, 2048, 4096)
#: Most symbols of one party's codewords: 128 MiB, and a few times that temporarily.
MOST_SYMBOLS: Final = 2**25
#: Of a column: it hides one that is not opened.
SALT_BYTES: Final = 32


@dataclass(frozen=True)
class Code:
    """A Reed-Solomon code and its number of tests; campaigns vary only ``degree``."""

    degree: int  # coefficients of a row, a power of two
    # opened ones. With e = 0.375, a word that is wrong in more than e of its places survives with
    # probability 0.625^160 < 2^-108.
    columns: int = 160
    # independent repetitions of each random combination. One errs with probability at most length / prime
    # < 2^-15.9.
    tests: int = 4
    stretch: int = 8  # symbols for each coefficient
    field: Field = FIELD  # of the symbols

    def __post_init__(self) -> None:
        sizes = (self.degree, self.stretch)
        if any(size < 2 or size & size - 1 for size in sizes) or self.stretch < 4:
            raise UsageError(f"degree and stretch {sizes} must be powers of two, stretch 4 or more")
        if not 0 < self.columns < self.degree or self.tests < 1:
            raise UsageError(f"{self.columns} columns cannot be opened in rows of {self.degree}")
        if (self.field.prime - 1) % (2 * self.length):
            raise UsageError(f"{self.length} points are too many modulo {self.field.prime}")

    @property
    def slots(self) -> int:
        """Places for data in a row."""
        return self.degree - self.columns

    @property
    def length(self) -> int:
        """Symbols of a codeword."""
        return self.stretch * self.degree

    def interpolate(self, values: Elements) -> Elements:
        """Return the coefficients of rows: (rows, n) from values on the subgroup of order n."""
        field, n = self.field, values.shape[1]
        found = field.transform(values, pow(field.root(n), -1, field.prime))
        return field.mod(found * np.uint64(pow(n, -1, field.prime)))

    def interpolate_coset(self, values: Elements) -> Elements:
        """Return coefficients: (rows, n) from values on generator * (the subgroup of order n)."""
        field, n = self.field, values.shape[1]
        back = field.powers(pow(field.generator, -1, field.prime), n)
        return field.mod(self.interpolate(values) * back)

    def values(self, coefficients: Elements) -> Elements:
        """Return the values of rows on the subgroup of order n: (rows, n) both."""
        return self.field.transform(coefficients, self.field.root(coefficients.shape[1]))

    def encode(self, coefficients: Elements) -> Elements:
        """Return codewords: (rows, length) from (rows, n) coefficients, n dividing the length.

        Symbol j is the value at generator * root^j, root of order ``length``.
        """
        field = self.field
        rows, n = coefficients.shape
        out = np.empty((rows, self.length), np.uint64)
        times = self.length // n
        for coset in range(times):
            # The points coset, coset + times, ... are one coset of the subgroup of order n.
            at = field.generator * pow(field.root(self.length), coset, field.prime) % field.prime
            out[:, coset::times] = field.transform(
                field.mod(coefficients * field.powers(at, n)), field.root(n)
            )
        return out


def slot_values(code: Code, doubled: Elements) -> Elements:
    """Return the values of rows with 2 * degree coefficients at the slots: (rows, slots)."""
    # Every second point of the subgroup of order 2 * degree is one of the subgroup of degree.
    return code.values(doubled)[:, ::2][:, : code.slots]


@dataclass(frozen=True)
class Shape:
    """A vote matrix and the code that carries it.

    Bit i of the counts of one class, for one block of queries, is one row: in the order of class,
    bit and block. Slots after the last query are zero, and proved to be.
    """

    queries: int  # rows of the vote matrix
    classes: int  # its columns
    teachers: int  # k, the sum of each of its rows
    code: Code  # the same for all parties of a sum

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
    """Return the code of a sum, the one with the shortest largest proof."""
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
