"""The cache of votes, with more entries than one read of its file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from party.voting.casting import VoteCache
from pate.votes import Counts


def test_only_what_is_missing_is_computed_however_many_are_held(tmp_path: Path) -> None:
    asked: list[int] = []

    def compute(rows: NDArray[np.int64]) -> Counts:
        asked.append(len(rows))
        return np.stack([rows, rows + 1], axis=1)

    cache = VoteCache(tmp_path / "votes.db", ensemble=b"e" * 32, classes=("x", "y"))
    queries = [at.to_bytes(32, "big") for at in range(1201)]
    first = cache.votes(queries[:700], compute)
    both = cache.votes(queries, compute)
    assert asked == [700, 501]
    np.testing.assert_array_equal(both[:700], first)
    np.testing.assert_array_equal(both[:, 0], np.arange(1201))
    backwards = cache.votes(queries[::-1], compute)
    np.testing.assert_array_equal(backwards, both[::-1])
    other = VoteCache(tmp_path / "votes.db", ensemble=b"o" * 32, classes=("x", "y"))
    other.votes(queries[:3], compute)
    assert asked == [700, 501, 3], "another ensemble has votes of its own"
