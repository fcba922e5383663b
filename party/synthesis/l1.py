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

Neighbours differ by one row added or removed. A price depends only on public settings, so it can be
reserved in the ledger before any row is read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from party.synthesis.network import UNIT, Network, conditional, counted, in_units, noisy
from pate.errors import UsageError
from pate.noise.exact import LARGEST_TERM, check_scale
from pate.noise.lanes import MOST_STEPS, broken_source

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from party.synthesis.schema import Domain
    from pate.noise.exact import Randomness
    from pate.noise.lanes import Lanes

#: Parts of epsilon for the laws of single attributes, for the structure, and for the tables.
_LAWS, _STRUCTURE, _TABLES = Fraction(1, 10), Fraction(2, 10), Fraction(7, 10)
#: Sensitivity of a score, in multiples of its unit.
_SENSITIVITY: Final = 2 * UNIT
#: Most combinations of the parents' buckets, and most cells of a candidate table.
MOST_CONFIGURATIONS: Final = 500
MOST_CELLS: Final = 2**17
#: Most attributes for which pairs of parents are considered.
_MOST_FOR_PAIRS: Final = 48
#: Proposals of a choice per pass, at most.
_PROPOSALS: Final = 2**15

_Parents = tuple[int, ...]


@dataclass(frozen=True)
class Price:
    """The cost of a fit under adding or removing one row, as ``delta``-approximate rho-zCDP.

    With ``epsilon_pure`` it is also (epsilon_pure, 0)-DP.
    """

    epsilon_pure: Fraction | None
    rho: Fraction
    delta: Fraction


@dataclass(frozen=True)
class L1:
    """The generator ``l1``."""

    name: ClassVar[str] = "l1"

    def price(self, domain: Domain, epsilon: Fraction) -> Price:
        """Return the cost of :meth:`fit`; UsageError for an epsilon out of reach of exact noise.

        A geometric mechanism of epsilon is (epsilon^2/2)-zCDP, the exponential one (epsilon^2/8).
        """
        m = len(domain)
        _scales(m, epsilon)
        rho = ((_LAWS * epsilon) ** 2 + (_TABLES * epsilon) ** 2) / (2 * m)
        if m > 1:
            rho += (_STRUCTURE * epsilon) ** 2 / (8 * (m - 1))
        return Price(epsilon, rho, Fraction(0))

    def fit(
        self, codes: NDArray[np.intp], domain: Domain, epsilon: Fraction, source: Randomness
    ) -> Network:
        """Learn a network from (n, attributes) rows, one per unit of privacy."""
        m = len(domain)
        law_scale, scale = _scales(m, epsilon)
        domain.check_codes(codes)
        singles = [counted(codes, domain, i, ())[0] for i in range(m)]
        laws = [in_units(counts) for counts in noisy(singles, law_scale, source)]
        # The standard deviation of a cell's noise, very nearly sqrt(2) scale.
        deviation = math.sqrt(2) * float(scale)

        parents = _structure(codes, domain, epsilon, laws, deviation, source.lanes)

        exact = [counted(codes, domain, i, parents[i]) for i in range(m)]
        tables = tuple(
            conditional(table, law / UNIT, deviation * math.sqrt(len(law)))
            for table, law in zip(noisy(exact, scale, source), laws, strict=True)
        )
        return Network(domain, tuple(parents), tuple(parents[i] for i in range(m)), tables)


def _structure(
    codes: NDArray[np.intp],
    domain: Domain,
    epsilon: Fraction,
    laws: list[NDArray[np.int64]],
    deviation: float,
    lanes: Lanes,
) -> dict[int, _Parents]:
    """Return the parents of each attribute, in an order in which parents come first."""
    m = len(domain)
    parents: dict[int, _Parents] = {_root(domain, laws): ()}
    scores: dict[tuple[int, _Parents], int] = {}
    fresh = [(i, ()) for i in range(m) if i not in parents]
    while len(parents) < m:
        for i, found in (*fresh, *_newest(domain, [*parents])):
            scores[i, found] = _score(codes, domain, i, found, laws[i], deviation)
        rate = usable_rate(_STRUCTURE * epsilon / (m - 1) / (2 * _SENSITIVITY))
        i, parents[i] = [*scores][choose([*scores.values()], rate, lanes)]
        scores = {key: score for key, score in scores.items() if key[0] != i}
        fresh = []
    return parents


def _root(domain: Domain, laws: list[NDArray[np.int64]]) -> int:
    """Return the label, else the attribute of the largest entropy, of more than two buckets if any is."""
    if domain.label is not None:
        return domain.names.index(domain.label)
    several = [i for i, buckets in enumerate(domain.bucket_counts) if buckets > 2]

    def entropy(i: int) -> float:
        p = laws[i][laws[i] > 0] / UNIT
        return -float((p * np.log2(p)).sum())

    return max(several or range(len(domain)), key=entropy)


def _newest(domain: Domain, placed: list[int]) -> Iterator[tuple[int, _Parents]]:
    """Yield the candidates that the last placed attribute makes possible."""
    *before, newest = placed
    most = 1 if len(domain) > _MOST_FOR_PAIRS else 2
    for size in range(most):
        for others in combinations(sorted(before), size):
            found = (*others, newest)
            rows = math.prod(domain.bucket_counts[p] for p in found)
            if rows > MOST_CONFIGURATIONS:
                continue
            for i, codes in enumerate(domain.sizes):
                if i not in placed and rows * codes <= MOST_CELLS:
                    yield i, found


def _score(
    codes: NDArray[np.intp],
    domain: Domain,
    child: int,
    parents: _Parents,
    law: NDArray[np.int64],
    deviation: float,
) -> int:
    """Return the score in multiples of 1 / UNIT."""
    table = counted(codes, domain, child, parents)
    apart = np.abs(table * UNIT - table.sum(axis=1, keepdims=True) * law).sum()
    noise = deviation * table.size / math.sqrt(math.pi)
    return int(apart) - math.ceil(noise * UNIT)


def _scales(attributes: int, epsilon: Fraction) -> tuple[Fraction, Fraction]:
    """Return the noise scales of the laws and of the tables."""
    check_epsilon(epsilon)
    return (
        drawable(attributes / (_LAWS * epsilon), epsilon),
        drawable(attributes / (_TABLES * epsilon), epsilon),
    )


# --- what both generators need -------------------------------------------------------------------


def check_epsilon(epsilon: Fraction) -> None:
    """Check that an epsilon is above zero, else raise UsageError."""
    if epsilon <= 0:
        raise UsageError(f"epsilon must be above 0, got {epsilon}")


def drawable(scale: Fraction, epsilon: Fraction) -> Fraction:
    """Return ``scale``, or the next larger one that can be drawn exactly; UsageError if none is."""
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


# --- the exponential mechanism -------------------------------------------------------------------


def usable_rate(rate: Fraction) -> Fraction:
    """Return ``rate``, or the next smaller one that :func:`choose` supports."""
    if rate.denominator < 2**62:
        return rate
    return Fraction(math.floor(rate * 2**61), 2**61)


def choose(scores: Sequence[int], rate: Fraction, lanes: Lanes) -> int:
    """Return an index with probability proportional to exp(rate scores[index]), exactly.

    Scores are integers and the rate is a fraction, so no float is involved. Candidates are proposed
    uniformly, and one is accepted with probability exp(-rate (best - score)); what is accepted has
    the stated law. With rate = epsilon / (2 sensitivity) the choice is epsilon-DP, and, because the
    ratio of its probabilities has bounded range, (epsilon^2/8)-zCDP.

    Source: McSherry, Talwar 2007, Theorem 6; Cesar, Rogers 2021, Lemma 3.2.
    """
    if not scores:
        raise UsageError("nothing to choose from")
    if rate <= 0 or rate.denominator >= 2**62:
        raise UsageError(
            f"cannot choose at a rate of {rate}: it is too small, or has too many digits"
        )
    best, unit = max(scores), rate.denominator
    split = [divmod((best - score) * rate.numerator, unit) for score in scores]
    # A run of coins of exp(-1) never reaches the cut.
    whole = np.array([min(i, MOST_STEPS) for i, _ in split], dtype=np.int64)
    rest = np.array([r for _, r in split], dtype=np.int64)
    # On average one proposal in no more than len(scores) is accepted.
    for _ in range(MOST_STEPS):
        proposed = lanes.below(len(scores), min(_PROPOSALS, 2 * len(scores) + 8))
        accepted = lanes.decay_coins(whole[proposed], rest[proposed], unit)
        if accepted.any():
            return int(proposed[np.argmax(accepted)])
    raise broken_source()
