"""What a campaign of neighbour votes asks beside all others: which queries, and how many votes.

One matrix over all its queries is released at once, so that there is one batch, one charge and one
round. Nobody declares a number of teachers, since there are none, nor of records, which are private:
what every party knows instead is the most votes that it may put on one count.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Final

from pate.campaign.choices import Unit, check_count
from pate.errors import UsageError
from pate.mechanisms.neighbour import MAX_MATRIX, MAX_MATRIX_QUERIES, require_unit

#: Most votes of one party on one count, unless the campaign says otherwise: five parties and their
#: noise then fit 16 bits. A party whose records crowd at one query sends no more than that.
MOST_VOTES: Final = 4095
_LARGEST_COUNT: Final = 2**16


@dataclass(frozen=True)
class NeighbourTerms:
    """What a campaign of neighbour votes fixes beside all others.

    Attributes:
        representatives: the queries at which records vote, ascending rows of the public set.
        most_votes: most votes of one party on one count.
        votes_per_patient: most votes of one patient at one party; 1 for records.
    """

    representatives: tuple[int, ...]
    most_votes: int = MOST_VOTES
    votes_per_patient: int = 1

    def check(self, *, queries: int, classes: int, unit: Unit) -> None:
        """Check each field, and that they fit the rest of a campaign.

        Args:
            queries: size of the public set.
            classes: how many there are, 2 while that is open.
            unit: what one neighbour differs by.

        Raises:
            UsageError: for a value that makes no sense, by name of the field.
        """
        require_unit(unit)
        rows = self.representatives
        if (
            not rows
            or not 0 <= rows[0] <= rows[-1] < queries
            or any(a >= b for a, b in itertools.pairwise(rows))
        ):
            raise UsageError(f"representatives are ascending rows of the {queries} public inputs")
        require_size(len(rows), classes)
        check_count("most_votes", self.most_votes, 1, _LARGEST_COUNT)
        check_count("votes_per_patient", self.votes_per_patient, 1, 2**16)
        if self.votes_per_patient != 1 and unit != "patient":
            raise UsageError("votes_per_patient is for unit = patient: a record has one vote")


def require_size(queries: int, classes: int) -> None:
    """Check that a matrix is not too large for one message, and for one entry of the ledger.

    Raises:
        UsageError: if it is.
    """
    if queries > MAX_MATRIX_QUERIES or queries * classes > MAX_MATRIX:
        raise UsageError(
            f"{queries} representatives with {classes} classes are too many for one matrix: at most "
            f"{MAX_MATRIX_QUERIES}, and {MAX_MATRIX} counts"
        )
