"""Tables of counts: exact, noisy, and their normalisation."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from party.synthesis.table.network import configurations

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

    from numpy.typing import NDArray

    from party.synthesis.table.domain import Domain
    from pate.noise.exact import Noise

#: Laws that scores are computed with are multiples of 1 / UNIT, so that scores are integers.
UNIT: Final = 2**20

Counts = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


def table(
    codes: NDArray[np.intp], domain: Domain, child: int, parents: tuple[int, ...]
) -> NDArray[np.int64]:
    """Return (configurations of the parents, codes of the child) int64 numbers of rows."""
    size = domain.sizes[child]
    rows = 1
    for parent in parents:
        rows *= domain.bucket_counts[parent]
    at = configurations(domain, parents, codes) * size + codes[:, child]
    return np.bincount(at, minlength=rows * size).reshape(rows, size).astype(np.int64)


def noisy(
    tables: Sequence[NDArray[np.int64]], scale: Fraction, noise: Noise
) -> list[NDArray[np.int64]]:
    """Return the tables with fresh noise in every cell, empty ones included; cells may be negative.

    Args:
        tables: of counts, any shapes.
        scale: of the law P[x] ~ exp(-|x|/scale).
        noise: to draw it from.
    """
    ends = np.cumsum([0, *(t.size for t in tables)]).tolist()
    drawn = noise.laplace(scale, ends[-1])
    return [
        t + drawn[first:last].reshape(t.shape)
        for t, (first, last) in zip(tables, pairwise(ends), strict=True)
    ]


def in_units(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the law of noisy counts as integers that sum to :data:`UNIT`.

    Negative counts are taken as 0; if none is positive the law is uniform.

    >>> in_units(np.array([3, -2, 1])).tolist()
    [786432, 0, 262144]
    """
    # Python's integers: a count times UNIT need not fit 64 bits.
    positive = [max(0, count) for count in counts.tolist()]
    total = sum(positive)
    if not total:
        positive, total = [1] * len(positive), len(positive)
    shares = [divmod(count * UNIT, total) for count in positive]
    made = [whole for whole, _ in shares]
    left = UNIT - sum(made)
    for at in sorted(range(len(shares)), key=lambda at: -shares[at][1])[:left]:
        made[at] += 1
    return np.array(made, dtype=np.int64)


def conditional(
    counts: NDArray[np.int64], law: NDArray[np.float64], weight: float
) -> NDArray[np.float64]:
    """Return the rows of a table as probabilities, each mixed with a law that has some weight.

    Args:
        counts: (rows, codes) noisy counts; negative ones are taken as 0.
        law: (codes,) probabilities.
        weight: of the law, as a number of rows, above 0.
    """
    mixed = np.maximum(counts, 0) + weight * law
    made: NDArray[np.float64] = mixed / mixed.sum(axis=1, keepdims=True)
    return made
