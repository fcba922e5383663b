"""One bit against another one: E, the sum of p^order p'^(1 - order), however near or far they are.

The order of magnitude is no obstacle: E - 1 keeps its relative accuracy down to 1e-270, and ln E up to
the largest float. Every figure is rounded up.

Proof: docs/proofs/threshold.md, sections 3 and 4.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from scipy.special import erfcx, log_ndtr

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pate.accounting.arrays import Floats

#: A few units in the last place: relative error of one logarithm, exponential or product.
ROUNDING: Final = 2.0**-50
#: Beyond this growth of the bit 1 its term is to be formed from logarithms.
LARGEST_GROWTH: Final = 100.0
#: Beyond this a sum of exponentials is added up in logarithms.
_LARGE: Final = 500.0
#: A moment is above 1 by at least this: less would be lost in the sum, not absent.
_LEAST_EXCESS: Final = 1e-270
#: Relative excess of :func:`supremum` over the largest value that it has seen.
_SLACK: Final = 1e-4
#: Standard deviations beyond which only the tails are left to bound.
_BEYOND: Final = 12.0


class Bits(NamedTuple):
    """A bit against a neighbour's; first the outcome 1, then 0.

    Attributes:
        log_p: (2, queries), logarithms of the chances here.
        ratio: (2, queries), logarithms of p'/p.
        error: (2, queries), by how much a ratio may be off, where that has not been made good.
    """

    log_p: Floats
    ratio: Floats
    error: Floats

    def at(self, queries: slice | NDArray[np.intp]) -> Bits:
        """Return the bits of some queries."""
        return Bits(*(part[:, queries] for part in self))

    def fill(self, excess_order: Floats, excess: Floats, passed: Floats, work: Floats) -> None:
        """Write E - 1, rounded up, and the term of the bit 1; all arrays are (queries, orders).

        E - 1 is the sum of p expm1(-l log(p'/p)), and infinite where a term is beyond e^500.
        """
        excess[:] = _LEAST_EXCESS
        for outcome in (1, 0):  # the last one leaves its term
            p = np.exp(self.log_p[outcome])[:, None]
            error = self.error[outcome]
            # p expm1(exponent), in ``passed`` the exponent.
            np.multiply.outer(-self.ratio[outcome], excess_order, out=passed)
            np.minimum(passed, 1.0, out=work)
            np.expm1(work, out=work)
            work *= p
            if passed.max() > 1.0:  # there expm1 may overflow while p underflows
                wide = passed > 1.0
                passed += self.log_p[outcome][:, None]
                beyond = passed > _LARGE
                np.exp(np.minimum(passed, _LARGE, out=passed), out=passed)
                np.copyto(work, passed - p, where=wide)
                work[beyond] = np.inf
                np.add(work, p, out=passed, where=~wide)
            else:
                np.add(work, p, out=passed)
            excess += work
            excess += np.multiply(np.abs(work, out=work), ROUNDING, out=work)
            if error.any():
                np.multiply.outer(error, excess_order, out=work)
                excess += np.multiply(work, passed, out=work)
        excess *= 1.0 + ROUNDING * (4.0 - self.log_p.sum(axis=0))[:, None]

    def log_moment(self, excess_order: Floats, growth: Floats | float = 0.0) -> Floats:
        """Return log E, rounded up, whatever its size; (queries, orders)."""
        excess, passed, work = np.empty((3, self.log_p.shape[1], excess_order.size))
        self.fill(excess_order, excess, passed, work)
        exponent = np.multiply.outer(-self.ratio, excess_order)
        logs = self.log_p[:, :, None] + exponent
        logs += ROUNDING * (np.abs(self.log_p)[:, :, None] + np.abs(exponent))
        logs += np.multiply.outer(self.error, excess_order)
        logs[0] += growth
        # p^a p'^(1-a) (e^growth - 1), where one factor may overflow while the other vanishes.
        excess -= np.exp(np.minimum(logs[0], _LARGE)) * np.expm1(-np.asarray(growth))
        large = np.isinf(excess) | (logs[0] > _LARGE)
        excess[large] = 0.0
        by_logs = np.logaddexp(*logs) * (1.0 + 8.0 * ROUNDING)
        made: Floats = np.where(large, by_logs, np.log1p(excess) * (1.0 + 4.0 * ROUNDING))
        return made


def supremum(mu: float, order: float) -> float:
    """Return an upper bound of sup over t of D(Bernoulli(Phi(-t)) || Bernoulli(Phi(-t - mu))).

    Cells of t are halved until none can hold more than 1.0001 times the largest value seen. Beyond
    both ends of t the divergence is bounded in closed form.

    Args:
        mu: above 0; where it is below 1e-6 it is lost in rounding.
        order: above 1.
    """
    excess_order = order - 1.0
    excess = np.array([excess_order])
    start = -mu - _BEYOND
    stop = excess_order * mu + _BEYOND
    left = np.logaddexp(-excess_order * log_ndtr(-start - mu), log_ndtr(start))
    right = np.logaddexp(0.0, order * log_ndtr(-stop) - excess_order * log_ndtr(-stop - mu))
    settled = max(float(left), float(right))
    plain = excess_order * order * mu**2 / 2.0
    cells = np.linspace(start, stop, 257)
    lows, highs = cells[:-1], cells[1:]
    best = 0.0
    while lows.size and best * (1.0 + _SLACK) < plain:
        middles = (lows + highs) / 2.0
        exact = _cell_of_mass(middles, middles, mu, excess)
        best = max(best, float(exact[np.isfinite(exact)].max(initial=0.0)))
        bounds = np.minimum(
            _cell_of_mass(lows, highs, mu, excess), _cell_of_slope(lows, highs, mu, order)
        )
        done = (bounds <= best * (1.0 + _SLACK)) | (middles <= lows) | (middles >= highs)
        settled = max(settled, float(bounds[done].max(initial=0.0)))
        lows, middles, highs = lows[~done], middles[~done], highs[~done]
        lows, highs = np.concatenate([lows, middles]), np.concatenate([middles, highs])
    return (plain if lows.size else settled) / excess_order


def _cell_of_mass(low: Floats, high: Floats, mu: float, excess_order: Floats) -> Floats:
    """Return an upper bound of the log moments at t from ``low`` to ``high``; exact if they agree.

    The chance that lies between t and t + mu is largest next to t = -mu/2. With it fixed the moment
    is convex in Phi(-t - mu), so it is largest at an end.
    """
    nearest = np.clip(-mu / 2.0, low, high)
    # The smaller of the two tails on either side of the mass is told apart without cancellation.
    inner = np.maximum(nearest, -nearest - mu)
    log_tail = log_ndtr(-inner)
    log_mass = log_tail + np.log(-np.expm1(log_ndtr(-inner - mu) - log_tail))
    log_mass += ROUNDING * (2.0 + inner * inner) / min(mu, 1.0)
    worst = np.zeros(low.size)
    for end in (low, high):
        passed, failed = log_ndtr(-end - mu), log_ndtr(end + mu)
        fits = log_mass < failed
        up = np.logaddexp(0.0, log_mass - passed)
        down = np.log1p(-np.exp(np.where(fits, log_mass - failed, -1.0)))
        parts = [passed + up, failed + down], [-up, -down], np.zeros((2, low.size))
        found = Bits(*map(np.asarray, parts)).log_moment(excess_order)[:, 0]
        worst = np.maximum(worst, np.where(fits, found, np.inf))
    return worst


def _cell_of_slope(low: Floats, high: Floats, mu: float, order: float) -> Floats:
    """Return another one, sharp where the rare bit 1 makes nearly all of a large moment.

    The hazard rate of N(0, 1) rises, which bounds the slope of the logarithm of its term on both
    sides. The term of the bit 0 is below P[0], for p' < p.
    """
    middle, half = (low + high) / 2.0, (high - low) / 2.0
    steepest = (order - 1.0) * _hazard(high + mu) - order * _hazard(low)
    shallowest = (order - 1.0) * _hazard(low + mu) - order * _hazard(high)
    at_middle = order * log_ndtr(-middle) - (order - 1.0) * log_ndtr(-middle - mu)
    most = at_middle + half * np.maximum(steepest, -shallowest)
    made: Floats = np.logaddexp(most, log_ndtr(high)) + 64.0 * ROUNDING * order * (1.0 + high**2)
    return made


def _hazard(x: Floats) -> Floats:
    made: Floats = math.sqrt(2.0 / math.pi) / erfcx(x / math.sqrt(2.0))
    return made
