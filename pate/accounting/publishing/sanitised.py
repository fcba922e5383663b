"""The 2018 paper's sanitised data-dependent epsilon, computed for given public votes.

A release of f(D) and of ln SS(D), each with noise scaled by the smooth sensitivity, gives an upper
bound of f(D), the data-dependent cost. Labels, release and the failure probability of the bound
then form one guarantee. Nothing is drawn here: the figures are those at noise 0, which the bound
exceeds half of the time. They and their parameters depend on the votes, so they may be published
for public votes only.

Source: Papernot et al. 2018 (arXiv 1802.08908), section B; Redberg, Zhu, Wang 2023 (arXiv 2301.00301).
Proof: docs/proofs/gate.md, section 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.accounting.conversion import check_delta, epsilon_from_rdp
from pate.accounting.publishing import gnss
from pate.accounting.publishing.smooth_sensitivity import smooth_sensitivity

if TYPE_CHECKING:
    from pate.accounting.publishing.nearby import Batch

#: Parameters that are tried: beta times the order, which 1 / 2 bounds, and noise in sensitivities.
_BETAS: Final = np.array([0.05, 0.08, 0.12, 0.16, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45])
_SIGMAS: Final = np.geomspace(1.0, 200.0, 60)
#: Noise on ln SS, relative to that on f.
_LOG_SIGMAS: Final = (0.5, 1.0, 2.0)
#: Sensitivities below it are treated as zero.
_LEAST: Final = 1e-300
#: Of delta, for the event that the released bound is below f(D).
_FAILURE: Final = 0.5


@dataclass(frozen=True, kw_only=True)
class Sanitised:
    """A release of least epsilon, at noise 0."""

    epsilon: float  # guarantee of labels and release together
    # the same with the cost that the paper states, and no bound but f(D) itself; it is too small, and no
    # guarantee
    published: float
    order: float  # Renyi order
    beta: float  # discount of the smooth sensitivity per unit of distance
    sigma: float  # noise on f, in smooth sensitivities
    sigma_log: float  # noise on ln SS, in betas


def least_sanitised(batch: Batch, teachers: int, delta: float) -> Sanitised:
    """Return the release of least epsilon among those that are tried, for PUBLIC votes.

    ``teachers`` are all votes of a query together; ``delta`` includes the chance that the bound fails.
    """
    failure = _FAILURE * check_delta(delta)
    found = []
    for order, exact in zip(batch.orders.tolist(), batch.cost().tolist(), strict=True):
        betas = _BETAS / order
        # The smallest beta needs the largest distances.
        local = smooth_sensitivity(batch, teachers, order, float(betas[0])).local
        logs = np.log(np.maximum(local, _LEAST))
        for beta in betas.tolist():
            # None is listed where the cost is the same for all votes.
            log_smooth = float((logs - beta * np.arange(logs.size)).max(initial=np.log(_LEAST)))
            for sigma, part in product(_SIGMAS.tolist(), _LOG_SIGMAS):
                noise = {"beta": beta, "sigma": sigma, "sigma_log": part * sigma}
                bound = gnss.upper_bound(exact, log_smooth, failure=failure, **noise)
                cost = gnss.cost(beta, sigma, order) + gnss.log_release_cost(part * sigma, order)
                paper = exact + gnss.cost(beta, sigma, order, "paper")
                found.append(
                    Sanitised(
                        epsilon=epsilon_from_rdp([order], [bound + cost], delta - failure),
                        published=epsilon_from_rdp([order], [paper], delta),
                        order=order,
                        **noise,
                    )
                )
    return min(found, key=lambda each: each.epsilon)
