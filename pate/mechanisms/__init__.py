"""Mechanisms: from a vote histogram to a label or no answer, and the events that say what was done.

A mechanism holds its parameters, is handed votes and noise, and knows no budget: charging is
the caller's, before it lets a label out.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from pate.accounting.composition import total_cost
from pate.accounting.events import fraction_from_text
from pate.errors import AccountingError, UsageError
from pate.mechanisms.confident import ConfidentGNMax
from pate.mechanisms.contract import Mechanism, Outcome, check_fields
from pate.mechanisms.distributed import (
    DistributedConfidentGNMax,
    DistributedGNMax,
    DistributedInteractiveGNMax,
    DistributedMechanism,
    over_noisy_sums,
)
from pate.mechanisms.gnmax import GNMax
from pate.mechanisms.interactive import InteractiveGNMax, round_predictions
from pate.mechanisms.lnmax import LNMax
from pate.mechanisms.neighbour import DistributedNeighbour, MatrixMechanism, Neighbour

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from fractions import Fraction

    from pate.accounting.composition import Composition

    #: Reads the field of that name.
    _Part = Callable[[str], int | Fraction]

__all__ = [
    "MECHANISMS",
    "ConfidentGNMax",
    "DistributedConfidentGNMax",
    "DistributedGNMax",
    "DistributedInteractiveGNMax",
    "DistributedMechanism",
    "DistributedNeighbour",
    "GNMax",
    "InteractiveGNMax",
    "LNMax",
    "MatrixMechanism",
    "Mechanism",
    "Neighbour",
    "Outcome",
    "mechanism_from_dict",
    "over_noisy_sums",
    "round_predictions",
    "worst_cost",
]

#: Every mechanism by the name that commands and ledgers use.
MECHANISMS: Mapping[str, type[Mechanism]] = MappingProxyType(
    {
        kind.name: kind
        for kind in (
            LNMax,
            GNMax,
            ConfidentGNMax,
            InteractiveGNMax,
            DistributedGNMax,
            DistributedConfidentGNMax,
            DistributedInteractiveGNMax,
            Neighbour,
            DistributedNeighbour,
        )
    }
)


def mechanism_from_dict(fields: Mapping[str, str | int]) -> Mechanism:
    """Return the mechanism that ``to_dict`` wrote.

    >>> mechanism_from_dict({"mechanism": "gnmax", "sigma": "40", "votes_per_unit": 1})
    GNMax(sigma=Fraction(40, 1), votes_per_unit=1)

    Raises:
        UsageError: for an unknown mechanism, missing or additional fields, or values that it
            refuses.
    """
    name = fields.get("mechanism")
    try:
        return _parsed(name, fields)
    except AccountingError as error:
        raise UsageError(f"mechanism {name!r}: {error}") from error


def _parsed(name: str | int | None, fields: Mapping[str, str | int]) -> Mechanism:
    def whole(key: str) -> int:
        value = fields[key]
        if isinstance(value, bool) or not isinstance(value, int):
            raise UsageError(f"mechanism {name!r}: {key} must be a whole number, got {value!r}")
        return value

    def exact(key: str) -> Fraction:
        return fraction_from_text(fields[key])

    def parsed(kind: Callable[..., Mechanism], **parts: _Part) -> Mechanism:
        check_fields(fields, {"mechanism", *parts})
        return kind(**{key: part(key) for key, part in parts.items()})

    k: dict[str, _Part] = {"votes_per_unit": whole}
    two: dict[str, _Part] = {"threshold": whole, "sigma1": exact, "sigma2": exact, **k}
    shares: dict[str, _Part] = {"share": exact, "honest": whole, **k}
    if name == LNMax.name:
        return parsed(LNMax, scale=exact, **k)
    if name == GNMax.name:
        return parsed(GNMax, sigma=exact, **k)
    if name == ConfidentGNMax.name:
        return parsed(ConfidentGNMax, **two)
    if name == InteractiveGNMax.name:
        return parsed(InteractiveGNMax, confidence=exact, **two)
    if name == DistributedGNMax.name:
        return parsed(DistributedGNMax, **shares)
    if name == DistributedConfidentGNMax.name:
        return parsed(DistributedConfidentGNMax, threshold=whole, **shares)
    if name == DistributedInteractiveGNMax.name:
        return parsed(DistributedInteractiveGNMax, threshold=whole, confidence=exact, **shares)
    if name == Neighbour.name:
        return parsed(Neighbour, threshold=whole, sigma=exact, **k)
    if name == DistributedNeighbour.name:
        return parsed(DistributedNeighbour, threshold=whole, **shares)
    raise UsageError(f"unknown mechanism {name!r}: choose among {', '.join(sorted(MECHANISMS))}")


def worst_cost(composition: Composition, mechanisms: Iterable[Mechanism], queries: int) -> Fraction:
    """Return the most that answers to so many queries cost by one of some mechanisms.

    Each query costs anew, but of neighbour votes: there a matrix is one release, whatever its rows.

    Args:
        composition: in whose currency.
        mechanisms: one or more.
        queries: how many, all in one batch.
    """
    return max(
        total_cost(composition, each.worst)
        * (min(queries, 1) if isinstance(each, MatrixMechanism) else queries)
        for each in mechanisms
    )
