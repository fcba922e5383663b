"""Noise shares of parties: the size of a share, and the law and bounds of their sum.

Each party adds an independent draw of N_Z(0, s^2), its *share*, to every count before it masks
them. The guarantee rests on the shares of the ``honest`` parties that are in every sum, h = t - c:
which no one else knows. All survivors add theirs, so a sum has more noise than needed, most when no
party drops out.

All arithmetic is exact, on public integers, so every machine gets the same result. Tails are those
of sums of discrete Gaussians, E exp(x Z) <= exp(x^2 s^2 / 2) for every real x, so P[|Z_1 + ... +
Z_n| >= r] <= 2 exp(-r^2 / (2 n s^2)) (Canonne, Kamath, Steinke 2020, arXiv 2004.00010;
docs/proofs/noise.md, section 4). They are bounds, not approximations.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.errors import ProtocolError, UsageError
from pate.noise.exact import check_scale

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pate.noise.exact import Noise

#: Least share, in votes: with smaller ones the sum is not close to a discrete Gaussian.
LEAST_SHARE: Final = Fraction(1)
#: Largest accepted number of parties in one sum.
MOST_PARTIES: Final = 2**16
#: Failure probability of a bound on honest noise.
FAILURE: Final = 2.0**-60

#: Shares and sigmas are whole multiples of 1/64: short in a ledger, drawn exactly.
_GRID: Final = 64
_MOST_CELLS: Final = 2**60
#: Just above ln 2.
LN_2: Final = Fraction(693_148, 10**6)
#: Just below 2 pi^2 / ln 2.
_RIPPLE_BITS: Final = Fraction(28_477, 1_000)
#: Smaller ripples are counted as 2^-100.
_LEAST_RIPPLE: Final = 100
#: From this many shares on each further one adds a ripple counted as large as the last.
_STEPS: Final = 64


def check_share(share: Fraction) -> Fraction:
    """Return ``share`` if it can be a party's noise, in votes, else raise UsageError."""
    made = check_scale(share, "a noise share")
    if made < LEAST_SHARE:
        raise UsageError(f"a noise share is at least {LEAST_SHARE} vote, got {made}")
    return made


def check_parties(number: int, what: str) -> int:
    """Return ``number`` if a sum can have that many parties, else raise UsageError."""
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= MOST_PARTIES:
        raise UsageError(f"{what} must be a whole number from 1 to {MOST_PARTIES}, got {number!r}")
    return number


def share_sigma(sigma: Fraction, honest: int) -> Fraction:
    """Return the least share with which ``honest`` parties reach a wanted noise.

    The least multiple s of 1/64, and at least 1, with honest * s^2 >= sigma^2.

    >>> share_sigma(Fraction(40), 16), share_sigma(Fraction(40), 15)
    (Fraction(10, 1), Fraction(661, 64))

    Args:
        sigma: wanted parameter of the honest parties' noise on each count, in votes.
        honest: honest parties in every sum, t - c.

    Raises:
        UsageError: for a sigma or number of parties that makes no sense.
    """
    wanted, honest = check_scale(sigma, "sigma"), check_parties(honest, "honest parties")
    least = math.ceil(_GRID**2 * wanted**2 / honest)
    share = Fraction(math.isqrt(least - 1) + 1, _GRID)
    return check_share(max(share, LEAST_SHARE))


def draw_share(noise: Noise, share: Fraction, cells: int) -> NDArray[np.int64]:
    """Return one party's share of the noise on (cells,) counts: int64, votes.

    Args:
        noise: its source.
        share: parameter of the share, in votes.
        cells: number of counts, each with its own draw.
    """
    return noise.gaussian(share, cells)


def total_sigma(share: Fraction, parties: int) -> Fraction:
    """Return sqrt(parties) * share, rounded down to a multiple of 1/64.

    For the honest parties it is the guaranteed noise; for all survivors, the noise on the labels.
    :func:`ripple` bounds the distance of the sum from a discrete Gaussian. :func:`share_sigma` of
    the result and ``parties`` is the share again.

    >>> total_sigma(Fraction(10), 16), float(total_sigma(Fraction(10), 25))
    (Fraction(40, 1), 50.0)

    Raises:
        UsageError: for a share or number of parties that makes no sense.
    """
    share, parties = check_share(share), check_parties(parties, "parties")
    return Fraction(math.isqrt(math.floor(_GRID**2 * parties * share**2)), _GRID)


@lru_cache(maxsize=256)
def ripple(share: Fraction, honest: int) -> Fraction:
    """Return tau: an upper bound on how much ln(S/B) varies over the integers, a short fraction.

    S is the law of a sum of ``honest`` shares, B the discrete Gaussian of their joint parameter.
    When share j + 1 joins the j before it, the ratio varies by at most ln((1+e)/(1-e)), with
    e = 2 (q + q^4 + q^9 + ...), q = exp(-2 pi^2 w), w = s^2 j/(j+1). As 2 pi^2 / ln 2 > 28.477,
    q is at most 2^-n, n = floor(28.477 w) >= 14; and the logarithm is at most 5 * 2^-n. It falls
    in j.

    >>> round(float(ripple(Fraction(1), 10)), 6), float(ripple(Fraction(4), 10)) < 1e-28
    (0.000329, True)

    Raises:
        UsageError: for a share or number of parties that makes no sense.

    Source: docs/proofs/discrete-gaussian.md, sections 6 and 8.
    """
    share, honest = check_share(share), check_parties(honest, "honest parties")
    total, term = Fraction(0), Fraction(0)
    for j in range(1, min(honest, _STEPS + 1)):
        bits = math.floor(_RIPPLE_BITS * share**2 * Fraction(j, j + 1))
        term = Fraction(5, 2 ** min(bits, _LEAST_RIPPLE))
        total += term
    return total + max(0, honest - 1 - _STEPS) * term


def largest_noise(
    share: Fraction, parties: int, cells: int, failure: float | Fraction = FAILURE
) -> int:
    """Return a bound on the summed shares on any count, exceeded with probability ``failure``.

    >>> largest_noise(Fraction(10), 25, 1000 * 10)
    509

    Args:
        share: parameter of each share, in votes.
        parties: whose shares are in the sum.
        cells: counts, over all queries and classes.
        failure: probability with which the sum on some count may be larger in magnitude.

    Raises:
        UsageError: for arguments that make no sense.
    """
    share, parties = check_share(share), check_parties(parties, "parties")
    return _reach(parties * share**2, cells, failure)


def check_row_totals(
    noisy: NDArray[np.int64],
    teachers: int,
    share: Fraction,
    parties: int,
    failure: float | Fraction = FAILURE,
) -> None:
    """Check that honest noise explains the distance of noisy row totals from M.

    Exact counts sum to M in every row. Noisy ones do not: a row total carries the noise of all its
    counts. Tested are each row total less M, and their sum over the batch, against bounds that
    honest noise passes but with probability ``failure``. The test is coarse: with sigma 50 on each
    of 10 classes some thousand votes too many in one row may slip through, or some ninety in each
    of 1,000 rows: twice the bounds. Only vote proofs constrain how a party distributes its votes
    within a row.

    Args:
        noisy: (queries, classes) int64, summed votes and shares.
        teachers: M, of the parties in the sum.
        share: parameter of each share, in votes.
        parties: whose shares are in the sum.
        failure: probability of a false alarm for honest parties.

    Raises:
        ProtocolError: naming the worst row, if the totals do not fit ``teachers``; or for counts of
            another shape or type.
        UsageError: for other arguments that make no sense.
    """
    if noisy.dtype != np.int64 or noisy.ndim != 2 or noisy.shape[1] < 2:
        raise ProtocolError(f"noisy votes are {noisy.dtype} of shape {noisy.shape}")
    if not len(noisy):
        return
    if max(abs(int(noisy.min())), abs(int(noisy.max()))) > 2**40:
        raise ProtocolError("noisy votes have a count beyond what noise explains")
    row_bound, batch_bound = _bounds(share, parties, len(noisy), noisy.shape[1], failure)
    excess = noisy.sum(axis=1) - teachers
    worst = int(np.abs(excess).argmax())
    whole = sum(excess.tolist())
    if abs(int(excess[worst])) <= row_bound and abs(whole) <= batch_bound:
        return
    raise ProtocolError(
        f"noisy votes do not sum to {teachers} teachers: the worst is row {worst}, off by "
        f"{int(excess[worst])} where noise explains {row_bound}; all {len(noisy)} rows are off by "
        f"{whole} where it explains {batch_bound}"
    )


def _bounds(
    share: Fraction, parties: int, rows: int, classes: int, failure: float | Fraction
) -> tuple[int, int]:
    """Return bounds on one row's noise and on that of all rows, each with half of ``failure``."""
    share, parties = check_share(share), check_parties(parties, "parties")
    if rows < 1 or classes < 2:
        raise UsageError(f"cannot check {rows} rows of {classes} classes")
    half = Fraction(failure) / 2
    variance = classes * parties * share**2
    return _reach(variance, rows, half), _reach(rows * variance, 1, half)


def _reach(variance: Fraction, tests: int, failure: float | Fraction) -> int:
    """Return r so that none of ``tests`` sums exceeds r in magnitude, except with ``failure``.

    r + 1 is the least integer with 2 tests exp(-(r+1)^2 / (2 variance)) <= failure, the logarithm
    rounded up to whole bits.
    """
    bits = bits_of_failure(tests, failure)
    return math.isqrt(math.ceil(2 * variance * bits * LN_2) - 1)


def bits_of_failure(tests: int, failure: float | Fraction) -> int:
    """Return log2 of 2 tests/failure, rounded up: the bits that a bound on two tails must have.

    Raises:
        UsageError: for numbers that make no sense.
    """
    if isinstance(tests, bool) or not isinstance(tests, int) or not 1 <= tests <= _MOST_CELLS:
        raise UsageError(f"noise of {tests!r} counts: give a whole number from 1 to 2^60")
    if not 0 < failure < 1:
        raise UsageError(f"a failure probability must be between 0 and 1, got {failure}")
    return (math.ceil(2 * tests / Fraction(failure)) - 1).bit_length()
