"""Representatives: the public inputs at which records vote, and their number."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.codes import DENSE, Code, code_of
from pate.features.neighbours import representatives
from pate.features.progress import Parts
from pate.features.space import space_over
from pate.mechanisms.least_noise import least_noise

if TYPE_CHECKING:
    from collections.abc import Callable

    from pate.data.values import Inputs

#: Votes wanted at each representative, in standard deviations of the noise: then most
#: representatives of one class stand out from the noise.
_VOTES_PER_SIGMA: Final = 6
_FEWEST: Final = 20
_MOST: Final = 2000
#: Representatives of dense votes: directions of which the strongest matter, whatever the budget.
_DIRECTIONS: Final = 64


def default_number(records: int, queries: int, epsilon: float, delta: float, votes: int = 1) -> int:
    """Return a suitable number of representatives for an expected number of records and a budget.

    Each gets about records / number votes, and noise whose standard deviation depends on the budget
    but not on the number; so a larger budget, or more records, allow more representatives.

    >>> default_number(60_000, 9_000, 0.1, 1e-5), default_number(60_000, 9_000, 0.1, 0.0)
    (229, 353)

    ``records``: rough number over all parties; a guess that does not depend on the data; ``delta``:
    of the campaign; 0 with geometric noise.
    """
    sigma = least_noise(epsilon, delta, 1, votes).spread(1)
    wanted = math.floor(records / (_VOTES_PER_SIGMA * sigma))
    return min(max(wanted, _FEWEST), _MOST, queries)


def number_for(code: str, usual: int, queries: int) -> int:
    """Return the number of representatives for a code, where none is stated.

    ``code``: ``dense``, whose number is open, or the text of a code; ``usual``:
    :func:`default_number` for a public set of any size, which is that of nearest votes.
    """
    if code == DENSE:
        return min(_DIRECTIONS, queries)
    made = code_of(code)
    return made.places if made.name == DENSE else min(usual, queries)


def settled_code(code: str, number: int) -> Code:
    """Return the code of a campaign; ``dense`` gets as many directions as there are representatives.

    ``code``: ``dense``, or the text of a code.
    """
    return Code(DENSE, number) if code == DENSE and number >= 2 else code_of(code)


def choose(inputs: Inputs, number: int, say: Callable[[str], None]) -> tuple[int, ...]:
    """Return the rows of the public set at which records vote, ascending.

    They depend only on the public set. No two of them are the same input.

    ``number``: largest number; fewer if the public set has fewer distinct inputs; ``say``: called
    with progress lines; large public sets take a while.
    """
    rows = first_of_each(inputs)
    say(f"choosing {min(number, len(rows))} representatives of {len(inputs)} public inputs")
    # Fitted on all rows, as at each party.
    parts = Parts(len(inputs), len(rows))
    with parts.next():
        space = space_over(inputs)
    with parts.next():
        features = space.embed(inputs.take(rows))
    # Distinct inputs may coincide there: rare categories, for example, are pooled.
    number = min(number, len(np.unique(features, axis=0)))
    return tuple(np.sort(rows[representatives(features, number)]).tolist())


def first_of_each(inputs: Inputs) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the rows of the first occurrence of each distinct input, ascending."""
    seen: dict[bytes, int] = {}
    for row, digest in enumerate(inputs.row_hashes()):
        seen.setdefault(digest, row)
    return np.array(list(seen.values()), dtype=np.int64)
