"""The parties of a campaign."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

MOST_PARTIES: Final = 1_024
MOST_TEACHERS: Final = 100_000
#: A party's name: only characters that are safe in a file name and on a screen.
PARTY_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)


@dataclass(frozen=True)
class Member:
    """One party of the roster, as all parties know it."""

    name: str
    identity: str  # its public identity key in hex, or empty if parties have none
    # k, its number of teachers; for neighbour votes, the most votes that it casts on one count
    teachers: int


@dataclass(frozen=True)
class RosterParty(Member):
    """One party of the roster, as the server's ledger has it."""

    unit: str  # which rows its shards keep together: ``record`` or ``patient``
