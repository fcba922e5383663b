"""The parties of a campaign, and the terms of the sum of their votes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from pate.campaign import choices
from pate.errors import UsageError
from pate.masking.context import check_threshold

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


#: Largest number of parties in a message; the size of a roster is bounded elsewhere.
_MOST: Final = 2**40


@dataclass(frozen=True, kw_only=True)
class SumTerms:
    """Who sees what of the votes, and how many parties are in each sum."""

    aggregation: choices.Aggregation = "plain"
    noise: choices.NoiseSource = "central"
    min_parties: int
    # c, number of parties that may collude with the server without weakening masks or the noise
    # guarantee
    colluders: int = 0

    def __post_init__(self) -> None:
        choices.check_choice("aggregation", self.aggregation, choices.AGGREGATIONS)
        choices.check_choice("noise", self.noise, choices.NOISES)
        choices.check_count("min_parties", self.min_parties, 1, _MOST)
        choices.check_count("colluders", self.colluders, 0, _MOST)
        if self.distributed and not self.masked:
            raise UsageError(
                "noise shares are for masked sums, of three parties or more: in plain votes they hide nothing"
            )

    @property
    def masked(self) -> bool:
        """Whether the server sees only sums of votes."""
        return self.aggregation == "masked"

    @property
    def distributed(self) -> bool:
        """Whether the parties add the noise, so that the server sees only noisy sums."""
        return self.noise == "distributed"

    @property
    def exact(self) -> bool:
        """Whether the server sees sums of votes without noise, and nothing else of them."""
        return self.masked and not self.distributed

    @property
    def honest(self) -> int:
        """Least number of parties in a sum that do not collude: t - c."""
        return self.min_parties - self.colluders

    def check_roster(self, parties: int) -> None:
        """Check that a roster of ``parties`` parties can have these sums."""
        if self.min_parties > parties:
            raise UsageError(f"min_parties is {self.min_parties} of {parties} parties")
        if self.masked:
            check_threshold(parties, self.min_parties, self.colluders)
