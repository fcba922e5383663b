"""The default generator: a network grown by the exponential mechanism, at a pure epsilon.

Three parts share epsilon, 0.1 / 0.2 / 0.7:

(a) the counts of each attribute's codes, with noise; they give each a law p;
(b) the structure. The root is public knowledge by then: the label, or without one the attribute
    with the largest entropy under p. Then m - 1 times an attribute that is not placed and at most
    two placed parents are chosen by the exponential mechanism. The score is the distance of the
    attribute from independence of these parents, sum |C_cv - r_c p_v| over the cells of its table C
    with row sums r, minus the noise that its cells will get. One row changes a score by at most 2:
    it adds 1 to one cell and p to one row. p counts in multiples of 2^-20, so that scores are exact
    integers;
(c) the table of each attribute given its parents, with noise in every cell; each row is then shrunk
towards p, the more the fewer rows it has.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import TYPE_CHECKING, Final

import numpy as np

from party.synthesis.generators import counts
from party.synthesis.generators.exponential import choose, usable_rate
from party.synthesis.generators.protocol import Fitted, Price, check_epsilon, drawable
from party.synthesis.table.network import Network

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from party.synthesis.table.domain import Domain
    from party.synthesis.table.randomness import Randomness
    from pate.noise.exact import Noise

#: Parts of epsilon for the laws of single attributes, for the structure, and for the tables.
_LAWS, _STRUCTURE, _TABLES = Fraction(1, 10), Fraction(2, 10), Fraction(7, 10)
#: Sensitivity of a score, in multiples of its unit.
_SENSITIVITY: Final = 2 * counts.UNIT
#: Most cells of a candidate table.
_MOST_CELLS: Final = 2**17
#: Most attributes for which pairs of parents are considered.
_MOST_FOR_PAIRS: Final = 48

_Candidate = tuple[int, tuple[int, ...]]


@dataclass(frozen=True)
class L1:
    """The generator ``l1``.

    Attributes:
        configurations: most combinations of the parents' buckets.
    """

    configurations: int = 500
    name: str = "l1"

    def price(self, domain: Domain, epsilon: Fraction) -> Price:
        """See :class:`~party.synthesis.generators.protocol.Generator`.

        A geometric mechanism of epsilon is (epsilon^2/2)-zCDP, the exponential one (epsilon^2/8).
        """
        check_epsilon(epsilon)
        m = len(domain)
        _scales(m, epsilon)
        rho = ((_LAWS * epsilon) ** 2 + (_TABLES * epsilon) ** 2) / (2 * m)
        if m > 1:
            rho += (_STRUCTURE * epsilon) ** 2 / (8 * (m - 1))
        return Price(epsilon, rho, Fraction(0))

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
        m = len(domain)
        law_scale, scale = _scales(m, epsilon)
        singles = [counts.table(codes, domain, i, ())[0] for i in range(m)]
        laws = [counts.in_units(noisy) for noisy in counts.noisy(singles, law_scale, noise)]
        # The standard deviation of a cell's noise, very nearly sqrt(2) scale.
        deviation = math.sqrt(2) * float(scale)

        order, parents = self._structure(codes, domain, epsilon, laws, deviation, randomness)

        exact = [counts.table(codes, domain, i, parents[i]) for i in range(m)]
        tables = tuple(
            counts.conditional(table, law / counts.UNIT, deviation * math.sqrt(len(law)))
            for table, law in zip(counts.noisy(exact, scale, noise), laws, strict=True)
        )
        return Fitted(Network(domain, order, parents, tables), price)

    def _structure(
        self,
        codes: NDArray[np.intp],
        domain: Domain,
        epsilon: Fraction,
        laws: list[NDArray[np.int64]],
        deviation: float,
        randomness: Randomness,
    ) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
        """Return the order of all attributes and the parents of each."""
        m = len(domain)
        placed = [_root(domain, laws)]
        parents: list[tuple[int, ...]] = [()] * m
        if m == 1:
            return tuple(placed), tuple(parents)
        rate = usable_rate(_STRUCTURE * epsilon / (m - 1) / (2 * _SENSITIVITY))
        scores: dict[_Candidate, int] = {
            (i, ()): self._score(codes, domain, i, (), laws[i], deviation)
            for i in range(m)
            if i not in placed
        }
        while len(placed) < m:
            for i, found in self._newest(domain, placed):
                scores[i, found] = self._score(codes, domain, i, found, laws[i], deviation)
            candidates = list(scores)
            i, found = candidates[choose(list(scores.values()), rate, randomness)]
            parents[i] = found
            placed.append(i)
            scores = {key: score for key, score in scores.items() if key[0] != i}
        return tuple(placed), tuple(parents)

    def _newest(self, domain: Domain, placed: list[int]) -> Iterator[_Candidate]:
        """Yield the candidates that the last placed attribute makes possible."""
        *before, newest = placed
        most = 1 if len(domain) > _MOST_FOR_PAIRS else 2
        for size in range(most):
            for others in combinations(sorted(before), size):
                found = (*others, newest)
                rows = math.prod(domain.bucket_counts[p] for p in found)
                if rows > self.configurations:
                    continue
                for i, codes in enumerate(domain.sizes):
                    if i not in placed and rows * codes <= _MOST_CELLS:
                        yield i, found

    @staticmethod
    def _score(
        codes: NDArray[np.intp],
        domain: Domain,
        child: int,
        parents: tuple[int, ...],
        law: NDArray[np.int64],
        deviation: float,
    ) -> int:
        """Return the score in multiples of 1 / UNIT."""
        table = counts.table(codes, domain, child, parents)
        apart = np.abs(table * counts.UNIT - table.sum(axis=1, keepdims=True) * law).sum()
        noise = deviation * table.size / math.sqrt(math.pi)
        return int(apart) - math.ceil(noise * counts.UNIT)


def _scales(attributes: int, epsilon: Fraction) -> tuple[Fraction, Fraction]:
    """Return the noise scales of the laws and of the tables."""
    return (
        drawable(attributes / (_LAWS * epsilon), epsilon),
        drawable(attributes / (_TABLES * epsilon), epsilon),
    )


def _root(domain: Domain, laws: list[NDArray[np.int64]]) -> int:
    """Return the label, so that others may depend on it.

    Without one: the attribute of more than two buckets, if there is any, of the largest entropy.
    """
    if domain.label is not None:
        return domain.names.index(domain.label)
    several = [i for i, buckets in enumerate(domain.bucket_counts) if buckets > 2]

    def entropy(i: int) -> float:
        p = laws[i][laws[i] > 0] / counts.UNIT
        return -float((p * np.log2(p)).sum())

    return max(several or range(len(domain)), key=entropy)
