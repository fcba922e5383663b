"""Descriptions of parties, and their consistency."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pate.campaign.roster import RosterParty
from pate.errors import SchemaError
from pate.runtime.screen import listed

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class DescribedParty(RosterParty):
    """A party's description of itself.

    Attributes:
        classes: the class list of its data, possibly a part of the campaign's.
    """

    classes: tuple[str, ...]


def check_classes_agree(parties: Sequence[DescribedParty]) -> None:
    """Check that all parties have the class list of the first.

    Raises:
        SchemaError: naming the first two that differ, and the difference.
    """
    for party in parties[1:]:
        if party.classes != parties[0].classes:
            raise SchemaError(
                f"{parties[0].name} and {party.name} have different class lists: "
                f"{_difference(parties[0], party)}; "
                "name the classes of the campaign with --classes, for all parties alike"
            )


def _difference(one: DescribedParty, other: DescribedParty) -> str:
    parts = [
        f"only {party.name} has {listed(extra)}"
        for party, rest in ((one, other), (other, one))
        if (extra := [name for name in party.classes if name not in rest.classes])
    ]
    return ", ".join(parts) or "the same classes in another order"
