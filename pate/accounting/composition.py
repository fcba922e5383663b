"""Composition: adding up the costs of events, and converting the sum to (epsilon, delta).

A filter needs a currency: a number per event that adds up exactly over adaptively chosen events,
and a conversion of the sum into (epsilon, delta). Each composition here is one currency, and each
is tightest for some events:

* ``gdp`` for Gaussian noise: half of mu squared. The conversion is exact, and gives some 8 % less
  epsilon than zCDP for the same noise. The discrete Gaussian is mu-GDP too, with a mu squared
  larger than the continuous noise's by 1 part in 3 sigma^2; sums of noise shares cost negligibly
  more.
* ``pure`` for one release with geometric noise: epsilon itself, which holds at delta 0.
* ``zcdp`` for everything else: rho.
* ``gate`` for a batch that a private test releases: the number of such batches, at most one. The
  gate's parameters give its epsilon.

Stopping at an adaptive moment costs nothing in either: Whitehouse et al. 2023 (arXiv 2203.05481)
for zCDP, Koskela, Tobaben and Honkela 2023 (2209.15596) for GDP. Proof that the discrete noise is
GDP: docs/proofs/discrete-gaussian.md, section 5; sums of shares: section 7 there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Final, Protocol

from pate.accounting.conversion import (
    check_delta,
    check_rho,
    epsilon_from_rho,
    float_up,
    rho_from_epsilon,
)
from pate.accounting.events import (
    GatedBatch,
    GaussianMax,
    GaussianThreshold,
    GeometricHistogram,
    NoisyCounts,
)
from pate.accounting.gate import GateParameters
from pate.accounting.gdp import (
    LEAST_SIGMA,
    epsilon_from_delta,
    mu_of,
    mu_squared_from_epsilon,
    squared_step,
    squared_step_of,
)
from pate.errors import AccountingError, BudgetError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pate.accounting.events import Charged


#: A forecast asks for the budget of one guarantee for many numbers of teachers.
_mu_squared = lru_cache(maxsize=64)(mu_squared_from_epsilon)
#: Likelihood ratios, in nats, up to which the theorem on nearly Gaussian pairs is proved.
_MOST_RIPPLE: Final = Fraction(1, 8)


class Composition(Protocol):
    """A currency of privacy costs: exact, additive, convertible."""

    #: Name of the currency in ledgers and statements.
    name: ClassVar[str]

    def supports(self, event: Charged) -> bool:
        """Return whether the event has a cost in this currency."""

    def cost(self, event: Charged) -> Fraction:
        """Return the exact cost of one event.

        Raises:
            AccountingError: if the event has none in this currency.
        """

    def epsilon(self, total: Fraction, delta: float) -> float:
        """Return the epsilon of (epsilon, delta)-DP to which a total cost converts, rounded up."""

    def budget(self, epsilon: float, delta: float) -> Fraction:
        """Return the largest total, rounded down, that converts to at most ``epsilon``."""


class Pure:
    """Pure differential privacy: costs are epsilons, and the sum holds at every delta, 0 included.

    Only for releases with geometric noise; many answers with Laplace noise cost less in zCDP.
    """

    name: ClassVar[str] = "pure"

    def supports(self, event: Charged) -> bool:
        """Return whether it is a histogram with geometric noise."""
        return isinstance(event, GeometricHistogram)

    def cost(self, event: Charged) -> Fraction:
        """Return epsilon.

        >>> Pure().cost(GeometricHistogram(Fraction(20), 3, 2))
        Fraction(1, 10)

        Raises:
            AccountingError: for any other event.
        """
        if isinstance(event, GeometricHistogram):
            return event.epsilon
        raise AccountingError(f"no pure epsilon is counted for {event}: use zCDP")

    def epsilon(self, total: Fraction, delta: float) -> float:
        """Return the total itself, rounded up; ``delta`` may be 0.

        Raises:
            AccountingError: for a total that is not exact or negative, or a delta outside [0, 1).
        """
        if delta != 0.0:
            check_delta(delta)
        return float_up(check_rho(total, "a total cost"))

    def budget(self, epsilon: float, delta: float) -> Fraction:
        """Return ``epsilon`` itself, as an exact number.

        Raises:
            AccountingError: for an epsilon that is NaN, negative or infinite, or a delta outside
                [0, 1).
        """
        if delta != 0.0:
            check_delta(delta)
        if not 0.0 <= epsilon < math.inf:
            raise AccountingError(f"epsilon must be finite and not negative, got {epsilon}")
        return Fraction(epsilon)


class Zcdp:
    """Zero-concentrated DP: costs are rho, and every event has one."""

    name: ClassVar[str] = "zcdp"

    def supports(self, event: Charged) -> bool:
        """Return whether it is an event of one query."""
        return not isinstance(event, GatedBatch)

    def cost(self, event: Charged) -> Fraction:
        """Return rho.

        Raises:
            AccountingError: for a gated batch.
        """
        if isinstance(event, GatedBatch):
            raise AccountingError("a gated batch has no rho: its own composition is 'gate'")
        return event.rho

    def epsilon(self, total: Fraction, delta: float) -> float:
        """Return the improved conversion; see :func:`~pate.accounting.conversion.epsilon_from_rho`."""
        return epsilon_from_rho(total, delta)

    def budget(self, epsilon: float, delta: float) -> Fraction:
        """Return rho; see :func:`~pate.accounting.conversion.rho_from_epsilon`."""
        return rho_from_epsilon(epsilon, delta)


class Gdp:
    """Gaussian DP: costs are mu^2 / 2, so that continuous noise would cost its rho."""

    name: ClassVar[str] = "gdp"

    def supports(self, event: Charged) -> bool:
        """Return whether the event is one of Gaussian noise that is wide enough for the theorems."""
        if isinstance(event, NoisyCounts):
            return event.variance >= LEAST_SIGMA**2 and event.ripple <= _MOST_RIPPLE
        return isinstance(event, GaussianThreshold | GaussianMax) and event.sigma >= LEAST_SIGMA

    def cost(self, event: Charged) -> Fraction:
        """Return mu^2 / 2: rho, times the ratio of the discrete noise's cost to the continuous.

        Of counts with noise shares mu is that of one discrete Gaussian, and three times T, the
        event's ripple: (mu + 3T)^2 <= mu^2 + 3T (1 + mu^2) + 9 T^2.

        >>> Gdp().cost(GaussianMax(Fraction(40), 1)) / GaussianMax(Fraction(40), 1).rho
        Fraction(4801, 4800)
        >>> from pate.accounting.events import NoisyHistogram
        >>> shares = Gdp().cost(NoisyHistogram(Fraction(10), 16, 1))
        >>> float(shares / Gdp().cost(GaussianMax(Fraction(40), 1)) - 1) < 1e-24
        True

        Raises:
            AccountingError: for Laplace noise, or noise that is too narrow.

        Source: docs/proofs/discrete-gaussian.md, sections 5 and 7.
        """
        if self.supports(event):
            if isinstance(event, NoisyCounts):
                squared = event.change[0] * squared_step_of(event.variance)
                more = event.ripple
                return (squared + 3 * more * (1 + squared) + 9 * more**2) / 2
            if isinstance(event, GaussianThreshold | GaussianMax):
                return event.rho * event.sigma**2 * squared_step(event.sigma)
        raise AccountingError(f"no Gaussian-DP cost is known of {event}: use zCDP")

    def epsilon(self, total: Fraction, delta: float) -> float:
        """Return the exact epsilon of the Gaussian mechanism with mu^2 = 2 ``total``.

        >>> round(Gdp().epsilon(Fraction("0.190898"), 1e-5), 4)
        2.5272
        """
        if check_rho(total, "a total cost") == 0:
            return 0.0
        return epsilon_from_delta(mu_of(2 * total), delta)

    def budget(self, epsilon: float, delta: float) -> Fraction:
        """Return mu^2 / 2 of the largest mu that converts to at most ``epsilon``."""
        return _mu_squared(epsilon, delta) / 2


@dataclass(frozen=True)
class Gate:
    """One gated batch: costs are counted in batches, and the budget is one.

    Attributes:
        batch: the event, with the parameters of the gate.

    Raises:
        AccountingError: for parameters with which no gate can be made.
    """

    batch: GatedBatch

    name: ClassVar[str] = "gate"

    @property
    def parameters(self) -> GateParameters:
        """The gate itself."""
        return GateParameters(
            order=float(self.batch.order),
            target=float(self.batch.target),
            test=float(self.batch.test),
            failure=float(self.batch.failure),
        )

    def supports(self, event: Charged) -> bool:
        """Return whether it is the one event."""
        return event == self.batch

    def cost(self, event: Charged) -> Fraction:
        """Return 1.

        Raises:
            AccountingError: for any other event.
        """
        if event != self.batch:
            raise AccountingError(f"{event} has no cost in the composition of a gated batch")
        return Fraction(1)

    def epsilon(self, total: Fraction, delta: float) -> float:
        """Return the epsilon of one gated batch.

        Raises:
            AccountingError: for more than one.
        """
        if not 0 <= check_rho(total, "a total cost") <= 1:
            raise AccountingError(f"one batch may be gated, not {total}")
        return self.parameters.epsilon(delta) if total else 0.0

    def budget(self, epsilon: float, delta: float) -> Fraction:
        """Return 1 if the batch converts to at most ``epsilon``, else 0."""
        return Fraction(int(self.parameters.epsilon(delta) <= epsilon))


#: The compositions of events of single queries, the tightest first.
COMPOSITIONS: Final[tuple[Composition, ...]] = (Gdp(), Pure(), Zcdp())


def tightest(events: Iterable[Charged]) -> Composition:
    """Return the tightest composition in which every one of ``events`` has a cost."""
    given = tuple(events)
    return next(each for each in COMPOSITIONS if all(each.supports(event) for event in given))


def composition_named(name: str) -> Composition:
    """Return the composition of that name.

    Raises:
        AccountingError: if there is none.
    """
    for each in COMPOSITIONS:
        if each.name == name:
            return each
    raise AccountingError(f"unknown composition {name!r}")


def too_dear(
    composition: Composition, worst: Fraction, delta: float, budget: float, what: str, whose: str
) -> BudgetError:
    """Return the error of a budget that pays for nothing.

    Args:
        composition: of the budget.
        worst: cost of what is answered together.
        delta: of the budget.
        budget: its epsilon.
        what: is answered together.
        whose: budget it is.
    """
    cost = composition.epsilon(worst, delta)
    return BudgetError(
        f"one {what} may cost epsilon {cost:.3g} at delta {delta:g}, the {whose} is {budget:.3g}: "
        "use more teachers, more noise, or a larger budget"
    )


def total_cost(composition: Composition, events: Iterable[Charged]) -> Fraction:
    """Return the total cost of the events."""
    return sum((composition.cost(event) for event in events), Fraction(0))
