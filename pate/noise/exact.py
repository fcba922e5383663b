"""Exact discrete noise: integers drawn by integer arithmetic from uniform bits.

Floating-point noise does not have the law that a privacy proof assumes (Mironov, CCS 2012). Here no
float occurs between the bits and the noise: parameters are fractions, coins are comparisons of
uniform integers, and the laws are the discrete Gaussian and the discrete Laplace themselves, not
approximations of them. A discrete Laplace draw also comes in *shares*: independent draws of several
parties that sum to exactly that law.

The samplers are the rejection samplers of Canonne, Kamath and Steinke, "The Discrete Gaussian for
Differential Privacy" (NeurIPS 2020, arXiv 2004.00010), Algorithms 1 to 3, run on many independent
*lanes* at a time. Every coin with probability exp(-g) is tossed with coins of rational probability,
and a proposal that is refused is drawn anew from fresh bits, so what is accepted has the stated law
whatever the number of lanes. Timing attacks on rejection sampling (Jin et al., 2112.05307) are out
of scope: a server must not let clients time its answers to the microsecond.
"""

from __future__ import annotations

import os
from fractions import Fraction
from typing import ClassVar, Protocol

import numpy as np

from pate.errors import UsageError
from pate.noise.lanes import LANES, MOST_DRAWS, BitSource, Integers, Lanes, fill

#: Largest numerator and denominator of a noise parameter. With ``MOST_STEPS`` of
#: :mod:`pate.noise.lanes` it keeps every intermediate below 2^63: (2^25 + 2^25)^2 * 1001 < 2^62.
LARGEST_TERM = 2**25
#: Least noise parameter, in votes. A smaller one could let an exponent pass 2^63.
LEAST_SCALE = Fraction(1, 100)
#: Most shares of one draw, and largest scale of a draw in shares, in votes. The work of a share grows
#: with the scale.
_MOST_SHARES = 2**16
LARGEST_SHARED = 2**12


class Noise(Protocol):
    """A source of integer noise. Each call is independent of all calls before it."""

    #: Whether releases may use it. False for seeded noise.
    production: ClassVar[bool]

    def gaussian(self, sigma: Fraction, count: int) -> Integers:
        """Return ``count`` independent draws of N_Z(0, sigma^2), P[x] ~ exp(-x^2/(2 sigma^2))."""

    def laplace(self, scale: Fraction, count: int) -> Integers:
        """Return ``count`` independent draws of the law P[x] ~ exp(-|x|/scale)."""


class NoiseInShares(Noise, Protocol):
    """A source that draws the noise of one of several parties, too."""

    def laplace_share(self, scale: Fraction, shares: int, count: int) -> Integers:
        """Return ``count`` draws of a law of which ``shares`` sum to a draw of :meth:`laplace`."""


class Randomness(Noise, Protocol):
    """A source that draws uniform integers and exact coins, too."""

    @property
    def lanes(self) -> Lanes:
        """Uniform integers and exact coins, independent of all other draws."""


class SystemNoise:
    """Noise from the operating system's CSPRNG, the only source that a release may use.

    It buffers no bits: ``fork`` would copy the buffer and give the same noise to two processes.
    """

    production: ClassVar[bool] = True

    def gaussian(self, sigma: Fraction, count: int) -> Integers:
        """See :func:`discrete_gaussian`."""
        return discrete_gaussian(sigma, count, os.urandom)

    def laplace(self, scale: Fraction, count: int) -> Integers:
        """See :func:`discrete_laplace`."""
        return discrete_laplace(scale, count, os.urandom)

    def laplace_share(self, scale: Fraction, shares: int, count: int) -> Integers:
        """See :func:`discrete_laplace_share`."""
        return discrete_laplace_share(scale, shares, count, os.urandom)

    @property
    def lanes(self) -> Lanes:
        """See :class:`Randomness`."""
        return Lanes(os.urandom)


def require_production(noise: Noise) -> None:
    """Check that a noise source may be used for releases.

    Raises:
        UsageError: for a seeded source.
    """
    if noise.production is not True:
        raise UsageError(
            "releases need noise from the operating system: a seeded source gives no protection"
        )


def check_scale(value: Fraction, name: str) -> Fraction:
    """Return ``value`` if noise of that sigma or scale can be drawn exactly, else raise.

    Args:
        value: sigma or scale, in votes.
        name: what to call it in the message.

    Raises:
        UsageError: if it is no exact number, below :data:`LEAST_SCALE`, or has a term above
            :data:`LARGEST_TERM`.
    """
    if type(value) not in (Fraction, int):  # no floats, no bools
        raise UsageError(
            f"{name} must be exact, got {value!r}: give an integer or a fraction, "
            f"as in Fraction('37.5')"
        )
    value = Fraction(value)
    if value < LEAST_SCALE:
        raise UsageError(f"{name} must be at least {LEAST_SCALE} of a vote, got {_brief(value)}")
    if max(value.numerator, value.denominator) > LARGEST_TERM:
        raise UsageError(
            f"{name} {_brief(value)} is too large or has too many digits to be drawn exactly: "
            f"numerator and denominator may be up to {LARGEST_TERM}; round it up to fewer decimals"
        )
    return value


def _brief(value: Fraction) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def discrete_gaussian(sigma: Fraction, count: int, source: BitSource) -> Integers:
    """Draw from the discrete Gaussian N_Z(0, sigma^2).

    P[x] is proportional to exp(-x^2 / (2 sigma^2)) on the integers. Its variance is at most
    sigma^2, and equals it to 20 digits from sigma = 2 on.

    Args:
        sigma: the parameter, in votes.
        count: how many independent draws.
        source: uniform bytes.

    Returns:
        (count,) int64.

    Raises:
        UsageError: for a sigma that :func:`check_scale` refuses, or a count that makes no sense.
        AccountingError: if the source's bits are plainly not random.

    Source: Canonne, Kamath, Steinke 2020, Algorithm 3.
    """
    sigma = check_scale(sigma, "sigma")
    lanes = Lanes(source)
    a, b = sigma.numerator, sigma.denominator
    t = a // b + 1
    # A proposal y of scale t is kept with probability exp(-(|y| - sigma^2/t)^2 / (2 sigma^2)),
    # which is exp(-g^2/2) for g = |z|/c as below: integers only.
    c = t * a * b

    def propose(number: int) -> Integers:
        y = lanes.laplace(t, 1, number)
        z = np.abs(np.abs(y) * (t * b * b) - a * a)
        return y[lanes.half_square_coins(z, c)]

    # About 0.76 of the Laplace proposals are kept, themselves 0.63 of their own.
    return fill(propose, count, expected=0.45)


def discrete_laplace(scale: Fraction, count: int, source: BitSource) -> Integers:
    """Draw from the discrete Laplace law, P[x] proportional to exp(-|x|/scale) on the integers.

    Args:
        scale: the parameter, in votes.
        count: how many independent draws.
        source: uniform bytes.

    Returns:
        (count,) int64.

    Raises:
        UsageError: for a scale that :func:`check_scale` refuses, or a count that makes no sense.
        AccountingError: if the source's bits are plainly not random.

    Source: Canonne, Kamath, Steinke 2020, Algorithm 2.
    """
    scale = check_scale(scale, "scale")
    lanes = Lanes(source)

    def propose(number: int) -> Integers:
        return lanes.laplace(scale.numerator, scale.denominator, number)

    return fill(propose, count, expected=0.6)


def discrete_laplace_share(scale: Fraction, shares: int, count: int, source: BitSource) -> Integers:
    """Draw one of ``shares`` independent shares, whose sum has the law of :func:`discrete_laplace`.

    A share is X - Y with independent X, Y of the negative binomial law NB(1/shares): P[x] = C(x +
    1/shares - 1, x) (1 - a)^(1/shares) a^x with a = exp(-1/scale). A geometric x is kept with
    probability C(x + 1/shares - 1, x), a product of rational factors.

    Args:
        scale: of the sum, in votes.
        shares: that make up the sum.
        count: how many independent draws.
        source: uniform bytes.

    Returns:
        (count,) int64.

    Raises:
        UsageError: for a scale that :func:`check_scale` refuses or above :data:`LARGEST_SHARED`, or
            numbers that make no sense.
        AccountingError: if the source's bits are plainly not random.

    Source: own; docs/proofs/noise.md, section 7.
    """
    scale = check_scale(scale, "scale")
    if scale > LARGEST_SHARED:
        raise UsageError(f"scale {scale} is too large for shares: at most {LARGEST_SHARED} votes")
    if type(shares) is not int or not 1 <= shares <= _MOST_SHARES:
        raise UsageError(f"noise in {shares!r} shares: give a whole number from 1 to 2^16")
    if not 0 <= 2 * count <= MOST_DRAWS:
        raise UsageError(f"cannot draw {count} noises at once: ask for 0 to {MOST_DRAWS // 2}")
    lanes = Lanes(source)

    def propose(number: int) -> Integers:
        return lanes.negative_binomial(scale.numerator, scale.denominator, shares, number)

    expected = (1 / (1 + float(scale))) ** (1 - 1 / shares)
    sides = fill(propose, 2 * count, expected, lanes=4 * LANES)
    return sides[:count] - sides[count:]
