"""Integers modulo a prime below 2^31, in numpy: arithmetic, uniform elements, transforms."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from pate.errors import UsageError
from pate.masking.encoding import draw

if TYPE_CHECKING:
    from collections.abc import Callable

#: Residues, each below the prime.
Elements = NDArray[np.uint64]

#: Random bytes per uniform element.
DRAWN_BYTES: Final = 16
#: Bytes of an element in messages: a little-endian unsigned integer.
ELEMENT_BYTES: Final = 4


@dataclass(frozen=True)
class Field:
    """The integers modulo a prime.

    Proofs use only :data:`FIELD`; tests use tiny primes to count all cases.
    """

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
