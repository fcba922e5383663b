"""Every tiny world and every neighbour of it: which records vote, and what one unit changes."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from pate.codes import GRID, Change, Code
from pate.errors import DataError, UsageError
from pate.features.dense import Directions, dense_votes, looked_at
from pate.features.neighbours import cast_votes, nearest, representatives, voters_of
from tests.support.changes import largest

QUERIES = np.array([[0.0], [1.0], [3.0]], np.float32)
#: The second and third are halfway between two queries.
PLACES = (-1.0, 0.5, 2.0, 3.0)
CLASSES = 2
VALUES = tuple(itertools.product(PLACES, range(CLASSES)))
NEAREST = Code("nearest")
LARGEST = 3  # records of a world

World = tuple[tuple[float, int], ...]


def cast(world: World) -> np.ndarray:
    records = np.array([[place] for place, _ in world], np.float32).reshape(-1, 1)
    return cast_votes(QUERIES, records, np.array([label for _, label in world], np.int64), CLASSES)


def worlds() -> Iterable[World]:
    """All worlds of at most three records in every order."""
    for size in range(LARGEST + 1):
        yield from itertools.product(VALUES, repeat=size)


def test_one_record_changes_what_is_claimed_and_no_more() -> None:
    """585 worlds, and of each all that differ by one record."""
    made = {world: cast(world) for world in worlds()}
    for world, votes in made.items():
        assert np.array_equal(votes, made[tuple(sorted(world))])
        assert votes.sum() == len(world)
    taken, altered = [], []
    for world, votes in made.items():
        for at in range(len(world)):
            rest = world[:at], world[at + 1 :]
            taken.append(votes - made[rest[0] + rest[1]])
            altered += [votes - made[(*rest[0], other, *rest[1])] for other in VALUES]
    assert largest(np.array(taken)) == Change(1, 1, 1)
    assert (np.array(taken) >= 0).all()
    assert largest(np.array(altered)) == NEAREST.change(1)


def test_a_record_too_large_to_square_moves_no_other() -> None:
    rng = np.random.default_rng(1)
    queries = rng.normal(size=(20, 4)).astype(np.float32)
    records = rng.normal(size=(60, 4)).astype(np.float32)
    before = nearest(queries, records)
    records[7] = np.float32(3e38)
    after = nearest(queries, records)
    assert np.array_equal(np.delete(before, 7), np.delete(after, 7))
    assert 0 <= after[7] < 20


# --- dense votes ----------------------------------------------------------------------------------

CORNERS = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 3.0]], np.float32)


def test_a_dense_array_is_the_records_own() -> None:
    rng = np.random.default_rng(2)
    points = (rng.normal(size=(400, 30)) * rng.lognormal(size=30)).astype(np.float32)
    directions = Directions.fit(points[:20])
    codes = directions.codes(points)
    alone = np.concatenate([directions.codes(each[None]) for each in points[:60]])
    assert np.array_equal(codes[:60], alone)
    order = rng.permutation(len(points))
    assert np.array_equal(directions.codes(points[order]), codes[order])
    changed = points.copy()
    changed[5] = np.float32(-3e38)
    assert np.array_equal(np.delete(directions.codes(changed), 5, 0), np.delete(codes, 5, 0))
    length = np.sqrt((codes.astype(float) ** 2).sum(axis=1)) / GRID
    assert length.max() <= 1
    # What the representatives span is kept but for the cut.
    assert length[:20].min() > 0.99
    # Each direction is that of its own representative.
    assert (codes[:20].argmax(axis=0) == np.arange(20)).all()


def test_more_representatives_than_coordinates_are_a_frame() -> None:
    points = np.random.default_rng(3).normal(size=(40, 4)).astype(np.float32)
    codes = Directions.fit(points).codes(points)
    length = np.sqrt((codes.astype(float) ** 2).sum(axis=1)) / GRID
    assert 0.97 < length.min() <= length.max() <= 1


def test_outliers_among_representatives_do_not_make_all_records_alike() -> None:
    """Most rows lie in two groups; half of the representatives lie far off on one side."""
    drawn = np.random.default_rng(4)
    rows = drawn.normal(0, 0.1, (1000, 3)).astype(np.float32)
    rows[:500, 0] += 1
    rows[::100] += np.array([0, 0, 30], dtype=np.float32)
    assert looked_at(5) == [0, 1, 2, 3, 4]
    assert looked_at(4096) == list(range(0, 4096, 4))
    chosen = np.concatenate([rows[::100][:5], rows[1:500:100], rows[501::100]])
    codes = Directions.fit(chosen, rows[looked_at(1000)]).codes(rows) / GRID
    usual = np.arange(1000) % 100 != 0
    first, second = codes[:500][usual[:500]].mean(axis=0), codes[500:][usual[500:]].mean(axis=0)
    near = Directions.fit(chosen).codes(rows) / GRID
    alike = near[:500][usual[:500]].mean(axis=0) - near[500:][usual[500:]].mean(axis=0)
    assert np.linalg.norm(first - second) > 3 * np.linalg.norm(alike)


def test_directions_reach_where_no_representative_is() -> None:
    """One row in fifty differs from the usual in a coordinate in which all representatives agree."""
    drawn = np.random.default_rng(5)
    rows = drawn.normal(0, 1, (1000, 6)).astype(np.float32)
    rows[:, 5] = np.arange(1000) % 50 == 0
    chosen = rows[1:49:2]
    codes = Directions.fit(chosen, rows[looked_at(1000)]).codes(rows) / GRID
    # All of each row is there, as it is with fewer directions but for what varies least.
    assert np.linalg.norm(codes, axis=1).min() > 0.97
    few = Directions.fit(chosen[:5], rows[looked_at(1000)]).codes(rows) / GRID
    assert 0.8 < np.square(few).sum(axis=1).mean() < 0.99
    # A last bit elsewhere changes no direction much.
    moved = (rows.astype(float) * (1 + 1e-7 * drawn.normal(size=rows.shape))).astype(np.float32)
    again = Directions.fit(moved[1:49:2], moved[looked_at(1000)]).codes(rows) / GRID
    assert np.abs(again - codes).max() < 0.01


def test_points_that_have_no_directions_are_refused() -> None:
    with pytest.raises(DataError, match="all in one place"):
        Directions.fit(np.ones((3, 2), np.float32))
    with pytest.raises(DataError, match="all in one place"):
        Directions.fit(CORNERS, np.ones((5, 2), np.float32))
    # Nearly so: a record at the middle of the public rows has no direction, and counts nowhere.
    nearly = np.zeros((4, 2), np.float32)
    nearly[:2, 0] = 1e-7, -1e-7
    assert not Directions.fit(CORNERS, nearly).codes(np.zeros((1, 2), np.float32)).any()
    directions = Directions.fit(CORNERS)
    odd: list[Any] = [np.zeros((2, 3), np.float32), np.zeros((2, 2)), np.full((1, 2), np.nan, "f4")]
    for wrong in odd:
        with pytest.raises(DataError):
            directions.codes(wrong)
    with pytest.raises(DataError, match="labels of shape"):
        dense_votes(directions, CORNERS, np.array([0, 1, 2]), CLASSES)


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
