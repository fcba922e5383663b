"""Mechanisms: from a vote histogram to a label or no answer, with the events for accounting.

A mechanism has parameters, receives votes and noise, and knows no budget: the caller charges before
it releases a label.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from pate.accounting.composition import total_cost
from pate.errors import UsageError
from pate.exact import read
from pate.mechanisms.contract import Mechanism, Outcome
from pate.mechanisms.matrix import (
    DistributedNeighbour,
    DistributedTeacherLabels,
    MatrixMechanism,
    Neighbour,
    TeacherLabels,
)
from pate.mechanisms.rule import (
    ConfidentGNMax,
    DistributedConfidentGNMax,
    DistributedGNMax,
    DistributedInteractiveGNMax,
    DistributedTeachers,
    GNMax,
    InteractiveGNMax,
    LNMax,
    TeacherRule,
    over_noisy_sums,
    round_predictions,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from fractions import Fraction

    from pate.accounting.composition import Composition

__all__ = [
    "MECHANISMS", "ConfidentGNMax", "DistributedConfidentGNMax", "DistributedGNMax",
    "DistributedInteractiveGNMax", "DistributedMechanism", "DistributedNeighbour",
    "DistributedTeacherLabels", "DistributedTeachers", "GNMax", "InteractiveGNMax", "LNMax",
    "MatrixMechanism", "Mechanism", "Neighbour", "Outcome", "TeacherLabels", "TeacherRule",
    "mechanism_from_dict", "over_noisy_sums", "round_predictions", "rounds_cost", "worst_cost",
]  # fmt: skip

#: Mechanisms whose rows contain the parties' noise.
DistributedMechanism = DistributedTeachers | DistributedNeighbour

_KINDS: tuple[type[Mechanism], ...] = (
    LNMax, GNMax, ConfidentGNMax, InteractiveGNMax, DistributedGNMax, DistributedConfidentGNMax,
    DistributedInteractiveGNMax, Neighbour, DistributedNeighbour, TeacherLabels,
    DistributedTeacherLabels,
)  # fmt: skip
#: Every mechanism by the name that commands and ledgers use.
MECHANISMS: Mapping[str, type[Mechanism]] = MappingProxyType({kind.name: kind for kind in _KINDS})


def mechanism_from_dict(fields: Mapping[str, str | int]) -> Mechanism:
    """Return the mechanism that ``to_dict`` wrote.

    >>> mechanism_from_dict({"mechanism": "gnmax", "sigma": "40", "votes_per_unit": 1})
    GNMax(sigma=Fraction(40, 1), votes_per_unit=1)
    """
    what = f"mechanism {fields.get('mechanism')!s:.40}"
    return read(_KINDS, fields, error=UsageError, what=what)


def rounds_cost(composition: Composition, mechanisms: Sequence[Mechanism], rounds: int) -> Fraction:
    """Return the cost of the first rounds of a campaign in which records vote in rounds."""
    first, later = (total_cost(composition, each.worst) for each in (mechanisms[0], mechanisms[-1]))
    return first + (rounds - 1) * later


def worst_cost(composition: Composition, mechanisms: Iterable[Mechanism], queries: int) -> Fraction:
    """Return the largest cost of answering ``queries`` queries by any of some mechanisms.

    Costs add up over queries, except where a whole matrix is one release.
    """
    return max(
        total_cost(composition, each.worst)
        * (min(queries, 1) if isinstance(each, MatrixMechanism) else queries)
        for each in mechanisms
    )
