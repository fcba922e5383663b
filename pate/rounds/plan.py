"""How many rounds, how much a record's array is cut, and in how many directions: from public numbers.

nu = 1.25 K (C - 1) / (N mu^2) is the privacy noise of all numbers of a release relative to what the draw
of N records adds. Where it is large, fewer directions and shorter arrays are better. Where it is small and a
class is rare, longer ones are: its records disagree most with a model, and at the usual length each of their
arrays is cut. With kappa times the usual length the ratio is nu kappa^2: kappa is nu^(-1/2), within bounds.

The number of rounds does not depend on it: the next model is made of all of them
(:mod:`pate.rounds.solver`), so they cost next to nothing where they do not help. docs/votes.md has the sets
on which these numbers were chosen, and those on which they were tried.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from pate.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

#: The part of mu^2 that class counts get.
FIRST: Final = Fraction(3, 100)
#: Numbers of directions that are considered.
DIRECTIONS: Final = (64, 128, 256)
#: Most releases of residuals.
MOST_ROUNDS: Final = 16

_PER_NUMBER: Final = 1.25
_ROUNDS: Final = 4
#: Least and most kappa. Several labels, which share one length, have the least above this nu, else 1: longer
#: arrays were not tried there.
_SHORTEST: Final = 0.5
_LONGEST: Final = 2.0
_CUT_FROM: Final = 1.0
#: Largest nu with which more directions are taken.
_WIDER: Final = 1.5
#: Above this nu of the first of them, few classes have only so many directions.
_LOUD: Final = 40.0
_FEWEST: Final = 8
_FEW_CLASSES: Final = 4
_TINY: Final = 1e-12


@dataclass(frozen=True)
class Plan:
    """How a campaign goes."""

    rounds: int  # releases of residuals, after the one of class counts
    kappa: float  # an array is cut to this many times its usual length


def noise_ratio(classes: int, directions: int, records: float, mu: float) -> float:
    """Return nu.

    >>> round(noise_ratio(10, 128, 21_000, 0.25), 2)
    1.1
    """
    if classes < 2 or directions < 1 or not records > 0 or not mu > 0:
        raise UsageError(
            f"{classes} classes, {directions} directions, {records} records and mu {mu} have no plan"
        )
    return _PER_NUMBER * directions * (classes - 1) / (records * mu**2)


def told_apart(columns: int, *, several: bool) -> int:
    """Return C for the columns of a campaign: each of several labels is a question of two classes.

    >>> told_apart(10, several=False), told_apart(10, several=True)
    (10, 2)
    """
    return 2 if several else columns


def plan_of(
    classes: int,
    directions: int,
    records: float,
    mu: float,
    *,
    several: bool = False,
    rare: float = 1.0,
) -> Plan:
    """Return the rounds of a campaign, by the expected number of records or patients.

    The mu is of the whole campaign, for a record added or removed. Of several labels C is 2. ``rare`` is
    :func:`rare_length` of the classes.

    >>> plan_of(10, 128, 21_000, 1.0), plan_of(2, 128, 21_000, 1.0, rare=1.5)
    (Plan(rounds=4, kappa=1.0), Plan(rounds=4, kappa=1.5))
    """
    ratio = noise_ratio(classes, directions, records, mu)
    if several:
        return Plan(_ROUNDS, _SHORTEST if ratio > _CUT_FROM else 1.0)
    return Plan(_ROUNDS, min(max(ratio**-0.5, _SHORTEST), max(rare, 1.0), _LONGEST))


def rare_length(shares: Sequence[float]) -> float:
    """Return how long an array of the rarest class is, in usual lengths, where a model says only shares.

    >>> rare_length([0.5, 0.5]), round(rare_length([0.875, 0.125]), 2)
    (1.0, 2.65)
    """
    alike = sum(share**2 for share in shares)
    return float(((1 - 2 * min(shares) + alike) / max(1 - alike, _TINY)) ** 0.5)


def directions_of(classes: int, records: float, mu: float, most: int) -> int:
    """Return K: the most directions, up to ``most``, whose noise is still small.

    Where it is large even in the fewest of them, up to four classes are told apart in a handful.

    >>> [directions_of(10, 21_000, mu, 4_000) for mu in (0.03, 0.25, 1.0)]
    [64, 128, 256]
    >>> directions_of(2, 550, 0.03, 4_000)
    8
    """
    first = DIRECTIONS[0]
    if classes <= _FEW_CLASSES and noise_ratio(classes, first, records, mu) > _LOUD:
        return min(_FEWEST, most)
    fitting = [
        number
        for number in DIRECTIONS
        if number <= most and noise_ratio(classes, number, records, mu) <= _WIDER
    ]
    return max(fitting, default=min(first, most))


def parts_of(mu_squared: Fraction, rounds: int) -> tuple[Fraction, ...]:
    """Return mu^2 of each release, the class counts first; their sum is ``mu_squared`` exactly.

    >>> parts_of(Fraction(1), 2)
    (Fraction(3, 100), Fraction(97, 200), Fraction(97, 200))
    """
    if not 1 <= rounds <= MOST_ROUNDS:
        raise UsageError(f"from 1 to {MOST_ROUNDS} rounds, got {rounds}")
    each = mu_squared * (1 - FIRST) / rounds
    return (mu_squared * FIRST, *[each] * rounds)
