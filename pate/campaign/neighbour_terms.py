"""Additional terms of a campaign with neighbour votes: its queries and numbers of votes.

One matrix over all queries is released at once, so there is one batch, one charge and one round.
Parties declare neither teachers, since there are none, nor records, whose number is private, but
the largest number of votes that one party may cast on one count.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pate.campaign.choices import Unit, check_count
from pate.codes import NEAREST, code_of, require_places
from pate.errors import UsageError
from pate.exact import in_text
from pate.mechanisms.matrix import MAX_MATRIX, MAX_MATRIX_QUERIES, require_unit

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Default for the most votes of one party on one count: five parties and their noise then fit 16
#: bits. A party with more records at one query sends no more than that.
MOST_VOTES: Final = 4095
_LARGEST_COUNT: Final = 2**16


@dataclass(frozen=True)
class NeighbourTerms:
    """Additional fixed terms of a campaign with neighbour votes.

    Attributes:
        representatives: the queries at which records vote, ascending rows of the public set.
        most_votes: most votes of one party on one count.
        votes_per_patient: most votes of one patient at one party; 1 for records.
        code: where a record votes and what it says, the text of a :class:`~pate.codes.Code`.
    """

    representatives: tuple[int, ...]
    most_votes: int = MOST_VOTES
    votes_per_patient: int = 1
    #: Omitted from the text at its default.
    code: str = field(default=NEAREST, metadata=in_text(omitted=True))

    def check(self, *, queries: int, classes: Sequence[str] | None, unit: Unit) -> None:
        """Check each field, and that they fit the rest of a campaign.

        Args:
            queries: size of the public set.
            classes: the class list, None while unknown.
            unit: unit of privacy.

        Raises:
            UsageError: for an invalid value, naming the field.
        """
        require_unit(unit)
        rows = self.representatives
        if (
            not rows
            or not 0 <= rows[0] <= rows[-1] < queries
            or any(a >= b for a, b in itertools.pairwise(rows))
        ):
            raise UsageError(f"representatives are ascending rows of the {queries} public inputs")
        require_size(len(rows), len(classes or ("", "")))
        code = code_of(self.code)
        if code.of_teachers:
            raise UsageError(f"records do not vote by the code {code}")
        require_places(code, len(rows))
        code.answer.check_columns(classes)
        check_count("most_votes", self.most_votes, 1, _LARGEST_COUNT)
        check_count("votes_per_patient", self.votes_per_patient, 1, 2**16)
        if self.votes_per_patient != 1 and unit != "patient":
            raise UsageError("votes_per_patient is for unit = patient: a record has one vote")


def require_size(queries: int, classes: int, what: str = "representatives") -> None:
    """Check that a matrix is not too large for one message, and for one entry of the ledger.

    Raises:
        UsageError: if it is.
    """
    if queries > MAX_MATRIX_QUERIES or queries * classes > MAX_MATRIX:
        raise UsageError(
            f"{queries} {what} with {classes} classes are too many for one matrix: at most "
            f"{MAX_MATRIX_QUERIES}, and {MAX_MATRIX} counts"
        )
