"""Dirichlet label skew: splits a data set among parties with different class distributions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def deal(
    labels: NDArray[np.int64], parties: int, alpha: float | None, generator: np.random.Generator
) -> NDArray[np.int64]:
    """Return the party of each record.

    The records of each class are divided in proportions drawn from a symmetric Dirichlet distribution, so
    parties differ in size too. At alpha 0.1 one or two parties have most of a class.

    Args:
        labels: (n,) classes from 0.
        parties: number of parties.
        alpha: of the distribution; None for an even split with the same class mix at every party.
        generator: of the draws.

    Source: Hsu, Qi and Brown, "Measuring the effects of non-identical data distribution for
    federated visual classification", arXiv 1909.06335; by class, as in Yurochkin et al., ICML 2019.
    """
    party = np.empty(len(labels), dtype=np.int64)
    if alpha is None:
        return (generator.permutation(len(labels)) % parties).astype(np.int64)
    for value in np.unique(labels).tolist():
        rows = generator.permutation(np.flatnonzero(labels == value))
        shares = generator.dirichlet(np.full(parties, alpha))
        cuts = np.rint(np.cumsum(shares)[:-1] * len(rows)).astype(np.int64)
        for number, part in enumerate(np.split(rows, cuts)):
            party[part] = number
    return party
