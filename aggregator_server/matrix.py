"""What a campaign of neighbour votes asks beside all others: which queries, and how many votes.

One matrix over all its queries is released at once, so that there is one batch, one charge and one
round. Nobody declares a number of teachers, since there are none, nor of records, which are private:
what every party knows instead is the most votes that it may put on one count.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from pate.errors import UsageError
from pate.mechanisms.neighbour import (
    DistributedNeighbour,
    Neighbour,
    clear_margin,
    least_share,
    require_unit,
)
from pate.noise_shares import share_sigma
from protos.bounds import MAX_MATRIX, MAX_MATRIX_QUERIES

if TYPE_CHECKING:
    from aggregator_server.spec import CampaignSpec
    from pate.mechanisms.neighbour import MatrixMechanism

#: Most votes of one party on one count, unless the campaign says otherwise: five parties and their
#: noise then fit 16 bits. A party whose records crowd at one query sends no more than that.
MOST_VOTES: Final = 4095
_LARGEST_COUNT: Final = 2**16
_FIELDS: Final = ("representatives", "most_votes", "votes_per_patient")


def check_matrix(spec: CampaignSpec) -> None:
    """Check the fields that only neighbour votes have, or that they have not.

    Raises:
        UsageError: for a value that makes no sense, by name of the field.
    """
    if not spec.matrix:
        for field in _FIELDS:
            if getattr(spec, field) is not None:
                raise UsageError(f"{field} has no meaning for {spec.aggregator}: leave it out")
        return
    require_unit(spec.unit)
    _check_representatives(spec)
    for field, most in (("most_votes", _LARGEST_COUNT), ("votes_per_patient", 2**16)):
        value = getattr(spec, field)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise UsageError(f"{field} is a whole number from 1 to {most}, got {value!r}")
    if spec.votes_per_patient != 1 and spec.unit != "patient":
        raise UsageError("votes_per_patient is for unit = patient: a record has one vote")
    if spec.rounds != 1 or spec.max_queries is not None:
        raise UsageError(
            "neighbour votes have one round, over all representatives: leave rounds and max_queries "
            "out, and choose their number"
        )
    if spec.publish != "capped":
        raise UsageError(
            "only the teachers' votes can be gated: neighbour votes cost what they cost"
        )
    if spec.vote_proofs:
        raise UsageError(
            "vote proofs show that a row sums to a party's teachers; what neighbour votes sum to is "
            "private: leave them out"
        )


def _check_representatives(spec: CampaignSpec) -> None:
    rows = spec.representatives
    if not isinstance(rows, tuple) or not rows:
        raise UsageError("neighbour votes need representatives: the queries that records vote at")
    whole = all(type(row) is int and 0 <= row < spec.queries for row in rows)
    if not whole or any(a >= b for a, b in itertools.pairwise(rows)):
        raise UsageError(f"representatives are ascending rows of the {spec.queries} public inputs")
    require_size(len(rows), len(spec.classes or ("", "")))


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


def matrix_mechanism(spec: CampaignSpec, votes_per_unit: int) -> MatrixMechanism:
    """Return the mechanism of a campaign of neighbour votes.

    The noise is ``sigma2`` if it is stated, else the least that epsilon allows: there is one release,
    and nothing to save for. A label needs a margin of :func:`clear_margin` unless it is stated.

    Raises:
        UsageError: for parameters that make no sense.
        BudgetError: if no noise is worth so little.
    """
    honest = spec.honest if spec.distributed else 1
    share = (
        least_share(spec.epsilon, spec.delta, honest, votes_per_unit)
        if spec.sigma2 is None
        else share_sigma(spec.sigma2, honest)
        if spec.distributed
        else Fraction(spec.sigma2)
    )
    threshold = (
        clear_margin(share, spec.wanted_parties if spec.distributed else 1)
        if spec.threshold is None
        else math.ceil(spec.threshold)
    )
    if spec.distributed:
        return DistributedNeighbour(threshold, share, honest, votes_per_unit)
    return Neighbour(threshold, share, votes_per_unit)
