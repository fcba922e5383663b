"""Neighbour votes (reverse nearest neighbours): each record votes once; the release is one noisy matrix.

Every private record votes for its label at the query that is nearest to it, see
:mod:`pate.features.neighbours`. So an altered record changes at most two counts of the whole matrix by
one each, and an added or removed record changes one: the L1 sensitivity is 2 and the L2 sensitivity
sqrt(2), however many queries there are (:mod:`pate.codes` has the others). Noise is added to all counts
once, and everything computed from the noisy matrix (labels, unanswered queries, weights of labels) is
post-processing.

The noise has one of two laws: geometric, which is calibrated to L1 and gives pure epsilon (delta 0), or
Gaussian. The parameter that a mechanism has says which: ``scale``, or ``sigma`` (of shares: ``share``).

With teachers a query may be a release of its own: one record changes one teacher, and with it any number
of votes. All of them may be one release nevertheless, since there is one joint bound on what one unit
changes in all counts. By the code ``each`` a teacher votes at each query for a class, or for at most T of L
labels ("tau voting"; T = L is "Binary voting"); then no query gets one label, and which labels reach half of
the teachers is computed from the noisy counts. By the code ``axes`` it casts its answer to the whole public
set as one array of bounded length (:mod:`pate.features.dense`).

Source: the idea of one vote per record and nearest query is that of reverse k-nearest neighbours, Li et
al., "Fine-grained Private Knowledge Distillation", arXiv 2207.13253; private neighbours in PATE are
from Zhu et al., "Private-kNN", CVPR 2020. Tau and Binary voting are from Dziedzic et al., "Private
Multi-Winner Voting for Machine Learning", PoPETs 2023, arXiv 2211.15410; docs/proofs/record-votes.md has the
bounds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from pate.accounting import Adjacency  # noqa: TC001 — the reader of texts looks it up
from pate.accounting.events import (
    Event,
    GeometricHistogram,
    NoisyArray,
    NoisyHistogram,
    check_votes_per_unit,
)
from pate.codes import MOST_COUNTS, NEAREST, code_of
from pate.errors import UsageError
from pate.exact import in_text
from pate.mechanisms.contract import MechanismText, Outcome, Votes, check_rows, check_threshold
from pate.noise.share_laws import GaussianShares, GeometricShares, Shares

if TYPE_CHECKING:
    from fractions import Fraction

    from pate.noise.exact import Noise

#: Most counts and most queries of a matrix of neighbour votes: it is in memory as a whole, with the
#: features of its queries.
MAX_MATRIX: Final = MOST_COUNTS
MAX_MATRIX_QUERIES: Final = 2**16


class MatrixMechanism(MechanismText):
    """A whole matrix is one release, charged once. A class below has some of these parameters.

    Attributes:
        threshold: least noisy margin of a label, in votes; 0 where no query gets one.
        sigma: parameter of Gaussian noise on each count, in votes; None for geometric noise.
        share: likewise, of each party's noise.
        honest: shares in every sum that the observer does not know.
        votes_per_unit: votes that one unit of privacy casts at most.
        scale: parameter of the geometric noise on each count, in votes, to which ``honest`` shares sum;
            None for Gaussian noise.
        code: where each vote counts and what it says, the text of a :class:`~pate.codes.Code`.

    Raises:
        UsageError: for parameters that make no sense.
    """

    threshold: int
    votes_per_unit: int
    scale: Fraction | None
    code: str

    name: ClassVar[str]
    interactive: ClassVar[bool] = False
    noise_inside: ClassVar[bool] = False
    #: Whether teachers vote.
    of_teachers: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_threshold(self.threshold)
        name = "share" if self.noise_inside else "sigma"
        if (self._gaussian is None) == (self.scale is None):
            raise UsageError(f"neighbour votes have one law of noise: state {name} or scale")
        event = self._event
        if isinstance(event, GeometricHistogram):
            object.__setattr__(self, "scale", event.scale)
        else:
            object.__setattr__(self, name, event.share)
        if self.of_teachers:
            _require_teachers(self)

    @property
    def _gaussian(self) -> Fraction | None:
        given: Fraction | None = vars(self)["share" if self.noise_inside else "sigma"]
        return given

    @property
    def _honest(self) -> int:
        honest: int = vars(self).get("honest", 1)  # noise by the server is one share
        return honest

    @property
    def shares(self) -> Shares:
        """The law of the noise, in shares."""
        if self._gaussian is not None:
            return GaussianShares(self._gaussian)
        assert self.scale is not None  # noqa: S101 - one of them is stated
        return GeometricShares(self.scale, self._honest)

    @property
    def worst(self) -> tuple[Event, ...]:
        """The one event of the whole matrix."""
        return (self._event,)

    @cached_property
    def _event(self) -> NoisyHistogram | NoisyArray | GeometricHistogram:
        return event_of(self.shares, self._honest, self.votes_per_unit, self.code, self.unit_is)

    @property
    def unit_is(self) -> Adjacency:
        """Whether a unit changes its votes, as any that votes itself may, or is added or removed."""
        given: Adjacency = vars(self).get("adjacency", "change")
        return given

    def released(self, rows: Votes, noise: Noise) -> Votes:
        """Return the noisy matrix behind all results: (queries, classes) int64.

        Rows that have their noise in them stay as they are.
        """
        rows = check_rows(rows, noisy=self.noise_inside or code_of(self.code).in_directions)
        if self.noise_inside:
            return rows
        if self.scale is not None:
            return rows + noise.laplace(self.scale, rows.size).reshape(rows.shape)
        assert self._gaussian is not None  # noqa: S101 - one of them is stated
        return rows + noise.gaussian(self._gaussian, rows.size).reshape(rows.shape)

    def labels(self, noisy: Votes) -> tuple[int | None, ...]:
        """Return the label of each noisy row, None where its margin is below the threshold.

        The margin is the largest noisy count less the second largest. Of several labels, a number, or
        residuals, no row has a label: no one column is what its input is, and a student learns from the
        counts.

        Args:
            noisy: (queries, classes) int64, as :meth:`released` returned it.

        Raises:
            ProtocolError: for rows that cannot be noisy votes.
        """
        noisy = check_rows(noisy, noisy=True)
        if not len(noisy) or not code_of(self.code).answer.labelled:
            return (None,) * len(noisy)
        second, first = np.partition(noisy, -2, axis=1)[:, -2:].T
        clear = (first - second >= self.threshold).tolist()
        best = noisy.argmax(axis=1).tolist()
        return tuple(label if yes else None for yes, label in zip(clear, best, strict=True))

    def answer_all(
        self,
        rows: Votes,
        noise: Noise,
        predictions: Votes | None = None,  # noqa: ARG002  (one signature for all mechanisms)
    ) -> tuple[Outcome, ...]:
        """Answer a whole matrix; see :class:`~pate.mechanisms.contract.Mechanism`.

        Each outcome has the one event of all of them: adding them up overestimates the cost.
        """
        worst = self.worst
        return tuple(
            Outcome(label, None if label is None else "records", worst)
            for label in self.labels(self.released(rows, noise))
        )


@dataclass(frozen=True)
class Neighbour(MatrixMechanism):
    """Neighbour votes with noise drawn by the server."""

    threshold: int
    sigma: Fraction | None = field(default=None, metadata=in_text(omitted=True))
    votes_per_unit: int = 0  # no default: 0 is refused
    scale: Fraction | None = field(default=None, metadata=in_text(omitted=True))
    code: str = field(default=NEAREST, metadata=in_text(omitted=True))

    name: ClassVar[str] = "neighbour"


@dataclass(frozen=True)
class DistributedNeighbour(MatrixMechanism):
    """Neighbour votes with a noise share from each party: no one has the exact matrix."""

    threshold: int
    share: Fraction | None = field(default=None, metadata=in_text(omitted=True))
    honest: int = 0  # no default: 0 is refused
    votes_per_unit: int = 0  # likewise
    scale: Fraction | None = field(default=None, metadata=in_text(omitted=True))
    code: str = field(default=NEAREST, metadata=in_text(omitted=True))

    name: ClassVar[str] = "distributed-neighbour"
    noise_inside: ClassVar[bool] = True


@dataclass(frozen=True)
class TeacherLabels(Neighbour):
    """Teachers' votes in one release with noise drawn by the server.

    ``votes_per_unit`` are the teachers of one unit, ``adjacency`` whether it changes what they cast, or
    they are added or removed. ``threshold`` is 0 but where they vote for a class.
    """

    adjacency: Adjacency = field(default="change", metadata=in_text(omitted=True))

    name: ClassVar[str] = "teacher-labels"
    of_teachers: ClassVar[bool] = True


@dataclass(frozen=True)
class DistributedTeacherLabels(DistributedNeighbour):
    """The same with a noise share from each party: no one has the exact counts."""

    adjacency: Adjacency = field(default="change", metadata=in_text(omitted=True))

    name: ClassVar[str] = "distributed-teacher-labels"
    of_teachers: ClassVar[bool] = True


def event_of(
    shares: Shares,
    honest: int,
    votes_per_unit: int,
    code: str,
    adjacency: Adjacency = "change",
) -> NoisyHistogram | NoisyArray | GeometricHistogram:
    """Return the event of one noisy matrix of records' votes.

    Args:
        shares: law of the noise.
        honest: shares in every sum that the observer does not know.
        votes_per_unit: votes that one unit casts at most.
        code: at which queries each of them counts.
        adjacency: whether a unit changes its votes, or is added or removed.

    Raises:
        UsageError: for parameters that make no sense.
    """
    made = code_of(code)
    change = made.change(check_votes_per_unit(votes_per_unit), adjacency)
    if isinstance(shares, GeometricShares):
        return GeometricHistogram(shares.scale, honest, change.total)
    if str(made) == NEAREST:
        return NoisyHistogram(shares.share, honest, votes_per_unit)
    return NoisyArray(shares.share, honest, change.squared, change.counts)


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


def _require_teachers(mechanism: MatrixMechanism) -> None:
    """Check code, threshold and noise.

    The L1 distance grows with the queries, the L2 distance with their square root: geometric noise would
    be larger.
    """
    if not code_of(mechanism.code).of_teachers:
        raise UsageError(f"{mechanism.name} needs a code of teachers, not {mechanism.code!r:.60}")
    if mechanism.threshold and not code_of(mechanism.code).answer.labelled:
        raise UsageError(f"{mechanism.code} has no threshold: no query gets one label")
    if mechanism.scale is not None:
        raise UsageError("teachers' votes in one release have Gaussian noise")
