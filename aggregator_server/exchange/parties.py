"""Who the parties of a campaign are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pate.errors import SchemaError
from pate.runtime.screen import listed

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Party:
    """One data holder of the roster.

    Attributes:
        name: as it calls itself.
        identity: its Ed25519 public key, 32 bytes; pinned when it joined.
        teachers: k, what each of its vote vectors sums to.
        unit: ``record`` or ``patient``, what its shards keep together.
        classes: the class list of its data.
    """

    name: str
    identity: bytes
    teachers: int
    unit: str
    classes: tuple[str, ...]

    def votes_like(self, other: Party) -> bool:
        """Tell whether both cast the same number of votes for the same units.

        Class lists are not compared: a party may have fewer classes than its campaign.
        """
        return (self.teachers, self.unit) == (other.teachers, other.unit)


def check_classes_agree(parties: Sequence[Party]) -> None:
    """Check that all parties have the class list of the first.

    Raises:
        SchemaError: naming the first two that differ, and in what.
    """
    for party in parties[1:]:
        if party.classes != parties[0].classes:
            raise SchemaError(
                f"{parties[0].name} and {party.name} have different class lists: "
                f"{_difference(parties[0], party)}; "
                "name the classes of the campaign with --classes, for all parties alike"
            )


def _difference(one: Party, other: Party) -> str:
    parts = [
        f"only {party.name} has {listed(extra)}"
        for party, rest in ((one, other), (other, one))
        if (extra := [name for name in party.classes if name not in rest.classes])
    ]
    return ", ".join(parts) or "the same classes in another order"
