from __future__ import annotations

import hashlib

import numpy as np
import pytest

from pate.errors import DataError, UsageError
from pate.features.neighbours import cast_votes, nearest, representatives, voters_of


def test_duplicates_count_each_and_the_key_decides_who_votes() -> None:
    queries = np.eye(8, dtype=np.float32)
    assert cast_votes(queries, queries[[3] * 5], np.zeros(5, np.int64), 1)[3, 0] == 5
    group, hashes = np.array(["x"] * 8), [bytes([at]) for at in range(8)]
    # All forty the same: a chance of 8^-39, below 1e-35.
    assert len({voters_of(group, hashes, 1, bytes([at])).item() for at in range(40)}) > 1
    assert voters_of(group, hashes, 1, b"k") == voters_of(group, hashes, 1, b"k")
    assert voters_of(group, hashes, 0, b"k").size == 0
    # By a fixed formula: else another version would let other records of a series vote.
    drawn = [
        hashlib.blake2b(row, digest_size=16, key=b"k", person=b"pate nearest vot").digest()
        for row in hashes
    ]
    least = sorted(range(8), key=drawn.__getitem__)[:3]
    assert voters_of(group, hashes, 3, b"k").tolist() == sorted(least)
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
