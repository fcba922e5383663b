"""Codes: where among the representatives a record votes, and what one unit can change by that.

A record with input x and answer y casts the integer array code(x) times answer(y), over
representatives and columns. The answer is its class, 1 in that column, or another one of
:mod:`pate.answers`. All records' arrays are added up, and the sum is released once, with noise. A
code is public and chosen before any record is read; a record's array depends on that record alone.

=============  =====================================================================
``nearest``    1 at the nearest representative
``dense-d``    at all d representatives how far it lies in their direction, in units of
               1/1024; with signs, and of length 1 at most
``each-q``     at all q queries, at each by itself: the votes of a *teacher* for a class, or for
               several labels, which depend on the query
``axes-d``     in d directions: a *teacher*'s answer to the whole public set, in units of 1/1024;
               with signs, and of length 1 at most
=============  =====================================================================
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal, cast

from pate.answers import ARRAY, BALANCED, Answer, answer_of
from pate.errors import UsageError
from pate.printable import number_of

if TYPE_CHECKING:
    from pate.accounting import Adjacency

#: Names of the codes of records.
CODES: Final = ("nearest", "dense")
#: The default code, and the one whose text has a number.
NEAREST: Final = "nearest"
DENSE: Final = "dense"
#: The codes of teachers whose votes are one release: at all queries, and in directions.
EACH: Final = "each"
AXES: Final = "axes"
#: Units of a dense array that are one vote.
GRID: Final = 2**10

_TEXT: Final = re.compile(r"(nearest)|(dense|each|axes)-([1-9][0-9]{0,5})", re.ASCII)
#: By name, so that no campaign asks a party for more memory or time than others.
MOST_DIRECTIONS: Final = 2**10
_MOST_PLACES: Final = {DENSE: MOST_DIRECTIONS, EACH: 2**16, AXES: MOST_DIRECTIONS}
_FEWEST_PLACES: Final = {DENSE: 2, EACH: 1, AXES: 2}
#: Most counts of one release.
MOST_COUNTS: Final = 2**20

_CLASS: Final = Answer()
#: What teachers say in directions.
_ARRAY: Final = Answer(ARRAY)


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
        name: one of :data:`CODES`, or one of teachers.
        places: d or q, representatives or queries at which it votes; 1 for ``nearest``.
        answer: what it says there.
    """

    name: Literal["nearest", "dense", "each", "axes"]
    places: int = 1
    answer: Answer = _CLASS

    def __str__(self) -> str:
        """Return the text that :func:`code_of` reads."""
        own = NEAREST if self.name == NEAREST else f"{self.name}-{self.places}"
        return own if self.answer in (_CLASS, _ARRAY) else f"{own} {self.answer}"

    @property
    def of_teachers(self) -> bool:
        """Whether teachers vote instead of records, and all their votes are one release."""
        return self.name in (EACH, AXES)

    @property
    def grid(self) -> int:
        """Units of the array that are one vote."""
        return GRID if self.in_directions else self.answer.grid

    @property
    def in_words(self) -> str:
        """Where a vote counts, to follow a comma; empty for the nearest representative."""
        where = {
            NEAREST: "",
            DENSE: f"each counted in {self.places} directions",
            EACH: f"{self.places} queries in one release",
            AXES: f"each an answer to the whole public set in {self.places} directions",
        }[self.name]
        return ", ".join(filter(None, (where, self.answer.in_words)))

    def rounds_in_words(self, rounds: int) -> str:
        """Return the rounds of residuals, of which the first one counts classes or labels.

        >>> code_of("dense-8 residual").rounds_in_words(5)
        'class counts and 4 rounds'
        """
        counts, more = "class counts" if self.answer.one_hot else "label counts", rounds - 1
        return counts + (f" and {number_of(more, 'round')}" if more > 0 else "")

    def asked_in_words(self, asked: int) -> str:
        """Return ``asked`` rows of the counts, of all rounds together: queries, or directions.

        >>> code_of("nearest").asked_in_words(1), code_of("axes-16").asked_in_words(16)
        ('1 query', '16 directions')
        >>> code_of("dense-64 residual").asked_in_words(320)
        '64 directions in class counts and 4 rounds'
        """
        if not self.in_directions:
            return number_of(asked, "query")
        if self.answer.in_rounds and asked:
            return (
                f"{self.places} directions in {self.rounds_in_words(max(1, asked // self.places))}"
            )
        return number_of(asked, "direction")

    @property
    def in_directions(self) -> bool:
        """Whether the rows of the counts are directions, and no queries: counts may be below 0."""
        return self.name in (DENSE, AXES)

    @property
    def units_in_words(self) -> str:
        """The units of counts and their noise, to follow a comma; empty for whole votes."""
        return f"in units of 1/{self.grid} of a vote" if self.grid > 1 else ""

    def bounds(self, votes: int) -> tuple[int, int]:
        """Return the least and the largest count if no more than ``votes`` votes may be on one."""
        most = votes * self.grid
        return (-most if self.in_directions else 0), most

    def change(self, votes: int, adjacency: Adjacency = "change") -> Change:
        """Return what a unit with at most ``votes`` votes, or teachers, can change.

        A vote is one count of 1. If the unit is altered, an array A is taken away and an array B
        added, both sums of at most c votes, so |A|_1 <= c and |A| <= c, and likewise B.
        Their entries are not negative: |A - B|^2 <= |A|^2 + |B|^2 <= 2 c^2. A unit that is added
        or removed changes half of each. All is reached where the votes of a unit move together from
        one class to another; the number of counts where each has a place of its own.

        A dense vote is d counts, of length g = :data:`GRID` at most; with signs, A and B may be
        opposite: |A - B|^2 <= (|A| + |B|)^2 <= 4 c^2 g^2, and |A|_1 <= sqrt(d) |A|.

        Both norms of a product of arrays are the products of the norms: an answer of several labels
        multiplies the sums of changes and of squares by T votes, one of any other kind by one vote.

        >>> code_of("nearest").change(3), code_of("dense-64").change(1)
        (Change(total=6, squared=18, counts=6), Change(total=16384, squared=4194304, counts=128))

        A unit's residuals are one array of length g at most, of d times as many counts as there are classes,
        whatever model is shown and however many records the unit has:

        >>> code_of("dense-64 residual").change(1)
        Change(total=262144, squared=4194304, counts=16384)

        A unit that reaches c teachers changes what each of them casts, in any way. Two sets of at most T of L
        labels differ in at most w = min(2T, L) labels, at each of the q queries: the teacher's array moves
        by q w in L1 and in squares, and those of c teachers together by c times the length.

        >>> code_of("each-10 labels-3-of-14").change(1), code_of("each-10 labels-14-of-14").change(1)
        (Change(total=60, squared=60, counts=60), Change(total=140, squared=140, counts=140))

        Of one class the two sets have one element: w = 2. Answers to the whole public set are dense: those
        of c teachers together are of length c g, before and after. Where a unit is a party that is
        added or removed with all its c teachers, one of the two is nothing: c q, c^2 q, and c^2 g^2.

        >>> code_of("each-10").change(3), code_of("each-10").change(3, "remove")
        (Change(total=60, squared=180, counts=60), Change(total=30, squared=90, counts=30))
        >>> code_of("axes-9").change(1).squared, code_of("axes-9").change(1, "remove").squared
        (4194304, 1048576)

        Source: docs/proofs/record-votes.md, sections 2 and 3, for teachers 5, for residuals 6.
        """
        sides = 2 if adjacency == "change" else 1
        if self.name == AXES:
            squared = (sides * votes * GRID) ** 2
            return Change(math.isqrt(MOST_COUNTS * squared), squared, MOST_COUNTS)
        if self.name == EACH and not self.answer.of:
            moved = sides * votes * self.places
            return Change(moved, votes * moved, moved)
        if sides == 1:
            raise UsageError(f"a unit that is removed has no bound of its own by the code {self}")
        if self.name == EACH:
            labels = min(2 * self.answer.most, self.answer.of)
            moved = min(labels * votes, self.answer.of)
            return Change(
                votes * self.places * labels,
                votes**2 * self.places * labels,
                self.places * moved,
            )
        if self.answer.in_rounds:
            counts = self.places * self.answer.columns
            length = math.isqrt(counts * GRID**2)
            return Change(2 * votes * length, (2 * votes * GRID) ** 2, counts)
        places, most = 2 * votes * self.places, self.answer.most
        counts = places * self.answer.columns
        if self.name == DENSE:
            length = math.isqrt(self.places * GRID**2)
            return Change(2 * votes * most * length, most * (2 * votes * GRID) ** 2, counts)
        grid = self.grid
        return Change(most * grid * places, most * grid**2 * votes * places, counts)


@lru_cache(maxsize=64)
def code_of(text: str) -> Code:
    """Return the code of a text such as ``nearest``, ``dense-64``, or ``dense-64 labels-2``.

    Raises:
        UsageError: if it is no code's text. Every code has one text: the answer ``class`` is left out.
    """
    own, space, said = text.partition(" ")
    if space:
        answer = answer_of(said)
        if answer == _CLASS:
            raise UsageError(
                f"a code with the answer class is written without it, got {text[:60]!r}"
            )
        made = replace(_own(own), answer=answer)
    else:
        made = _own(text)
    if made.answer.in_rounds and made.name != DENSE:
        raise UsageError(
            f"the answer {made.answer} has signs and is for dense codes, got {text[:60]!r}"
        )
    said_by_teachers = made.answer.of > 0 or made.answer.name in (BALANCED, ARRAY)
    if made.name == AXES:
        if space:
            raise UsageError(f"axes-K is a code without an answer, got {text[:60]!r}")
        return replace(made, answer=_ARRAY)
    if (made.name != EACH and said_by_teachers) or (
        made.name == EACH
        and made.answer != _CLASS
        and (not said_by_teachers or made.answer == _ARRAY)
    ):
        raise UsageError(
            f"each-Q is the code of the answers class, balanced and labels-T-of-L of teachers, got "
            f"{text[:60]!r}"
        )
    return made


def adjacency_for(code: Code, unit: str) -> Adjacency:
    """Return how a unit differs in votes by a code: a party with teachers is added or removed with them.

    A teacher that has lost a record still votes. Of several labels a party's are altered, too.
    """
    removed = unit == "party" and code.of_teachers and not code.answer.of
    return "remove" if removed else "change"


def _own(text: str) -> Code:
    found = _TEXT.fullmatch(text)
    if found is None or (
        found[2] and not _FEWEST_PLACES[found[2]] <= int(found[3]) <= _MOST_PLACES[found[2]]
    ):
        raise UsageError(
            f"a code is nearest, or dense-K with K from 2 to {MOST_DIRECTIONS}, got {text[:60]!r}"
        )
    if found[1]:
        return Code(NEAREST)
    return Code(cast("Literal['dense', 'each', 'axes']", found[2]), int(found[3]))


def require_places(code: Code, number: int) -> None:
    """Check that records, or teachers, can vote by a code at a number of representatives or queries.

    Raises:
        UsageError: if there are too few, or for dense votes and those of teachers another number.
    """
    if code.places > number or (code.name != NEAREST and code.places != number):
        what = "queries" if code.of_teachers else "representatives"
        raise UsageError(f"code = {code} needs that many {what}, not {number}")
