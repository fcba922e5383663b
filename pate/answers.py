"""Answers: what a record says where it votes, one whole number for each column of the counts.

A record with input x and answer y casts the array code(x) times answer(y) (:mod:`pate.codes`). The
columns of the answer are the campaign's class list.

============  =========================  ======================================================
answer        columns                    numbers, in units of 1/grid of a vote
============  =========================  ======================================================
``class``     the classes                1 in the column of the record's class
``ordered``   the classes, ascending     the same; the student knows that they have an order
``labels-T``  the labels, and ``none``   T at each of its labels, at most T of them counted; what is
                                         left of T, if j are, at ``none``: T - j
``number``    points of a range, at      z, cut to the range, lies between two of them, a and b:
              least its two ends         g (b - z) / (b - a) at a, and the rest of g = 64 at b
``residual``  2 to 256 classes           the probabilities of a public model less 1 in the column of
                                         the class, with signs; in rounds (:mod:`pate.rounds`), with
                                         dense codes only
``residual-   the labels, and ``none``   the same for several labels, each by itself; ``none`` counts the
labels``                                 records in the first round, and is 0 in others
``balanced``  the classes                of teachers, which vote for a class: the one that is probable
                                         compared with its mean over the public set
``array``     the classes                of teachers: the coefficients of an answer to the whole public set
============  =========================  ======================================================

A teacher that votes for several labels casts ``labels-T-of-L`` at each query: 1 at each of at most T of L
labels, and there is no other column, since how many teachers vote is public.

Only the numbers of residuals and of ``array`` may be negative. An answer of a record has L1 norm and squared
L2 norm of at most one vote, with several labels of at most T votes. A residual is cut with the code: a unit's
whole array has L2 norm of at most one vote. The records that voted somewhere can be counted from all columns:
with several labels by ``none`` and a T-th of each label; in rounds by the first one, which counts classes.

Source: T is the tau of "tau voting", Dziedzic et al., "Private Multi-Winner Voting for Machine
Learning", PoPETs 2023.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, cast

from pate.errors import DataError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

#: Names of the answers.
ANSWERS: Final = ("class", "labels", "ordered", "number")
#: The default answer, and the others.
CLASS: Final = "class"
LABELS: Final = "labels"
ORDERED: Final = "ordered"
NUMBER: Final = "number"
#: Other forms of the default: in rounds, and of teachers in one release.
RESIDUAL: Final = "residual"
RESIDUAL_LABELS: Final = "residual-labels"
BALANCED: Final = "balanced"
ARRAY: Final = "array"
#: The column of records with fewer labels than count.
NONE: Final = "none"
#: Parts into which the range of a number is divided, between one point and the next.
PARTS: Final = 64
#: Most points of a number's range.
MOST_POINTS: Final = 64
#: Most labels of a record that count.
MOST_LABELS: Final = 64

#: Most classes of residuals: an array has a number for each.
MOST_CLASSES: Final = 2**8

_TEXT: Final = re.compile(
    r"(class|ordered|number|residual|residual-labels|balanced|array)|labels-([1-9][0-9]?)(?:-of-([1-9][0-9]{0,3}))?",
    re.ASCII,
)
_CHOICE: Final = b"pate labels that"


@dataclass(frozen=True)
class Answer:
    """An answer."""

    # one of :data:`ANSWERS`, or one of the other forms of a class
    name: Literal[
        "class", "labels", "ordered", "number", "residual", "residual-labels", "balanced", "array"
    ] = "class"
    most: int = 1  # T, the most labels of a record that count; 1 for any other answer
    of: int = 0  # L, the number of labels, where teachers vote for several; 0 for records

    def __str__(self) -> str:
        """Return the text that :func:`answer_of` reads."""
        if self.name != LABELS:
            return self.name
        return f"{self.name}-{self.most}" + (f"-of-{self.of}" if self.of else "")

    @property
    def one_hot(self) -> bool:
        """Whether an answer is of one class."""
        return self.name in (CLASS, ORDERED, RESIDUAL, BALANCED, ARRAY)

    @property
    def in_rounds(self) -> bool:
        """Whether it is given in rounds: the disagreement with a public model."""
        return self.name in (RESIDUAL, RESIDUAL_LABELS)

    @property
    def labelled(self) -> bool:
        """Whether a query may get a label: the class whose count is largest there."""
        return self.one_hot and self.name not in (RESIDUAL, ARRAY)

    @property
    def permission(self) -> str:
        """The one of :data:`ANSWERS` that a policy must allow: all forms of a class say one."""
        if self.name == RESIDUAL_LABELS:
            return LABELS
        return CLASS if self.name in (RESIDUAL, BALANCED, ARRAY) else self.name

    @property
    def grid(self) -> int:
        """Units of the numbers that are one vote."""
        if self.of:
            return 1
        return {LABELS: self.most, NUMBER: PARTS}.get(self.name, 1)

    @property
    def columns(self) -> int:
        """Columns in which an answer may not be 0, at most.

        Of several labels they are T: with fewer than T labels ``none`` is one of them.
        """
        if self.in_rounds:
            return MOST_CLASSES
        return {NUMBER: 2}.get(self.name, self.most)

    @property
    def in_words(self) -> str:
        """What a vote says, to follow a comma; empty for a class."""
        if self.of:
            return f"for up to {self.most} of {self.of} labels"
        return {
            LABELS: f"for up to {self.most} label{'s' * (self.most > 1)}",
            NUMBER: "divided between two points of a range",
            ORDERED: "for classes in their order",
            RESIDUAL: "by its disagreement with a public model",
            RESIDUAL_LABELS: "for several labels, by its disagreement with a public model",
            BALANCED: "for the class that is probable compared with its mean",
        }.get(self.name, "")

    def release_in_words(self, labels: int, asked: int) -> str:
        """Return what was released for ``asked`` queries: labels, or noisy counts only.

        Of several labels, a number, or residuals, no one column is what an input is.
        """
        if self.in_rounds and asked:
            return "noisy sums of rounds and their models"
        return f"{labels} labels" if self.labelled or not asked else "noisy counts and no label"

    def check(self, answers: NDArray[np.int64]) -> None:
        """Check (n, columns) answers, in whole numbers, against what one may be at most."""
        import numpy as np  # only with answers: options and screens need their names

        total, squared = np.abs(answers).sum(axis=1), np.square(answers).sum(axis=1)
        most = self.most * self.grid
        if (answers < 0).any() or (total > most).any() or (squared > most * self.grid).any():
            raise DataError(f"a record says more than the answer {self} allows")

    def check_columns(self, names: Sequence[str] | None) -> None:
        """Check that a class list has the columns of the answer; None: not known yet."""
        if self.of:
            self._check_labels(names)
            return
        if names is None:
            if self.in_rounds or self.name in (ORDERED, NUMBER):
                raise UsageError(
                    f"answer = {self} needs a class list that the campaign states: "
                    + {NUMBER: "its range", ORDERED: "in their order"}.get(self.name, "--classes")
                )
            return
        least = max(2, self.most)
        if self.name == LABELS and (NONE not in names or len(names) <= least):
            raise UsageError(
                f"answer = {self} needs {least} labels or more and the column {NONE!r}, not the class "
                f"list {', '.join(names):.80}"
            )
        if self.name == NUMBER:
            points_of(names)
        several = self.name == RESIDUAL_LABELS
        if several and (NONE not in names[-1:] or NONE in names[:-1] or len(names) < 3):
            raise UsageError(
                f"answer = {self} needs 2 labels or more and the column {NONE!r} after them, not the class "
                f"list {', '.join(names):.80}"
            )
        if self.in_rounds and not 2 <= len(names) <= MOST_CLASSES:
            raise UsageError(
                f"answer = {self} is for 2 to {MOST_CLASSES} classes, not {len(names)}: leave it out"
            )

    def _check_labels(self, names: Sequence[str] | None) -> None:
        """Check that a class list has the labels that teachers vote for, and no other column."""
        if names is None:
            raise UsageError(f"answer = labels-{self.most} of teachers needs its labels: --classes")
        if len(names) != self.of or NONE in names or self.most > self.of:
            raise UsageError(
                f"answer = {self} of teachers needs {self.of} labels, {self.most} or more, none of them "
                f"{NONE!r}, not the class list {', '.join(names):.80}"
            )


def answer_of(text: str) -> Answer:
    """Return the answer of a text such as ``class``, ``labels-2``, ``ordered`` or ``number``.

    That of teachers is ``labels-2-of-14``.
    """
    found = _TEXT.fullmatch(text)
    if found is None or (found[2] and int(found[2]) > MOST_LABELS):
        raise UsageError(
            f"an answer is class, labels-T with T from 1 to {MOST_LABELS}, ordered, number, residual, "
            f"residual-labels, balanced or array, got {text[:60]!r}"
        )
    if found[2]:
        return Answer("labels", int(found[2]), int(found[3] or 0))
    return Answer(
        cast(
            "Literal['class', 'ordered', 'number', 'residual', 'residual-labels', 'balanced', 'array']",
            text,
        )
    )


def range_in(text: str) -> tuple[str, ...]:
    """Return the columns of a number whose range is written as ``0,14``, or with points between."""
    return tuple(each.strip() for each in text.split(","))


def points_of(names: Sequence[str]) -> tuple[float, ...]:
    """Return the points of a number's range, which are the names of its columns: first low, last high."""
    try:
        points = tuple(float(name) for name in names)
    except ValueError:
        points = ()
    if (
        not 2 <= len(points) <= MOST_POINTS
        or not all(low < high for low, high in itertools.pairwise(points))
        or not math.isfinite(points[-1] - points[0])
        or "_" in "".join(names)
    ):
        raise UsageError(
            f"a number's range is two numbers, the lower one first, or up to {MOST_POINTS} of them that "
            f"ascend, not {', '.join(names):.80}"
        )
    return points


def of_labels(
    flags: NDArray[np.bool_],  # (n, l) which labels each record has
    names: Sequence[str],
    columns: Sequence[str],  # the campaign's class list: the labels in any order, and ``none``
    most: int,
    hashes: Sequence[bytes],  # (n,) that identify the records
    key: bytes,  # the party's secret, at most 64 bytes
) -> NDArray[np.int64]:
    """Return (n, columns) answers of records with several labels.

    Of more than ``most`` labels those with the least keyed hashes count, so a choice depends on
    that record only, and nobody without the key can foresee it.
    """
    import numpy as np

    kept = flags.copy()
    for row in np.flatnonzero(flags.sum(axis=1) > most).tolist():
        drawn = sorted(
            (
                hashlib.blake2b(hashes[row] + names[at].encode(), key=key, person=_CHOICE).digest(),
                at,
            )
            for at in np.flatnonzero(flags[row]).tolist()
        )
        kept[row, [at for _, at in drawn[most:]]] = False
    made = np.zeros((len(flags), len(columns)), dtype=np.int64)
    made[:, [list(columns).index(name) for name in names]] = most * kept
    made[:, list(columns).index(NONE)] = most - kept.sum(axis=1)
    return made


def all_labels(
    flags: NDArray[np.bool_], names: Sequence[str], columns: Sequence[str]
) -> NDArray[np.int64]:
    """Return (n, columns) 1 at each of a record's labels, and at ``none``, which counts records."""
    import numpy as np

    made = np.zeros((len(flags), len(columns)), dtype=np.int64)
    made[:, [list(columns).index(name) for name in names]] = flags
    made[:, list(columns).index(NONE)] = 1
    return made


def of_numbers(values: NDArray[np.float64], columns: Sequence[str]) -> NDArray[np.int64]:
    """Return (n, m) answers of records with a finite number each, cut to the range of the m columns."""
    import numpy as np

    points = np.array(points_of(columns))
    cut = np.clip(values, points[0], points[-1])
    below = np.clip(np.searchsorted(points, cut, side="right") - 1, 0, len(points) - 2)
    low, high = points[below], points[below + 1]
    parts = np.rint((cut - low) / (high - low) * PARTS).astype(np.int64)
    made = np.zeros((len(values), len(points)), dtype=np.int64)
    rows = np.arange(len(values))
    made[rows, below], made[rows, below + 1] = PARTS - parts, parts
    return made
