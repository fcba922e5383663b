"""Codes: where among the representatives a record votes, and what one unit can change by that.

A record with input x and answer y casts the integer array code(x) times answer(y), over
representatives and classes. The answer is its class: 1 in that column. All records' arrays are added
up, and the sum is released once, with noise. A code is public and chosen before any record is read; a
record's array depends on that record alone.

=============  =====================================================================
``nearest``    1 at the nearest representative
``spread-k``   1 at each of the k nearest representatives
=============  =====================================================================

Spread votes cost less than they bring where noise is Gaussian: the array is k times as large, the noise
that hides it only sqrt(k) times.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from pate.errors import UsageError

#: Names of the codes.
CODES: Final = ("nearest", "spread")
#: The default code, and the one whose text has a number.
NEAREST: Final = "nearest"
SPREAD: Final = "spread"

_TEXT: Final = re.compile(r"(nearest)|(spread)-([1-9][0-9]{0,5})", re.ASCII)
_MOST_PLACES: Final = 2**16


@dataclass(frozen=True)
class Change:
    """What one unit can change in the summed array if it is added, removed or altered, at most.

    Attributes:
        total: sum of the changes of all counts: the L1 distance.
        squared: sum of their squares: the L2 distance squared.
        counts: number of counts that change.
    """

    total: int
    squared: int
    counts: int


@dataclass(frozen=True)
class Code:
    """A code.

    Attributes:
        name: one of :data:`CODES`.
        places: k, representatives at which a record votes; 1 for ``nearest``, 2 or more otherwise.
    """

    name: Literal["nearest", "spread"]
    places: int = 1

    def __str__(self) -> str:
        """Return the text that :func:`code_of` reads."""
        return self.name if self.name == NEAREST else f"{self.name}-{self.places}"

    def change(self, votes: int) -> Change:
        """Return what a unit with at most ``votes`` votes can change.

        A vote is k counts of 1. If the unit is altered, an array A is taken away and an array B
        added, both sums of at most c votes, so |A|_1 <= c k and |A| <= c sqrt(k), and likewise B.
        Their entries are not negative: |A - B|^2 <= |A|^2 + |B|^2 <= 2 c^2 k. A unit that is added
        or removed changes half of each. All is reached where the votes of a unit move together from
        one class to another; the number of counts where each has k places of its own.

        >>> code_of("nearest").change(3), code_of("spread-10").change(1)
        (Change(total=6, squared=18, counts=6), Change(total=20, squared=20, counts=20))

        Source: docs/proofs/record-votes.md, section 2.
        """
        places = 2 * votes * self.places
        return Change(total=places, squared=votes * places, counts=places)


def code_of(text: str) -> Code:
    """Return the code of a text such as ``nearest`` or ``spread-10``.

    Raises:
        UsageError: if it is no code's text. Every code has one text: ``spread-1`` is ``nearest``.
    """
    found = _TEXT.fullmatch(text)
    if found is None or (found[3] is not None and not 2 <= int(found[3]) <= _MOST_PLACES):
        raise UsageError(
            f"a code is nearest, or spread-K with K from 2 to {_MOST_PLACES}, got {text[:60]!r}"
        )
    return Code(NEAREST) if found[1] else Code(SPREAD, int(found[3]))
