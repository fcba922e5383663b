"""The moment E of one bit against another, the sum of p^order p'^(1 - order), at any distance.

E - 1 keeps its relative accuracy down to 1e-270, and ln E up to the largest float. Every figure is
rounded up.

Proof: docs/proofs/labels.md, section 5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pate.accounting.arrays import Floats

#: A few units in the last place: relative error of one logarithm, exponential or product.
ROUNDING: Final = 2.0**-50
#: Above this growth the term of the bit 1 is computed from logarithms.
LARGEST_GROWTH: Final = 100.0
#: Beyond this a sum of exponentials is added up in logarithms.
_LARGE: Final = 500.0
#: A moment is above 1 by at least this: less would be lost in the sum, not absent.
_LEAST_EXCESS: Final = 1e-270


class Bits(NamedTuple):
    """A bit against a neighbour's; first the outcome 1, then 0."""

    log_p: Floats  # (2, queries), logarithms of the chances here
    ratio: Floats  # (2, queries), logarithms of p'/p
    error: Floats  # (2, queries), bound on the error of a ratio that is not yet compensated

    def at(self, queries: slice | NDArray[np.intp]) -> Bits:
        """Return the bits of some queries."""
        return Bits(*(part[:, queries] for part in self))

    def fill(self, excess_order: Floats, excess: Floats, passed: Floats, work: Floats) -> None:
        """Write E - 1, rounded up, and the term of the bit 1; all arrays are (queries, orders).

        E - 1 is the sum of p expm1(-l log(p'/p)), and infinite where a term is beyond e^500.
        """
        excess[:] = _LEAST_EXCESS
        for outcome in (1, 0):  # the last one leaves its term
            p = np.exp(self.log_p[outcome])[:, None]
            error = self.error[outcome]
            # p expm1(exponent), in ``passed`` the exponent.
            np.multiply.outer(-self.ratio[outcome], excess_order, out=passed)
            np.minimum(passed, 1.0, out=work)
            np.expm1(work, out=work)
            work *= p
            if passed.max() > 1.0:  # there expm1 may overflow while p underflows
                wide = passed > 1.0
                passed += self.log_p[outcome][:, None]
                beyond = passed > _LARGE
                np.exp(np.minimum(passed, _LARGE, out=passed), out=passed)
                np.copyto(work, passed - p, where=wide)
                work[beyond] = np.inf
                np.add(work, p, out=passed, where=~wide)
            else:
                np.add(work, p, out=passed)
            excess += work
            excess += np.multiply(np.abs(work, out=work), ROUNDING, out=work)
            if error.any():
                np.multiply.outer(error, excess_order, out=work)
                excess += np.multiply(work, passed, out=work)
        excess *= 1.0 + ROUNDING * (4.0 - self.log_p.sum(axis=0))[:, None]

    def log_moment(self, excess_order: Floats, growth: Floats | float = 0.0) -> Floats:
        """Return log E, rounded up, whatever its size; (queries, orders)."""
        excess, passed, work = np.empty((3, self.log_p.shape[1], excess_order.size))
        self.fill(excess_order, excess, passed, work)
        exponent = np.multiply.outer(-self.ratio, excess_order)
        logs = self.log_p[:, :, None] + exponent
        logs += ROUNDING * (np.abs(self.log_p)[:, :, None] + np.abs(exponent))
        logs += np.multiply.outer(self.error, excess_order)
        logs[0] += growth
        # p^a p'^(1-a) (e^growth - 1), where one factor may overflow while the other vanishes.
        excess -= np.exp(np.minimum(logs[0], _LARGE)) * np.expm1(-np.asarray(growth))
        large = np.isinf(excess) | (logs[0] > _LARGE)
        excess[large] = 0.0
        by_logs = np.logaddexp(*logs) * (1.0 + 8.0 * ROUNDING)
        made: Floats = np.where(large, by_logs, np.log1p(excess) * (1.0 + 4.0 * ROUNDING))
        return made
