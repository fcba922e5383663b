"""The order of queries: public and pseudo-random; and their hashes where they are asked in rounds."""

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
    """The queries that parties vote on; batches are cut from them in this order."""

    rows: Sequence[int] = ()  # indices into the public set, each once
    rounds: int = 1  # how often all of them are voted on, each time in this order

    def __len__(self) -> int:
        return len(self.rows) * self.rounds

    def __contains__(self, query: int) -> bool:
        return self.place_of(query) is not None

    def place_of(self, query: int) -> int | None:
        """Return the position of ``query`` in the first round, or None."""
        if isinstance(self.rows, range):  # the whole public set needs no table
            return self.rows.index(query) if query in self.rows else None
        return self._places.get(query)

    def at(self, places: range) -> tuple[int, ...]:
        """Return the rows at consecutive places of one round."""
        start = places.start % len(self.rows)
        return tuple(self.rows[start : start + len(places)])

    def of_round(self, number: int) -> range:
        """Return the places of a round, from 1."""
        return range((number - 1) * len(self.rows), number * len(self.rows))

    @cached_property
    def _places(self) -> Mapping[int, int]:
        return {query: place for place, query in enumerate(self.rows)}


def query_of_round(query: bytes, number: int, shown: bytes) -> bytes:
    """Return the hash of a query in a round: what is asked there depends on the model that is shown.

    ``shown``: bytes of the model; none in the first round.
    """
    what = hashlib.sha256(shown).digest()
    head = b"pate query of a round v1\0" + number.to_bytes(8, "big")
    return hashlib.sha256(head + what + query).digest()


def public_order(campaign: str, queries: int) -> tuple[int, ...]:
    """Return the order in which a campaign asks its queries: pseudo-random and public.

    >>> sorted(public_order("00" * 16, 5))
    [0, 1, 2, 3, 4]
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
