"""What a campaign takes where nothing is stated: its noise, and the arrays of its teachers.

Both depend only on public facts: the numbers of teachers, classes and public queries, and the budget. One
rule is for server, plan and check.

Noise on votes:

* **At least** the share of the teachers that the papers chose: sigma2 = 4/25 M is their 40 of 250. With
  less noise labels are hardly more accurate, and each costs more.
* **At most** the noise at which a clear vote usually wins: a class that leads every other by 7/10 of
  the teachers wins 8 times in 10. Where 85 % of the teachers agree, which is what `pate plan`
  assumes, the lead is that large even if all others agree, too. For 2 classes this is 0.59 M, for 10
  0.28 M, for 100 0.20 M.
* **Between**, the least noise at which the budget pays for 20 labels a class, or for every public query if
  there are fewer. With Interactive-GNMax for 10 a class: about as many again are predictions that the
  teachers do not contradict, and they repeat the student's errors, so right labels matter more.

More noise buys more labels that teach less. N labels of which a share p is right teach about as much as
N ((m p - 1) / (m - 1))^2 that are all right (Natarajan et al. 2013, "Learning with noisy labels", NeurIPS
26), and N grows with sigma2 squared. For 10 classes that is largest at 0.35 to 0.4 M, whatever teachers are
assumed; for 2 it grows without bound, but hardly above 0.6 M. That holds for few labels. From 20 per
class on, simple students of digits and of Adult gained nothing from more but less accurate labels.

Arrays of M teachers: the array of mean length up to 1 has noise of length nu = s sqrt(K (m - 1)) / (M mu),
m classes in K directions, s = 2 where a unit changes what one teacher casts and 1 where a party is added or
removed with its own, mu the budget. More teachers make it small, but each then has fewer records, and two
are few. More directions tell more apart, and make it large. The constants were chosen by test figures of
the data sets in docs/votes.md, and tried on no others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.accounting.gdp import mu_from_epsilon
from pate.campaign.choices import MOST_WANTED, RECORDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pate.accounting import Unit

#: Assumed number of classes while it is unknown.
CLASSES: Final = 10
#: Shares of the teachers: the least noise on each count, and the lead that must survive the most noise.
LEAST: Final = Fraction(4, 25)
_LEAD: Final = 0.7
#: Probability that a class with that lead wins.
_TRUST: Final = 0.8
#: Enough labels of the teachers per class; and where a student's predictions become labels, too.
PLENTY: Final = 20
PLENTY_INTERACTIVE: Final = 10
#: The papers' choices, as shares of 250 teachers: sigma2 is their 40, scale their 1/gamma of 20, sigma1 and
#: threshold are between their 150 and 200 of MNIST and a check that a unanimous vote passes more often.
PAPERS: Final[Mapping[str, Fraction]] = {
    "threshold": Fraction(3, 4),
    "sigma1": Fraction(1, 2),
    "sigma2": LEAST,
    "scale": Fraction(2, 25),
}
#: The threshold of margins: one is 0 where a student agrees with its teachers, near M where it is
#: surely wrong.
MARGIN: Final = Fraction(1, 2)


@dataclass(frozen=True)
class DefaultNoise:
    """The noise on each count, as chosen by the rule."""

    sigma2: int
    least: int  # the noise if the budget pays for all queries
    reason: str

    @property
    def factor(self) -> Fraction:
        """Factor of all noise of the mechanism relative to :attr:`least`."""
        return Fraction(self.sigma2, self.least)


def share_of(teachers: int, share: Fraction) -> int:
    """Return a share of the teachers in whole votes, rounded up, and at least 1."""
    return max(1, math.ceil(teachers * share))


def default_noise(
    teachers: int,
    classes: int,
    queries: int,
    # number of queries that the budget pays for at a given noise; non-decreasing in it
    paid: Callable[[int], int],
    *,
    each: int = PLENTY,
    # actual noise of the labels as a multiple of the charged noise: above 1 if parties add noise
    # shares that the accounting does not rely on
    carried: float = 1.0,
) -> DefaultNoise:
    """Return the default noise of a campaign.

    >>> [default_noise(250, 10, 9000, lambda sigma2: sigma2**2 // n).sigma2 for n in (8, 12, 99)]
    [40, 49, 71]
    """
    least = share_of(teachers, LEAST)
    lead = lead_in_sigmas(max(2, classes)) * carried  # one class is refused elsewhere
    upper = max(least, math.floor(_LEAD * teachers / lead))
    wanted = min(queries, each * classes)
    what = "all public queries" if wanted == queries else f"{wanted} labels, {each} a class"
    if paid(least) >= wanted:
        return DefaultNoise(least, least, f"sigma2 {least}, 16 % of the teachers, pays for {what}")
    if paid(upper) < wanted:
        return DefaultNoise(
            upper,
            least,
            f"sigma2 {upper} is the most with which votes can be trusted (a lead of 70 % of the teachers "
            f"over every other class wins 8 times in 10), and does not pay for {what}",
        )
    low, high = least, upper  # the first does not pay, the last does
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if paid(middle) >= wanted else (middle, high)
    return DefaultNoise(
        high, least, f"sigma2 {high} is the least with which the budget pays for {what}"
    )


@lru_cache(maxsize=64)
def lead_in_sigmas(classes: int) -> float:
    """Return the lead over every other class, in sigmas, with which one wins 8 times in 10.

    Every count carries independent Gaussian noise. The chance is the mean over the winner's own noise z
    of Phi(lead + z)^(m-1), by Gauss-Hermite quadrature; the lead is found by bisection.

    >>> [round(lead_in_sigmas(classes), 2) for classes in (2, 10, 100)]
    [1.19, 2.46, 3.42]
    """
    from scipy.special import ndtr  # slow to import, and rarely needed

    points, weights = np.polynomial.hermite_e.hermegauss(64)
    weights = weights / weights.sum()
    low, high = 0.0, 16.0
    for _ in range(50):
        middle = (low + high) / 2.0
        wins = float(weights @ ndtr(middle + points) ** (classes - 1))
        low, high = (low, middle) if wins >= _TRUST else (middle, high)
    return high


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
