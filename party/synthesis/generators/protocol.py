"""The interface of generators, and the price of a fit.

Neighbours differ by one row added or removed. A price depends only on public settings, so it can be
reserved in the ledger before any row is read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Protocol

from pate.errors import UsageError
from pate.noise.exact import LARGEST_TERM, check_scale

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from party.synthesis.table.domain import Domain
    from party.synthesis.table.network import Network
    from party.synthesis.table.randomness import Randomness
    from pate.noise.exact import Noise


@dataclass(frozen=True)
class Price:
    """The cost of a fit under adding or removing one row.

    Attributes:
        epsilon_pure: the fit is (epsilon_pure, 0)-DP, or None if no such statement is made.
        rho: it is delta-approximately rho-zCDP: apart from an event of probability ``delta`` its
            Rényi divergence of order alpha is at most rho alpha.
        delta: of that statement.
    """

    epsilon_pure: Fraction | None
    rho: Fraction
    delta: Fraction

    def __post_init__(self) -> None:
        if self.rho < 0 or not 0 <= self.delta < 1 or (self.epsilon_pure or 0) < 0:
            raise UsageError(f"an impossible price: {self}")


@dataclass(frozen=True, eq=False)
class Fitted:
    """A paid model, which may be released."""

    network: Network
    price: Price


class Generator(Protocol):
    """Learns a network from rows at a price known in advance."""

    @property
    def name(self) -> str:
        """Its name on the command line and in the ledger."""

    def price(self, domain: Domain, epsilon: Fraction) -> Price:
        """Return the cost of :meth:`fit`.

        Args:
            domain: public.
            epsilon: to be spent; a generator may spend less.

        Raises:
            UsageError: if epsilon is not above zero, or out of reach of exact noise.
        """

    def fit(
        self,
        codes: NDArray[np.intp],
        domain: Domain,
        epsilon: Fraction,
        noise: Noise,
        randomness: Randomness,
    ) -> Fitted:
        """Learn a network.

        Args:
            codes: (n, attributes) rows, one per unit of privacy.
            domain: public.
            epsilon: as for :meth:`price`.
            noise: integer noise; a release needs the operating system's.
            randomness: uniform numbers; a release needs the operating system's.

        Raises:
            SchemaError: if the rows are not of the domain.
            UsageError: as for :meth:`price`.
        """


def check_epsilon(epsilon: Fraction) -> None:
    """Check an epsilon.

    Raises:
        UsageError: if it is not above zero.
    """
    if epsilon <= 0:
        raise UsageError(f"epsilon must be above 0, got {epsilon}")


def drawable(scale: Fraction, epsilon: Fraction) -> Fraction:
    """Return ``scale``, or the next larger one for which noise can be drawn exactly.

    Args:
        scale: of integer noise.
        epsilon: for the message.

    Raises:
        UsageError: if it is out of reach, which a price finds before anything is paid.
    """
    if max(scale.numerator, scale.denominator) > LARGEST_TERM:
        digits = 10 ** max(0, 6 - len(str(math.ceil(scale))))
        scale = Fraction(math.ceil(scale * digits), digits)
    try:
        return check_scale(scale, "its scale")
    except UsageError as error:
        raise UsageError(
            f"epsilon {float(epsilon):g} is too {'large' if scale < 1 else 'small'} to draw the "
            "noise for so many columns"
        ) from error
