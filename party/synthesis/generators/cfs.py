"""The paper's generator: structure from noisy entropies, Dirichlet-multinomial tables.

Rows are split in two by a fair coin of each row, so that one row added or removed changes only one
part, and the costs of the parts do not add up: the larger one counts.

Structure: the m(m+1) entropies H(x_i), H(b_j) and H(x_i, b_j), b the buckets, each with noise. An
entropy of n rows changes by at most (log2 n + 1/ln 2)/n bits when the n-th row comes or goes: with
p the old law, the new one is (1 - 1/n) p and 1/n at one point, so by concavity its entropy lies
between (1 - 1/n) H(p) and that plus h(1/n), and H(p) <= log2 n, h(1/n) <= (log2 n + 1/ln 2)/n. This
falls with n. The number of rows is private, so the bound is taken at a noisy count minus a margin,
which exceeds the true count with probability at most beta; beta is the delta of the price.
Entropies are rounded to whole multiples of a small unit before the noise, which is an integer then.

Parameters: every cell of every table gets noise, empty ones too.

Source: Bindschaedler, Shokri, Gunter, PVLDB 10(5), 2017, with the sensitivity above in place of
theirs, which is twice as large.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final

import numpy as np

from party.synthesis.generators import counts, structure
from party.synthesis.generators.protocol import Fitted, Price, check_epsilon, drawable
from party.synthesis.seeds.composition import largest_each
from party.synthesis.table.network import MAX_PARENTS, Network
from party.synthesis.table.rounding import log_up
from pate.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from party.synthesis.table.domain import Domain
    from party.synthesis.table.randomness import Randomness
    from pate.noise.exact import Noise

#: The part of the structure's epsilon for the noisy count.
_COUNT: Final = Fraction(1, 20)
#: Finest unit of an entropy, 2^-20 bit, and the largest noise scale in units.
_FINEST: Final = 20
_LARGEST_SCALE: Final = 2**24
_MOST_CELLS: Final = 2**17


@dataclass(frozen=True)
class Cfs:
    """The generator ``cfs``.

    Attributes:
        delta: of the (epsilon, delta) that the noise is set for; half of it is in the price.
        parents: most parents of an attribute.
        configurations: most combinations of the parents' buckets.
        alpha: prior weight of a table's row.
    """

    delta: Fraction = Fraction(1, 10**6)
    parents: int = 4
    configurations: int = 500
    alpha: float = 1.0
    name: str = "cfs"

    def __post_init__(self) -> None:
        if not 0 < self.delta < 1:
            raise UsageError(f"delta must be between 0 and 1, got {self.delta}")
        if not 0 <= self.parents <= MAX_PARENTS or self.configurations < 1 or not self.alpha > 0:
            raise UsageError("cfs needs 0 to 8 parents, 1 configuration or more, alpha above 0")

    def price(self, domain: Domain, epsilon: Fraction) -> Price:
        """See :class:`~party.synthesis.generators.protocol.Generator`.

        Each part is (epsilon, delta)-DP, by the best bound on composition. The price is the same noise
        as zCDP.
        """
        noise = self._noise(domain, epsilon)
        m = len(domain)
        learnt = noise.count**2 / 2 + m * (m + 1) * noise.entropy**2 / 2
        return Price(None, max(learnt, m / (2 * noise.scale**2)), noise.beta)

    def fit(
        self,
        codes: NDArray[np.intp],
        domain: Domain,
        epsilon: Fraction,
        noise: Noise,
        randomness: Randomness,
    ) -> Fitted:
        """See :class:`~party.synthesis.generators.protocol.Generator`."""
        price = self.price(domain, epsilon)
        domain.check_codes(codes)
        amounts = self._noise(domain, epsilon)
        # Independent coins: an exact half would move other rows when one is added.
        heads = randomness.below(2, len(codes)) == 1
        found = self._structure(codes[heads], domain, amounts, noise)
        exact = [counts.table(codes[~heads], domain, i, parents) for i, parents in enumerate(found)]
        tables = tuple(
            counts.conditional(table, np.full(size, 1 / size), self.alpha)
            for table, size in zip(
                counts.noisy(exact, amounts.scale, noise), domain.sizes, strict=True
            )
        )
        return Fitted(Network(domain, structure.order(found), found, tables), price)

    def _noise(self, domain: Domain, epsilon: Fraction) -> _Amounts:
        check_epsilon(epsilon)
        m = len(domain)
        beta = self.delta / 2
        count = 1 / drawable(1 / (_COUNT * epsilon), epsilon)
        entropy = largest_each(epsilon - count, m * (m + 1), self.delta - beta)
        each = largest_each(epsilon, m, self.delta)
        if entropy <= 0 or each <= 0:
            raise UsageError(f"epsilon {float(epsilon):g} is too small to divide")
        _resolution(2, entropy)  # the most noise that an entropy may need: that of two rows
        return _Amounts(count, entropy, drawable(1 / each, epsilon), beta)

    def _structure(
        self, codes: NDArray[np.intp], domain: Domain, amounts: _Amounts, noise: Noise
    ) -> tuple[tuple[int, ...], ...]:
        """Return the parents of each attribute."""
        m = len(domain)
        seen = len(codes) + int(noise.laplace(1 / amounts.count, 1)[0])
        # The law's upper tail: P[noise >= t] <= exp(-t count).
        rows = max(2, seen - math.ceil(log_up(1 / amounts.beta) / amounts.count))
        unit, scale = _resolution(rows, amounts.entropy)
        exact = np.rint(np.array(_entropies(codes, domain)) * unit).astype(np.int64)
        noisy = (exact + noise.laplace(Fraction(scale), exact.size)) / unit
        joint = np.zeros((m, m))
        joint[~np.eye(m, dtype=np.bool_)] = noisy[2 * m :]
        return structure.grow(
            structure.correlations(noisy[:m], noisy[m : 2 * m], joint),
            domain.bucket_counts,
            domain.sizes,
            most_parents=self.parents,
            most_configurations=self.configurations,
            most_cells=_MOST_CELLS,
        )


@dataclass(frozen=True)
class _Amounts:
    """The amounts of noise of a fit.

    Attributes:
        count: epsilon of the noisy number of rows.
        entropy: epsilon of each entropy.
        scale: of the noise of a table's cell; each table is (1/scale)-DP.
        beta: probability that the noisy number of rows overstates it beyond its margin.
    """

    count: Fraction
    entropy: Fraction
    scale: Fraction
    beta: Fraction


def _resolution(rows: int, epsilon: Fraction) -> tuple[int, int]:
    """Return the number of units per bit, and the noise scale of an entropy in units.

    Args:
        rows: a lower bound on the number of rows, except with probability beta.
        epsilon: of each entropy.
    """
    change = (math.log2(rows) + 1 / math.log(2)) / rows
    for power in range(_FINEST, -1, -1):
        # One unit for rounding both entropies, one for the rounding of floats.
        scale = math.ceil((math.ceil(change * 2**power) + 2) / epsilon)
        if scale <= _LARGEST_SCALE:
            return 2**power, scale
    raise UsageError("epsilon is too small for cfs with so many columns: use l1")


def _entropies(codes: NDArray[np.intp], domain: Domain) -> list[float]:
    """Return H(x_i) of all i, then H(b_j) of all j, then H(x_i, b_j) of all i and j that differ."""
    m = len(domain)
    coarse = [domain.bucket_maps[j][codes[:, j]] for j in range(m)]
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
