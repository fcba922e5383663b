"""The paper's generator: structure from noisy entropies, Dirichlet-multinomial tables.

Rows are split in two by a fair coin of each row, so that one row added or removed changes only one
part, and the larger of both costs counts. The sensitivity of an entropy falls with the number of
rows, which is private: it is taken at a noisy count minus a margin, which exceeds the true count
with probability at most beta, the delta of the price. Entropies are rounded to whole multiples of a
small unit before the noise, an integer.

Structure: correlation-based feature selection. Edges are added one by one, the one with the largest
gain in merit first: parents should be informative about the child but not about each other. Every
cell of every table gets noise, empty ones too.

Source: Bindschaedler, Shokri, Gunter, PVLDB 10(5), 2017, with a sensitivity half of theirs. Proof:
docs/proofs/deniability.md, section 4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from party.synthesis.deniability import largest_each, log_up
from party.synthesis.l1 import MOST_CELLS, MOST_CONFIGURATIONS, Price, check_epsilon, drawable
from party.synthesis.network import Network, conditional, counted, noisy
from pate.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from party.synthesis.schema import Domain
    from pate.noise.exact import Noise, Randomness

#: The part of the structure's epsilon for the noisy count.
_COUNT: Final = Fraction(1, 20)
#: Finest unit of an entropy, 2^-20 bit, and the largest noise scale in units.
_FINEST: Final = 20
_LARGEST_SCALE: Final = 2**24
#: Most parents of an attribute, and the prior weight of a table's row.
_MOST_PARENTS: Final = 4
_ALPHA: Final = 1.0
#: A gain in merit below this adds no edge.
_LEAST_GAIN: Final = 1e-6


@dataclass(frozen=True)
class _Amounts:
    """Noise of a fit: epsilon of the number of rows (too high with beta) and of entropies; a cell's scale."""

    count: Fraction
    entropy: Fraction
    scale: Fraction
    beta: Fraction


@dataclass(frozen=True)
class Cfs:
    """The generator ``cfs``; half of ``delta``, which the noise is set for, is in the price."""

    delta: Fraction = Fraction(1, 10**6)
    name: ClassVar[str] = "cfs"

    def price(self, domain: Domain, epsilon: Fraction) -> Price:
        """Return its cost as zCDP; each part is (epsilon, delta)-DP, by the best bound on composition."""
        noise = self._noise(domain, epsilon)
        m = len(domain)
        learnt = noise.count**2 / 2 + m * (m + 1) * noise.entropy**2 / 2
        return Price(None, max(learnt, m / (2 * noise.scale**2)), noise.beta)

    def fit(
        self, codes: NDArray[np.intp], domain: Domain, epsilon: Fraction, source: Randomness
    ) -> Network:
        """See :meth:`party.synthesis.l1.L1.fit`."""
        amounts = self._noise(domain, epsilon)
        domain.check_codes(codes)
        # Independent coins: an exact half would move other rows when one is added.
        heads = source.lanes.below(2, len(codes)) == 1
        found = _structure(codes[heads], domain, amounts, source)
        exact = [counted(codes[~heads], domain, i, parents) for i, parents in enumerate(found)]
        tables = tuple(
            conditional(table, np.full(size, 1 / size), _ALPHA)
            for table, size in zip(noisy(exact, amounts.scale, source), domain.sizes, strict=True)
        )
        return Network(domain, order(found), found, tables)

    def _noise(self, domain: Domain, epsilon: Fraction) -> _Amounts:
        check_epsilon(epsilon)
        m = len(domain)
        beta = self.delta / 2
        count = 1 / drawable(1 / (_COUNT * epsilon), epsilon)
        entropy = largest_each(epsilon - count, m * (m + 1), self.delta - beta)
        each = largest_each(epsilon, m, self.delta)
        if entropy <= 0 or each <= 0:
            raise UsageError(f"epsilon {float(epsilon):g} is too small to divide")
        resolution(2, entropy)  # the most noise that an entropy may need: that of two rows
        return _Amounts(count, entropy, drawable(1 / each, epsilon), beta)


def _structure(
    codes: NDArray[np.intp], domain: Domain, amounts: _Amounts, noise: Noise
) -> tuple[tuple[int, ...], ...]:
    """Return the parents of each attribute."""
    m = len(domain)
    seen = len(codes) + int(noise.laplace(1 / amounts.count, 1)[0])
    # The law's upper tail: P[noise >= t] <= exp(-t count).
    rows = max(2, seen - math.ceil(log_up(1 / amounts.beta) / amounts.count))
    unit, scale = resolution(rows, amounts.entropy)
    exact = np.rint(np.array(entropies(codes, domain)) * unit).astype(np.int64)
    found = (exact + noise.laplace(Fraction(scale), exact.size)) / unit
    joint = np.zeros((m, m))
    joint[~np.eye(m, dtype=np.bool_)] = found[2 * m :]
    return grow(
        correlations(found[:m], found[m : 2 * m], joint), domain.bucket_counts, domain.sizes
    )


def resolution(rows: int, epsilon: Fraction) -> tuple[int, int]:
    """Return units per bit, and an entropy's noise scale in units, for at least ``rows`` rows."""
    change = (math.log2(rows) + 1 / math.log(2)) / rows
    for power in range(_FINEST, -1, -1):
        # One unit for rounding both entropies, one for the rounding of floats.
        scale = math.ceil((math.ceil(change * 2**power) + 2) / epsilon)
        if scale <= _LARGEST_SCALE:
            return 2**power, scale
    raise UsageError("epsilon is too small for cfs with so many columns: use l1")


def entropies(codes: NDArray[np.intp], domain: Domain) -> list[float]:
    """Return H(x_i) of all i, then H(b_j) of all j, then H(x_i, b_j) of all i and j that differ."""
    m = len(domain)
    coarse = [each.bucket_map[codes[:, j]] for j, each in enumerate(domain.attributes)]
    single = [_entropy(codes[:, i]) for i in range(m)]
    buckets = [_entropy(coarse[j]) for j in range(m)]
    joint = [
        _entropy(codes[:, i] * domain.bucket_counts[j] + coarse[j])
        for i in range(m)
        for j in range(m)
        if i != j
    ]
    return [*single, *buckets, *joint]


def _entropy(values: NDArray[np.intp]) -> float:
    """Return the empirical entropy of the values in bits; 0 without values."""
    if not values.size:
        return 0.0
    occupied = np.bincount(values)
    occupied = occupied[occupied > 0]
    return math.log2(values.size) - float((occupied * np.log2(occupied)).sum()) / values.size


# --- from noisy entropies to a graph: nothing here sees data -------------------------------------


def correlations(
    single: NDArray[np.float64], coarse: NDArray[np.float64], joint: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return (m, m) symmetrical uncertainties SU(i, j) of attribute i and the buckets of j, in [0, 1].

    SU = 2 - 2 H(x_i, b_j) / (H(x_i) + H(b_j)), and 0 where the denominator is not above 0.
    """
    total = single[:, None] + coarse[None, :]
    found = np.where(total > 0, 2 - 2 * joint / np.where(total > 0, total, 1.0), 0.0)
    made: NDArray[np.float64] = np.clip(found, 0.0, 1.0)
    np.fill_diagonal(made, 0.0)
    return made


def grow(
    su: NDArray[np.float64],
    buckets: Sequence[int],
    codes: Sequence[int],
    *,
    most_parents: int = _MOST_PARENTS,
    most_configurations: int = MOST_CONFIGURATIONS,
    most_cells: int = MOST_CELLS,
) -> tuple[tuple[int, ...], ...]:
    """Return the parents of each attribute, without a cycle; ``su`` has child by parent."""
    m = len(buckets)
    parents: list[list[int]] = [[] for _ in range(m)]
    #: above[i, j]: j is i, or comes before it.
    above = np.eye(m, dtype=np.bool_)
    gains = np.array([_gains(su, i, parents[i]) for i in range(m)])
    while True:
        # Where child is above parent the edge would close a circle.
        allowed = np.where(above.T, -np.inf, gains)
        child, parent = (int(at) for at in np.unravel_index(np.argmax(allowed), allowed.shape))
        if not allowed[child, parent] > _LEAST_GAIN:
            return tuple(tuple(sorted(found)) for found in parents)
        wider = math.prod(buckets[p] for p in (*parents[child], parent))
        if wider > most_configurations or wider * codes[child] > most_cells:
            gains[child, parent] = -np.inf  # and remains so: a table only grows
            continue
        parents[child].append(parent)
        above[above[:, child]] |= above[parent]
        full = len(parents[child]) >= most_parents
        fresh = np.full(m, -np.inf) if full else _gains(su, child, parents[child])
        gains[child] = np.where(np.isneginf(gains[child]), -np.inf, fresh)


def order(parents: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Return all attributes, parents first; among candidates the one with most descendants."""
    m = len(parents)
    below = [{i} for i in range(m)]
    for _ in range(m):  # one round per level at most
        for child, found in enumerate(parents):
            for parent in found:
                below[parent] |= below[child]
    placed: list[int] = []
    while len(placed) < m:
        ready = [i for i in range(m) if i not in placed and set(parents[i]) <= set(placed)]
        placed.append(max(ready, key=lambda i: (len(below[i]), -i)))
    return tuple(placed)


def _gains(su: NDArray[np.float64], child: int, parents: list[int]) -> NDArray[np.float64]:
    """Return (m,) gain in merit of each further parent."""
    now = _merit(su, child, parents)
    found = np.full(len(su), -np.inf)
    for parent in range(len(su)):
        if parent != child and parent not in parents:
            found[parent] = _merit(su, child, [*parents, parent]) - now
    return found


def _merit(su: NDArray[np.float64], child: int, parents: list[int]) -> float:
    if not parents:
        return 0.0
    # Both orders of a pair count, so the mean of SU(j, l) and SU(l, j) counts twice.
    among = float(su[np.ix_(parents, parents)].sum())
    return float(su[child, parents].sum()) / math.sqrt(len(parents) + among)
