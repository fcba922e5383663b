"""The parties of a campaign, as recorded in its ledger."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RosterParty:
    """One party of the roster.

    Attributes:
        name: unique within the campaign.
        identity: its public identity key in hex, or empty if parties have none.
        teachers: k, its number of teachers; for neighbour votes, the most votes that it casts on
            one count.
        unit: which rows its shards keep together: ``record`` or ``patient``.
    """

    name: str
    identity: str
    teachers: int
    unit: str
