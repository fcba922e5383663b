"""Descriptions of parties, and their consistency."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pate.campaign.roster import RosterParty
from pate.printable import listed

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class DescribedParty(RosterParty):
    """A party's description of itself.

    Attributes:
        classes: the class list of its data, possibly a part of the campaign's.
    """

    classes: tuple[str, ...]


def agreed_classes(parties: Sequence[DescribedParty], wanted: int) -> tuple[str, ...] | None:
    """Return the class list that more than half of the wanted parties name, None if there is none yet.

    So one party, or the first, decides for no other. With more parties than are wanted there may be
    two such lists; then there is none.

    Args:
        parties: that are here.
        wanted: number of parties of the campaign.
    """
    counts = Counter(party.classes for party in parties)
    enough = [classes for classes, count in counts.items() if 2 * count > wanted]
    return enough[0] if len(enough) == 1 else None


def differ_in_words(parties: Sequence[DescribedParty], wanted: int) -> str:
    """Return how class lists of parties differ, and what helps; "" if they do not, or one is agreed."""
    other = next((each for each in parties if each.classes != parties[0].classes), None)
    if other is None or agreed_classes(parties, wanted) is not None:
        return ""
    return (
        f"{parties[0].name} and {other.name} name different classes: {difference(parties[0], other)}, and "
        f"more than half of the {wanted} parties have to name one list: correct the labels of one, name the "
        "list there with --classes, or start a campaign with --classes"
    )


def difference(one: DescribedParty, other: DescribedParty) -> str:
    """Return in words how the class lists of two parties differ."""
    parts = [
        f"only {party.name} has {listed(extra)}"
        for party, rest in ((one, other), (other, one))
        if (extra := [name for name in party.classes if name not in rest.classes])
    ]
    return ", ".join(parts) or "the same classes in another order"
