"""The gate's batch of two classes: by the exact cost of a query, not by a bound.

All teachers vote, so the count of the first class is all there is to know of a query's votes, and one
unit of one vote moves it by at most 1. So the worst cost within d units is, at each query, the largest
cost of the counts within d: nothing is bounded, and no bound that rises is needed.

Source: own. Proof: docs/proofs/gate.md, section 2.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from scipy import ndimage

from pate.accounting.arrays import Floats, check_histograms, check_orders
from pate.accounting.bounds import every_neighbour
from pate.accounting.nearby import Batch, slackened

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from pate.accounting.bounds.sharp import GaussianSetting
    from pate.accounting.nearby import Bound
    from pate.accounting.units import Neighbours


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
