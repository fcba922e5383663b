"""The code of rows: polynomials of low degree, on a long domain.

A row has ``degree`` coefficients. It is given by its values on the subgroup of that order: data in
the first ``slots`` places, random elements in the other ``columns``. It is encoded on ``length``
points, a coset disjoint from that subgroup and the next larger one. So any ``columns`` symbols of a
codeword are uniformly random, whatever its data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from pate.errors import UsageError
from pate.masking.proofs.field import FIELD, Elements, Field

#: Candidate lengths of rows.
DEGREES: Final = (512, 1024, 2048, 4096)


@dataclass(frozen=True)
class Code:
    """A Reed-Solomon code and its number of tests.

    Campaigns vary only ``degree``. The other figures are those of docs/proofs/vote-proofs.md.

    Attributes:
        degree: coefficients of a row, a power of two.
        columns: opened ones. With e = 0.375, a word that is wrong in more than e of its places
            survives with probability 0.625^160 < 2^-108.
        tests: independent repetitions of each random combination. One errs with probability at most
            length / prime < 2^-15.9.
        stretch: symbols for each coefficient.
        field: of the symbols.
    """

    degree: int
    columns: int = 160
    tests: int = 4
    stretch: int = 8
    field: Field = FIELD

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
