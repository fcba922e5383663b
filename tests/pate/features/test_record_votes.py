"""Every tiny world and every neighbour of it: what one unit changes in the sum of records' votes."""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pate.codes import Change, Code, code_of
from pate.errors import UsageError
from pate.features.neighbours import cast_votes, near

if TYPE_CHECKING:
    from collections.abc import Iterable

QUERIES = np.array([[0.0], [1.0], [3.0]], np.float32)
#: The second and third are halfway between two queries.
PLACES = (-1.0, 0.5, 2.0, 3.0)
CLASSES = 2
VALUES = tuple(itertools.product(PLACES, range(CLASSES)))
CODES = (Code("nearest"), Code("spread", 2), Code("spread", 3))
LARGEST = 3  # records of a world

World = tuple[tuple[float, int, str], ...]


def cast(world: World, code: Code, cap: int | None) -> np.ndarray:
    records = np.array([[place] for place, _, _ in world], np.float32).reshape(-1, 1)
    labels = np.array([label for _, label, _ in world], np.int64)
    names = np.array([name for _, _, name in world], np.str_)
    groups, most = (None, 1) if cap is None else (names, cap)
    return cast_votes(
        QUERIES, records, labels, CLASSES, spread=code.places, groups=groups, cap=most, key=b"k"
    )


def worlds(names: str) -> Iterable[World]:
    """All worlds of at most three records in every order."""
    units = [(*value, name) for value in VALUES for name in names]
    for size in range(LARGEST + 1):
        yield from itertools.product(units, repeat=size)


def largest(changes: np.ndarray) -> Change:
    """The largest of each measure over (n, queries, classes) changes."""
    size = np.abs(changes)
    return Change(
        int(size.sum(axis=(1, 2)).max()),
        int((size**2).sum(axis=(1, 2)).max()),
        int((size > 0).sum(axis=(1, 2)).max()),
    )


def within(found: Change, claimed: Change) -> bool:
    return (
        found.total <= claimed.total
        and found.squared <= claimed.squared
        and found.counts <= claimed.counts
    )


@pytest.mark.parametrize("code", CODES, ids=str)
def test_one_record_changes_what_is_claimed_and_no_more(code: Code) -> None:
    """1,755 worlds, and of each all that differ by one record."""
    made = {world: cast(world, code, None) for world in worlds("-")}
    for world, votes in made.items():
        assert np.array_equal(votes, made[tuple(sorted(world))])
        assert votes.sum() == code.places * len(world)
    taken, altered = [], []
    for world, votes in made.items():
        for at in range(len(world)):
            rest = world[:at], world[at + 1 :]
            taken.append(votes - made[rest[0] + rest[1]])
            altered += [votes - made[(*rest[0], (*other, "-"), *rest[1])] for other in VALUES]
    half = code.places
    assert largest(np.array(taken)) == Change(half, half, half)
    assert (np.array(taken) >= 0).all()
    assert largest(np.array(altered)) == code.change(1)


@pytest.mark.parametrize("cap", [1, 2])
@pytest.mark.parametrize("code", CODES, ids=str)
def test_one_patient_changes_what_is_claimed_and_no_more(code: Code, cap: int) -> None:
    """26,214 worlds of two patients, and of each all that differ in one of the two.

    The patient's records may be any, or none: added, removed and altered at once.
    """
    orders: dict[World, np.ndarray] = {}
    of_others: dict[World, dict[bytes, np.ndarray]] = defaultdict(dict)
    for world in worlds("ab"):
        votes = cast(world, code, cap)
        assert np.array_equal(orders.setdefault(tuple(sorted(world)), votes), votes)
        others = tuple(sorted(unit for unit in world if unit[2] == "b"))
        of_others[others][votes.tobytes()] = votes
    claimed = code.change(cap)
    changes = []
    for others, found in of_others.items():
        alone = orders[others]
        every = np.stack(list(found.values()))
        # Without the other patient: half of everything.
        assert within(
            largest(every - alone),
            Change(claimed.total // 2, claimed.squared // 2, claimed.counts // 2),
        )
        changes.append(largest((every[:, None] - every[None]).reshape(-1, *every.shape[1:])))
    assert all(within(each, claimed) for each in changes)
    assert max(each.total for each in changes) == claimed.total
    assert max(each.squared for each in changes) == claimed.squared
    # There are only six counts.
    assert max(each.counts for each in changes) == min(claimed.counts, QUERIES.size * CLASSES)


@pytest.mark.parametrize("cap", [1, 2])
@pytest.mark.parametrize("code", CODES, ids=str)
def test_one_record_of_a_patient_changes_as_much_as_a_record(code: Code, cap: int) -> None:
    """13,104 worlds of one patient: of the least hashes one is lost and one gained."""
    made = {}
    for size in (2, LARGEST):
        for values in itertools.product(VALUES, repeat=size):
            made[values] = cast(tuple((*each, "a") for each in values), code, cap)
    altered = [
        votes - made[(*world[:at], other, *world[at + 1 :])]
        for world, votes in made.items()
        for at in range(len(world))
        for other in VALUES
    ]
    assert largest(np.array(altered)) == code.change(1)


def test_near_is_the_set_of_nearest_whatever_the_batch() -> None:
    rng = np.random.default_rng(0)
    queries = rng.integers(-2, 3, (40, 3)).astype(np.float32)
    records = (rng.integers(-4, 5, (400, 3)) / 2).astype(np.float32)  # ties at every rank
    exact = np.square(queries[None].astype(float) - records[:, None].astype(float)).sum(axis=2)
    for count in (1, 2, 7, 39, 40):
        wanted = np.sort(exact.argsort(axis=1, kind="stable")[:, :count], axis=1)
        assert np.array_equal(near(queries, records, count), wanted)
        alone = np.concatenate([near(queries, each[None], count) for each in records[:50]])
        assert np.array_equal(alone, wanted[:50])
    for count in (0, 41):
        with pytest.raises(UsageError, match=f"{count} nearest of 40 queries"):
            near(queries, records, count)


def test_a_record_too_large_to_square_moves_no_other() -> None:
    rng = np.random.default_rng(1)
    queries = rng.normal(size=(20, 4)).astype(np.float32)
    records = rng.normal(size=(60, 4)).astype(np.float32)
    before = near(queries, records, 3)
    records[7] = np.float32(3e38)
    after = near(queries, records, 3)
    assert np.array_equal(np.delete(before, 7, axis=0), np.delete(after, 7, axis=0))
    assert len(set(after[7].tolist())) == 3


@pytest.mark.parametrize("text", ["nearest", "spread-2", "spread-10", "spread-65536"])
def test_a_code_has_one_text(text: str) -> None:
    assert str(code_of(text)) == text


@pytest.mark.parametrize(
    "text",
    ["", "spread", "spread-1", "spread-0", "spread-02", "spread-65537", "spread-٣", "nearest-1"],
)
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="a code is nearest, or spread-K"):
        code_of(text)
