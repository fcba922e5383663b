"""The exponential mechanism, exactly: an index is chosen with probability ~ exp(rate score).

Scores are integers and the rate is a fraction, so no float is involved. Candidates are proposed
uniformly, and one is accepted with probability exp(-rate (best - score)); what is accepted has the
stated law. With rate = epsilon / (2 sensitivity) the choice is epsilon-DP, and, because the ratio
of its probabilities has bounded range, (epsilon^2/8)-zCDP.

Source: McSherry, Talwar 2007, Theorem 6; Cesar, Rogers 2021, Lemma 3.2; the coins are Canonne,
Kamath, Steinke 2020, Algorithm 1.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.errors import AccountingError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from party.synthesis.table.randomness import Randomness

#: No run of coins gets this long: reaching it means that the bits are not random.
_MOST_STEPS: Final = 1000
#: Proposals per pass, at most.
_PROPOSALS: Final = 2**15


def usable_rate(rate: Fraction) -> Fraction:
    """Return ``rate``, or the next smaller one that :func:`choose` supports."""
    if rate.denominator < 2**62:
        return rate
    return Fraction(math.floor(rate * 2**61), 2**61)


def choose(scores: Sequence[int], rate: Fraction, randomness: Randomness) -> int:
    """Return an index with probability proportional to exp(rate scores[index]).

    Args:
        scores: one or more integers of any size.
        rate: above zero, its denominator below 2^62.
        randomness: uniform numbers.

    Raises:
        UsageError: if there are no scores, or the rate cannot be kept.
        AccountingError: if the random bits are plainly not random.
    """
    if not scores:
        raise UsageError("nothing to choose from")
    if rate <= 0 or rate.denominator >= 2**62:
        raise UsageError(
            f"cannot choose at a rate of {rate}: it is too small, or has too many digits"
        )
    best = max(scores)
    split = [divmod((best - score) * rate.numerator, rate.denominator) for score in scores]
    # A run of coins of exp(-1) never reaches the cut.
    whole = np.array([min(i, _MOST_STEPS) for i, _ in split], dtype=np.int64)
    rest = np.array([r for _, r in split], dtype=np.int64)
    # On average one proposal in no more than len(scores) is accepted.
    for _ in range(_MOST_STEPS):
        proposed = randomness.below(len(scores), min(_PROPOSALS, 2 * len(scores) + 8))
        accepted = exponential_coins(whole[proposed], rest[proposed], rate.denominator, randomness)
        if accepted.any():
            return int(proposed[np.argmax(accepted)])
    raise _broken()


def exponential_coins(
    whole: NDArray[np.int64], rest: NDArray[np.int64], unit: int, randomness: Randomness
) -> NDArray[np.bool_]:
    """Toss coins of exp(-(whole + rest/unit)).

    Args:
        whole: (n,) integers >= 0; from 1000 on a coin that never succeeds.
        rest: (n,) integers in [0, unit).
        unit: below 2^62.
        randomness: uniform numbers.
    """
    kept = _coins(rest, unit, randomness)
    alive = np.flatnonzero(kept)
    for step in range(_MOST_STEPS):
        alive = alive[whole[alive] > step]
        if not alive.size:
            return kept
        heads = _coins(np.ones(alive.size, dtype=np.int64), 1, randomness)
        kept[alive[~heads]] = False
        alive = alive[heads]
    raise _broken()


def _coins(part: NDArray[np.int64], unit: int, randomness: Randomness) -> NDArray[np.bool_]:
    """Toss coins of exp(-part/unit), 0 <= part <= unit.

    The k-th toss of a lane succeeds with probability part/(unit k); the first failure comes at an
    odd toss with probability exp(-part/unit).
    """
    heads = np.ones(part.size, dtype=np.bool_)
    running = np.arange(part.size)
    for k in range(1, _MOST_STEPS):
        running = running[randomness.below(k, running.size) == 0]
        running = running[randomness.below(unit, running.size) < part[running]]
        if not running.size:
            return heads
        heads[running] ^= True
    raise _broken()


def _broken() -> AccountingError:
    return AccountingError(
        "the source of random bits is broken: check the operating system's generator"
    )
