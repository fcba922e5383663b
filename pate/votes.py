"""Vote vectors and histograms, and their validation.

A *vote vector* is one party's answer to one query: counts over the m classes that sum to its number
of teachers. A *histogram* is the sum of vote vectors over the parties that answered.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pate.codes import AXES, NEAREST, Code
from pate.errors import ProtocolError

#: Votes: (queries, classes) int64.
Counts = NDArray[np.int64]

_NEAREST = Code(NEAREST)


def check_votes(
    counts: NDArray[np.generic], *, teachers: int, classes: int, queries: int
) -> Counts:
    """Return (queries, classes) integers as int64 if each row sums to ``teachers``, else raise.

    Raises:
        ProtocolError: for a wrong shape or type, a negative count, or a row with another sum.
    """
    if counts.ndim != 2 or counts.shape != (queries, classes):
        raise ProtocolError(f"votes have shape {counts.shape}, expected ({queries}, {classes})")
    if not np.issubdtype(counts.dtype, np.integer):
        raise ProtocolError(f"votes are {counts.dtype}, not integers")
    # Checked in the incoming type: a huge unsigned count must not wrap into a negative one first.
    if queries and (int(counts.min()) < 0 or int(counts.max()) > teachers):
        raise ProtocolError(f"a vote count is outside [0, {teachers}]")
    votes = counts.astype(np.int64)
    bad = np.flatnonzero(votes.sum(axis=1) != teachers)
    if bad.size:
        row = int(bad[0])
        raise ProtocolError(
            f"{bad.size} vote rows do not sum to the declared {teachers} teachers "
            f"(the first is row {row}, with {int(votes[row].sum())})"
        )
    return votes


@dataclass(frozen=True, eq=False)
class Histogram:
    """Summed votes of a batch.

    Attributes:
        counts: (queries, classes) int64, votes; every row sums to ``teachers``.
        teachers: M, the number of teachers that voted.
    """

    counts: Counts
    teachers: int

    def __post_init__(self) -> None:
        if self.teachers < 1:
            raise ProtocolError(f"a histogram needs at least one teacher, got {self.teachers}")
        if self.counts.ndim != 2:
            raise ProtocolError(f"a histogram has two axes, got shape {self.counts.shape}")
        rows, classes = self.counts.shape
        check_votes(self.counts, teachers=self.teachers, classes=classes, queries=rows)
        self.counts.setflags(write=False)


def check_entries(counts: Counts, *, least: int, most: int) -> None:
    """Check (queries, classes) counts with unknown row sums, such as neighbour votes: each by itself.

    The number of a party's records is private, so the sum of its votes is unknown. Only single
    counts are bounded: each party casts at most a fixed number of votes per count.

    Raises:
        ProtocolError: naming the first count outside.
    """
    odd = np.argwhere((counts < least) | (counts > most))
    if len(odd):
        row, column = (int(at) for at in odd[0])
        raise ProtocolError(
            f"{len(odd)} counts are outside [{least}, {most}] (the first is row {row}, class "
            f"{column}: {int(counts[row, column])})"
        )


def check_cast(counts: Counts, code: Code, votes: int, *, reach: int = 0) -> None:
    """Check votes that a code allows: each count, and of teachers how many votes a query has in all.

    Of their answers to the whole public set it is the length, where there is no noise.

    Args:
        counts: (queries, classes) integers.
        code: of the votes.
        votes: most votes on a count; of teachers, their number.
        reach: most that noise may add to, or take from, each count.

    Raises:
        ProtocolError: naming what is outside.
    """
    least, most = code.bounds(votes)
    check_entries(counts, least=least - reach, most=most + reach)
    if code.name == AXES and not reach:
        # In whole numbers: each count is within its bounds, so no sum of squares overflows Python's.
        length = sum(int(count) ** 2 for count in counts.ravel().tolist())
        if length > most**2:
            raise ProtocolError(
                f"the arrays of {votes} teachers have length {votes} together at most, theirs is "
                f"{math.sqrt(length) / code.grid:.6g}"
            )
    if not code.of_teachers or code.name == AXES:
        return
    wide, total = code.answer.most * votes, counts.sum(axis=1)
    if len(total) and int(total.max()) > wide + reach * counts.shape[1]:
        row = int(total.argmax())
        raise ProtocolError(
            f"{votes} teachers cast at most {code.answer.most} votes each a query, {wide} in all, but row "
            f"{row} has {int(total[row])}"
        )


@dataclass(frozen=True, eq=False)
class LooseSum:
    """Summed votes with unknown row sums: of records, or of teachers in one release.

    Attributes:
        counts: (queries, classes) int64, in units of the code.
        teachers: most votes that a count may have, over all parties in the sum.
        code: of the votes.
    """

    counts: Counts
    teachers: int
    code: Code = _NEAREST

    def __post_init__(self) -> None:
        if self.counts.ndim != 2 or self.counts.dtype != np.int64:
            raise ProtocolError(
                f"a sum of votes has two axes of int64, got {self.counts.dtype} {self.counts.shape}"
            )
        check_cast(self.counts, self.code, self.teachers)
        self.counts.setflags(write=False)


@dataclass(frozen=True, eq=False)
class NoisySum:
    """Summed votes of a batch with the parties' noise in them.

    Its row sums are unknown; they are checked by :func:`pate.noise.shares.check_row_totals`, those
    of a matrix that is released once by :func:`check_cast`.

    Attributes:
        counts: (queries, classes) int64, votes and noise; may be negative.
        teachers: M, the number of teachers that voted; for neighbour votes the most in one count.
    """

    counts: Counts
    teachers: int

    def __post_init__(self) -> None:
        if self.teachers < 1:
            raise ProtocolError(f"a sum of votes needs at least one teacher, got {self.teachers}")
        if self.counts.ndim != 2 or self.counts.dtype != np.int64:
            raise ProtocolError(
                f"a sum of votes has two axes of int64, got {self.counts.dtype} {self.counts.shape}"
            )
        self.counts.setflags(write=False)


#: Summed votes of a batch, of any kind.
Total = Histogram | LooseSum | NoisySum
