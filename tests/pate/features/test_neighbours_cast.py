from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pate.errors import DataError, UsageError
from pate.features.neighbours import cast_votes, nearest, representatives, voters_of

CLASSES = 3
KEY = b"a party's key"


def points(rng: np.random.Generator, count: int) -> np.ndarray:
    """Points on a coarse grid, so that duplicates and exact ties are common."""
    return rng.integers(-2, 3, (count, 2)).astype(np.float32)


def row_hashes(records: np.ndarray, labels: np.ndarray) -> list[bytes]:
    return [
        hashlib.sha256(record.tobytes() + label.to_bytes(8, "big")).digest()
        for record, label in zip(records, labels.tolist(), strict=True)
    ]


def cast(
    queries: np.ndarray,
    records: np.ndarray,
    labels: np.ndarray,
    groups: np.ndarray | None,
    cap: int,
) -> np.ndarray:
    """As a party does it: first who votes, then the votes."""
    if groups is not None:
        voters = voters_of(groups, row_hashes(records, labels), cap, KEY)
        records, labels = records[voters], labels[voters]
    return cast_votes(queries, records, labels, CLASSES)


def by_hand(
    queries: np.ndarray,
    records: np.ndarray,
    labels: np.ndarray,
    groups: np.ndarray | None,
    cap: int,
) -> np.ndarray:
    votes = np.zeros((len(queries), CLASSES), np.int64)
    units: dict[object, list[tuple[bytes, int]]] = {}
    for at, row in enumerate(row_hashes(records, labels)):
        drawn = hashlib.blake2b(row, digest_size=16, key=KEY, person=b"pate nearest vot").digest()
        units.setdefault(at if groups is None else groups[at], []).append((drawn, at))
    for held in units.values():
        for _, at in sorted(held)[:cap]:
            apart = [((q.astype(float) - records[at]) ** 2).sum() for q in queries]
            votes[apart.index(min(apart)), labels[at]] += 1
    return votes


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32), count=st.integers(0, 25), people=st.integers(1, 6),
    cap=st.integers(1, 4), kind=st.sampled_from(["record", "group", "record in a group"]),
)  # fmt: skip
def test_sensitivity_is_what_the_docstring_proves(
    seed: int, count: int, people: int, cap: int, kind: str
) -> None:
    rng = np.random.default_rng(seed)
    queries = np.unique(points(rng, 6), axis=0)
    records, labels = points(rng, count), rng.integers(0, CLASSES, count)
    names = rng.integers(0, people, count).astype(str)
    groups = None if kind == "record" else names
    cap = 1 if groups is None else cap

    def votes(records: np.ndarray, labels: np.ndarray, groups: np.ndarray | None) -> np.ndarray:
        made = cast(queries, records, labels, groups, cap)
        assert np.array_equal(made, by_hand(queries, records, labels, groups, cap))
        return made

    before = votes(records, labels, groups)
    order = rng.permutation(count)
    shuffled = None if groups is None else groups[order]
    assert np.array_equal(votes(records[order], labels[order], shuffled), before)

    # One unit leaves, then another takes its place.
    touched = names == "0" if kind == "group" else np.arange(count) == 0
    kept = ~touched
    after = votes(records[kept], labels[kept], None if groups is None else groups[kept])
    change = after - before
    unit = cap if kind == "group" else 1
    if kind != "record in a group":
        assert (change <= 0).all()
        assert np.abs(change).sum() <= unit
    new = int(rng.integers(0, 8)) if kind == "group" else int(touched.sum())
    name = names[:1] if kind != "group" else np.array(["0"])
    after = votes(
        np.concatenate([records[kept], points(rng, new)]),
        np.concatenate([labels[kept], rng.integers(0, CLASSES, new)]),
        None if groups is None else np.concatenate([groups[kept], np.repeat(name, new)[:new]]),
    )
    change = after - before
    assert np.abs(change).sum() <= 2 * unit
    assert (change**2).sum() <= 2 * unit**2


def test_the_bounds_are_met() -> None:
    queries = np.array([[0, 0], [9, 9]], np.float32)
    here, there = np.zeros((4, 2), np.float32), np.full((4, 2), 9, np.float32)
    group, labels = np.array(["x"] * 4), np.zeros(4, np.int64)
    first, second = (
        cast(queries, here, labels, group, 3),
        cast(queries, there, labels + 1, group, 3),
    )
    assert first.tolist() == [[3, 0, 0], [0, 0, 0]]
    assert ((second - first) ** 2).sum() == 2 * 3**2


def test_duplicates_count_each_and_the_key_decides_who_votes() -> None:
    queries = np.eye(8, dtype=np.float32)
    assert cast_votes(queries, queries[[3] * 5], np.zeros(5, np.int64), 1)[3, 0] == 5
    group, hashes = np.array(["x"] * 8), [bytes([at]) for at in range(8)]
    # All forty the same: a chance of 8^-39, below 1e-35.
    assert len({voters_of(group, hashes, 1, bytes([at])).item() for at in range(40)}) > 1
    assert voters_of(group, hashes, 1, b"k") == voters_of(group, hashes, 1, b"k")
    assert voters_of(group, hashes, 0, b"k").size == 0
    with pytest.raises(DataError, match="8 records but 7 hashes"):
        voters_of(group, hashes[:7], 1, b"k")
    with pytest.raises(UsageError, match="cannot be negative"):
        voters_of(group, hashes, -1, b"k")
    with pytest.raises(UsageError, match="65 bytes"):
        voters_of(group, hashes, 1, bytes(65))


def test_ties_go_to_the_first_query_wherever_the_record_stands() -> None:
    rng = np.random.default_rng(0)
    queries = rng.normal(size=(40, 30)).astype(np.float32)
    # Halfway between two queries, up to rounding.
    pairs = rng.integers(0, 40, (3000, 2))
    records = ((queries[pairs[:, 0]] + queries[pairs[:, 1]]) / 2).astype(np.float32)
    found = nearest(queries, records)
    alone = np.concatenate([nearest(queries, record[None]) for record in records[:300]])
    assert np.array_equal(found[:300], alone)
    exact = np.square(queries[None].astype(float) - records[:300, None].astype(float)).sum(axis=2)
    assert np.array_equal(alone, exact.argmin(axis=1))
    same = np.zeros((3, 2), np.float32)
    assert nearest(same, np.ones((4, 2), np.float32)).tolist() == [0] * 4


def test_nearest_far_from_the_origin() -> None:
    """Where the distances are small relative to the points, rounding must not decide."""
    rng = np.random.default_rng(1)
    middle = np.float32(1000)
    queries = (rng.normal(size=(20, 5)) + middle).astype(np.float32)
    records = (rng.normal(size=(500, 5)) + middle).astype(np.float32)
    exact = np.square(queries[None].astype(float) - records[:, None].astype(float)).sum(axis=2)
    assert np.array_equal(nearest(queries, records), exact.argmin(axis=1))


def test_what_is_refused() -> None:
    queries, records = np.eye(3, dtype=np.float32), np.ones((2, 3), np.float32)
    labels = np.zeros(2, np.int64)
    wrong = records.copy()
    wrong[1, 1] = np.nan
    with pytest.raises(DataError, match="the records: a feature is not finite"):
        cast_votes(queries, wrong, labels, 2)
    with pytest.raises(DataError, match="outside 0 to 1"):
        cast_votes(queries, records, labels + 2, 2)
    with pytest.raises(DataError, match="labels of shape"):
        cast_votes(queries, records, labels[:1], 2)
    with pytest.raises(DataError, match="float64"):
        nearest(queries.astype(np.float64), records)
    with pytest.raises(DataError, match=r"queries of shape \(0, 3\)"):
        nearest(queries[:0], records)
    assert cast_votes(queries, records[:0], labels[:0], 2).shape == (3, 2)


def clusters() -> tuple[np.ndarray, np.ndarray]:
    """Ten clusters of 60 points, and five lonely points far out."""
    rng = np.random.default_rng(7)
    centres = 10 * rng.normal(size=(10, 8))
    rows = [centre + rng.normal(size=(60, 8)) for centre in centres]
    lonely = 100 * rng.normal(size=(5, 8))
    return np.concatenate([*rows, lonely]).astype(np.float32), np.repeat(np.arange(10), 60)


def test_representatives_are_spread_and_seldom_lonely() -> None:
    rows, kinds = clusters()
    chosen = representatives(rows, 15)
    assert chosen.dtype == np.int64
    assert (np.diff(chosen) > 0).all()
    assert set(kinds[chosen[chosen < 600]]) == set(range(10))
    # Five outliers would draw five of the centres; most of those are put to better use.
    assert (chosen >= 600).sum() <= 2
    assert np.array_equal(chosen, representatives(rows, 15))


def test_representatives_of_few_and_of_equal_rows() -> None:
    rng = np.random.default_rng(3)
    rows = np.repeat(rng.normal(size=(6, 4)).astype(np.float32), 5, axis=0)
    assert representatives(rows, 6).tolist() == [0, 5, 10, 15, 20, 25]
    assert len(np.unique(rows[representatives(rows, 4)], axis=0)) == 4
    assert len(representatives(rows, 1)) == 1
    for count in (0, 7):
        with pytest.raises(UsageError, match=f"{count} queries were asked for; .* 6 different"):
            representatives(rows, count)
