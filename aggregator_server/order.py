"""The order of queries: public, and nobody's choice."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True)
class VotedRows:
    """The queries that parties vote on; batches are cut from them in this order.

    Attributes:
        rows: indices into the public set, each once.
    """

    rows: Sequence[int] = ()

    def __len__(self) -> int:
        return len(self.rows)

    def __contains__(self, query: int) -> bool:
        return query in self._places

    def place_of(self, query: int) -> int | None:
        """Return where ``query`` stands among them, or None."""
        return self._places.get(query)

    @cached_property
    def _places(self) -> Mapping[int, int]:
        return {query: place for place, query in enumerate(self.rows)}


def public_order(campaign: str, queries: int) -> tuple[int, ...]:
    """Return the order in which a campaign asks its queries: pseudo-random and public.

    >>> sorted(public_order("00" * 16, 5))
    [0, 1, 2, 3, 4]

    Args:
        campaign: id, hex.
        queries: size of the public set.
    """
    key = b"pate query order v1\0" + bytes.fromhex(campaign)

    def rank(query: int) -> bytes:
        return hashlib.sha256(key + query.to_bytes(8, "big")).digest()

    return tuple(sorted(range(queries), key=rank))
