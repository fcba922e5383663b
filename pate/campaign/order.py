"""The order of queries: public and pseudo-random."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray


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
        return self.place_of(query) is not None

    def place_of(self, query: int) -> int | None:
        """Return the position of ``query``, or None."""
        if isinstance(self.rows, range):  # the whole public set needs no table
            return self.rows.index(query) if query in self.rows else None
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
    return tuple(public_ranking(campaign, queries).tolist())


def public_ranking(campaign: str, queries: int) -> NDArray[np.int64]:
    """Return :func:`public_order` as (queries,) int64, in less memory."""
    key = b"pate query order v1\0" + bytes.fromhex(campaign)
    ranks = bytearray()
    for query in range(queries):
        ranks += hashlib.sha256(key + query.to_bytes(8, "big")).digest()
    # By the bytes of the digests: four big-endian words, the last key counts most. As columns they
    # take a third of the memory of Python objects.
    words = np.frombuffer(ranks, dtype=">u8").reshape(queries, 4)
    return np.lexsort(words.T[::-1]).astype(np.int64)
