"""The bound by outcomes: what a label of GNMax can cost, from the chance of every class.

With r_j = P'_j / P_j and W(r) = r^(1-order) - 1 + (order - 1)(r - 1), it is the largest value of

    exp((order - 1) RDP) - 1  =  sum over all classes of P_j W(r_j)

within the factors by which a neighbour's k votes can change each chance. It is one-sided: it holds
for the given votes against any neighbour, not the reverse.

Source: own. Proof: docs/proofs/theorem-6-plus.md, section 9.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from scipy import special

from pate.accounting.arrays import (
    Floats,
    blocks,
    check_histograms,
    check_orders,
    check_rdp,
    on_all_cores,
)
from pate.accounting.bounds.laws import DiscreteGaussian
from pate.errors import AccountingError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from pate.accounting.bounds.laws import Law
    from pate.accounting.units import Neighbours

#: In sigmas: classes farther behind are one rare outcome, and where the winning count is summed.
_FAR: Final = 20.0
_BELOW: Final = 16.0
_ABOVE: Final = 12.0
#: The step of that sum times sqrt(classes), in sigmas: the sum is exact to exp(-38).
_STEP: Final = 0.72
#: Above this mu the cost without votes is given: with so little noise there is no privacy.
_CAP_ABOVE_MU: Final = 10.0
#: A few units in the last place, and beyond which exponent a chance is multiplied as a logarithm.
_ROUNDING: Final = 2.0**-50
_LARGE: Final = 500.0
#: Intervals of the sum of all shifts; the more, the tighter and the slower.
_PIECES: Final = 4
_TINY: Final = 1e-300
#: In place of the logarithm of a chance that is not there: as a float, that is 0.
_LEAST: Final = -1e3
#: A larger sum is not formed: the cost without votes is given.
_MOST: Final = 1e150
#: Relative error of a tail: of the continuous law, and of the discrete one.
TAIL_ERROR: Final = (2.0**-46, 1.2e-11)


class Rows(NamedTuple):
    """Some histograms: classes by falling count, the plurality apart; all logarithms are natural."""

    # (queries, classes), by falling count; of equal ones the first is first
    order: NDArray[np.intp]
    log_star: Floats  # (queries,) log P of the plurality
    log_p: Floats  # (queries, classes - 1), the others; -inf if far behind
    log_far: Floats  # (queries,) bound on the chance of all that are far behind together
    gaps: Floats  # (queries, classes - 1) votes behind the plurality
    seconds: Floats  # (queries, classes - 1) votes behind the largest of the other rivals


class _Part(NamedTuple):
    """A class at one end of what it may lose or gain."""

    cost: Floats  # (queries, classes, orders), P W(r), rounded up
    shift: Floats  # (queries, classes), P (r - 1)


def rdp(votes: ArrayLike, law: Law, neighbours: Neighbours, orders: ArrayLike) -> Floats:
    """Return an upper bound on the Renyi divergence of a label, the given votes first.

    It is (queries, orders) nats. Votes are whole numbers if the noise is discrete; ties go to the class
    that is first. The bound is never above order * mu^2 / 2, the cost without votes. What is below the
    least positive float is 0.

    >>> from pate.accounting.bounds.laws import Gaussian
    >>> from pate.accounting.units import Neighbours
    >>> made = rdp([[214, 10, 8, 7, 4, 4, 2, 1]], Gaussian(40.0), Neighbours(), [2, 14])
    >>> [f"{x:.3e}" for x in made[0]]
    ['5.698e-06', '6.491e-05']
    """
    counts = check_histograms(votes)
    orders = check_orders(orders)
    discrete = isinstance(law, DiscreteGaussian)
    if discrete and (counts % 1.0).any():
        raise AccountingError("discrete noise is for whole numbers of votes")
    if not discrete:  # there are no ties, so the order of the classes makes no difference
        counts = -np.sort(-counts, axis=1)
    mu = math.sqrt(neighbours.squared_distance) * law.mu_of_step
    cap = orders * mu**2 / 2.0 * (1.0 + _ROUNDING)
    if mu > _CAP_ABOVE_MU or not len(counts):
        return np.tile(cap, (len(counts), 1))
    kinds, kind = np.unique(counts, axis=0, return_inverse=True)
    error = kinds.shape[1] * TAIL_ERROR[discrete]
    chances = Chances(law, kinds.shape[1])

    def of_share(share: slice) -> Floats:
        part = kinds[share]
        made = np.empty((len(part), orders.size))
        for rows in blocks(len(part), max(chances.width, part.shape[1] * orders.size)):
            found = chances.of(part[rows])
            made[rows] = _Costs(found, law, neighbours, mu, orders - 1.0, error).largest()
        return made

    # NaN is of nothing smaller than the cap: it stays, and raises.
    made = np.concatenate(on_all_cores(of_share, len(kinds), chances.width * 8))
    return check_rdp(np.minimum(made, cap)[kind.ravel()], "the bound by outcomes")


class Chances:
    """The chance of each class, by a sum over the winning noisy count."""

    def __init__(self, law: Law, classes: int) -> None:
        step = _STEP * law.sigma / math.sqrt(classes)
        self._law, self._discrete = law, isinstance(law, DiscreteGaussian)
        if self._discrete:
            step = max(1.0, math.floor(step))
        low, high = (math.ceil(reach * law.sigma / step) for reach in (_BELOW, _ABOVE))
        self.nodes = step * np.arange(-low, high + 1.0)
        self.width = classes * self.nodes.size

    def of(self, counts: Floats) -> Rows:
        """Return the chances of (queries, classes) counts."""
        order = np.argsort(-counts, axis=1, kind="stable")
        ordered = np.take_along_axis(counts, order, axis=1)
        chances = special.logsumexp(self.log_terms(self.winning(counts)), axis=2)
        log_p = np.take_along_axis(chances, order, axis=1)
        gaps = ordered[:, :1] - ordered[:, 1:]
        far = gaps > _FAR * self._law.sigma
        log_p[:, 1:][far] = -np.inf
        log_p -= special.logsumexp(log_p, axis=1, keepdims=True)
        tails = np.where(far, self._law.log_gap_tail(gaps), -np.inf)
        rivals = np.repeat(ordered[:, 1:2], gaps.shape[1], axis=1)
        rivals[:, :1] = ordered[:, 2:3] if gaps.shape[1] > 1 else -np.inf
        return Rows(
            order,
            log_p[:, 0],
            log_p[:, 1:],
            np.minimum(special.logsumexp(tails, axis=1), 0.0),
            gaps,
            rivals - ordered[:, 1:],
        )

    def winning(self, counts: Floats) -> Floats:
        """Return (queries, classes, nodes) noises with which a class has the noisy count of a node."""
        made: Floats = self.nodes + (counts.max(axis=1, keepdims=True) - counts)[:, :, None]
        return made

    def log_rival(self, z: Floats, *, before: bool) -> Floats:
        """Return log P[Z < z] of a class before the winner, or log P[Z <= z] of one after it."""
        return self._law.log_survival(1.0 - z if before and self._discrete else -z)

    def log_terms(self, z: Floats) -> Floats:
        """Return the logarithms whose sum over the nodes is P, times a constant that is not known."""
        below = self.log_rival(z, before=False)
        total: Floats = -0.5 * (z / self._law.sigma) ** 2
        total[:, :-1] += np.cumsum(below[:, :0:-1], axis=1)[:, ::-1]
        if self._discrete:
            below = self.log_rival(z, before=True)
        total[:, 1:] += np.cumsum(below[:, :-1], axis=1)
        return total


class _Costs:
    """The largest sum of P W(r) of some histograms over all that a neighbour can be."""

    def __init__(
        self,
        rows: Rows,
        law: Law,
        neighbours: Neighbours,
        mu: float,
        excess: Floats,
        error: float,
    ) -> None:
        self._rows, self._law, self._neighbours, self._mu = rows, law, neighbours, mu
        self._excess, self._error = excess, error
        self._q = np.exp(rows.log_p) * (1.0 + error)
        self._beyond = np.zeros((len(self._q), excess.size), np.bool_)

    def largest(self) -> Floats:
        """Return (queries, orders) bounds on the divergence."""
        stay = self._part(np.zeros_like(self._q))
        lose = self._part(self._own(self._rows.log_p, -1.0))
        gain = self._part(self._own(self._rows.log_p, 1.0))
        k = float(self._neighbours.votes)
        low, high = (self._part(self._rivals(self._rows.gaps, side * k)) for side in (1.0, -1.0))
        low2, high2 = (
            self._part(self._rivals(self._rows.seconds, side * k)) for side in (1.0, -1.0)
        )
        if self._neighbours.adjacency == "change":
            # To the plurality, from it, and between two others.
            made = np.maximum(
                self._scenario(low, high2, lose, None), self._scenario(low2, high, None, gain)
            )
            if self._q.shape[1] > 1:
                made = np.maximum(made, self._scenario(low2, high2, lose, gain))
        else:
            # Cast for the plurality, or another; not cast for it, or another.
            made = np.maximum(
                self._scenario(low, stay, None, None), self._scenario(low2, stay, None, gain)
            )
            made = np.maximum(made, self._scenario(stay, high, None, None))
            made = np.maximum(made, self._scenario(stay, high2, lose, None))
        made += far_behind(self._rows.log_far, self._excess, self._mu)
        made[self._beyond] = np.inf
        return np.log1p(made) / self._excess * (1.0 + 4.0 * _ROUNDING)

    def _rivals(self, gaps: Floats, votes: float) -> Floats:
        """Return log r where a rival with ``gaps`` more votes wins or loses ``votes``, rounded out."""
        present = np.isfinite(gaps) & (self._q > 0.0)
        # In a tie the class may lose: the larger gap has the wider factors.
        gaps = np.where(present, gaps, 0.0) + isinstance(self._law, DiscreteGaussian)
        before, after = self._law.log_gap_tail(gaps), self._law.log_gap_tail(gaps + votes)
        error = 2.0 * (self._error + _ROUNDING * np.abs(before + after))
        return np.where(present, after - before - math.copysign(1.0, votes) * error, 0.0)

    def _own(self, log_p: Floats, side: float) -> Floats:
        """Return the log r of an outcome of chance exp(log_p) at the end of what mu allows."""
        at = special.ndtri_exp(np.maximum(log_p, _LEAST))
        moved = at + side * self._mu
        before, after = special.log_ndtr(at), special.log_ndtr(moved)
        # An error of log_p, as its derivative carries it on; of ``at``; and of the two tails.
        with np.errstate(invalid="ignore"):  # a certain outcome
            power = before - after + (at - moved) * (at + moved) / 2.0
        error = (
            4.0 * self._error * (1.0 + np.exp(np.minimum(np.nan_to_num(power, nan=_LARGE), _LARGE)))
        )
        error += 2.0**-44 * self._mu * (1.0 + np.abs(at))
        error += 2.0 * _ROUNDING * np.abs(before + after)
        made: Floats = after - before + side * error
        return made

    def _part(self, log_r: Floats) -> _Part:
        return _Part(self._cost(self._q, log_r), self._q * np.expm1(log_r))

    def _cost(self, p: Floats, log_r: Floats) -> Floats:
        """Return p W(r) at each order, rounded up; shapes (..., orders)."""
        p = p[..., None]
        exponent = np.multiply.outer(-log_r, self._excess)
        first = p * np.expm1(np.minimum(exponent, _LARGE))
        if (large := exponent > _LARGE).any():
            with np.errstate(divide="ignore"):
                logs = np.minimum(np.log(p) + exponent, math.log(_MOST) + 1.0)
            np.copyto(first, np.exp(logs), where=large)
        second = np.multiply.outer(p[..., 0] * np.expm1(log_r), self._excess)
        made: Floats = first + second
        made += _ROUNDING * (np.abs(first) * (1.0 + np.abs(exponent)) + np.abs(second))
        large = made > _MOST
        self._beyond |= large.any(axis=1) if made.ndim > 2 else large
        return np.clip(made, 0.0, _MOST)

    def _scenario(self, low: _Part, high: _Part, lose: _Part | None, gain: _Part | None) -> Floats:
        """Return the largest sum if every class is within low and high, but at most one each.

        The cost f of the plurality is convex in the sum d of all shifts. So f(d) - slope d is
        largest at an end of an interval of d, whatever the slope, and the rest is a choice for each
        class by itself.
        """
        least, most = low.shift.sum(axis=1), high.shift.sum(axis=1)
        if lose is not None:
            least += np.minimum(lose.shift - low.shift, 0.0).min(axis=1)
        if gain is not None:
            most += np.maximum(gain.shift - high.shift, 0.0).max(axis=1)
        star = np.exp(self._rows.log_star)
        # What the errors of the chances, and the classes far behind, can add to d.
        beyond = 4.0 * self._error * (most - least) + np.exp(
            special.log_ndtr(special.ndtri_exp(self._rows.log_far) + self._mu)
        )
        # What mu allows to all classes but the plurality together, and to itself.
        log_q = np.logaddexp(special.logsumexp(self._rows.log_p, axis=1), self._rows.log_far)
        reach = np.exp(log_q) * (1.0 + 4.0 * self._error)
        ends = []
        for side, total in ((-1.0, least - beyond), (1.0, most + beyond)):
            limit = reach * np.expm1(self._own(np.minimum(log_q, 0.0), side))
            shift = np.minimum(side * total, side * limit) * side
            with np.errstate(divide="ignore"):
                end = np.log1p(np.maximum(-shift / (star * (1.0 - self._error)), -1.0))
            own = self._own(self._rows.log_star, -side)
            ends.append(np.minimum(-side * end, -side * own) * -side)
        star *= 1.0 + self._error
        log_r = [ends[0] + (ends[1] - ends[0]) * at / _PIECES for at in range(_PIECES + 1)]
        costs = np.stack([self._cost(star, each) for each in log_r])
        shifts = np.stack([-star * np.expm1(each) for each in log_r])[..., None]
        size = shifts[-1] - shifts[0]
        wrong = beyond[:, None] + 2.0 * self._error * size
        size = 2.0**-44 * (size + (most - least)[:, None])
        made = np.full((_PIECES, *costs.shape[1:]), np.inf)
        for one, other in [*pairwise(range(_PIECES + 1)), (0, _PIECES)]:
            width = np.maximum(shifts[other] - shifts[one], _TINY)
            slope = (costs[other] - costs[one]) / width
            rest = self._choices(slope, low, high, lose, gain)
            rest += np.abs(slope) * (wrong + size) + 2.0**-44 * (np.abs(rest) + costs.max(axis=0))
            lines = costs - slope * shifts
            np.minimum(made, np.maximum(lines[:-1], lines[1:]) + rest, out=made)
        largest: Floats = made.max(axis=0)
        return largest

    def _choices(
        self, slope: Floats, low: _Part, high: _Part, lose: _Part | None, gain: _Part | None
    ) -> Floats:
        """Return the largest sum of cost + slope * shift over the classes; (queries, orders)."""
        slope = slope[:, None]
        best = np.maximum(*(each.cost + slope * each.shift[..., None] for each in (low, high)))
        made: Floats = best.sum(axis=1)
        moves = [
            np.maximum(own.cost + slope * own.shift[..., None], 0.0) - best
            for own in (lose, gain)
            if own is not None
        ]
        if moves:
            most = _most_of_two(*moves) if len(moves) > 1 else moves[0].max(axis=1)
            made += np.maximum(most, 0.0)
        return made


def far_behind(log_far: Floats, excess: Floats, mu: float) -> Floats:
    """Return (queries, orders) bounds on the sum of P W(r) over classes of a chance of at most this."""
    at = special.ndtri_exp(log_far)[:, None]
    rate = excess * mu
    exponent = rate * (rate + mu) / 2.0 + special.log_ndtr(at + rate)
    # The errors of ``at`` and of the two terms of the exponent.
    exponent += 2.0**-44 * (rate + np.where(np.isfinite(at), np.abs(at), 0.0)) ** 2
    with np.errstate(over="ignore"):
        made: Floats = np.exp(exponent) * (1.0 + 2.0**-40)
    made += excess * np.exp(special.log_ndtr(at + mu))
    return made


def _most_of_two(first: Floats, second: Floats) -> Floats:
    """Return the largest sum of a number of each at two places; both are (queries, 2 or more, orders)."""
    made = np.full(first[:, 0].shape, -np.inf)
    for one, other in ((first, second), (second, first)):
        at = one.argmax(axis=1)[:, None]
        rest = other.copy()
        np.put_along_axis(rest, at, -np.inf, axis=1)
        np.maximum(made, one.max(axis=1) + np.maximum(rest.max(axis=1), 0.0), out=made)
    return made
