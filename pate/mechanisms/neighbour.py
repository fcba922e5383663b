"""Neighbour votes (reverse k-NN voting): each record votes once; the release is one noisy matrix.

Every private record votes for its label at the query that is nearest to it, or at its k nearest, see
:mod:`pate.features.neighbours`. So an altered record changes at most 2k counts of the whole matrix by
one each, and an added or removed record changes k: the L2 sensitivity is sqrt(2k), however many
queries there are. Noise is added to all counts once, and everything computed from the noisy matrix
(labels, unanswered queries, weights of labels) is post-processing.

With teachers every query is a separate release with its own cost: one record changes one teacher,
and with it any number of votes.

Source: the idea of one vote per record and nearest query is that of reverse k-nearest neighbours, Li et
al., "Fine-grained Private Knowledge Distillation", arXiv 2207.13253; private neighbours in PATE are
from Zhu et al., "Private-kNN", CVPR 2020.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from pate.accounting.composition import Gdp
from pate.accounting.events import (
    Event,
    NoisyArray,
    NoisyHistogram,
    check_votes_per_unit,
)
from pate.codes import NEAREST, code_of
from pate.errors import BudgetError, UsageError
from pate.mechanisms.contract import MechanismText, Outcome, Votes, check_rows, check_threshold
from pate.noise.exact import check_scale
from pate.noise.shares import total_sigma
from pate.text_form import in_text

if TYPE_CHECKING:
    from pate.noise.exact import Noise

#: Most counts and most queries of a matrix of neighbour votes: it is in memory as a whole, with the
#: features of its queries.
MAX_MATRIX: Final = 2**20
MAX_MATRIX_QUERIES: Final = 2**16
#: Shares and sigmas are whole multiples of 1/64, as those of other noise.
_GRID: Final = 64
#: Larger shares exceed any number of votes, and could not be drawn exactly in units of 1/64.
_MOST_SHARE: Final = 2**19


class _Matrix(MechanismText):
    """Common part of both: one event for all queries, labels by noisy margin."""

    threshold: int
    votes_per_unit: int
    code: str

    name: ClassVar[str]
    interactive: ClassVar[bool] = False
    noise_inside: ClassVar[bool]

    @property
    def _event(self) -> NoisyHistogram | NoisyArray:
        raise NotImplementedError

    @property
    def worst(self) -> tuple[Event, ...]:
        """The one event of the whole matrix."""
        return (self._event,)

    def released(self, rows: Votes, noise: Noise) -> Votes:
        """Return the noisy matrix behind all results: (queries, classes) int64."""
        raise NotImplementedError

    def labels(self, noisy: Votes) -> tuple[int | None, ...]:
        """Return the label of each noisy row, None where its margin is below the threshold.

        The margin is the largest noisy count less the second largest.

        Args:
            noisy: (queries, classes) int64, as :meth:`released` returned it.

        Raises:
            ProtocolError: for rows that cannot be noisy votes.
        """
        noisy = check_rows(noisy, noisy=True)
        if not len(noisy):
            return ()
        second, first = np.partition(noisy, -2, axis=1)[:, -2:].T
        clear = (first - second >= self.threshold).tolist()
        best = noisy.argmax(axis=1).tolist()
        return tuple(label if yes else None for yes, label in zip(clear, best, strict=True))

    def answer_all(
        self,
        rows: Votes,
        noise: Noise,
        predictions: Votes | None = None,
    ) -> tuple[Outcome, ...]:
        """Answer a whole matrix; see :class:`~pate.mechanisms.contract.Mechanism`.

        Each outcome has the one event of all of them: adding them up overestimates the cost.
        """
        del predictions  # no predictions are used
        worst = self.worst
        return tuple(
            Outcome(label, None if label is None else "records", worst)
            for label in self.labels(self.released(rows, noise))
        )


@dataclass(frozen=True)
class Neighbour(_Matrix):
    """Neighbour votes with noise drawn by the server.

    Attributes:
        threshold: least noisy margin of a label, in votes.
        sigma: parameter of the noise on each count, in votes.
        votes_per_unit: votes that one unit of privacy casts at most.
        code: at which queries each vote counts, the text of a :class:`~pate.codes.Code`.

    Raises:
        UsageError: for parameters that make no sense.
    """

    threshold: int
    sigma: Fraction
    votes_per_unit: int
    #: Omitted from the text at its default, as in older ledgers.
    code: str = field(default=NEAREST, metadata=in_text(omitted=True))

    name: ClassVar[str] = "neighbour"
    noise_inside: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_threshold(self.threshold)
        object.__setattr__(self, "sigma", self._event.share)

    @property
    def _event(self) -> NoisyHistogram | NoisyArray:
        return event_of(check_scale(self.sigma, "sigma"), 1, self.votes_per_unit, self.code)

    def released(self, rows: Votes, noise: Noise) -> Votes:
        """Return the noisy matrix; see :class:`_Matrix`."""
        rows = check_rows(rows, noisy=code_of(self.code).signed)
        return rows + noise.gaussian(self.sigma, rows.size).reshape(rows.shape)


@dataclass(frozen=True)
class DistributedNeighbour(_Matrix):
    """Neighbour votes with a noise share from each party: no one has the exact matrix.

    Attributes:
        threshold: least noisy margin of a label, in votes.
        share: parameter of each party's noise on every count, in votes.
        honest: shares in every sum that the observer does not know.
        votes_per_unit: votes that one unit of privacy casts at most.
        code: at which queries each vote counts, the text of a :class:`~pate.codes.Code`.

    Raises:
        UsageError: for parameters that make no sense.
    """

    threshold: int
    share: Fraction
    honest: int
    votes_per_unit: int
    #: Omitted from the text at its default, as in older ledgers.
    code: str = field(default=NEAREST, metadata=in_text(omitted=True))

    name: ClassVar[str] = "distributed-neighbour"
    noise_inside: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_threshold(self.threshold)
        object.__setattr__(self, "share", self._event.share)

    @property
    def _event(self) -> NoisyHistogram | NoisyArray:
        return event_of(self.share, self.honest, self.votes_per_unit, self.code)

    def total(self, parties: int) -> Fraction:
        """Return the parameter of the noise on each count if ``parties`` parties are in the sum."""
        return total_sigma(self.share, parties)

    def released(self, rows: Votes, noise: Noise) -> Votes:
        """Return the rows as they are: their noise is in them."""
        del noise
        return check_rows(rows, noisy=True)


#: Those that answer a whole matrix with one release, charged once.
MatrixMechanism = Neighbour | DistributedNeighbour


def event_of(
    share: Fraction, honest: int, votes_per_unit: int, code: str
) -> NoisyHistogram | NoisyArray:
    """Return the event of one noisy matrix of records' votes.

    Args:
        share: parameter of each noise share, in votes.
        honest: shares in every sum that the observer does not know.
        votes_per_unit: votes that one unit casts at most.
        code: at which queries each of them counts.

    Raises:
        UsageError: for parameters that make no sense.
    """
    check_votes_per_unit(votes_per_unit)
    made = code_of(code)
    if made.name == NEAREST:
        return NoisyHistogram(share, honest, votes_per_unit)
    change = made.change(votes_per_unit)
    return NoisyArray(share, honest, change.squared, change.counts)


def least_share(
    epsilon: float, delta: float, honest: int, votes_per_unit: int, code: str = NEAREST
) -> Fraction:
    """Return the least noise share with which one matrix costs at most (epsilon, delta).

    >>> float(least_share(0.1, 1e-5, 1, 1)), float(least_share(0.1, 1e-5, 1, 1, "spread-9"))
    (43.5, 130.46875)

    Args:
        epsilon: of the whole release.
        delta: at which it holds.
        honest: shares in every sum that the observer does not know; 1 where the server draws the
            noise.
        votes_per_unit: votes that one unit casts at most.
        code: at which queries each of them counts.

    Returns:
        A multiple of 1/64 votes.

    Raises:
        BudgetError: if no noise gives so small an epsilon.
    """
    most = Gdp().budget(epsilon, delta)

    def fits(cells: int) -> bool:
        event = event_of(Fraction(cells, _GRID), honest, votes_per_unit, code)
        return Gdp().supports(event) and Gdp().cost(event) <= most

    low, high = _GRID - 1, 2 * _GRID  # a share is at least one vote
    while not fits(high):
        low, high = high, 2 * high
        if high > _MOST_SHARE * _GRID:
            raise BudgetError(
                f"no noise gives a matrix of votes epsilon {epsilon:g} at delta {delta:g}"
            )
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return Fraction(high, _GRID)


def clear_margin(share: Fraction, parties: int) -> int:
    """Return a noisy margin that noise alone seldom reaches, in votes.

    Twice the spread of the difference of two counts, 2 sqrt(2) sigma: two classes with equally many
    votes differ by that much with probability 5 %.

    >>> clear_margin(Fraction(40), 1)
    114

    Args:
        share: parameter of each noise share, in votes.
        parties: whose shares may be in the sum.

    Raises:
        UsageError: for a share or number of parties that makes no sense.
    """
    return math.ceil(2 * math.sqrt(2) * float(total_sigma(share, parties)))


def require_unit(unit: str) -> None:
    """Check that neighbour votes can protect a unit.

    Raises:
        UsageError: for whole parties: one casts as many votes as it has records.
    """
    if unit == "party":
        raise UsageError(
            "neighbour votes protect a record or a patient, who vote once; a whole party has as many "
            "votes as records, and noise that hides it would hide everything: use --unit record or "
            "patient, or teachers (--aggregator gnmax)"
        )
