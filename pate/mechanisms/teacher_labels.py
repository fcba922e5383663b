"""Votes of teachers for several labels, released once: all noisy counts of all queries and labels.

Each teacher casts at each query a set of at most T of L labels ("tau voting"; T = L is "Binary voting").
All counts are one array, with one joint bound on what one unit changes in it, and one draw of noise
(:mod:`pate.codes`, the code ``each``). Everything else is computed from the noisy counts: which labels
reach half of the teachers, and a student of shares.

Source: tau and Binary voting: Dziedzic et al., "Private Multi-Winner Voting for Machine Learning", PoPETs
2023, arXiv 2211.15410. The bound: docs/proofs/record-votes.md, section 6.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from pate.codes import code_of
from pate.errors import UsageError
from pate.mechanisms.contract import check_rows
from pate.mechanisms.neighbour import DistributedNeighbour, MatrixMechanism, Neighbour

if TYPE_CHECKING:
    from pate.mechanisms.contract import Votes


class _Reached:
    """Labels by a threshold on the count, in place of a lead over the next."""

    threshold: int

    def labels(self, noisy: Votes) -> tuple[int | None, ...]:
        """Return the label with the most noisy votes of each row, None where it is below the threshold.

        Args:
            noisy: (queries, labels) int64, as released.

        Raises:
            ProtocolError: for rows that cannot be noisy votes.
        """
        noisy = check_rows(noisy, noisy=True)
        if not len(noisy):
            return ()
        reached = (noisy.max(axis=1) >= self.threshold).tolist()
        best = noisy.argmax(axis=1).tolist()
        return tuple(label if yes else None for yes, label in zip(reached, best, strict=True))


@dataclass(frozen=True)
class TeacherLabels(_Reached, Neighbour):
    """Teachers' votes for several labels with noise drawn by the server.

    Attributes are those of :class:`~pate.mechanisms.neighbour.Neighbour`, except for ``threshold``: the
    least noisy count of a label, in votes.

    Raises:
        UsageError: for parameters that make no sense.
    """

    name: ClassVar[str] = "teacher-labels"

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_gaussian(self)


@dataclass(frozen=True)
class DistributedTeacherLabels(_Reached, DistributedNeighbour):
    """The same with a noise share from each party: no one has the exact counts.

    Attributes are those of :class:`~pate.mechanisms.neighbour.DistributedNeighbour`, ``threshold`` as
    above.

    Raises:
        UsageError: for parameters that make no sense.
    """

    name: ClassVar[str] = "distributed-teacher-labels"

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_gaussian(self)


def do_teachers_vote(mechanism: MatrixMechanism) -> bool:
    """Return whether the matrix of a mechanism has teachers' votes for several labels."""
    return isinstance(mechanism, TeacherLabels | DistributedTeacherLabels)


def _require_gaussian(mechanism: MatrixMechanism) -> None:
    """Check code and noise.

    The L1 distance grows with the queries, the L2 distance with their square root: geometric noise would
    be larger.
    """
    if not code_of(mechanism.code).of_teachers:
        raise UsageError(f"{mechanism.name} needs a code of teachers, not {mechanism.code!r:.60}")
    if mechanism.scale is not None:
        raise UsageError("teachers' votes for several labels have Gaussian noise")
