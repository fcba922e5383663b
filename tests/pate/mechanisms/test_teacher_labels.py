"""Teachers that vote in one release: what one unit can change, in every tiny world."""

from __future__ import annotations

import hashlib
import itertools

import numpy as np
import pytest

from pate.answers import NONE, answer_of
from pate.codes import GRID, adjacency_for, code_of
from pate.errors import UsageError
from tests.support.changes import joined, largest

#: Queries, labels, and most labels that count.
SIZES = [
    (queries, labels, most)
    for queries, labels in ((1, 1), (1, 2), (1, 3), (1, 4), (2, 1), (2, 2), (2, 3))
    for most in range(1, labels + 1)
]


def arrays(queries: int, labels: int, most: int) -> np.ndarray:
    """All arrays that a teacher may cast."""
    rows = [row for row in itertools.product((0, 1), repeat=labels) if sum(row) <= most]
    return np.array(list(itertools.product(rows, repeat=queries)), dtype=np.int64)


@pytest.mark.parametrize(("queries", "labels", "most"), SIZES)
@pytest.mark.parametrize("teachers", [1, 2])
def test_teachers_change_what_is_claimed_and_no_more(
    queries: int, labels: int, most: int, teachers: int
) -> None:
    every = arrays(queries, labels, most)
    claimed = code_of(f"each-{queries} labels-{most}-of-{labels}").change(teachers)
    one = np.unique((every[:, None] - every[None]).reshape(-1, queries, labels), axis=0)
    if teachers == 1:
        assert largest(one) == claimed
    else:
        assert joined([largest(each + one) for each in one]) == claimed
        # A party that leaves with all its teachers changes no more.
        gone = largest((every[:, None] + every[None]).reshape(-1, queries, labels))
        assert gone.squared <= claimed.squared
        assert gone.total <= claimed.total


@pytest.mark.parametrize("queries", [1, 2, 3])
@pytest.mark.parametrize("teachers", [1, 2])
def test_teachers_of_a_class_change_what_is_claimed_and_no_more(
    queries: int, teachers: int
) -> None:
    rows = np.eye(3, dtype=np.int64)
    every = np.array(list(itertools.product(rows, repeat=queries)))
    one = np.unique((every[:, None] - every[None]).reshape(-1, queries, 3), axis=0)
    sums = every
    if teachers == 2:
        sums = (every[:, None] + every[None]).reshape(-1, queries, 3)
        one = np.unique((one[:, None] + one[None]).reshape(-1, queries, 3), axis=0)
    for text in (f"each-{queries}", f"each-{queries} balanced"):
        changed, removed = (
            code_of(text).change(teachers, "change"),
            code_of(text).change(teachers, "remove"),
        )
        found, gone = largest(one), largest(sums)
        assert (found.total, found.squared) == (changed.total, changed.squared)
        assert found.counts <= changed.counts
        assert (gone.total, gone.squared) == (removed.total, removed.squared)
        assert gone.counts <= removed.counts


def test_arrays_of_teachers_change_what_is_claimed_and_no_more() -> None:
    # All arrays of one length on a coarse grid, of two numbers: opposite ones are furthest apart.
    every = np.array(
        [
            each
            for each in itertools.product(range(-GRID, GRID + 1, GRID // 8), repeat=2)
            if sum(number**2 for number in each) <= GRID**2
        ]
    )
    apart = int(np.square(every[:, None] - every[None]).sum(axis=2).max())
    code = code_of("axes-2")
    assert apart == code.change(1).squared == 4 * GRID**2
    assert int(np.square(every).sum(axis=1).max()) == code.change(1, "remove").squared
    assert code.change(3).squared == 9 * apart
    assert code.bounds(3) == (-3 * GRID, 3 * GRID)
    with pytest.raises(UsageError):  # a patient's labels are never removed with their teacher
        code_of("each-2 labels-1-of-2").change(1, "remove")


def test_only_a_party_is_removed_with_its_teachers() -> None:
    for text, removed in (
        ("each-5", True), ("each-5 balanced", True), ("axes-5", True),
        ("each-5 labels-1-of-2", False), ("dense-5", False), ("nearest", False),
    ):  # fmt: skip
        code = code_of(text)
        assert (adjacency_for(code, "party") == "remove") == removed
        assert adjacency_for(code, "record") == adjacency_for(code, "patient") == "change"


def cast(shard: tuple[int, ...], seed: int, queries: int, labels: int, most: int) -> np.ndarray:
    """An arbitrary function of a shard's records, in no order, with at most ``most`` ones a row."""
    drawn = hashlib.sha256(repr((sorted(shard), seed)).encode()).digest()
    rng = np.random.default_rng(int.from_bytes(drawn, "big"))
    votes = np.zeros((queries, labels), dtype=np.int64)
    for row in votes:
        row[rng.permutation(labels)[: rng.integers(0, most + 1)]] = 1
    return votes


def summed(
    world: tuple[int, ...], shards: int, size: tuple[int, int, int], seed: int
) -> np.ndarray:
    members: list[list[int]] = [[] for _ in range(shards)]
    for record in world:
        members[hashlib.sha256(bytes([record, seed])).digest()[0] % shards].append(record)
    each = [cast(tuple(shard), seed + at, *size) for at, shard in enumerate(members)]
    whole: np.ndarray = np.sum(each, axis=0)
    return whole


@pytest.mark.parametrize("size", [(2, 3, 1), (2, 3, 2), (3, 4, 4), (1, 5, 2)])
def test_a_record_changes_one_teacher_and_an_altered_one_two(size: tuple[int, int, int]) -> None:
    queries, labels, most = size
    code = code_of(f"each-{queries} labels-{most}-of-{labels}")
    one, two = code.change(1), code.change(2)
    assert two.squared == 4 * one.squared
    for shards, seed in itertools.product((1, 2, 3), range(4)):
        for number in range(5):
            for world in itertools.combinations(range(6), number):
                before = summed(world, shards, size, seed)
                for record in set(range(6)) - set(world):
                    added = summed((*world, record), shards, size, seed)
                    assert largest((added - before)[None]).squared <= one.squared
                    for gone in world:
                        kept = tuple(each for each in world if each != gone)
                        altered = summed((*kept, record), shards, size, seed)
                        found = largest((altered - before)[None])
                        assert found.squared <= two.squared
                        assert found.counts <= two.counts


def test_a_clip_of_few_labels_costs_less_than_a_vote_for_each() -> None:
    binary = code_of("each-100 labels-14-of-14").change(1)
    for most in range(1, 15):
        clipped = code_of(f"each-100 labels-{most}-of-14").change(1)
        assert clipped.squared == 100 * min(2 * most, 14)
        assert clipped.squared <= binary.squared


def test_a_class_list_of_teachers_is_the_labels_and_nothing_else() -> None:
    answer = answer_of("labels-2-of-3")
    answer.check_columns(("a", "b", "c"))
    for names in (None, ("a", "b"), ("a", "b", NONE), ("a", "b", "c", NONE)):
        with pytest.raises(UsageError):
            answer.check_columns(names)
    with pytest.raises(UsageError):
        answer_of("labels-3-of-2").check_columns(("a", "b"))
