"""Exact discrete noise: integers drawn by integer arithmetic from uniform bits.

Floating-point noise does not have the law that a privacy proof assumes (Mironov, CCS 2012). Here no
float occurs between the bits and the noise: parameters are fractions, coins are comparisons of
uniform integers, and the laws are the discrete Gaussian and the discrete Laplace themselves, not
approximations of them.

The samplers are the rejection samplers of Canonne, Kamath and Steinke, "The Discrete Gaussian for
Differential Privacy" (NeurIPS 2020, arXiv 2004.00010), Algorithms 1 to 3, run on many independent
*lanes* at a time. Every coin with probability exp(-g) is tossed with coins of rational probability,
and a proposal that is refused is drawn anew from fresh bits, so what is accepted has the stated law
whatever the number of lanes. Timing attacks on rejection sampling (Jin et al., 2112.05307) are out
of scope: a server must not let clients time its answers to the microsecond.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from fractions import Fraction
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from pate.errors import AccountingError, UsageError

#: Returns that many independent, uniform bytes.
BitSource = Callable[[int], bytes]
#: Returns that many uniform words of 64 bits.
WordSource = Callable[[int], NDArray[np.uint64]]

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]
#: Given lane indices, tosses the coin of each of those lanes.
Coin = Callable[[NDArray[np.intp]], Flags]

#: Largest numerator and denominator of a noise parameter. With :data:`_MOST_STEPS` it keeps every
#: intermediate below 2^63: (2^25 + 2^25)^2 * 1001 < 2^62.
LARGEST_TERM = 2**25
#: Least noise parameter, in votes. A smaller one could let an exponent pass 2^63.
LEAST_SCALE = Fraction(1, 100)
#: No run of coins of exp(-1) or of fair coins gets this long (probability below 2^-1000 a lane):
#: reaching it means that the bits are not random.
_MOST_STEPS = 1000
#: Most draws of one call: their bits are in memory together.
_MOST_DRAWS = 2**26
#: Lanes of one pass. Bounds the memory of a large draw, about 100 bytes a lane.
_LANES = 2**17


class Noise(Protocol):
    """A source of integer noise. Each call is independent of all calls before it."""

    #: Whether releases may use it. False for seeded noise.
    production: ClassVar[bool]

    def gaussian(self, sigma: Fraction, count: int) -> Integers:
        """Return ``count`` independent draws of N_Z(0, sigma^2), P[x] ~ exp(-x^2/(2 sigma^2))."""

    def laplace(self, scale: Fraction, count: int) -> Integers:
        """Return ``count`` independent draws of the law P[x] ~ exp(-|x|/scale)."""


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
    lanes = _Lanes(source)
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
    return _fill(propose, count, expected=0.45)


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
    lanes = _Lanes(source)

    def propose(number: int) -> Integers:
        return lanes.laplace(scale.numerator, scale.denominator, number)

    return _fill(propose, count, expected=0.6)


def _fill(propose: Callable[[int], Integers], count: int, expected: float) -> Integers:
    """Return the first ``count`` accepted proposals. ``expected`` only steers the batch size."""
    if count < 0 or count > _MOST_DRAWS:
        raise UsageError(f"cannot draw {count} noises at once: ask for 0 to {_MOST_DRAWS}")
    drawn = np.empty(count, dtype=np.int64)
    done = 0
    for _ in range(_MOST_STEPS + count):
        if done == count:
            return drawn
        # The slack makes a second pass rare also for one draw.
        kept = propose(min(_LANES, int((count - done) / expected) + 12))[: count - done]
        drawn[done : done + kept.size] = kept
        done += kept.size
    raise _broken_source()


def _broken_source() -> AccountingError:
    return AccountingError(
        "the source of random bits is broken, so nothing can be drawn from it: "
        "check the operating system's random number generator"
    )


def uniform_below(bound: int, number: int, draw: WordSource) -> Integers:
    """Return (number,) independent integers, exactly uniform in [0, bound).

    Args:
        bound: from 1 to 2^63 - 1.
        number: of integers.
        draw: returns ``n`` uniform 64-bit words in a fresh array.

    Raises:
        AccountingError: if its words are plainly not uniform.
    """
    words = draw(number)
    # The words from `limit` on are drawn again: what is left is a multiple of `bound`.
    limit = 2**64 - 2**64 % bound
    if limit < 2**64:
        for _ in range(_MOST_STEPS):
            again = np.flatnonzero(words >= np.uint64(limit))
            if not again.size:
                break
            words[again] = draw(again.size)
        else:
            raise _broken_source()
    return (words % np.uint64(bound)).astype(np.int64)


class _Lanes:
    """Exact coins on many independent lanes, from uniform bits."""

    def __init__(self, source: BitSource) -> None:
        self._source = source

    def below(self, bound: int, number: int) -> Integers:
        """Return (number,) uniform integers of [0, bound), for 1 <= bound < 2^63."""
        if bound == 1:
            return np.zeros(number, dtype=np.int64)
        return uniform_below(bound, number, self._words)

    def exp_coins(self, number: int, toss: Coin) -> Flags:
        """Toss (number,) coins of exp(-g), 0 <= g <= 1, from coins of g.

        The k-th toss of a lane succeeds with probability g/k. The first failure comes at an
        odd toss with probability 1 - g + g^2/2! - ... = exp(-g).

        Args:
            number: of lanes.
            toss: the coins of g.

        Source: Canonne, Kamath, Steinke 2020, Algorithm 1.
        """
        heads = np.ones(number, dtype=np.bool_)
        running = np.arange(number)
        for k in range(1, _MOST_STEPS):
            if k > 1:  # a coin of g/k is a coin of 1/k and a coin of g
                running = running[self.below(k, running.size) == 0]
            running = running[toss(running)]
            if not running.size:
                return heads
            heads[running] ^= True
        raise _broken_source()

    def laplace(self, t: int, s: int, number: int) -> Integers:
        """Run ``number`` proposals of the law exp(-|x| s/t); return those that are accepted."""
        low = self.below(t, number)
        low = low[self.exp_coins(number, lambda lanes: self.below(t, lanes.size) < low[lanes])]
        high = np.zeros(low.size, dtype=np.int64)
        running = np.arange(low.size)
        for _ in range(_MOST_STEPS):
            if not running.size:
                break
            running = running[self.exp_coins(running.size, _always)]
            high[running] += 1
        else:
            raise _broken_source()
        size = (low + t * high) // s
        negative = self.below(2, size.size) == 1
        signed: Integers = np.where(negative, -size, size)
        # Zero has two signs and must not count twice.
        twice: Flags = negative & (size == 0)
        return signed[~twice]

    def half_square_coins(self, z: Integers, c: int) -> Flags:
        """Toss coins of exp(-(z/c)^2 / 2), for integers z >= 0.

        With z = i c + r the exponent is i^2/2 + i r/c + (r/c)^2/2: a coin of exp(-1/2) tossed i^2
        times, one of exp(-r/c) tossed i times, and one more; all must succeed. No integer above c
        is needed; the exponent as one fraction would need 2 c^2.
        """
        i, r = np.divmod(z, c)

        def ratio(lanes: NDArray[np.intp]) -> Flags:
            heads: Flags = self.below(c, lanes.size) < r[lanes]
            return heads

        def half(lanes: NDArray[np.intp]) -> Flags:
            heads: Flags = self.below(2, lanes.size) == 0
            return heads

        def half_square(lanes: NDArray[np.intp]) -> Flags:
            return half(lanes) & ratio(lanes) & ratio(lanes)

        kept: Flags = np.ones(z.size, dtype=np.bool_)
        for times, toss in ((i * i, half), (i, ratio), (np.ones_like(i), half_square)):
            step = 0
            while (tossed := np.flatnonzero(kept & (times > step))).size:
                kept[tossed] = self.exp_coins(tossed.size, _of(toss, tossed))
                step += 1
        return kept

    def _words(self, number: int) -> NDArray[np.uint64]:
        raw = self._source(8 * number)
        if len(raw) != 8 * number:
            raise _broken_source()
        return np.frombuffer(raw, dtype="<u8").astype(np.uint64)


def _always(lanes: NDArray[np.intp]) -> Flags:
    return np.ones(lanes.size, dtype=np.bool_)


def _of(toss: Coin, chosen: NDArray[np.intp]) -> Coin:
    """Return the coins of the ``chosen`` lanes, renumbered from 0."""
    return lambda lanes: toss(chosen[lanes])
