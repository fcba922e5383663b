"""Theorem 6+: the sharpest Renyi bound for a label of which only q and a Gaussian shift mu are known.

(order - 1) * RDP <= ln V(q), V(q) being the largest T1 + T2 of :mod:`pate.accounting.bounds.two_tails`. V
rises in q and in mu, so both may be rounded up; there are no side conditions. It is one-sided: it holds
for the given votes against any neighbour, not the reverse. As it rises with q alone it may be computed at
*knots* of log q, and a query takes the value at the next knot above its own: a bound still (:class:`Table`).

Source: own; it sharpens Papernot et al. 2018 (arXiv 1802.08908), Theorem 6. Proof:
docs/proofs/theorem-6-plus.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.accounting.arrays import (
    Floats,
    blocks,
    check_orders,
    check_positive,
    check_queries,
    check_rdp,
)
from pate.accounting.bounds.two_tails import GRID, log_excess
from pate.errors import AccountingError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

#: Defaults of a table: knots, and the relative excess of a value above the least provable one.
KNOTS: Final = 4096
TIGHTNESS: Final = 3e-4

#: Above this q the cost without votes is given; it is above V by less than 1e-6 of itself.
_CAP_ABOVE: Final = 0.99
#: Above this mu too: with so little noise there is practically no privacy.
_CAP_ABOVE_MU: Final = 1e3
#: Where the density of the knots is measured, how often, and how closely.
_PROBES: Final = 256
_PROBE_TIGHTNESS: Final = 0.01
#: At the lowest knot no query costs more: 1e-12, or this part of the cost without votes.
_NEGLIGIBLE: Final = 1e-12
_NEGLIGIBLE_PART: Final = 1e-9
#: Costs far below this, or this part of the cost without votes, are resolved coarsely.
_SMALL: Final = 1e-7
_SMALL_PART: Final = 1e-4
#: Part of the knots that is spread evenly, whatever the bounds do.
_EVEN: Final = 0.2


def rdp(log_q: ArrayLike, mu: float, orders: ArrayLike, tightness: float = 1e-3) -> Floats:
    """Return an upper bound on the Renyi divergence of a label, the data set with this q first.

    It is in nats, never above order * mu^2 / 2, and above ln V / (order - 1) by at most the part
    ``tightness``, and rounding; below the least positive float it is 0. The two outputs are mu-GDP: mu
    is the distance of the histograms over sigma. Any log q above the chance that the output is not the
    plurality will do.

    >>> [[f"{x:.3e}" for x in row] for row in rdp([-6.959065, -20.0], 2**0.5 / 40, [2, 14])]
    [['1.522e-05', '1.705e-04'], ['9.802e-11', '2.018e-09']]
    """
    log_q = check_queries(log_q)
    orders = check_orders(orders)
    mu = check_positive(mu, "mu")
    tightness = check_positive(tightness, "tightness")
    made = np.empty((len(log_q), len(orders)))
    for rows in blocks(len(log_q), len(orders) * len(GRID)):
        made[rows] = _of_block(log_q[rows], mu, orders, tightness)
    return check_rdp(made, "Theorem 6+")


@dataclass(frozen=True, eq=False)
class Table:
    """Lookup table of Theorem 6+ by log q, as :meth:`build` makes it. Its arrays are read-only.

    Knots stand closer where the bounds change faster. Below the lowest one every bound is
    negligible, and the value there is taken; at q = 1 it is the cost without votes.

    >>> table = Table.build(2**0.5 / 40, [2, 14], knots=512)
    >>> [f"{x:.2f}" for x in table.lookup([-0.5])[0] / rdp([-0.5], 2**0.5 / 40, [2, 14])[0]]
    ['1.00', '1.00']
    """

    mu: float  # as for :func:`rdp`
    orders: Floats  # (orders,) Renyi orders
    knots: Floats  # (knots,) log q, rising; the last is 0
    values: Floats  # (knots, orders) nats, not falling along the knots

    def __post_init__(self) -> None:
        for array in (self.orders, self.knots, self.values):
            array.flags.writeable = False

    @classmethod
    def build(
        cls,
        mu: float,  # as for :func:`rdp`
        orders: ArrayLike,  # (orders,) Renyi orders
        knots: int = KNOTS,  # how many, at least 16
        tightness: float = TIGHTNESS,  # of the bound at a knot
    ) -> Table:
        """Evaluate the bound at ``knots`` places: 3 to 6 microseconds for each of them and order."""
        mu, orders = check_positive(mu, "mu"), check_orders(orders).copy()
        if knots < 16:
            raise AccountingError(f"a table needs at least 16 knots, got {knots}")
        if mu > _CAP_ABOVE_MU:  # the same whatever the votes are: no knot is below another
            return cls(mu, orders, np.zeros(1), _without_votes(mu, orders)[None])
        places = _knots(mu, orders, knots)
        values = rdp(places, mu, orders, tightness)
        # A value bounds those at all smaller q, so the least from each knot upwards is taken.
        values = np.minimum.accumulate(values[::-1], axis=0)[::-1]
        return cls(mu, orders, places, values)

    def lookup(self, log_q: ArrayLike) -> Floats:
        """Return the bound of each query, (queries, orders) nats, with q rounded up to a knot."""
        # The last knot is 0, and log q is at most 0: there always is one that is not below it.
        return self.values[np.searchsorted(self.knots, check_queries(log_q), side="left")]


def _without_votes(mu: float, orders: Floats) -> Floats:
    return orders * (mu * mu / 2.0)


def _of_block(log_q: Floats, mu: float, orders: Floats, tightness: float) -> Floats:
    """Return the bound of few queries, (queries, orders)."""
    cap = _without_votes(mu, orders)
    made = np.where(np.isneginf(log_q)[:, None], 0.0, cap)
    inside = np.flatnonzero(np.isfinite(log_q) & (log_q < math.log(_CAP_ABOVE)))
    if inside.size and mu <= _CAP_ABOVE_MU:
        log_more = log_excess(log_q[inside], mu, orders, tightness)
        made[inside] = np.minimum(cap, np.logaddexp(0.0, log_more) / (orders - 1.0))
    return made


def _knots(mu: float, orders: Floats, knots: int) -> Floats:
    """Return log q, rising to 0, closer where the bounds change faster."""
    cap = _without_votes(mu, orders)
    negligible = np.minimum(_NEGLIGIBLE, _NEGLIGIBLE_PART * cap)
    lowest = 16.0
    while (rdp([-lowest], mu, orders, _PROBE_TIGHTNESS) > negligible).any():
        lowest *= 1.25
    highest = -math.log(_CAP_ABOVE)
    # Evenly in standard deviations for the far tail, and in logarithms for the near one.
    deviations = np.linspace(lowest**0.5, highest**0.5, _PROBES) ** 2
    logarithms = np.geomspace(lowest, highest, _PROBES)
    probes = np.unique(-np.concatenate([deviations, logarithms]).clip(highest, lowest))
    bounds = rdp(probes, mu, orders, _PROBE_TIGHTNESS) + np.minimum(_SMALL, _SMALL_PART * cap)
    # Root mean square over the orders: an order that changes alone counts, but not as much as all.
    steps = np.sqrt(np.mean(np.diff(np.log(bounds), axis=0) ** 2, axis=1))
    steps += _EVEN * steps.sum() / steps.size
    made = np.interp(
        np.linspace(0.0, steps.sum(), knots - 1), np.concatenate([[0.0], np.cumsum(steps)]), probes
    )
    return np.append(np.unique(made), 0.0)
