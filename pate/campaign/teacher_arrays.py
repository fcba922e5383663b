"""Answers of teachers to the whole public set: the number of directions, and of teachers.

Of M teachers the array of mean length up to 1 has noise of length nu = s sqrt(K (m - 1)) / (M mu): m classes
in K directions, s = 2 where a unit changes what one teacher casts and 1 where a party is added or removed
with its own, mu the budget. More teachers make it small, but each of them then has fewer records, and
two are few. More directions tell more apart, and make it large. The constants were chosen by test figures of
the data sets in docs/votes.md, and tried on no others.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from pate.accounting.gdp import mu_from_epsilon
from pate.campaign.choices import MOST_WANTED, RECORDS
from pate.campaign.default_noise import CLASSES

if TYPE_CHECKING:
    from pate.campaign.choices import Unit

#: Length of the noise at which directions are enough: of teachers of shards, and of whole parties.
_SHARDS: Final = 0.15
_PARTIES: Final = 0.3
#: Records that a teacher has at least, on average, where their number may be chosen.
_RECORDS_EACH: Final = 3
_FEWEST, _MOST = 4, 64
#: Directions for each class, at least: fewer do not tell the classes apart, however little noise is in them.
_EACH_CLASS: Final = 2
#: And at most: of few classes strong directions tell all there is to tell.
_MOST_EACH_CLASS: Final = 16
#: Public rows for each direction, at least.
_ROWS_EACH: Final = 10


def directions_for(
    epsilon: float,
    delta: float,
    unit: Unit,
    *,
    queries: int,
    parties: int,
    classes: int | None,  # m; None: a guess
    records: int | None,  # of all parties, a guess; None: the default one
) -> int:
    """Return the number of directions of a campaign."""
    if unit == "party":
        length = _PARTIES * mu_from_epsilon(epsilon, delta) * parties
    else:
        length = (
            _SHARDS * mu_from_epsilon(epsilon, delta) * (records or RECORDS) / _RECORDS_EACH / 2
        )
    columns = classes or CLASSES
    wanted = math.floor(length**2 / (columns - 1))
    most = max(2, min(_MOST, _MOST_EACH_CLASS * columns, queries // _ROWS_EACH, queries))
    return min(max(wanted, _FEWEST, _EACH_CLASS * columns), most)


def teachers_for(
    epsilon: float, delta: float, unit: Unit, *, places: int, parties: int, classes: int | None
) -> int:
    """Return how many teachers a party should have: one where it is the unit.

    ``classes``: m; None: a guess.
    """
    if unit == "party":
        return 1  # noise grows with them as votes do
    spread = 2 * math.sqrt(places * ((classes or CLASSES) - 1)) / mu_from_epsilon(epsilon, delta)
    return min(max(1, math.ceil(spread / _SHARDS / parties)), MOST_WANTED)
