"""The two laws of the noise on a matrix of votes, each in shares of several parties.

A law knows the noise of one party, and bounds on that of several together: their standard
deviation, what it reaches, and the probability that noise overturns a lead. Noise that the server
draws is a law of one share.

Bounds on Gaussian shares are those of :mod:`pate.noise.shares`. For geometric noise, let S be the
sum of n shares of the discrete Laplace law of scale t, h of which make it up. For 0 < s < 1,
E exp(s S/t) <= (1 - s^2)^(-n/h), hence P[|S| >= r] <= 2 (1 - s^2)^(-n/h) exp(-s r/t)
(docs/proofs/noise.md, section 9).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from pate.errors import UsageError
from pate.noise.exact import LARGEST_SHARED, check_scale
from pate.noise.shares import (
    FAILURE,
    LN_2,
    bits_of_failure,
    check_parties,
    check_share,
    draw_share,
    largest_noise,
    total_sigma,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pate.noise import NoiseLawName
    from pate.noise.exact import Noise, NoiseInShares
    from pate.noise.lanes import Integers

#: The laws' names in sentences.
IN_WORDS: Final[Mapping[NoiseLawName, str]] = {"gaussian": "Gaussian", "geometric": "geometric"}

#: The s tried in tail bounds are multiples of 1/16; logarithms are rounded up to 1/64 of a bit.
_STEPS: Final = 16
_PARTS: Final = 64


@dataclass(frozen=True)
class GaussianShares:
    """Discrete Gaussian noise, the same from each party.

    Attributes:
        share: parameter sigma of each share, in votes.

    Raises:
        UsageError: for a share that cannot be drawn.
    """

    share: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "share", check_share(self.share))

    def draw(self, noise: Noise, cells: int) -> Integers:
        """Return one party's noise on (cells,) counts: int64, votes."""
        return draw_share(noise, self.share, cells)

    def spread(self, parties: int) -> float:
        """Return the standard deviation of the noise of ``parties`` parties on a count, in votes."""
        return float(self.share if parties == 1 else total_sigma(self.share, parties))

    def reach(self, parties: int, cells: int, failure: float | Fraction = FAILURE) -> int:
        """Return what the noise exceeds on any of ``cells`` counts with probability ``failure``."""
        return largest_noise(self.share, parties, cells, failure)

    def overturns(self, lead: int, parties: int) -> float:
        """Return a bound on the probability that the noise of two counts differs by ``lead``."""
        return math.exp(-((lead / (self.spread(parties) + 1 / _PARTS)) ** 2) / 4)


@dataclass(frozen=True)
class GeometricShares:
    """Two-sided geometric noise (the discrete Laplace law): P[z] ~ exp(-|z|/scale).

    Attributes:
        scale: of the sum of ``honest`` shares, in votes.
        honest: shares that sum to exactly that law; a sum may have more.

    Raises:
        UsageError: for a scale or number of shares that cannot be drawn.
    """

    scale: Fraction
    honest: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", check_scale(self.scale, "scale"))
        check_parties(self.honest, "honest parties")
        if self.honest > 1 and self.scale > LARGEST_SHARED:
            raise UsageError(
                f"noise of scale {float(self.scale):g} votes is too wide for shares: at most "
                f"{LARGEST_SHARED}"
            )

    def draw(self, noise: NoiseInShares, cells: int) -> Integers:
        """Return one party's noise on (cells,) counts: int64, votes."""
        if self.honest == 1:
            return noise.laplace(self.scale, cells)
        return noise.laplace_share(self.scale, self.honest, cells)

    def spread(self, parties: int) -> float:
        """Return the standard deviation of the noise of ``parties`` parties on a count, in votes.

        That of the discrete Laplace law is 1/(sqrt(2) sinh(1/(2 scale))).

        >>> round(GeometricShares(Fraction(20), 3).spread(3), 2)
        28.28
        """
        check_parties(parties, "parties")
        half = 1 / (2 * float(self.scale))
        return math.sqrt(parties / self.honest / 2) / math.sinh(half)

    def reach(self, parties: int, cells: int, failure: float | Fraction = FAILURE) -> int:
        """Return what the noise exceeds on any of ``cells`` counts with probability ``failure``.

        r + 1 is the least integer at which the bound of the module, times ``cells``, is at most
        ``failure``, for the best s on the grid; logarithms are rounded up. Exact arithmetic, so every
        machine gets the same.

        >>> GeometricShares(Fraction(20), 4).reach(5, 1000 * 10)
        1165
        """
        ratio = Fraction(check_parties(parties, "parties"), self.honest)
        bits = bits_of_failure(cells, failure)
        at_least = min(
            Fraction(_STEPS, step) * (bits + ratio * _bits_of_moment(step))
            for step in range(1, _STEPS)
        )
        return math.ceil(self.scale * at_least * LN_2) - 1

    def overturns(self, lead: int, parties: int) -> float:
        """Return a bound on the probability that the noise of two counts differs by ``lead``."""
        ratio = 2 * parties / self.honest
        return min(
            math.pow(1 - s * s, -ratio) * math.exp(-s * lead / float(self.scale))
            for s in (step / _STEPS for step in range(1, _STEPS))
        )


#: What a mechanism's noise can be.
Shares = GaussianShares | GeometricShares


def _bits_of_moment(step: int) -> Fraction:
    """Return log2 of 1/(1 - s^2), s = step/16, rounded up to 1/64."""
    moment = Fraction(_STEPS**2, _STEPS**2 - step**2) ** _PARTS
    return Fraction((math.ceil(moment) - 1).bit_length(), _PARTS)
