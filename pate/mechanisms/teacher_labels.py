"""Votes of teachers for several labels, released once: all noisy counts of all queries and labels.

Each teacher casts at each query a set of at most T of L labels ("tau voting"; T = L is "Binary voting").
All counts are one array, with one joint bound on what one unit changes in it, and one draw of noise
(:mod:`pate.codes`, the code ``each``). Everything else is computed from the noisy counts: which labels
reach half of the teachers, and a student of shares.

Source: tau and Binary voting: Dziedzic et al., "Private Multi-Winner Voting for Machine Learning", PoPETs
2023, arXiv 2211.15410. The bound: docs/proofs/record-votes.md, section 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pate.codes import code_of
from pate.errors import UsageError
from pate.mechanisms.neighbour import DistributedNeighbour, MatrixMechanism, Neighbour


@dataclass(frozen=True)
class TeacherLabels(Neighbour):
    """Teachers' votes for several labels with noise drawn by the server.

    Attributes are those of :class:`~pate.mechanisms.neighbour.Neighbour`; ``threshold`` is 0, no query gets
    one label.

    Raises:
        UsageError: for parameters that make no sense.
    """

    name: ClassVar[str] = "teacher-labels"

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_several(self)


@dataclass(frozen=True)
class DistributedTeacherLabels(DistributedNeighbour):
    """The same with a noise share from each party: no one has the exact counts.

    Attributes are those of :class:`~pate.mechanisms.neighbour.DistributedNeighbour`.

    Raises:
        UsageError: for parameters that make no sense.
    """

    name: ClassVar[str] = "distributed-teacher-labels"

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_several(self)


def do_teachers_vote(mechanism: MatrixMechanism) -> bool:
    """Return whether the matrix of a mechanism has teachers' votes for several labels."""
    return isinstance(mechanism, TeacherLabels | DistributedTeacherLabels)


def _require_several(mechanism: MatrixMechanism) -> None:
    """Check code, threshold and noise.

    The L1 distance grows with the queries, the L2 distance with their square root: geometric noise would
    be larger.
    """
    if not code_of(mechanism.code).of_teachers:
        raise UsageError(f"{mechanism.name} needs a code of teachers, not {mechanism.code!r:.60}")
    if mechanism.threshold:
        raise UsageError(f"{mechanism.name} has no threshold: no query gets one label")
    if mechanism.scale is not None:
        raise UsageError("teachers' votes for several labels have Gaussian noise")
