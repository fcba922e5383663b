"""Every tiny world of two patients in every order, for each code and each answer.

Which records of a patient vote hangs on their hashes only, so worlds are enumerated once, as how many
votes of each kind of record they have; what that changes is then the records' own arrays, times these.
That a sum is that of the records' own arrays, in any order, is tested beside (`test_answers.py`,
`test_record_votes.py`).
"""

from __future__ import annotations

import hashlib
import itertools
from functools import cache
from typing import Any

import numpy as np
import pytest

from pate.codes import Change, Code, code_of
from pate.features.dense import Directions, dense_sums, dense_votes
from pate.features.neighbours import cast_answers, cast_votes, voters_of
from tests.pate.features.test_answers import CORNERS, PLACES, QUERIES, SPOTS, VALUES, said
from tests.support.changes import largest, within

#: Of several labels none, one, two and all three; of classes four; of numbers one below the range.
SAID: dict[str, tuple[Any, ...]] = {
    "class": (0, 1, 2, 3),
    "ordered": (0, 1, 2, 3),
    "labels": ((0, 0, 0), (1, 0, 0), (1, 1, 0), (1, 1, 1)),
    "number": VALUES,
}
ANSWERS = ("class", "labels-1", "labels-2", "labels-3", "ordered", "number")
CODES = ("nearest", "dense-3")
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


def own_arrays(code: Code) -> np.ndarray:
    """(kinds, cells) int64: the array of each kind of record, by the shipped code."""
    name = code.answer.name
    arrays = []
    for spot, value in itertools.product(SPOTS if code.name == "dense" else PLACES, SAID[name]):
        point = np.array([spot], np.float32).reshape(1, -1)
        if name in ("class", "ordered"):
            label = np.array([value], np.int64)
            arrays.append(
                dense_votes(Directions.fit(CORNERS), point, label, 4)
                if code.name == "dense"
                else cast_votes(QUERIES, point, label, 4)
            )
            continue
        given = said(code.answer, [value])
        arrays.append(
            dense_sums(Directions.fit(CORNERS), point, given, code.answer.grid)
            if code.name == "dense"
            else cast_answers(QUERIES, point, given)
        )
    return np.stack(arrays).reshape(KINDS, -1)


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


@pytest.mark.parametrize("cap", [1, 2])
@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("where", CODES)
def test_a_patient_changes_what_is_claimed_and_no_more(where: str, answer: str, cap: int) -> None:
    """Added, removed and altered, beside any records of the other."""
    code = code_of(where if answer == "class" else f"{where} {answer}")
    own = own_arrays(code)
    every = np.concatenate([each[..., 0, :].reshape(-1, KINDS) for each in votes_of_worlds(cap)])
    units = np.unique(every, axis=0).astype(np.int64)
    assert units.sum(axis=1).max() == cap
    sums = units @ own
    claimed = code.change(cap)
    half = Change(
        claimed.total // 2,
        claimed.squared // (4 if code.name == "dense" else 2),
        claimed.counts // 2,
    )
    assert within(largest(sums), half)
    pairs = [largest(sums - each) for each in sums]
    assert all(within(each, claimed) for each in pairs)
    reached = max(each.squared for each in pairs) / claimed.squared
    assert reached == 1 if code.name != "dense" else 0.9 < reached <= 1
    # One record of a patient is one record.
    one = code.change(1)
    assert all(within(largest(own - each), one) for each in own)
