"""Local sensitivities as the 2018 paper computes them, for comparison with its figures.

These lists follow the published algorithms step by step, so that figures made with them can be
made again, and :mod:`pate.accounting.publishing.gnss` be compared with them. Two things about them are
not proven in general. Algorithms 4 and 5 rest on conditions (C5 and C6 of the paper) that a numerical
minimiser can only make plausible; and the list of the threshold check holds differences at distance
*exactly* d, the last distance left out. What holds for every bound and every noise is
:mod:`pate.accounting.publishing.smooth_sensitivity`.

One vote changes per unit, and noise is N(0, sigma^2), as in the paper.

Source: Papernot et al. 2018 (arXiv 1802.08908), appendix B.4.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy import special

from pate.accounting.arrays import (
    Floats,
    check_histograms,
    check_log_probabilities,
    check_orders,
    check_positive,
)
from pate.accounting.bounds import theorem6
from pate.accounting.bounds.laws import Gaussian
from pate.accounting.bounds.outlier import gnmax_log_q
from pate.errors import AccountingError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

#: More teachers than that would make lists that are too long.
_MOST_TEACHERS: Final = 10**7


def gnmax(votes: ArrayLike, teachers: int, sigma: float, order: float) -> Floats:
    """Return bounds on the local sensitivity of Theorem 6's cost at distances 0 to teachers - 1.

    >>> gnmax([10, 0, 0], 10, 0.5, 1.5).round(9)[:5].tolist()
    [0.0, 1.6e-08, 0.005906818, 5.999813079, 5.999813079]

    Args:
        votes: (classes,) counts of one query.
        teachers: how many distances to list.
        sigma: noise on each count.
        order: Renyi order.

    Returns:
        (teachers,) nats.

    Raises:
        AccountingError: for arguments that make no sense.

    Source: Papernot et al. 2018, Algorithms 3, 4 and 5.
    """
    counts = np.sort(check_histograms(np.asarray(votes)[None, :])[0])[::-1].copy()
    law, distances = Gaussian(check_positive(sigma, "sigma")), _check_teachers(teachers)
    step = _GnmaxStep(law, len(counts), float(check_orders([order])[0]))
    log_q = float(gnmax_log_q(counts[None, :], law)[0])
    made = np.full(distances, step.local_sensitivity(step.log_q1))
    if step.log_q1 <= log_q <= step.log_q0:
        return made
    made[0] = step.local_sensitivity(log_q)
    falling = log_q > step.log_q0
    for distance in range(1, distances):
        if falling:
            if log_q <= step.log_q0 or counts[1] <= 0.0:
                break
            counts[0] += 1.0
            counts[1] -= 1.0
            counts[1:] = np.sort(counts[1:])[::-1]
        else:
            if log_q >= step.log_q1:
                break
            counts[0] -= 1.0
            counts[1] += 1.0
        log_q = float(gnmax_log_q(counts[None, :], law)[0])
        made[distance] = step.local_sensitivity(log_q)
    return made


def threshold(
    votes: ArrayLike, teachers: int, check_at: float, sigma: float, order: float
) -> Floats:
    """Return local sensitivities of Theorem 6's cost of the check, at distance exactly d.

    Args:
        votes: (classes,) counts of one query, or margins; the largest is rounded to a whole
            number, halves to the even one.
        teachers: how many there are, and the length of the list.
        check_at: T, in votes.
        sigma: noise of the check.
        order: Renyi order.

    Returns:
        (teachers,) nats; 0 beyond the last distance that the paper's algorithm looks at.

    Raises:
        AccountingError: for arguments that make no sense, or a largest count not in [0, teachers].

    Source: Papernot et al. 2018, appendix B.4.1.
    """
    sigma, distances = check_positive(sigma, "sigma"), _check_teachers(teachers)
    given = np.asarray(votes, np.float64)
    if given.ndim != 1 or not given.size or not np.isfinite(given).all():
        raise AccountingError("votes of a query are a list of finite numbers")
    if not math.isfinite(check_at):
        raise AccountingError(f"a threshold is a finite number of votes, got {check_at}")
    top = int(np.rint(given.max()))
    if not 0 <= top <= distances:
        raise AccountingError(f"the largest count is {top}, of {distances} teachers")
    behind = check_at - np.arange(distances + 1.0)
    log_q = np.minimum(special.log_ndtr(-behind / sigma), special.log_ndtr(behind / sigma))
    costs = theorem6.rdp(log_q, 1.0 / (2.0 * sigma**2), [order])[:, 0]
    steps = np.abs(np.diff(costs))
    local = np.maximum(np.append(steps, 0.0), np.append(0.0, steps))
    made = np.zeros(distances)
    for distance in range(max(top, distances - top)):
        above = local[top + distance] if top + distance <= distances else 0.0
        below = local[top - distance] if top >= distance else 0.0
        made[distance] = max(above, below)
    return made


def discounted_maximum(beta: float, local: ArrayLike) -> float:
    """Return the smooth sensitivity: the largest of exp(-beta d) times the d-th of ``local``.

    >>> round(discounted_maximum(0.03, gnmax([10, 0, 0], 10, 0.5, 1.5)), 9)
    5.483416279

    Args:
        beta: by which each unit of distance discounts.
        local: (distances,) local sensitivities at distances 0, 1, ...

    Raises:
        AccountingError: for a beta that is not above 0, or a sensitivity that cannot be one.

    Source: Nissim, Raskhodnikova, Smith 2007, Claim 3.2.
    """
    beta = check_positive(beta, "beta")
    given = np.asarray(local, np.float64)
    if given.ndim != 1 or not given.size or not (given >= 0.0).all():
        raise AccountingError("local sensitivities are a list of numbers that are not negative")
    return float((given * np.exp(-beta * np.arange(given.size))).max())


class _GnmaxStep:
    """Algorithm 3: how far Theorem 6's cost can move with one vote, as a function of q."""

    def __init__(self, law: Gaussian, classes: int, order: float) -> None:
        self._law = law
        self._rate = 1.0 / law.sigma**2
        self._order = order
        self._log_others = math.log(classes - 1)
        # The published code starts looking here for where Theorem 6 helps, and not above.
        start = max(1.0 + 1.0 / law.sigma, (order - 0.99) / law.sigma) ** 2
        self.log_q0 = min(-start, theorem6.log_q0(self._rate, order))
        self.log_q1 = self._moved(self.log_q0, 2.0)

    def local_sensitivity(self, log_q: float) -> float:
        """Return the larger of how much the cost can rise and fall from ``log_q``."""
        if self.log_q1 <= log_q <= self.log_q0:
            log_q = self.log_q1
        here, above, below = (self._cost(self._moved(log_q, by)) for by in (0.0, -2.0, 2.0))
        return max(above - here, here - below)

    def _moved(self, log_q: float, votes: float) -> float:
        """Return B_L (2 votes more between the classes) or B_U (2 votes less) of q."""
        if votes == 0.0:
            return log_q
        checked = check_log_probabilities([log_q - self._log_others])
        gap = self._law.gap_at(checked) + votes
        return min(0.0, float(self._law.log_gap_tail(gap)[0]) + self._log_others)

    def _cost(self, log_q: float) -> float:
        if log_q >= self.log_q0:
            return self._rate * self._order
        return float(theorem6.rdp([log_q], self._rate, [self._order])[0, 0])


def _check_teachers(teachers: int) -> int:
    if isinstance(teachers, bool) or not 1 <= teachers <= _MOST_TEACHERS:
        raise AccountingError(f"teachers are from 1 to {_MOST_TEACHERS}, got {teachers!r}")
    return int(teachers)
