"""The largest cost within d units: the basis of the gate and of smooth sensitivity.

A query's cost depends on two numbers of its votes: ``top``, the largest count, and q, the
probability that the label is not the plurality. Within d units ``top`` moves by some integer s, at
most d*k either way, and q rises at most to what it would be if each gap to the plurality were
narrower by c(d, s) = min(d*k - s, d * gap_shift). The worst cost within d units is at most the sum
over queries of the largest bound over s. Of two classes, and one vote a unit, it is exact: at each
query the largest cost of the counts within d.

Source: own; the concave function is behind Papernot et al. 2018, Proposition 13. Proof:
docs/proofs/gate.md, sections 1 and 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy import ndimage

from pate.accounting.arrays import (
    Floats,
    blocks,
    check_histograms,
    check_log_probabilities,
    check_orders,
    check_rdp,
)
from pate.accounting.bounds import every_neighbour
from pate.accounting.bounds.outlier import gnmax_log_q
from pate.errors import AccountingError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from pate.accounting.bounds.laws import Law
    from pate.accounting.bounds.sharp import GaussianSetting
    from pate.accounting.units import Neighbours

#: Maps (queries,) tops and (queries,) log q to (queries, orders) costs. It must increase with q.
Bound = Callable[[Floats, Floats], Floats]

#: Margin added per step of distance, so that rounding cannot break the order of F_d of a neighbour
#: and F_(d+1): gap in sigmas, part of a cost, nats per query. Rounding errors are a hundred times
#: smaller.
_SLACK_SIGMAS: Final = 1e-9
_SLACK_PART: Final = 1e-11
_SLACK_NATS: Final = 1e-12


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """A fixed list of queries, reduced to what the bound depends on. Secret, like the votes.

    The list must not depend on labels that the same batch releases.
    """

    top: Floats = field(repr=False)  # (queries,) largest counts, votes
    # (queries,) ln of the chance that the noisy plurality is not the plurality
    log_q: Floats = field(repr=False)
    times: Floats = field(repr=False)  # (queries,) multiplicity of each
    classes: int  # number of classes
    law: Law  # noise on each count
    neighbours: Neighbours  # whom the cost protects
    orders: Floats  # (orders,) of the bound
    bound: Bound  # cost of a query from top and log q
    checked: bool  # whether ``bound`` depends on top at all
    _known: dict[int, Floats] = field(default_factory=dict, repr=False)

    @cached_property
    def gaps(self) -> Floats:
        """(queries,) the common gap of all other classes that gives this q."""
        return self.law.gap_at(self.log_q - math.log(self.classes - 1))

    @classmethod
    def of(
        cls,
        votes: ArrayLike,
        law: Law,
        neighbours: Neighbours,
        bound: Bound,
        *,
        orders: ArrayLike,
        checked: bool,
    ) -> Batch:
        """Return the batch of queries with these (queries, classes) votes, whole numbers.

        ``bound`` is from (queries,) tops and log q to (queries, orders) costs, data set D first;
        ``checked`` says that a threshold test precedes the label.
        """
        counts = check_histograms(votes)
        if not len(counts):
            raise AccountingError("a batch has at least one query")
        if (counts != np.rint(counts)).any():
            raise AccountingError("counts of votes must be whole numbers")
        seen = np.stack([counts.max(axis=1), check_log_probabilities(gnmax_log_q(counts, law))])
        if not checked:
            seen[0] = 0.0
        # Many queries are equal: each kind is computed once.
        (top, log_q), times = np.unique(seen, axis=1, return_counts=True)
        return cls(
            top=top,
            log_q=log_q,
            times=times.astype(np.float64),
            classes=counts.shape[1],
            law=law,
            neighbours=neighbours,
            orders=check_orders(orders),
            bound=bound,
            checked=checked,
        )

    @property
    def queries(self) -> int:
        """Number of queries."""
        return int(self.times.sum())

    def cost(self) -> Floats:
        """Return f(D): (orders,) cost of the batch itself, in nats. Secret."""
        each = self._each(self.top, self.log_q)
        total: Floats = self.times @ each
        return total

    def index_of(self, order: float) -> int:
        """Return where ``order`` is among the orders."""
        found = np.flatnonzero(self.orders == order)
        if not found.size:
            raise AccountingError(f"the bound of this batch is not at order {order}")
        return int(found[0])

    def worst(self, distance: int) -> Floats:
        """Return F_d: (orders,) nats, no less than the cost of any votes within ``distance`` units."""
        if distance < 0:
            raise AccountingError(f"a distance is not negative, got {distance}")
        if distance not in self._known:
            self._known[distance] = self.times @ self.worst_of_each(distance)
        return self._known[distance]

    def distance_to(self, target: float, order: float, farthest: int) -> int:
        """Return how many units, whichever they are, may change without a cost above ``target`` nats.

        That is the largest d up to ``farthest`` with F_d <= target; -1 if there is none. Neighbours'
        values differ by at most 1.
        """
        at = self.index_of(order)
        if not target >= 0.0:
            raise AccountingError(f"a target is a number that is not negative, got {target}")
        if self.worst(0)[at] > target:
            return -1
        low, high = 0, 1
        while high <= farthest and self.worst(high)[at] <= target:
            low, high = high, 2 * high
        high = min(high, farthest + 1)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.worst(middle)[at] <= target else (low, middle)
        return low

    def narrower(self, steps: Floats, distance: int) -> Floats:
        """Return c(d, s): how far gaps can narrow within ``distance`` if top moves by ``steps``."""
        most = distance * self.neighbours.gap_shift
        made: Floats = np.minimum(distance * self.neighbours.votes - steps, most)
        return made

    def worst_of_each(self, distance: int) -> Floats:
        """Return (queries, orders): the summands of :meth:`worst`, each counted once."""
        k = self.neighbours.votes
        # A bound that does not depend on top is largest where the gaps are narrowest.
        farthest_up = distance * k if self.checked else -distance * k
        steps = np.arange(-distance * k, farthest_up + 1, dtype=np.float64)
        closer = self.narrower(steps, distance)
        closer += (distance + 1.0) * self.law.sigma * _SLACK_SIGMAS
        made = np.empty((len(self.top), len(self.orders)))
        for rows in blocks(len(self.top), len(steps)):
            log_q = raised(self.gaps[rows, None] - closer, self.classes, self.law)
            top = np.add.outer(self.top[rows], steps)
            each = self._each(top.ravel(), log_q.ravel())
            made[rows] = each.reshape(*log_q.shape, -1).max(axis=1)
        return slackened(made, distance)

    def _each(self, top: Floats, log_q: Floats) -> Floats:
        made = check_rdp(self.bound(top, log_q), "the bound of a query")
        if made.shape != (len(top), len(self.orders)):
            raise AccountingError(f"a bound must be (queries, orders), got shape {made.shape}")
        return made


def slackened(costs: Floats, distance: int) -> Floats:
    """Return costs within a distance with the margin for rounding."""
    slack = distance + 1.0
    return costs * (1.0 + slack * _SLACK_PART) + slack * _SLACK_NATS


def raised(gaps: Floats, classes: int, law: Law) -> Floats:
    """Return ln q where every class but the plurality is ``gaps`` votes behind it.

    It is at most ln(1 - 1/classes): the plurality is the likeliest label.
    """
    log_q = law.log_gap_tail(gaps) + math.log(classes - 1)
    made: Floats = np.minimum(log_q, math.log1p(-1.0 / classes))
    return made


# --- two classes: by the exact cost of a query, not by a bound -----------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class TwoClasses(Batch):
    """A batch whose ``top`` are the votes for the first class, its bound the cost itself."""

    table: Floats = field(repr=False)  # (teachers + 1, orders) cost of a query by these votes

    def worst_of_each(self, distance: int) -> Floats:
        """Return (queries, orders): the largest cost of a query's counts within ``distance``."""
        reach = min(distance, len(self.table))  # farther there are no counts, only time and memory
        within = ndimage.maximum_filter1d(
            self.table, 2 * reach + 1, axis=0, mode="constant", cval=0.0
        )
        return slackened(within[self.top.astype(np.intp)], distance)


def batch_of(
    votes: ArrayLike,
    setting: GaussianSetting,
    neighbours: Neighbours,
    bound: Bound,
    orders: ArrayLike,
) -> Batch:
    """Return the batch of a gate: of two classes by the exact cost where it is known, else by ``bound``.

    Which of the two is the same for neighbours: a vote that changes leaves the number of votes.
    """
    made = Batch.of(
        votes, setting.label, neighbours, bound, orders=orders, checked=setting.check is not None
    )
    counts, orders = check_histograms(votes), check_orders(orders)
    teachers = np.unique(counts.sum(axis=1))
    unit = (neighbours.votes, neighbours.adjacency)
    known = unit == (1, "change") and setting.label.sigma >= every_neighbour.LEAST_SIGMA
    if made.classes != 2 or len(teachers) != 1 or not known:
        return made
    first, times = np.unique(counts[:, 0], return_counts=True)
    every = np.arange(teachers[0] + 1.0)
    table = every_neighbour.rdp(
        np.column_stack([every, teachers[0] - every]), setting, neighbours, orders
    )
    return TwoClasses(
        top=first,
        log_q=np.zeros_like(first),
        times=times.astype(np.float64),
        classes=2,
        law=setting.label,
        neighbours=neighbours,
        orders=orders,
        bound=lambda first, _: table[first.astype(np.intp)],
        checked=True,
        table=table,
    )
