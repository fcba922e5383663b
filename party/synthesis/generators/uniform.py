"""Uniform codes of every attribute: reads no row, costs nothing.

It is the baseline: its benefit to a campaign needs no data.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from party.synthesis.generators.protocol import Fitted, Price
from party.synthesis.table.network import Network

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from party.synthesis.table.domain import Domain
    from party.synthesis.table.randomness import Randomness
    from pate.noise.exact import Noise


@dataclass(frozen=True)
class Uniform:
    """The generator ``uniform``. It ignores epsilon and rows."""

    name: str = "uniform"

    def price(self, domain: Domain, epsilon: Fraction) -> Price:  # noqa: ARG002 - a protocol
        """See :class:`~party.synthesis.generators.protocol.Generator`: nothing."""
        return Price(Fraction(0), Fraction(0), Fraction(0))

    def fit(
        self,
        codes: NDArray[np.intp],  # noqa: ARG002 - never read
        domain: Domain,
        epsilon: Fraction,
        noise: Noise,  # noqa: ARG002 - a protocol
        randomness: Randomness,  # noqa: ARG002 - a protocol
    ) -> Fitted:
        """See :class:`~party.synthesis.generators.protocol.Generator`."""
        m = len(domain)
        tables = tuple(np.full((1, size), 1 / size) for size in domain.sizes)
        return Fitted(
            Network(domain, tuple(range(m)), ((),) * m, tables), self.price(domain, epsilon)
        )
