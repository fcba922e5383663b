"""The masking graph: complete, or neighbours on a ring ordered by the announced keys."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from pate.masking.degree import Degree, degree_for
from pate.masking.encoding import digest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from pate.masking.context import Context


@dataclass(frozen=True)
class Graph:
    """The neighbours of each party.

    Attributes:
        order: names around the ring.
        degree: number of neighbours; k/2 on either side, or all.
    """

    order: tuple[str, ...]
    degree: Degree

    @property
    def threshold(self) -> int:
        """t_k, number of shares that reconstruct a secret."""
        return self.degree.threshold

    def neighbours(self, name: str) -> frozenset[str]:
        """Return the parties that ``name`` masks with, without itself."""
        return self._neighbours[name]

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
        return self._neighbours[name] | {name}

    def enough(self, left: Collection[str], parties: Iterable[str]) -> bool:
        """Whether ``left`` has a threshold of the holders of each of ``parties``."""
        among = frozenset(left)
        return all(len(self.holders(name) & among) >= self.threshold for name in parties)

    @cached_property
    def _neighbours(self) -> dict[str, frozenset[str]]:
        order, n = self.order, len(self.order)
        if self.degree.complete:
            everybody = frozenset(order)
            return {name: everybody - {name} for name in order}
        side = self.degree.neighbours // 2
        steps = [step for step in range(-side, side + 1) if step]
        return {
            name: frozenset(order[(place + step) % n] for step in steps)
            for place, name in enumerate(order)
        }


def graph_of(context: Context, announced: bytes, names: Collection[str]) -> Graph:
    """Return the graph of the parties that announced keys, the same on every machine.

    The order is that of one hash per party. With SHA-256 as a random function it is uniform and
    independent for every set of keys.

    Args:
        context: of the attempt.
        announced: digest of their keys (:attr:`pate.masking.roster.Announced.digest`).
        names: of the parties that announced them.
    """
    degree = degree_for(len(names), context.threshold, context.colluders)
    place = {name: digest("place", context.digest, announced, name.encode()) for name in names}
    return Graph(tuple(sorted(names, key=place.__getitem__)), degree)
