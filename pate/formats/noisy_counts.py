"""Released noisy votes: public, like labels, and more informative.

If the noise is on the whole vote matrix, as with neighbour votes, the charge covers the noisy counts
themselves. Labels are computed from them, and a student may use their margins and sizes: this is
post-processing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.codes import DENSE, NEAREST, code_of, require_places
from pate.errors import DataError, UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Counts and their noise are below it, as in mechanisms; larger ones are invalid.
_LARGEST: Final = 2**40


@dataclass(frozen=True, eq=False)
class NoisyVotes:
    """The noisy counts of the queries that were voted on.

    Attributes:
        queries: (v,) int64, distinct indices into the public set, ascending.
        counts: (v, m) int64, votes and noise, in units of the code; may be negative.
        sigma: standard deviation of the noise in each count, in the same units, at most.
        code: where records voted, the text of a :class:`~pate.codes.Code`.
    """

    queries: NDArray[np.int64]
    counts: NDArray[np.int64]
    sigma: float
    code: str = NEAREST

    def __post_init__(self) -> None:
        for name, held, axes in (("queries", self.queries, 1), ("counts", self.counts, 2)):
            if held.dtype != np.int64 or held.ndim != axes:
                raise DataError(f"noisy votes: {name} are {held.dtype} of shape {held.shape}")
        if len(self.queries) != len(self.counts) or self.counts.shape[1] < 2:
            raise DataError(f"{len(self.queries)} queries but counts of {self.counts.shape}")
        if len(self.queries) and (self.queries[0] < 0 or not (np.diff(self.queries) > 0).all()):
            raise DataError("noisy votes: queries must ascend from 0")
        if ((self.counts < -_LARGEST) | (self.counts > _LARGEST)).any():
            raise DataError("noisy votes: a count is larger than any votes and noise")
        if not 0 <= self.sigma <= _LARGEST:  # nor NaN
            raise DataError(f"noisy votes with noise of {self.sigma!r}")
        try:
            require_places(code_of(self.code), max(1, len(self.queries)))
        except UsageError as error:
            raise DataError(f"noisy votes: {error}") from error
        self.queries.setflags(write=False)
        self.counts.setflags(write=False)

    @property
    def dense(self) -> bool:
        """Whether a record counts at every query, by how far it lies in that direction."""
        return code_of(self.code).name == DENSE

    @property
    def of_teachers(self) -> bool:
        """Whether teachers voted, for a class, and all of it is one release."""
        code = code_of(self.code)
        return code.of_teachers and not code.answer.of
