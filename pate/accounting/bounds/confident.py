"""Costs of a threshold test and, if it passes, a label: Confident-GNMax and Interactive-GNMax.

Two figures per query:

* :func:`joint` bounds the divergence of test and label as one mechanism, at the given votes, for a
  list of queries fixed in advance, whichever of them are answered. Sums over queries are bounds for
  the list.
* :func:`expected` is the cost that the 2018 reference reports: **not a bound**. The moments behind
  a Renyi divergence average exponentials of costs, which exceed the exponential of the average.

Data-dependent figures are one-sided, D(M(D) || M(D')) for the given D, and may be published only
through a mechanism that pays for it.

Proof: docs/proofs/labels.md, section 6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pate.accounting.arrays import Floats, check_log_probabilities, check_orders, check_rdp
from pate.accounting.bounds.threshold import largest_log_moments
from pate.errors import AccountingError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from pate.accounting.bounds.laws import Law


def joint(
    v: ArrayLike, threshold: float, law: Law, k: int, orders: ArrayLike, rdp_label: ArrayLike
) -> Floats:
    """Return a bound on the divergence of threshold test and label as one mechanism, (queries, orders) nats.

    With p the chance to pass at ``v``, p' at a neighbour's and r the label's divergence,

        (1/(a-1)) ln max over v' = v - k, v + k of
            p^a p'^(1-a) e^((a-1) r) + (1-p)^a (1-p')^(1-a).

    It rises in r, so any upper bound of the label's divergence does, (queries, orders), or (1, orders) if it
    does not depend on data. ``v`` is the test's statistic in votes: the largest count, or max_j (n_j - r_j).

    >>> from pate.accounting.bounds.laws import Gaussian
    >>> joint([214.0], 200.0, Gaussian(150.0), 1, [14.0], [[0.01]]).round(9).tolist()
    [[0.006068452]]
    >>> 0.000197948 + 0.537180 * 0.01  # the expected cost: less, and no bound
    0.005569748

    Source: own. Proof: docs/proofs/labels.md, section 6.
    """
    alphas = check_orders(orders)
    labels = check_rdp(np.asarray(rdp_label, np.float64), "the cost of the label")
    seen = np.asarray(v, np.float64)
    if seen.ndim != 1 or labels.shape not in ((seen.size, alphas.size), (1, alphas.size)):
        raise AccountingError(
            f"{seen.shape} checks and {alphas.size} orders do not fit labels of {labels.shape}"
        )
    labels = np.broadcast_to(labels, (seen.size, alphas.size))
    made = largest_log_moments(seen, threshold, law, k, alphas, labels)
    made /= alphas - 1.0
    return check_rdp(made, "the cost of check and label")


def expected(log_pass: ArrayLike, rdp_check: ArrayLike, rdp_label: ArrayLike) -> Floats:
    """Return the cost of the check plus P[answer] times that of the label: **not a bound**.

    For comparison with published figures, which are of this kind.

    >>> expected([0.0, -np.inf], [[0.1], [0.1]], [[1.0], [1.0]]).tolist()
    [[1.1], [0.1]]

    Source: Papernot et al. 2018, the code published with it.
    """
    chances = np.exp(check_log_probabilities(log_pass, "log P[answer]"))
    if chances.ndim != 1:
        raise AccountingError(f"log P[answer] is a list of numbers, got shape {chances.shape}")
    checks, labels = _costs(rdp_check, rdp_label, chances.size)
    charged = np.zeros((chances.size, labels.shape[1]))
    # A query that is never answered costs nothing, even where its label would cost infinity.
    np.multiply(chances[:, None], labels, out=charged, where=chances[:, None] > 0.0)
    return checks + charged


def _costs(rdp_check: ArrayLike, rdp_label: ArrayLike, queries: int) -> tuple[Floats, Floats]:
    checks = check_rdp(np.asarray(rdp_check, np.float64), "the cost of the check")
    labels = check_rdp(np.asarray(rdp_label, np.float64), "the cost of the label")
    if any(
        costs.ndim != 2 or costs.shape[0] not in (1, queries) or costs.shape[1] != checks.shape[-1]
        for costs in (checks, labels)
    ):
        raise AccountingError(
            f"costs of shapes {checks.shape} and {labels.shape} do not fit {queries} queries"
        )
    return checks, labels
