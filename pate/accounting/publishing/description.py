"""A data-dependent cost that may be published of a run whose labels are already out.

Such a figure *describes* the run. It is no guarantee: that is the data-independent cost, which the
campaign fixed beforehand, plus the cost of this release. Only a gate that was in the way of the
labels makes a guarantee of a data-dependent cost (:mod:`pate.accounting.publishing.gate`).

On public rungs u_0 <= u_1 <= ... (costs in nats; above the last, infinity) votes D stand at height

    height(D) = the least h >= 0 such that F_d(D) <= u_(h+d) for all d >= 0,

with F_d the worst cost within d units. One unit moves the height by at most 1, it is an integer,
and f(D) <= u_height. So height + N_Z(0, sigma^2) is released, which costs rho = 1/(2 sigma^2) in
zCDP like any counted vote, and u_(noisy height + margin) is an upper bound of f(D) with a stated
confidence. Rungs at u_h = exp(beta h) would make height the logarithm of a beta-smooth upper bound
of f itself, in units of beta; rungs of a public proxy with similar votes are tighter.

Source: own; it generalises smooth upper bounds (Nissim, Raskhodnikova, Smith 2007).
Proof: docs/proofs/gate.md, section 5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pate.accounting.arrays import check_orders
from pate.accounting.bounds.laws import DiscreteGaussian
from pate.accounting.conversion import check_delta, epsilon_from_rdp
from pate.errors import AccountingError
from pate.noise import check_scale

if TYPE_CHECKING:
    from fractions import Fraction

    from pate.accounting.publishing.nearby import Batch
    from pate.noise import Noise


@dataclass(frozen=True)
class Description:
    """What was released. Public.

    Attributes:
        noisy_height: the height with its noise.
        order: Renyi order of the cost.
        upper: nats that the cost of the run does not exceed, as far as the confidence goes;
            infinity if the rungs end too low.
        failure: probability that the cost exceeds ``upper`` nevertheless.
    """

    noisy_height: int
    order: float
    upper: float
    failure: float

    def epsilon(self, delta: float) -> float:
        """Return what the run was worth at most. It describes the run and guarantees nothing."""
        return epsilon_from_rdp([self.order], [self.upper], delta)


@dataclass(frozen=True, kw_only=True)
class DescriptionParameters:
    """How a run will be described, fixed before its votes were looked at. Public.

    Attributes:
        order: the one Renyi order.
        sigma: noise on the height, in units of privacy.
        failure: probability that the upper bound will be too low.
        rungs: costs in nats, none below the one before it.

    Raises:
        AccountingError: for parameters that make no sense.
        UsageError: for a sigma whose noise cannot be drawn exactly.
    """

    order: float
    sigma: Fraction
    failure: float
    rungs: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "order", float(check_orders([self.order])[0]))
        object.__setattr__(self, "sigma", check_scale(self.sigma, "sigma"))
        check_delta(self.failure)
        made = np.asarray(self.rungs, np.float64)
        if made.ndim != 1 or not made.size or not (np.isfinite(made) & (made >= 0.0)).all():
            raise AccountingError("rungs are costs, finite and not negative")
        if (np.diff(made) < 0.0).any():
            raise AccountingError("rungs must not fall")

    @property
    def rho(self) -> Fraction:
        """What the release costs, zCDP: the height is an integer that moves by at most 1."""
        return 1 / (2 * self.sigma**2)

    @property
    def margin(self) -> int:
        """Heights to add to the noisy one, so that it is too low with ``failure`` at most."""
        law = DiscreteGaussian(float(self.sigma))
        steps = np.arange(1.0 + math.ceil(40.0 * float(self.sigma) + 2.0))
        # Too low if the noise is -(margin + 1) or less; the law is symmetric.
        enough = np.flatnonzero(law.log_survival(steps + 1.0) <= math.log(self.failure) - 1e-9)
        if not enough.size:
            raise AccountingError(f"no margin is known for a failure of {self.failure}")
        return int(enough[0])

    def height(self, batch: Batch) -> int:
        """Return the height of a batch, from 0 to the number of rungs. Secret."""
        at, highest = batch.index_of(self.order), 0
        for distance in range(len(self.rungs)):
            if len(self.rungs) - distance <= highest:
                break
            worst = batch.worst(distance)[at]
            highest = max(highest, int(np.searchsorted(self.rungs, worst)) - distance)
        return highest

    def describe(self, batch: Batch, noise: Noise) -> Description:
        """Release the noisy height and what follows from it. Charge ``rho`` first.

        Args:
            batch: the votes of the run and a bound at the order.
            noise: what is drawn from.
        """
        noisy = self.height(batch) + int(noise.gaussian(self.sigma, 1)[0])
        rung = max(0, noisy + self.margin)
        upper = self.rungs[rung] if rung < len(self.rungs) else math.inf
        return Description(noisy, self.order, upper, self.failure)


def rungs_of_public_proxy(
    proxy: Batch, order: float, *, above: int, below: int
) -> tuple[float, ...]:
    """Return rungs on which votes like those of the PUBLIC ``proxy`` stand at height ``below``.

    Args:
        proxy: votes that are nobody's secret.
        order: one of the orders of the proxy.
        above: how many rungs from the proxy's cost on, each of what one more unit may do.
        below: how many rungs under it, each lower by the same part as the first above.

    Raises:
        AccountingError: if there would be no rung, or another order.
    """
    if above < 2 or below < 0:
        raise AccountingError(
            "rungs: at least 2 from the proxy's cost on, and not less than 0 below"
        )
    at = proxy.index_of(order)
    costs = [float(proxy.worst(distance)[at]) for distance in range(above)]
    part = costs[0] / costs[1] if costs[1] > 0.0 else 1.0
    lower = [costs[0] * part**step for step in range(below, 0, -1)]
    return tuple(np.maximum.accumulate([*lower, *costs]).tolist())
