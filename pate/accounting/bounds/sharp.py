"""The sharpest known bounds on the cost of a query: from all its votes, or from top count and log q.

The first is for figures; a gate needs the second, which two numbers of a histogram determine.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pate.accounting.arrays import Floats
from pate.accounting.bounds import outcomes, threshold
from pate.accounting.bounds.theorem6_plus import Table

if TYPE_CHECKING:
    from pate.accounting.bounds.laws import Law
    from pate.accounting.units import Neighbours

#: Returns the table of Theorem 6+ for a mu and orders.
Tables = Callable[[float, Floats], Table]


@dataclass(frozen=True, kw_only=True)
class GaussianSetting:
    """GNMax, preceded by a threshold test if ``check`` is given."""

    label: Law  # law of the noise on each count
    check: Law | None = None  # law of the noise of the test, or None
    threshold: float = 0.0  # T, in votes


def bound_by_outcomes(
    setting: GaussianSetting, neighbours: Neighbours, orders: Floats
) -> Callable[[Floats, Floats], Floats]:
    """Return the function from (queries, classes) votes and (queries,) tops to their costs.

    The bound by outcomes for the label, joined as in :func:`sharp_bound`.

    Proof: docs/proofs/theorem-6-plus.md, docs/proofs/labels.md.
    """
    label = partial(outcomes.rdp, law=setting.label, neighbours=neighbours, orders=orders)
    check = setting.check
    if check is None:
        return lambda votes, top: label(votes)  # noqa: ARG005  (one signature for both)
    return lambda votes, top: threshold.joint(
        top, setting.threshold, check, neighbours.votes, orders, label(votes)
    )


def sharp_bound(
    setting: GaussianSetting, neighbours: Neighbours, orders: Floats, tables: Tables
) -> Callable[[Floats, Floats], Floats]:
    """Return the function from (queries,) tops and (queries,) log q to (queries, orders) costs.

    Theorem 6+ for the label; with a threshold test, the joint bound over both, so that it holds for
    a fixed list of queries whichever of them are answered. It increases with q. The top is the
    largest count, or the other statistic of the test; without a test it is ignored.

    Proof: docs/proofs/theorem-6-plus.md, docs/proofs/labels.md.
    """
    mu = math.sqrt(neighbours.squared_distance) * setting.label.mu_of_step
    label = tables(mu, orders).lookup
    check = setting.check
    if check is None:
        return lambda top, log_q: label(log_q)  # noqa: ARG005  (one signature for both)
    return lambda top, log_q: threshold.joint(
        top, setting.threshold, check, neighbours.votes, orders, label(log_q)
    )
