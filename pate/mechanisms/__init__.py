"""Mechanisms: from a vote histogram to a label or no answer, and the events that say what was done.

A mechanism holds its parameters, is handed votes and noise, and knows no budget: charging is
the caller's, before it lets a label out.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from pate.accounting.events import fraction_from_text
from pate.errors import AccountingError, UsageError
from pate.mechanisms.confident import ConfidentGNMax
from pate.mechanisms.contract import Mechanism, Outcome, check_fields
from pate.mechanisms.gnmax import GNMax
from pate.mechanisms.interactive import InteractiveGNMax, round_predictions
from pate.mechanisms.lnmax import LNMax

if TYPE_CHECKING:
    from collections.abc import Mapping
    from fractions import Fraction

__all__ = [
    "MECHANISMS",
    "ConfidentGNMax",
    "GNMax",
    "InteractiveGNMax",
    "LNMax",
    "Mechanism",
    "Outcome",
    "mechanism_from_dict",
    "round_predictions",
]

#: Every mechanism by the name that commands and ledgers use.
MECHANISMS: Mapping[str, type[Mechanism]] = MappingProxyType(
    {kind.name: kind for kind in (LNMax, GNMax, ConfidentGNMax, InteractiveGNMax)}
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

    if name == LNMax.name:
        check_fields(fields, {"mechanism", "scale", "votes_per_unit"})
        return LNMax(exact("scale"), whole("votes_per_unit"))
    if name == GNMax.name:
        check_fields(fields, {"mechanism", "sigma", "votes_per_unit"})
        return GNMax(exact("sigma"), whole("votes_per_unit"))
    both = {"mechanism", "threshold", "sigma1", "sigma2", "votes_per_unit"}
    if name == ConfidentGNMax.name:
        check_fields(fields, both)
        return ConfidentGNMax(
            whole("threshold"), exact("sigma1"), exact("sigma2"), whole("votes_per_unit")
        )
    if name == InteractiveGNMax.name:
        check_fields(fields, both | {"confidence"})
        return InteractiveGNMax(
            whole("threshold"),
            exact("sigma1"),
            exact("sigma2"),
            exact("confidence"),
            whole("votes_per_unit"),
        )
    raise UsageError(f"unknown mechanism {name!r}: choose among {', '.join(sorted(MECHANISMS))}")
