"""The masking graph: complete, or neighbours on a ring ordered by the announced keys.

Up to :data:`COMPLETE_UP_TO` parties all pairs share masks. Above it the parties are on a ring in
random order, and each masks with the k = 2m nearest; its secrets are shared among these and itself,
and t_k shares reconstruct one. k is the first of a rising list, and t_k the least for it, that is

* *safe*: except with probability 2^-40, even for a server that may try 2^88 orders, no closed
  neighbourhood and no two windows of m places contain more than q colluders, 2 t_k >= k + q + 3;
* *works*: except with probability 2^-40, t_k of every neighbourhood are left after the dropouts.

Both are sums of exact hypergeometric tails, in integers, so that all machines find the same k. If no
k below n - 1 suffices, the graph is complete.

Proof: docs/proofs/masked-sum.md, section 5. Source: the idea, Bell, Bonawitz, Gascon, Lepoint,
Raykova, "Secure single-server aggregation with (poly)logarithmic overhead", CCS 2020. The
conditions are our own: there is one list of survivors for all, so other neighbourhoods need no
two-thirds majority of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import comb
from typing import TYPE_CHECKING, Final

from pate.masking.context import check_threshold
from pate.masking.encoding import digest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from pate.masking.context import Context

#: Most parties with a complete graph.
COMPLETE_UP_TO: Final = 128
#: Probability that secrecy fails: 2^-this.
SECURITY_BITS: Final = 40
#: Orders that a server may try, by choosing colluders' keys and excluding parties: 2^this.
GRINDING_BITS: Final = 88
#: Probability that dropouts leave a neighbourhood with too few: 2^-this.
CORRECTNESS_BITS: Final = 40


@dataclass(frozen=True)
class Degree:
    """The neighbourhood of a party in the masking graph."""

    neighbours: int  # k, parties that each party masks with
    threshold: int  # t_k, shares that reconstruct a secret, of k + 1
    complete: bool  # whether all pairs share masks


@lru_cache(maxsize=256)
def degree_for(parties: int, threshold: int, colluders: int) -> Degree:
    """Return the degree of the masking graph of a sum of those parties that announced keys.

    >>> degree_for(25, 17, 8)
    Degree(neighbours=24, threshold=17, complete=True)
    >>> degree_for(250, 225, 10)
    Degree(neighbours=58, threshold=36, complete=False)
    """
    check_threshold(parties, threshold, colluders)
    if parties > COMPLETE_UP_TO:
        neighbours = 2
        while neighbours < parties - 1:
            most_held = neighbourhood_threshold(parties, threshold, colluders, neighbours)
            if most_held is not None:
                return Degree(neighbours, most_held, complete=False)
            # Every even number up to 64, then steps of at most 1/32: close to the least.
            neighbours += 2 * max(1, neighbours // 64)
    return Degree(parties - 1, threshold, complete=True)


def neighbourhood_threshold(
    parties: int, threshold: int, colluders: int, neighbours: int
) -> int | None:
    """Return t_k for k = ``neighbours`` on a ring, or None if none is both safe and works."""
    n, t, c, k = parties, threshold, colluders, neighbours
    # Comparing means first, which tails only worsen, avoids most of the sums.
    if 2 * k * t < (k + 3 + k * c // n) * (n - 1):
        return None
    needed = -(-(k + colluders_within(n, c, k) + 3) // 2)
    return needed if needed <= certain_survivors(n, t, k) else None


def colluders_within(parties: int, colluders: int, neighbours: int) -> int:
    """Return q, the most colluders in a neighbourhood or pair of windows, but for a failure.

    There are n neighbourhoods of k + 1 places and n(n-1)/2 pairs of windows of k/2. Each is a
    uniform subset of the places, so the colluders in it are hypergeometric, and those among k + 1
    places are as many as those among k or more.
    """
    n, c, places = parties, colluders, neighbours + 1
    sets = n * (n + 1) // 2
    bound = comb(n, places) >> (SECURITY_BITS + GRINDING_BITS)
    tail, most = 0, min(c, places)
    for most_held in range(most, -1, -1):  # colluders in one set
        tail += comb(c, most_held) * comb(n - c, places - most_held)
        if sets * tail > bound:
            return most_held
    return 0


def certain_survivors(parties: int, threshold: int, neighbours: int) -> int:
    """Return how many of a dropout's k neighbours remain when t of all do, but for a failure.

    A survivor's neighbourhood also contains itself, and so has one more.
    """
    others, k = parties - 1, neighbours
    t = min(threshold, others)
    bound = comb(others, k) >> CORRECTNESS_BITS
    tail = 0
    for left in range(min(t, k) + 1):  # survivors among the neighbours
        tail += comb(t, left) * comb(others - t, k - left) if k - left <= others - t else 0
        if parties * tail > bound:
            return left
    return min(t, k)


@dataclass(frozen=True)
class Graph:
    """The neighbours of each party."""

    order: tuple[str, ...]  # names around the ring
    degree: Degree  # number of neighbours; k/2 on either side, or all

    @property
    def threshold(self) -> int:
        """t_k, number of shares that reconstruct a secret."""
        return self.degree.threshold

    def neighbours(self, name: str) -> frozenset[str]:
        """Return the parties that ``name`` masks with, without itself."""
        return self.holders(name) - {name}

    @cached_property
    def signers(self) -> frozenset[str]:
        """The parties whose signatures make a list of survivors valid, :attr:`threshold` of them.

        All; on a ring those at its first k + 1 places. They are a closed neighbourhood, so no more
        than q collude, and two sets of t_k have an honest party in common.
        """
        everybody = self.degree.complete
        return frozenset(self.order if everybody else self.order[: self.degree.neighbours + 1])

    def holders(self, name: str) -> frozenset[str]:
        """Return the parties with shares of the secrets of ``name``, itself included."""
        place, side, n = self._places[name], self.degree.neighbours // 2, len(self.order)
        around = (self.order[at % n] for at in range(place - side, place + side + 1))
        return frozenset(self.order if self.degree.complete else around)

    def enough(self, left: Collection[str], parties: Iterable[str]) -> bool:
        """Whether ``left`` has a threshold of the holders of each of ``parties``."""
        among = frozenset(left)
        return all(len(self.holders(name) & among) >= self.threshold for name in parties)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.order)}


def graph_of(context: Context, announced: bytes, names: Collection[str]) -> Graph:
    """Return the graph of the parties that announced keys, the same on every machine.

    The order is that of one hash per party. With SHA-256 as a random function it is uniform and
    independent for every set of keys.
    """
    degree = degree_for(len(names), context.roster.threshold, context.roster.colluders)
    place = {name: digest("place", context.digest, announced, name.encode()) for name in names}
    return Graph(tuple(sorted(names, key=place.__getitem__)), degree)
