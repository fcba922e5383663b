"""Each attribute by itself: noisy counts of its codes, and no dependence between columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from party.synthesis.generators import counts
from party.synthesis.generators.protocol import Fitted, Price, check_epsilon, drawable
from party.synthesis.table.network import Network

if TYPE_CHECKING:
    from fractions import Fraction

    from numpy.typing import NDArray

    from party.synthesis.table.domain import Domain
    from party.synthesis.table.randomness import Randomness
    from pate.noise.exact import Noise


@dataclass(frozen=True)
class Marginals:
    """The generator ``marginals``: m tables at epsilon / m each, sensitivity 1, pure epsilon."""

    name: str = "marginals"

    def price(self, domain: Domain, epsilon: Fraction) -> Price:
        """See :class:`~party.synthesis.generators.protocol.Generator`."""
        check_epsilon(epsilon)
        drawable(len(domain) / epsilon, epsilon)
        return Price(epsilon, epsilon**2 / (2 * len(domain)), 0 * epsilon)

    def fit(
        self,
        codes: NDArray[np.intp],
        domain: Domain,
        epsilon: Fraction,
        noise: Noise,
        randomness: Randomness,  # noqa: ARG002 - a protocol
    ) -> Fitted:
        """See :class:`~party.synthesis.generators.protocol.Generator`."""
        price = self.price(domain, epsilon)
        domain.check_codes(codes)
        m = len(domain)
        found = counts.noisy(
            [counts.table(codes, domain, i, ()) for i in range(m)],
            drawable(m / epsilon, epsilon),
            noise,
        )
        tables = tuple(
            (counts.in_units(t[0]) / counts.UNIT).astype(np.float64)[None, :] for t in found
        )
        return Fitted(Network(domain, tuple(range(m)), ((),) * m, tables), price)
