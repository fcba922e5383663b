"""Unit of privacy: by how many votes neighbours differ, and in which way.

One *unit* of privacy (a record, a patient, a party) reaches k votes of a query. Neighbours differ
either in the classes of those votes (``change``), or in whether those votes exist (``remove``). A
record added or removed retrains the one teacher whose shard it is in; that teacher still votes, so
its votes *change*. Votes are *removed* when a whole party joins or leaves with all its teachers.

For a unit of k votes this is not group privacy: dividing votes and noise by k leaves every
probability as it is, so k votes with noise s cost what one vote costs with noise s / k.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pate.accounting.events import check_votes_per_unit
from pate.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pate.accounting import Adjacency

_IN_WORDS: Mapping[str, str] = {
    "change": "{k} of the votes of a query, the same voters in every query, cast otherwise",
    "remove": "{k} of the votes of a query, the same voters in every query, cast or not cast",
}


@dataclass(frozen=True)
class Neighbours:
    """The difference between two neighbouring vote matrices."""

    votes: int = 1  # k, votes of one unit in each query, and the same voters in every query
    adjacency: Adjacency = "change"  # ``change`` or ``remove``

    def __post_init__(self) -> None:
        check_votes_per_unit(self.votes)
        if self.adjacency not in _IN_WORDS:
            raise UsageError(f"adjacency must be change or remove, got {self.adjacency!r}")

    @property
    def squared_distance(self) -> int:
        """Largest squared l2 distance of neighbouring histograms, in votes squared.

        2 k^2 where votes change: the distance is convex in who moves where, so it is largest when
        all k go from one class to one other. k^2 where votes are removed.
        """
        return (2 if self.adjacency == "change" else 1) * self.votes**2

    @property
    def gap_shift(self) -> int:
        """Most votes by which the gap between two classes can move: 2k, or k."""
        return (2 if self.adjacency == "change" else 1) * self.votes

    @property
    def in_words(self) -> str:
        """One line for people."""
        return _IN_WORDS[self.adjacency].format(k=self.votes)
