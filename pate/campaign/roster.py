"""The parties of a campaign, as its ledger has them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RosterParty:
    """One party as the roster has it.

    Attributes:
        name: unique within the campaign.
        identity: its public identity key in hex, or empty where parties have none.
        teachers: k, its number of teachers; of neighbour votes, the most that it puts on one count.
        unit: what its shards keep together: ``record`` or ``patient``.
    """

    name: str
    identity: str
    teachers: int
    unit: str
