"""Which queries of a public set records vote at: its representatives, and how many of them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.features.neighbours import representatives
from pate.features.space import space_over
from pate.mechanisms.neighbour import least_share

if TYPE_CHECKING:
    from collections.abc import Callable

    from pate.data.values import Inputs

#: Of the noise's standard deviation, as many votes should come to each representative: then most
#: that are of one class are told apart from noise.
_VOTES_PER_SIGMA: Final = 6
_FEWEST: Final = 20
_MOST: Final = 2000
#: What the coordinator is taken to expect where nothing is said.
RECORDS: Final = 10_000


def default_number(records: int, queries: int, epsilon: float, delta: float, votes: int = 1) -> int:
    """Return how many representatives suit about so many records and a budget.

    Each gets some records / number votes, and noise of a standard deviation that the budget fixes
    whatever the number; so that more budget, or more records, pay for more representatives.

    >>> default_number(60_000, 9_000, 0.1, 1e-5), default_number(60_000, 9_000, 1.0, 1e-5)
    (229, 1882)

    Args:
        records: about how many all parties have; a guess that depends on nobody's data.
        queries: size of the public set.
        epsilon: of the campaign.
        delta: of the campaign.
        votes: most votes that one unit casts.

    Raises:
        BudgetError: if no noise is worth so little.
    """
    sigma = float(least_share(epsilon, delta, 1, votes))
    wanted = math.floor(records / (_VOTES_PER_SIGMA * sigma))
    return min(max(wanted, _FEWEST), _MOST, queries)


def choose(inputs: Inputs, number: int, say: Callable[[str], None]) -> tuple[int, ...]:
    """Return the rows of the public set at which records vote, ascending.

    They follow from the public set alone. No two of them are the same input.

    Args:
        inputs: the public set.
        number: how many at most; a public set with fewer different inputs has fewer.
        say: told what happens: on large public sets it takes a while.
    """
    rows = first_of_each(inputs)
    say(f"choosing {min(number, len(rows))} representatives of {len(inputs)} public inputs")
    # Fitted on all rows, as each party does it.
    features = space_over(inputs).embed(inputs.take(rows))
    # Different inputs may look alike there: rare categories, say, count as one.
    number = min(number, len(np.unique(features, axis=0)))
    return tuple(np.sort(rows[representatives(features, number)]).tolist())


def first_of_each(inputs: Inputs) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the rows of inputs that are like none before them, ascending."""
    seen: dict[bytes, int] = {}
    for row, digest in enumerate(inputs.row_hashes()):
        seen.setdefault(digest, row)
    return np.array(list(seen.values()), dtype=np.int64)
