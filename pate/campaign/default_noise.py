"""How much noise a campaign has whose coordinator does not say: one rule for server, plan and check.

It looks at public facts only: teachers, classes, budget, and how many public queries there are.

* **At least** the share of the teachers that the papers chose: sigma2 = 4/25 M is their 40 of 250. With
  less noise labels hardly get better, and each of them costs more.
* **At most** the noise with which a clear vote is still trusted: a class that leads every other by 7/10
  of the teachers wins 9 times in 10. Where 85 % of the teachers agree, which is what `pate plan`
  assumes, the lead is that large even if all others agree, too. For 2 classes this is 0.39 M, for 10
  0.23 M, for 100 0.18 M. More noise buys more labels that teach little: N labels of which a share p is
  right teach about as much as N ((m p - 1) / (m - 1))^2 that are all right (Natarajan et al. 2013,
  "Learning with noisy labels", NeurIPS 26), and N grows with sigma2 squared. At the most noise that is
  0.6 to 0.9 of the largest it can be for 10 classes, for teachers that are right in 30 to 95 % of the
  cases, and 0.5 to 0.65 for 2; at 4/25 M it is 0.3 to 0.6, and 0.1 to 0.2.
* **Between**, the least noise at which the budget pays for every public query.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.special import ndtr

if TYPE_CHECKING:
    from collections.abc import Callable

#: Classes that are assumed where nobody says them yet.
CLASSES: Final = 10
#: Of the teachers: the least noise on each count, and the lead that the most noise must leave alone.
LEAST: Final = Fraction(4, 25)
_LEAD: Final = 0.7
#: How often a class with that lead wins.
_TRUST: Final = 0.9


@dataclass(frozen=True)
class DefaultNoise:
    """The noise on each count that a rule picked.

    Attributes:
        sigma2: in votes.
        least: what is picked if the budget pays for all queries.
        reason: why it is that, for people.
    """

    sigma2: int
    least: int
    reason: str

    @property
    def factor(self) -> Fraction:
        """By how much all noise of the mechanism is larger than with :attr:`least`."""
        return Fraction(self.sigma2, self.least)


def share_of(teachers: int, share: Fraction) -> int:
    """Return a share of the teachers in whole votes, rounded up, and at least 1."""
    return max(1, math.ceil(teachers * share))


def default_noise(
    teachers: int, classes: int, pays: Callable[[int], bool], carried: float = 1.0
) -> DefaultNoise:
    """Return the noise of a campaign whose coordinator states none.

    >>> default_noise(250, 10, lambda sigma2: sigma2 >= 50).sigma2
    50
    >>> [default_noise(250, 10, lambda sigma2: sigma2 >= wanted).sigma2 for wanted in (1, 1000)]
    [40, 58]

    Args:
        teachers: M, of all parties.
        classes: m, at least 2.
        pays: whether the budget pays for all public queries with that noise; if it does so with some
            noise, then with more, too.
        carried: what labels carry, as a multiple of the noise that is counted: above 1 where shares of
            parties are added that nobody counts on.
    """
    least = share_of(teachers, LEAST)
    most = max(least, math.floor(_LEAD * teachers / (lead_in_sigmas(classes) * carried)))
    if pays(least):
        return DefaultNoise(
            least, least, f"sigma2 {least}, 16 % of the teachers, pays for all public queries"
        )
    if not pays(most):
        return DefaultNoise(
            most,
            least,
            f"sigma2 {most} is the most with which votes can be trusted (a lead of 70 % of the teachers "
            "over every other class wins 9 times in 10), and does not pay for all public queries",
        )
    low, high = least, most  # the first does not pay, the last does
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if pays(middle) else (middle, high)
    return DefaultNoise(
        high, least, f"sigma2 {high} is the least with which the budget pays for all public queries"
    )


@lru_cache(maxsize=64)
def lead_in_sigmas(classes: int) -> float:
    """Return the lead over every other class, in sigmas, with which one wins 9 times in 10.

    Every count carries independent Gaussian noise. The chance is the mean over the winner's own noise z
    of Phi(lead + z)^(m-1), by Gauss-Hermite quadrature; the lead is found by bisection.

    >>> [round(lead_in_sigmas(classes), 2) for classes in (2, 10, 100)]
    [1.81, 2.98, 3.9]
    """
    points, weights = np.polynomial.hermite_e.hermegauss(64)
    weights = weights / weights.sum()
    low, high = 0.0, 16.0
    for _ in range(50):
        middle = (low + high) / 2.0
        wins = float(weights @ ndtr(middle + points) ** (classes - 1))
        low, high = (low, middle) if wins >= _TRUST else (middle, high)
    return high
