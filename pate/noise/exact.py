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
#: That many equal words in a row come from a broken source: uniform ones are, with 2^-960.
_MANY_WORDS = 16
#: Most draws of one call: their bits are in memory together.
_MOST_DRAWS = 2**26
#: Lanes of one pass. Bounds the memory of a large draw, about 100 bytes a lane.
_LANES = 2**17
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

    Source: own; docs/proofs/geometric-noise.md, sections 1 and 2.
    """
    scale = check_scale(scale, "scale")
    if scale > LARGEST_SHARED:
        raise UsageError(f"scale {scale} is too large for shares: at most {LARGEST_SHARED} votes")
    if type(shares) is not int or not 1 <= shares <= _MOST_SHARES:
        raise UsageError(f"noise in {shares!r} shares: give a whole number from 1 to 2^16")
    if not 0 <= 2 * count <= _MOST_DRAWS:
        raise UsageError(f"cannot draw {count} noises at once: ask for 0 to {_MOST_DRAWS // 2}")
    lanes = _Lanes(source)

    def propose(number: int) -> Integers:
        return lanes.negative_binomial(scale.numerator, scale.denominator, shares, number)

    expected = (1 / (1 + float(scale))) ** (1 - 1 / shares)
    sides = _fill(propose, 2 * count, expected, lanes=4 * _LANES)
    return sides[:count] - sides[count:]


def _fill(
    propose: Callable[[int], Integers], count: int, expected: float, lanes: int = _LANES
) -> Integers:
    """Return the first ``count`` accepted proposals.

    Args:
        propose: runs a number of independent proposals; returns those accepted, in their order.
        count: of wanted draws.
        expected: about the probability that a proposal is accepted.
        lanes: most proposals at a time.
    """
    if count < 0 or count > _MOST_DRAWS:
        raise UsageError(f"cannot draw {count} noises at once: ask for 0 to {_MOST_DRAWS}")
    drawn = np.empty(count, dtype=np.int64)
    done, refused = 0, 0
    while done < count:
        # The slack makes a second pass rare also for one draw.
        number = min(lanes, int((count - done) / expected) + 12)
        kept = propose(number)[: count - done]
        drawn[done : done + kept.size] = kept
        done += kept.size
        refused = 0 if kept.size else refused + number
        if refused * expected > _MOST_STEPS:
            raise _broken_source()
    return drawn


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

    def geometric(self, t: int, s: int, number: int) -> Integers:
        """Run ``number`` proposals of the law exp(-x s/t), x >= 0; return those that are accepted."""
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
        return (low + t * high) // s

    def laplace(self, t: int, s: int, number: int) -> Integers:
        """Run ``number`` proposals of the law exp(-|x| s/t); return those that are accepted."""
        size = self.geometric(t, s, number)
        negative = self.below(2, size.size) == 1
        signed: Integers = np.where(negative, -size, size)
        # Zero has two signs and must not count twice.
        twice: Flags = negative & (size == 0)
        return signed[~twice]

    def negative_binomial(self, t: int, s: int, shares: int, number: int) -> Integers:
        """Run ``number`` proposals of the law NB(1/shares), a = exp(-s/t); return those accepted.

        A proposal is a geometric x, kept by :meth:`binomial_coins`. The coin of its first factor,
        1/shares, is tossed before x is drawn: where it fails, only x = 0 is kept, and whether x is 0
        is one coin of exp(-s/t).
        """
        drawn = np.full(number, -1, dtype=np.int64)
        first = self.below(shares, number) == 0
        (any_,), (zero,) = first.nonzero(), (~first).nonzero()
        drawn[zero[~self._decay_coins(t, s, zero.size)]] = 0
        x = _fill(lambda lanes: self.geometric(t, s, lanes), any_.size, expected=0.6)
        kept = self.binomial_coins(x, shares)
        drawn[any_[kept]] = x[kept]
        return drawn[drawn >= 0]

    def binomial_coins(self, x: Integers, shares: int) -> Flags:
        """Toss coins of C(x + r - 1, x), r = 1/shares, given that the first factor's succeeded.

        C(x + r - 1, x) is the product over i = 1 .. x of (i - 1 + r)/i = ((i - 1) shares + 1)/(i
        shares). All coins must succeed; the first failure decides.
        """
        kept: Flags = np.ones(x.size, dtype=np.bool_)
        i, running = 2, np.flatnonzero(x >= 2)
        while running.size:
            heads = self.below(i * shares, running.size) < (i - 1) * shares + 1
            kept[running[~heads]] = False
            running = running[heads]
            running = running[x[running] > i]
            i += 1
        return kept

    def _decay_coins(self, t: int, s: int, number: int) -> Flags:
        """Toss coins of exp(-s/t): one of exp(-1) for each whole part, and one of the rest."""
        whole, rest = divmod(s, t)
        kept = self.exp_coins(number, lambda lanes: self.below(t, lanes.size) < rest)
        for _ in range(whole):
            kept[kept] = self.exp_coins(int(kept.sum()), _always)
        return kept

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
        words = np.frombuffer(raw, dtype="<u8").astype(np.uint64)
        if number >= _MANY_WORDS and bool((words == words[0]).all()):
            raise _broken_source()
        return words


def _always(lanes: NDArray[np.intp]) -> Flags:
    return np.ones(lanes.size, dtype=np.bool_)


def _of(toss: Coin, chosen: NDArray[np.intp]) -> Coin:
    """Return the coins of the ``chosen`` lanes, renumbered from 0."""
    return lambda lanes: toss(chosen[lanes])
