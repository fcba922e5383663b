"""Released noisy votes: public, like labels, and more informative.

If the noise is on the whole vote matrix, as with neighbour votes, the charge covers the noisy counts
themselves. Labels are computed from them, and a student may use their margins and sizes: this is
post-processing.

Of a campaign in rounds the sums of all rounds are public, the models that were shown, and the one after them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.codes import AXES, DENSE, GRID, NEAREST, code_of, require_places
from pate.errors import DataError, ProtocolError, UsageError
from pate.exact import in_text
from pate.printable import number_of
from pate.rounds.model import RoundModel  # noqa: TC001 - its reader looks it up

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Counts and their noise are below it, as in mechanisms; larger ones are invalid.
_LARGEST: Final = 2**40


@dataclass(frozen=True, eq=False)
class RoundCounts:
    """What was released in one round.

    Attributes:
        counts: (v, m) int64, a row a direction: votes and noise, in units of the code; may be negative.
        sigma: standard deviation of the noise in each count, in the same units, at most.
        shown: the model that they answer; None: they count classes, in the first row.
    """

    counts: NDArray[np.int64]
    sigma: float
    shown: RoundModel | None = field(default=None, metadata=in_text(omitted=True))

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", float(self.sigma))
        if self.counts.dtype != np.int64 or self.counts.ndim != 2 or self.counts.shape[1] < 2:
            raise DataError(
                f"noisy votes: counts are {self.counts.dtype} of shape {self.counts.shape}"
            )
        if ((self.counts < -_LARGEST) | (self.counts > _LARGEST)).any():
            raise DataError("noisy votes: a count is larger than any votes and noise")
        if not 0 <= self.sigma <= _LARGEST:  # nor NaN
            raise DataError(f"noisy votes with noise of {self.sigma!r}")
        if self.shown is not None:
            _check_shape(self.shown, self.counts)
        self.counts.setflags(write=False)


@dataclass(frozen=True, eq=False)
class NoisyVotes:
    """The noisy counts of the queries that were voted on.

    Attributes:
        queries: (v,) int64, distinct indices into the public set, ascending.
        counts: (v, m) int64, votes and noise, in units of the code; may be negative.
        sigma: standard deviation of the noise in each count, in the same units, at most.
        code: where records voted, the text of a :class:`~pate.codes.Code`.
        shown: the model that the counts answer, of a campaign in rounds; None: they count classes.
        earlier: the rounds before, in order; the first counts classes.
        model: the model after the last round; None: not yet, or no rounds.
    """

    queries: NDArray[np.int64]
    counts: NDArray[np.int64]
    sigma: float
    code: str = field(default=NEAREST, metadata=in_text(omitted=True))
    shown: RoundModel | None = field(default=None, metadata=in_text(omitted=True))
    earlier: tuple[RoundCounts, ...] = field(default=(), metadata=in_text(omitted=True))
    model: RoundModel | None = field(default=None, metadata=in_text(omitted=True))

    def __post_init__(self) -> None:
        last = RoundCounts(self.counts, self.sigma, self.shown)
        object.__setattr__(self, "sigma", last.sigma)
        if self.queries.dtype != np.int64 or self.queries.ndim != 1:
            raise DataError(
                f"noisy votes: queries are {self.queries.dtype} of shape {self.queries.shape}"
            )
        if len(self.queries) != len(self.counts):
            raise DataError(f"{len(self.queries)} queries but counts of {self.counts.shape}")
        if len(self.queries) and (self.queries[0] < 0 or not (np.diff(self.queries) > 0).all()):
            raise DataError("noisy votes: queries must ascend from 0")
        try:
            require_places(code_of(self.code), max(1, len(self.queries)))
        except UsageError as error:
            raise DataError(f"noisy votes: {error}") from error
        self._check_rounds((*self.earlier, last))
        self.queries.setflags(write=False)

    @property
    def dense(self) -> bool:
        """Whether a record counts at every query, by how far it lies in that direction."""
        return code_of(self.code).name == DENSE

    @property
    def in_words(self) -> str:
        """What a student learns from, if there is no label."""
        number, code = len(self.queries), code_of(self.code)
        if self.model is not None:
            rounds = code.rounds_in_words(1 + len(self.earlier))
            return f"a model in {number} directions, after {rounds}"
        if self.of_arrays:
            return f"the noisy sum of teachers' answers in {number} directions"
        if self.dense:
            return f"noisy sums in {number} directions"
        one = "query" if code.of_teachers else "representative"
        return f"noisy counts of {number_of(number, one)}"

    @property
    def of_teachers(self) -> bool:
        """Whether teachers voted, for a class, and all of it is one release."""
        code = code_of(self.code)
        return code.of_teachers and not code.answer.of

    @property
    def of_arrays(self) -> bool:
        """Whether each teacher cast its answer to the whole public set as one array."""
        return code_of(self.code).name == AXES

    @property
    def class_counts(self) -> tuple[NDArray[np.float64], float]:
        """The classes of records, as the first round counted them, and the noise on each; in votes."""
        first = self.earlier[0] if self.earlier else self
        return first.counts[0] / GRID, first.sigma / GRID

    def _check_rounds(self, rounds: tuple[RoundCounts, ...]) -> None:
        """Check that the rounds are of one shape, and that all but the first answer a model."""
        if not code_of(self.code).answer.in_rounds:
            if self.earlier or self.shown is not None or self.model is not None:
                raise DataError("noisy votes without rounds have no model")
            return
        for at, each in enumerate(rounds):
            if each.counts.shape != self.counts.shape or (each.shown is None) != (at == 0):
                raise DataError(f"noisy votes: round {at} is not what it must be")
        if self.model is not None:
            _check_shape(self.model, self.counts)


def _check_shape(model: RoundModel, counts: NDArray[np.int64]) -> None:
    try:
        model.check_shape(*counts.shape)
    except ProtocolError as error:
        raise DataError(f"noisy votes: {error}") from error
