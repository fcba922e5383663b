"""The least noise of a matrix of votes for a wanted epsilon and delta, and the smaller of its two laws.

Geometric noise is calibrated to L1, 2k for a unit of k votes, and gives epsilon at delta 0. Gaussian noise
is calibrated to L2, k sqrt(2). (These are of nearest votes; :mod:`pate.codes` has the others.) Which of
them is smaller follows from public numbers only.

Noise is in units of the counts, of which ``code.grid`` are one vote: one of nearest votes for a class.

Source: docs/proofs/noise.md, section 8, and docs/proofs/discrete-gaussian.md.
"""

from __future__ import annotations

import contextlib
import math
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from pate.accounting.composition import Gdp, Pure
from pate.codes import NEAREST, code_of
from pate.errors import BudgetError
from pate.mechanisms.matrix import event_of
from pate.noise.exact import LARGEST_SHARED
from pate.noise.share_laws import IN_WORDS, GaussianShares, GeometricShares, Shares
from pate.rounds.plan import parts_of

if TYPE_CHECKING:
    from pate.accounting import Adjacency
    from pate.noise import NoiseLawName

#: Shares, sigmas and scales are whole multiples of 1/64, as those of other noise.
_GRID: Final = 64
#: Larger ones exceed any number of votes, and could not be drawn exactly in units of 1/64.
_MOST_SHARE: Final = 2**19


def least_noise(
    epsilon: float,
    delta: float,
    honest: int,
    votes_per_unit: int,
    code: str = NEAREST,
    adjacency: Adjacency = "change",
) -> Shares:
    """Return the least noise with which one matrix costs at most (epsilon, delta).

    It is geometric at delta 0, else Gaussian.

    >>> least_noise(0.1, 0.0, 3, 1)
    GeometricShares(scale=Fraction(20, 1), honest=3)

    Args:
        epsilon: of the whole release.
        delta: at which it holds.
        honest: shares in every sum that the observer does not know; 1 where the server draws the
            noise.
        votes_per_unit: votes that one unit casts at most.
        code: where each of them counts and what it says, the text of a :class:`~pate.codes.Code`.
        adjacency: whether a unit changes its votes, or is added or removed.

    Returns:
        The law of the shares, in units of the counts.

    Raises:
        AccountingError: for an epsilon or delta that makes no sense.
        BudgetError: if no noise gives so small an epsilon.
        UsageError: for a text that is no code, or a number of votes or shares that makes no sense.
    """
    if delta == 0.0:
        distance = code_of(code).change(votes_per_unit, adjacency).total
        return GeometricShares(least_scale(epsilon, honest, distance), honest)
    return GaussianShares(least_share(epsilon, delta, honest, votes_per_unit, code, adjacency))


def law_of_least_noise(
    epsilon: float,
    delta: float,
    honest: int,
    parties: int,
    votes_per_unit: int,
    code: str = NEAREST,
) -> NoiseLawName:
    """Return the law with the smaller standard deviation on a count, if all parties stay.

    >>> law_of_least_noise(0.1, 1e-5, 3, 5, 1)
    'geometric'

    Arguments are those of :func:`least_noise`, and the number of parties that add noise; geometric noise
    needs no delta.

    Raises:
        BudgetError: if no noise of either law gives so small an epsilon.
    """
    spreads = spreads_of(epsilon, delta, honest, parties, votes_per_unit, code)
    if not spreads:
        raise BudgetError(f"no noise gives a matrix of votes epsilon {epsilon:g}")
    return min(spreads, key=lambda law: spreads[law])


def spreads_of(
    epsilon: float,
    delta: float,
    honest: int,
    parties: int,
    votes_per_unit: int,
    code: str = NEAREST,
) -> dict[NoiseLawName, float]:
    """Return the standard deviation of the least noise of each law, if all parties stay.

    Arguments are those of :func:`law_of_least_noise`. A law that allows no such epsilon, or Gaussian
    noise at delta 0, is left out. It is in units of the counts.
    """
    found: dict[NoiseLawName, float] = {}
    wanted: list[tuple[NoiseLawName, float]] = [("geometric", 0.0)]
    if delta > 0.0:
        wanted.append(("gaussian", delta))
    for law, at in wanted:
        with contextlib.suppress(BudgetError):
            found[law] = least_noise(epsilon, at, honest, votes_per_unit, code).spread(parties)
    return found


def noise_in_words(
    epsilon: float,
    delta: float,
    honest: int,
    parties: int,
    votes_per_unit: int,
    law: NoiseLawName,
    code: str = NEAREST,
) -> str:
    """Return one line: the chosen law, and the standard deviation of each, in votes.

    >>> noise_in_words(0.1, 1e-5, 1, 1, 1, "geometric")
    'noise on each count: geometric, standard deviation 28.28, at delta 0 (Gaussian: 43.5, at delta 1e-05)'

    Arguments are those of :func:`law_of_least_noise`, and the chosen law.

    Raises:
        BudgetError: if that law allows no such epsilon.
    """
    spreads = spreads_of(epsilon, delta, honest, parties, votes_per_unit, code)
    if law not in spreads:
        raise BudgetError(f"no {IN_WORDS[law]} noise gives a matrix of votes epsilon {epsilon:g}")
    spreads = {name: spread / code_of(code).grid for name, spread in spreads.items()}
    at: dict[NoiseLawName, float] = {"geometric": 0.0, "gaussian": delta}
    other = "".join(
        f" ({IN_WORDS[name]}: {spread:.4g}, at delta {at[name]:g})"
        for name, spread in spreads.items()
        if name != law
    )
    return (
        f"noise on each count: {IN_WORDS[law]}, standard deviation {spreads[law]:.4g}, at delta {at[law]:g}"
        f"{other}"
    )


def least_scale(epsilon: float, honest: int, distance: int) -> Fraction:
    """Return the least scale of geometric noise with which one matrix costs at most epsilon.

    >>> least_scale(0.1, 3, 2), least_scale(1.0, 3, 2)
    (Fraction(20, 1), Fraction(2, 1))

    It is distance / epsilon, up to the next 1/64 of a unit of the counts. The distance is the largest L1
    distance of neighbours, in these units; epsilon is at delta 0.

    Raises:
        BudgetError: if no noise gives so small an epsilon.
    """
    cells = math.ceil(_GRID * distance / Pure().budget(epsilon, 0.0)) if epsilon > 0 else math.inf
    if cells > (_MOST_SHARE if honest == 1 else LARGEST_SHARED) * _GRID:
        raise BudgetError(f"no geometric noise gives a matrix of votes epsilon {epsilon:g}")
    return Fraction(int(cells), _GRID)


def least_share(
    epsilon: float,
    delta: float,
    honest: int,
    votes_per_unit: int,
    code: str = NEAREST,
    adjacency: Adjacency = "change",
) -> Fraction:
    """Return the least sigma of a Gaussian share with which one matrix costs at most (epsilon, delta).

    The cost is the mu of Gaussian differential privacy, L2 / sqrt(honest sigma^2), times what discrete noise
    costs above the continuous.

    >>> float(least_share(0.1, 1e-5, 1, 1)), float(least_share(0.1, 1e-5, 1, 1, "dense-9"))
    (43.5, 130.46875)

    It is a multiple of 1/64 of a unit of the counts, from one unit on. Arguments and errors are those of
    :func:`least_noise`, with a delta above 0.

    Source: Dong, Roth and Su, "Gaussian Differential Privacy", JRSS B 2022, Theorem 2.7, for the law;
    docs/proofs/discrete-gaussian.md for discrete noise.
    """
    try:
        most = Gdp().budget(epsilon, delta)
        return least_share_of(most, honest, votes_per_unit, code, adjacency)
    except BudgetError as error:
        raise BudgetError(
            f"no noise gives a matrix of votes epsilon {epsilon:g} at delta {delta:g}"
        ) from error


@lru_cache(maxsize=64, typed=True)  # read again with each ledger, and by a plan of several sizes
def least_share_of(
    most: Fraction,
    honest: int,
    votes_per_unit: int,
    code: str,
    adjacency: Adjacency = "change",
) -> Fraction:
    """Return the least sigma of a Gaussian share with which one matrix costs at most ``most``.

    As :func:`least_share`, of a cost in Gaussian differential privacy: mu^2 / 2.
    """

    def fits(cells: int) -> bool:
        shares = GaussianShares(Fraction(cells, _GRID))
        event = event_of(shares, honest, votes_per_unit, code, adjacency)
        return Gdp().supports(event) and Gdp().cost(event) <= most

    low, high = _GRID - 1, 2 * _GRID  # a share is at least one vote
    while not fits(high):
        low, high = high, 2 * high
        if high > _MOST_SHARE * _GRID:
            raise BudgetError(f"no noise gives a matrix of votes a cost of {float(most):g}")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return Fraction(high, _GRID)


def least_shares_of_rounds(
    epsilon: float, delta: float, honest: int, votes_per_unit: int, code: str, rounds: int
) -> tuple[Fraction, Fraction]:
    """Return the least sigma of a share in class counts, and in each of ``rounds`` after them.

    Together they cost at most (epsilon, delta). Arguments and errors are those of :func:`least_share`.
    """
    counts, residuals, *_ = parts_of(Gdp().budget(epsilon, delta), rounds)
    first = least_share_of(counts, honest, votes_per_unit, code)
    return first, least_share_of(residuals, honest, votes_per_unit, code)


def clear_margin(shares: Shares, parties: int) -> int:
    """Return a noisy margin that noise alone seldom reaches, in units of the counts.

    Twice the spread of the difference of two counts, 2 sqrt(2) standard deviations: two classes with
    equally many votes differ by that much with a probability of about 5 %.

    >>> clear_margin(GaussianShares(Fraction(40)), 1), clear_margin(GeometricShares(Fraction(20)), 1)
    (114, 80)

    ``parties``: whose shares may be in the sum; UsageError for a number that makes no sense.
    """
    return math.ceil(2 * math.sqrt(2) * shares.spread(parties))
