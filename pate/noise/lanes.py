"""Exact coins of rational probabilities, tossed on many independent lanes, from uniform bits.

A lane is one run of a rejection sampler: it proposes a draw, and is refused or accepted. A refused one
is run again from fresh bits, so what is accepted has the stated law whatever the number of lanes.

Source: Canonne, Kamath and Steinke, "The Discrete Gaussian for Differential Privacy", NeurIPS 2020.
"""

from __future__ import annotations

from collections.abc import Callable

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

#: No run of coins of exp(-1) or of fair coins gets this long (probability below 2^-1000 a lane):
#: reaching it means that the bits are not random.
MOST_STEPS = 1000
#: That many equal words in a row come from a broken source: uniform ones are, with 2^-960.
_MANY_WORDS = 16
#: Most draws of one call: their bits are in memory together.
MOST_DRAWS = 2**26
#: Lanes of one pass. Bounds the memory of a large draw, about 100 bytes a lane.
LANES = 2**17


def fill(
    propose: Callable[[int], Integers], count: int, expected: float, lanes: int = LANES
) -> Integers:
    """Return the first ``count`` accepted proposals of which about the part ``expected`` is accepted.

    ``propose`` runs a number of independent proposals; returns those accepted, in their order.
    """
    if count < 0 or count > MOST_DRAWS:
        raise UsageError(f"cannot draw {count} noises at once: ask for 0 to {MOST_DRAWS}")
    drawn = np.empty(count, dtype=np.int64)
    done, refused = 0, 0
    while done < count:
        # The slack makes a second pass rare also for one draw.
        number = min(lanes, int((count - done) / expected) + 12)
        kept = propose(number)[: count - done]
        drawn[done : done + kept.size] = kept
        done += kept.size
        refused = 0 if kept.size else refused + number
        if refused * expected > MOST_STEPS:
            raise broken_source()
    return drawn


def broken_source() -> AccountingError:
    """Return the error of a source whose bits are plainly not random."""
    return AccountingError(
        "the source of random bits is broken, so nothing can be drawn from it: "
        "check the operating system's random number generator"
    )


def uniform_below(bound: int, number: int, draw: WordSource) -> Integers:
    """Return (number,) independent integers, exactly uniform in [0, bound), for a bound below 2^63.

    ``draw`` returns that many uniform 64-bit words in a fresh array.
    """
    words = draw(number)
    # The words from `limit` on are drawn again: what is left is a multiple of `bound`.
    limit = 2**64 - 2**64 % bound
    if limit < 2**64:
        for _ in range(MOST_STEPS):
            again = np.flatnonzero(words >= np.uint64(limit))
            if not again.size:
                break
            words[again] = draw(again.size)
        else:
            raise broken_source()
    return (words % np.uint64(bound)).astype(np.int64)


class Lanes:
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

        Source: Canonne, Kamath, Steinke 2020, Algorithm 1.
        """
        heads = np.ones(number, dtype=np.bool_)
        running = np.arange(number)
        for k in range(1, MOST_STEPS):
            if k > 1:  # a coin of g/k is a coin of 1/k and a coin of g
                running = running[self.below(k, running.size) == 0]
            running = running[toss(running)]
            if not running.size:
                return heads
            heads[running] ^= True
        raise broken_source()

    def geometric(self, t: int, s: int, number: int) -> Integers:
        """Run ``number`` proposals of the law exp(-x s/t), x >= 0; return those that are accepted."""
        low = self.below(t, number)
        low = low[self.exp_coins(number, lambda lanes: self.below(t, lanes.size) < low[lanes])]
        high = np.zeros(low.size, dtype=np.int64)
        running = np.arange(low.size)
        for _ in range(MOST_STEPS):
            if not running.size:
                break
            running = running[self.exp_coins(running.size, _always)]
            high[running] += 1
        else:
            raise broken_source()
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
        whole, rest = divmod(s, t)
        decays = self.decay_coins(np.full(zero.size, whole), np.full(zero.size, rest), t)
        drawn[zero[~decays]] = 0
        x = fill(lambda lanes: self.geometric(t, s, lanes), any_.size, expected=0.6)
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

    def decay_coins(self, whole: Integers, rest: Integers, unit: int) -> Flags:
        """Toss coins of exp(-(whole + rest/unit)), 0 <= rest < unit < 2^62, one for each lane.

        They are a coin of exp(-1) for each whole part, and one of the rest; all must succeed. From
        ``whole`` = 1000 on a coin never succeeds.
        """
        kept = self.exp_coins(rest.size, lambda lanes: self.below(unit, lanes.size) < rest[lanes])
        alive = np.flatnonzero(kept)
        for step in range(MOST_STEPS):
            alive = alive[whole[alive] > step]
            if not alive.size:
                return kept
            heads = self.exp_coins(alive.size, _always)
            kept[alive[~heads]] = False
            alive = alive[heads]
        raise broken_source()

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
            raise broken_source()
        words = np.frombuffer(raw, dtype="<u8").astype(np.uint64)
        if number >= _MANY_WORDS and bool((words == words[0]).all()):
            raise broken_source()
        return words


def _always(lanes: NDArray[np.intp]) -> Flags:
    return np.ones(lanes.size, dtype=np.bool_)


def _of(toss: Coin, chosen: NDArray[np.intp]) -> Coin:
    """Return the coins of the ``chosen`` lanes, renumbered from 0."""
    return lambda lanes: toss(chosen[lanes])
