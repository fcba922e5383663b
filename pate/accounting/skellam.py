"""Skellam noise, the difference of two Poisson variables: what a histogram under it costs.

Its sums are Skellam again, so shares that several parties add make one law whose variance is the sum
of theirs: noise that nobody knows, made on the integers. At low orders it costs slightly more than
Gaussian noise of that variance; its tails are heavier, so at very high orders it costs less.

P[x] = e^(-V) I_x(V) for a variance V, with I the modified Bessel function. It is log-concave, hence
of all ways to move k votes the dearest is to move all from one class to one other, (+k, -k), and the
two coordinates cost the same: twice the divergence of the law from its shift by k.

Only bounds that look at no votes exist here. :class:`Skellam` answers for the chance of an outlier
and of passing a check, and refuses what needs a Gaussian trade-off.

Proof: docs/proofs/server-view.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn

import numpy as np
from scipy.special import i0e

from pate.accounting.arrays import Floats, check_orders, check_positive, check_rdp
from pate.accounting.bounds.laws import skellam_log_gap_tail
from pate.accounting.events import check_votes_per_unit
from pate.accounting.units import Neighbours
from pate.errors import AccountingError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from pate.accounting.units import Adjacency

_LEAST_VARIANCE, _LARGEST_VARIANCE = 0.01, 1e8
#: Terms that are left out add less than e^-45 of the sum, and what they may add is added.
_NEGLIGIBLE: Final = 45.0
#: No sum is longer: a shift by many more votes than that is not a question about privacy.
_LONGEST: Final = 2**25
#: Relative rounding error of a divergence, with room to spare.
_ROUNDING: Final = 1e-11


@dataclass(frozen=True)
class Skellam:
    """The law of Skellam noise, for the chances of outputs.

    >>> Skellam(100.0).log_survival([0.0]).round(6).tolist()
    [-0.65398]

    Attributes:
        variance: in votes squared.

    Raises:
        AccountingError: for a variance outside [0.01, 1e8].
    """

    variance: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "variance", _check_variance(self.variance))

    @property
    def sigma(self) -> float:
        """Standard deviation, in votes."""
        return math.sqrt(self.variance)

    @property
    def mu_of_step(self) -> NoReturn:
        """None: raises AccountingError.

        No Gaussian trade-off is proved of Skellam noise here, and 1/sigma is not one. So no bound
        that starts from a Gaussian pair applies, Theorem 6+ among them.
        """
        raise AccountingError(
            "no Gaussian trade-off is known of Skellam noise: Theorem 6+ and Gaussian DP do not apply "
            "to it. Use skellam_rdp, which looks at no votes"
        )

    def log_survival(self, t: ArrayLike) -> Floats:
        """Return log P[Z >= t] for thresholds ``t`` in votes, of any shape.

        Z is the difference of two of half the variance.

        Raises:
            AccountingError: for a threshold that is not finite.
        """
        return skellam_log_gap_tail(self.variance / 2.0, t)

    def log_gap_tail(self, gaps: ArrayLike) -> Floats:
        """Return log P[Z_j - Z_i >= gap] for ``gaps`` in votes, of any shape and sign.

        Raises:
            AccountingError: for a gap that is not finite.
        """
        return skellam_log_gap_tail(self.variance, gaps)

    def gap_at(self, log_tail: ArrayLike) -> NoReturn:
        """Raise AccountingError: only bounds that are refused for this noise would need it."""
        raise AccountingError(
            f"no gap for a chance of {log_tail!r}: no data-dependent bound covers Skellam noise"
        )


def skellam_rdp(
    variance: float, k: int, orders: ArrayLike, adjacency: Adjacency = "change"
) -> Floats:
    """Return the divergence of a noisy histogram from that of a neighbour, exactly.

    >>> skellam_rdp(100.0, 1, [2.0, 8.0]).round(9).tolist()
    [0.019999184, 0.079891368]

    The sum over the integers with a bound on the terms that are left out. Rounded up.

    Args:
        variance: of the noise on each count, in votes squared, as far as whoever sees the histogram
            does not know it.
        k: votes of one unit.
        orders: (orders,) Renyi orders.
        adjacency: whether the unit's votes ``change`` (two counts move by k) or are ``remove``d (one
            does).

    Returns:
        (orders,), in nats.

    Raises:
        AccountingError: for a variance outside [0.01, 1e8], orders not above 1, or a k so large
            beside the noise that the sum would never end.
        UsageError: for a k or an adjacency that makes no sense.

    Source: own summation; the mechanism is that of Agarwal, Kairouz, Liu 2021 (arXiv 2110.04995).
    Proof: docs/proofs/server-view.md, section 3.
    """
    width, alphas = _check_variance(variance), check_orders(orders)
    counts = 2 if Neighbours(k, adjacency).adjacency == "change" else 1
    farthest = _farthest(width, k, float(alphas.max()))
    steps = _steps(width, farthest + k)
    # The sum runs over x > k/2: the terms of x and k - x are equal, and that of k/2 is 0.
    x = np.arange(k // 2 + 1, farthest + 1)
    log_p = math.log(i0e(width)) - _running_sum(steps).astype(np.float64)
    middle = (log_p[np.abs(x - k)] + log_p[x]) / 2.0
    # Steps from -k on, those below 0 downhill: the logarithm of P[x-k]/P[x] is a sum of k of them.
    hill = _running_sum(np.concatenate([-steps[k - 1 :: -1], steps[:farthest]]))
    drop = (hill[x + k] - hill[x]).astype(np.float64)
    log_excess = np.empty(alphas.size)
    for place, order in enumerate(alphas.tolist()):
        rest = _fall(np.array([farthest]), width, k, order)[0]
        log_excess[place] = _log_excess(middle, drop, order, float(rest))
    made = counts * np.logaddexp(0.0, log_excess) / (alphas - 1.0)
    return check_rdp(made * (1.0 + _ROUNDING), "the cost of Skellam noise")


def skellam_rdp_bound(variance: float, k: int, orders: ArrayLike) -> Floats:
    """Return the published upper bound in closed form, for votes that change. (orders,), in nats.

    a d^2/(2V) + min(((2a-1) d^2 + 6 s)/(4V^2), 3s/(2V)), with d^2 = 2k^2 and s = 2k the squared l2
    and the l1 distance. Published for whole orders. To be compared with; :func:`skellam_rdp` is
    exact, and never above it as far as tests reach.

    >>> skellam_rdp_bound(100.0, 1, [2.0, 8.0]).round(9).tolist()
    [0.02045, 0.08105]

    Raises:
        AccountingError: for a variance outside [0.01, 1e8], or orders not above 1.
        UsageError: for a k that makes no sense.

    Source: Agarwal, Kairouz, Liu 2021 (arXiv 2110.04995), with scale 1.
    """
    width, alphas = _check_variance(variance), check_orders(orders)
    squared, total = 2.0 * check_votes_per_unit(k) ** 2, 2.0 * k
    more = ((2.0 * alphas - 1.0) * squared + 6.0 * total) / (4.0 * width**2)
    return alphas * squared / (2.0 * width) + np.minimum(more, 3.0 * total / (2.0 * width))


def _check_variance(variance: float) -> float:
    made = check_positive(variance, "variance")
    if not _LEAST_VARIANCE <= made <= _LARGEST_VARIANCE:
        raise AccountingError(
            f"the variance of Skellam noise must lie in [{_LEAST_VARIANCE}, {_LARGEST_VARIANCE:g}], "
            f"got {variance}"
        )
    return made


def _fall(x: Floats, width: float, k: int, order: float) -> Floats:
    """Return how much log(P[x-k]^order P[x]^(1-order)) falls at least from x to x + 1, for x >= k.

    It rises in x: once the terms fall by so much, they go on doing so.
    """
    made: Floats = np.arcsinh((x + 1.0) / width) - order * (k + 1.0) / np.hypot(width, x - k)
    return made


def _farthest(width: float, k: int, order: float) -> int:
    """Return the x beyond which the terms of the sum are negligible, for this and lower orders."""
    length = k + 64 + math.ceil(16.0 * math.sqrt(width))
    while length <= _LONGEST:
        fall = _fall(np.arange(k, length, dtype=np.float64), width, k, order)
        fallen = np.cumsum(np.maximum(fall, 0.0))
        if fallen[-1] > 2.0 * _NEGLIGIBLE:
            return k + int(np.searchsorted(fallen, 2.0 * _NEGLIGIBLE)) + 1
        length *= 2
    raise AccountingError(
        f"{k} votes at order {order} under noise of variance {width}: the sum does not end in time"
    )


def _steps(width: float, count: int) -> Floats:
    """Return log(P[x] / P[x+1]) for x = 0 .. count - 1.

    The ratios r[x] = P[x+1]/P[x] obey r[x-1] = 1 / (2x/V + r[x]), which is stable downwards: an
    error of r[x] comes back times r[x-1]^2 < 1. It starts so far out that nothing is left of the
    error of its start.
    """
    start = count + 64 + math.ceil(8.0 * math.sqrt(width))
    ratio = math.exp(-math.asinh((start + 0.5) / width))
    ratios = [0.0] * count
    for x in range(start, 0, -1):
        ratio = 1.0 / (2.0 * x / width + ratio)
        if x <= count:
            ratios[x - 1] = ratio
    made: Floats = -np.log(ratios)
    return made


def _running_sum(values: Floats) -> NDArray[np.longdouble]:
    # Tens of thousands of summands: where the machine has more digits, they are used.
    return np.concatenate([[0.0], np.cumsum(values, dtype=np.longdouble)])


def _log_excess(middle: Floats, drop: Floats, order: float, fall: float) -> float:
    """Return log(E - 1), E the sum of P[x-k]^order P[x]^(1-order), rounded up.

    x and k - x together give 4 sqrt(P[x-k] P[x]) sinh(order L/2) sinh((order-1) L/2), with
    L = log(P[x-k]/P[x]) > 0: no term is negative, so nothing cancels.

    Args:
        middle: log sqrt(P[x-k] P[x]).
        drop: L.
        order: above 1.
        fall: of which at least the terms fall at each step beyond the last x.
    """
    terms = middle + _log_sinh(order * drop / 2.0) + _log_sinh((order - 1.0) * drop / 2.0)
    largest = float(terms.max())
    total = math.log(4.0 * float(np.exp(terms - largest).sum())) + largest
    # A term is below P[x-k]^order P[x]^(1-order), which falls as a geometric series does.
    last = float(middle[-1] + (order - 0.5) * drop[-1])
    rest = last - math.log(math.expm1(fall))
    if not rest < total - _NEGLIGIBLE:
        raise AccountingError("a sum over Skellam noise did not end: nothing may be charged on it")
    return float(np.logaddexp(total, rest))


def _log_sinh(x: Floats) -> Floats:
    """Return log sinh(x) for x > 0."""
    made: Floats = x + np.log(-np.expm1(-2.0 * x)) - math.log(2.0)
    return made
