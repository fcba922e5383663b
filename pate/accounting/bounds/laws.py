"""The laws of the noise: how likely a noisy count is pushed past a threshold, or past another one.

Everything is a natural logarithm of a probability, so that a chance of exp(-100000) is a number
like any other. A *gap* is how many votes class i has more than class j; its tail is
P[Z_j - Z_i >= gap] for independent noises Z of one law, the chance that j draws level with i or
passes it. Ties count against i whatever the rule for ties, which is what an upper bound needs.

The tail of the continuous Gaussian is not an upper bound for the discrete one: at a gap of 50 and a
variance of 100 it is too small by an eighth. Each law has its own.

Proof: docs/proofs/labels.md, section 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
from scipy import special

from pate.accounting.arrays import Floats, check_log_probabilities, check_positive
from pate.errors import AccountingError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

# Tails on the integers, to a relative 1e-11. Within 37 spreads of the middle the masses are summed one by
# one, once; farther out a series is summed in closed form, whose error is on the side of a larger tail.

LOG_HALF = -math.log(2.0)
#: Larger integers are replaced by it: the tail of a smaller one is an upper bound.
FARTHEST = 2.0**60


def finite(values: ArrayLike, name: str) -> Floats:
    """Return ``values`` as float64, or raise AccountingError if one is not finite."""
    made = np.asarray(values, np.float64)
    if not np.isfinite(made).all():
        raise AccountingError(f"{name} must be a finite number of votes")
    return made


def log_complement(logs: Floats) -> Floats:
    """Return log(1 - exp(logs)), -inf at 0."""
    small = logs < LOG_HALF
    made = np.log1p(-np.exp(np.where(small, logs, -1.0)))
    with np.errstate(divide="ignore"):  # the complement of certainty
        return np.where(small, made, np.log(-np.expm1(np.where(small, -1.0, logs))))


@dataclass(frozen=True)
class Lattice:
    """The law on the integers with mass exp(-x^2/(2 spread^2)), times exp(log_odd) at odd x."""

    spread: float  # in votes
    log_odd: float  # logarithm of the factor of odd integers
    log_total: float  # logarithm of the sum of all masses
    table: Floats  # (farthest + 1,), log P[X >= x] at x = 0, 1, ...; never written to

    def log_tail(self, x: Floats) -> Floats:
        """Return log P[X >= x] at the integers ``x``, of any shape and sign."""
        x = np.clip(x, -FARTHEST, FARTHEST)
        turned = x <= 0.0
        x = np.where(turned, 1.0 - x, x)
        made = np.asarray(self.table[np.minimum(x, self.table.size - 1).astype(np.intp)])
        if (far := x >= self.table.size).any():
            made[far] = _log_far_sum(self.spread, self.log_odd, x[far]) - self.log_total
        return np.where(turned, log_complement(made), made) if turned.any() else made


@lru_cache(maxsize=8)
def lattice(spread: float, log_odd: float) -> Lattice:
    """Return that law with its table; the last few are cached."""
    # Masses down to exp(-700) are summed one by one: beyond, floats would be lost and the series
    # of the far tail is exact. The least odd mass is exp(-(x^2 + 1)/(2 spread^2)).
    farthest = math.isqrt(max(0, math.floor(1400.0 * spread**2 - 1.0)))
    x = np.arange(farthest + 1.0)
    masses = np.exp(-0.5 * (x / spread) ** 2 + (x % 2.0) * log_odd)
    # The rest is far below the rounding of the last mass; exp may make it 0.
    rest = np.exp(_log_far_sum(spread, log_odd, np.array([farthest + 1.0])))
    tails = np.cumsum(np.concatenate([rest, masses[::-1]]))[:0:-1]
    total = float(2.0 * tails[0] - masses[0])
    table = np.log(tails / total)
    table.flags.writeable = False
    return Lattice(spread, log_odd, math.log(total), table)


def log_odd_mass(sigma: float) -> float:
    """Return the logarithm of the factor of odd differences of two N_Z(0, sigma^2).

    The mass of a difference d is exp(-d^2/(4 sigma^2)) times the sum over all z of
    exp(-(z - d/2)^2 / sigma^2), which depends on d only by its parity.
    """
    if sigma >= 4.0:  # Poisson summation: the two sums differ by less than 1e-60
        return 0.0
    z = np.arange(1.0, 120.0)
    even = 1.0 + 2.0 * float(np.exp(-((z / sigma) ** 2)).sum())
    odd = 2.0 * float(np.exp(-z * (z - 1.0) / sigma**2).sum())
    return math.log(odd) - math.log(even) - 0.25 / sigma**2


def _log_far_sum(spread: float, log_odd: float, x: Floats) -> Floats:
    """Return the logarithm of the masses from ``x`` on, never below it; exact for large x/spread.

    Even and odd integers apart: exp(-(x + 2i)^2 / (2 s^2)) is exp(-x^2/(2 s^2)) y^i exp(-g i^2/2)
    with y = exp(-2x/s^2), g = 4/s^2. Five terms of the alternating series of exp(-g i^2/2) are an
    upper bound of it, and their sums over i are rational functions of y. The next term, which is
    the bound on what is too much, is 945 (s/x)^10: below 1e-12 from x = 36 s on.
    """
    odd = x % 2.0
    first = odd * log_odd + _log_every_second(spread, x)
    second = (1.0 - odd) * log_odd + _log_every_second(spread, x + 1.0)
    made: Floats = np.logaddexp(first, second)
    return made


def _log_every_second(spread: float, x: Floats) -> Floats:
    y = np.exp(-2.0 * x / spread**2)
    left = -np.expm1(-2.0 * x / spread**2)
    z = 2.0 / (spread * left) ** 2
    # Eulerian polynomials: sum i^2k y^i = y E_2k(y) / (1 - y)^(2k + 1).
    square = 1.0 + y
    fourth = 1.0 + y * (11.0 + y * (11.0 + y))
    sixth = 1.0 + y * (57.0 + y * (302.0 + y * (302.0 + y * (57.0 + y))))
    eighth = 1.0 + y * (
        247.0 + y * (4293.0 + y * (15619.0 + y * (15619.0 + y * (4293.0 + y * (247.0 + y)))))
    )
    series = -z * (square - z / 2.0 * (fourth - z / 3.0 * (sixth - z / 4.0 * eighth)))
    made: Floats = -0.5 * (x / spread) ** 2 + np.log1p(y * series) - np.log(left)
    return made


# The laws

#: Discrete Gaussians outside are refused: less is not noise, more would need tables of gigabytes.
WIDEST_SIGMA: Final = 1e5
_LEAST_SIGMA: Final = 0.01
#: Below it no Gaussian trade-off is claimed for the discrete law.
_LEAST_SIGMA_OF_STEP = 2.0
#: No gap beyond it is looked for: there, two neighbouring integers are one float.
_FARTHEST_GAP = 2.0**50


class Law(Protocol):
    """The law of the noise on every count, one independent draw for each."""

    @property
    def sigma(self) -> float:
        """Parameter of the noise, in votes."""

    @property
    def mu_of_step(self) -> float:
        """Mu of a Gaussian trade-off that a shift of the noise by one vote satisfies."""

    def log_survival(self, t: ArrayLike) -> Floats:
        """Return log P[Z >= t] for thresholds ``t`` in votes, of any shape."""

    def log_gap_tail(self, gaps: ArrayLike) -> Floats:
        """Return log P[Z_j - Z_i >= gap] for ``gaps`` in votes, of any shape and sign."""

    def gap_at(self, log_tail: ArrayLike) -> Floats:
        """Return the gaps at which :meth:`log_gap_tail` is ``log_tail``."""


@dataclass(frozen=True)
class Gaussian:
    """N(0, sigma^2): the noise of the papers and of other people's implementations.

    >>> Gaussian(40.0).log_gap_tail([0.0, 200.0]).round(6).tolist()
    [-0.693147, -8.499962]
    """

    sigma: float  # standard deviation, in votes

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", check_positive(self.sigma, "sigma"))

    @property
    def mu_of_step(self) -> float:
        """1 / sigma: testing N(0, sigma^2) against N(1, sigma^2) is the definition of mu-GDP."""
        return 1.0 / self.sigma

    def log_survival(self, t: ArrayLike) -> Floats:
        """Return log P[Z >= t] for thresholds ``t`` in votes, of any shape."""
        made: Floats = special.log_ndtr(-finite(t, "a threshold") / self.sigma)
        return made

    def log_gap_tail(self, gaps: ArrayLike) -> Floats:
        """Return log P[Z_j - Z_i >= gap]; the difference is N(0, 2 sigma^2).

        Source: Papernot et al. 2018, Proposition 7, one summand.
        """
        made: Floats = special.log_ndtr(-finite(gaps, "a gap") / (math.sqrt(2.0) * self.sigma))
        return made

    def gap_at(self, log_tail: ArrayLike) -> Floats:
        """Return the gaps at which :meth:`log_gap_tail` is ``log_tail``; -inf at 0, inf at -inf."""
        checked = check_log_probabilities(log_tail, "log_tail")
        made: Floats = -math.sqrt(2.0) * self.sigma * special.ndtri_exp(checked)
        return made


@dataclass(frozen=True)
class DiscreteGaussian:
    """N_Z(0, sigma^2), P[z] proportional to exp(-z^2/(2 sigma^2)): the noise drawn here.

    All values are exact sums over the integers, to a relative 1e-11 of the probability.

    The tail of a gap that is no integer lies on the straight line, in probability, between its
    two integers. So it is never below the exact one, and :meth:`gap_at` inverts it.

    >>> noise = DiscreteGaussian(2.0)
    >>> noise.log_gap_tail([0, 5, 5000]).round(6).tolist()
    [-0.561201, -2.902754, -1562501.958659]
    """

    sigma: float  # parameter, in votes

    def __post_init__(self) -> None:
        sigma = check_positive(self.sigma, "sigma")
        if not _LEAST_SIGMA <= sigma <= WIDEST_SIGMA:
            raise AccountingError(
                f"sigma of discrete noise must lie in [{_LEAST_SIGMA}, {WIDEST_SIGMA:g}], "
                f"got {sigma!r}"
            )
        object.__setattr__(self, "sigma", sigma)

    @property
    def mu_of_step(self) -> float:
        """sqrt(2 (1 - sqrt(1 - 1/sigma^2))): a shift by D is (D mu_of_step)-GDP.

        Slightly above 1 / sigma.

        Proof: docs/proofs/discrete-gaussian.md.
        """
        if self.sigma < _LEAST_SIGMA_OF_STEP:
            raise AccountingError(
                f"discrete noise of sigma {self.sigma} has no Gaussian trade-off here: it needs "
                f"sigma of {_LEAST_SIGMA_OF_STEP:g} or more"
            )
        inverse = 1.0 / self.sigma**2
        # 1 - sqrt(1 - x) without its cancellation.
        return math.sqrt(2.0 * inverse / (1.0 + math.sqrt(1.0 - inverse)))

    def log_survival(self, t: ArrayLike) -> Floats:
        """Return log P[Z >= t]; a ``t`` that is no integer is rounded up, which changes nothing."""
        return lattice(self.sigma, 0.0).log_tail(np.ceil(finite(t, "a threshold")))

    def log_gap_tail(self, gaps: ArrayLike) -> Floats:
        """Return log P[Z_j - Z_i >= gap], at integers exactly and between them interpolated."""
        law = self._of_gaps()
        wanted = finite(gaps, "a gap")
        below = np.floor(wanted)
        if (below == wanted).all():
            return law.log_tail(wanted)
        # P[gap] + P[1 - gap] = 1, at integers and so on the lines between them.
        turned = wanted < 0.5
        wanted = np.where(turned, 1.0 - wanted, wanted)
        below = np.floor(wanted)
        upper, lower = law.log_tail(below), law.log_tail(below + 1.0)
        made = upper + np.log1p((wanted - below) * np.expm1(lower - upper))
        return np.where(turned, log_complement(made), made)

    def gap_at(self, log_tail: ArrayLike) -> Floats:
        """Return the gaps at which :meth:`log_gap_tail` is ``log_tail``; -inf at 0, inf at -inf.

        Rounded down, and at most 2^50. For a sigma below about 5 the tail falls so steeply that
        two neighbouring floats may have very different tails: going there and back shows it.
        """
        law = self._of_gaps()
        asked = check_log_probabilities(log_tail, "log_tail")
        turned = asked > LOG_HALF
        wanted = np.where(turned, log_complement(asked), asked)
        known = np.isfinite(wanted)
        least = law.log_tail(np.array(_FARTHEST_GAP))
        wanted = np.maximum(np.where(known, wanted, LOG_HALF), least)
        # The continuous law is at most a vote or so away from the discrete one.
        below = np.floor(-math.sqrt(2.0) * self.sigma * special.ndtri_exp(wanted))
        while (high := law.log_tail(below) < wanted).any():
            below -= high
        while (low := law.log_tail(below + 1.0) >= wanted).any():
            below += low
        upper, lower = law.log_tail(below), law.log_tail(below + 1.0)
        made = below + np.expm1(wanted - upper) / np.expm1(lower - upper)
        # One step of rounding to the side on which the tail is not below what was asked for.
        made = np.nextafter(made, np.where(turned, below + 1.0, below))
        made = np.where(known, made, np.inf)
        return np.where(turned, 1.0 - made, made)

    def _of_gaps(self) -> Lattice:
        """The law of Z_j - Z_i: mass exp(-d^2/(4 sigma^2)) times a factor of d's parity."""
        return lattice(math.sqrt(2.0) * self.sigma, log_odd_mass(self.sigma))
