"""Every tiny world of two patients in every order: which of their records vote.

That hangs on hashes only, so worlds are enumerated as how many votes of each kind of record they have. That a
sum is that of the records' own arrays, in any order, and what up to ``cap`` of them can change, is tested
beside, for each code and each answer (`test_answers.py`, `test_record_votes.py`).
"""

from __future__ import annotations

import hashlib
import itertools
from functools import cache

import numpy as np
import pytest

from pate.features.neighbours import voters_of
from tests.pate.features.test_answers import PLACES

KINDS = len(PLACES) * 4
LARGEST = 3  # records of a world
HASHES = [hashlib.sha256(bytes([at])).digest() for at in range(KINDS)]


@cache
def votes_of_worlds(cap: int) -> list[np.ndarray]:
    """Of all worlds of 0, 1, 2 and 3 records: (units, ..., 2, kinds) votes of the two patients.

    A unit is a kind of record of one of them, first those of "a". With 32 units they are 33,825 worlds.
    """
    names, found = np.repeat(["a", "b"], KINDS), []
    for size in range(LARGEST + 1):
        votes = np.zeros((*[2 * KINDS] * size, 2, KINDS), np.int8)
        for world in itertools.product(range(2 * KINDS), repeat=size):
            hashes = [HASHES[at % KINDS] for at in world]
            for at in voters_of(names[list(world)], hashes, cap, b"k").tolist():
                votes[world][divmod(world[at], KINDS)] += 1
        found.append(votes)
    return found


@pytest.mark.parametrize("cap", [1, 2])
def test_who_votes_of_a_patient_is_the_same_in_any_order_and_beside_any_other(cap: int) -> None:
    """33,825 worlds; what the other patient has changes nothing, one record at most one vote."""
    by_size = votes_of_worlds(cap)
    assert sum(each[..., 0, 0].size for each in by_size) == 33_825
    for size, votes in enumerate(by_size):
        for order in itertools.permutations(range(size)):
            assert np.array_equal(votes.transpose(*order, size, size + 1), votes)
        assert votes.sum(axis=-1).max(initial=0) == min(cap, size)
    # A record of "b" in place of another of "b", or of none, leaves the votes of "a".
    _, one, two, three = by_size
    assert (three[:, :, KINDS:, 0] == two[:, :, None, 0]).all()
    assert (two[:, KINDS:, 0] == one[:, None, 0]).all()
    # One record altered within its patient: one vote out and one in, at most.
    mine = three[:KINDS, :, :, 0].astype(np.int64)
    for first in range(KINDS):
        assert np.abs(mine - mine[first]).sum(axis=-1).max() <= 2
