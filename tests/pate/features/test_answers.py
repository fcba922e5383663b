"""Every tiny world and every neighbour of it, for each code and answer, and of patients in every order."""

from __future__ import annotations

import hashlib
import itertools
from functools import cache
from typing import Any

import numpy as np
import pytest

from pate.answers import NONE, PARTS, Answer, answer_of, of_labels, of_numbers, points_of
from pate.codes import GRID, Change, Code, code_of, require_places
from pate.errors import DataError, UsageError
from pate.features.dense import Directions, dense_sums, dense_votes
from pate.features.neighbours import cast_answers, cast_votes, voters_of
from tests.support.changes import joined, largest, within

LABELS = ("a", "b", "c")
COLUMNS = ("b", "a", NONE, "c")
RANGE = ("-2", "6")
#: Of a number as well: uneven, and two of the values below lie in other parts.
POINTS = ("-2", "1", "1.5", "6")
QUERIES = np.array([[0.0], [1.0], [3.0], [4.0]], np.float32)
#: The second and third are halfway between two queries.
PLACES = (-1.0, 0.5, 2.0, 5.0)
CORNERS = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 3.0]], np.float32)
SPOTS = ((0.0, 0.0), (2 / 3, 1.0), (90.0, 0.0), (-90.0, 0.0))
KEY = b"k"
CODES = ("nearest", "dense-3")
ANSWERS = ("labels-1", "labels-2", "labels-3", "number")
#: Of the label answers all sets of three labels; of the number answer one below the range, too.
FLAGS = tuple(itertools.product((False, True), repeat=len(LABELS)))
VALUES = (-9.0, -2.0, 1.3, 6.0)


def said(answer: Answer, given: list[Any], points: tuple[str, ...] = RANGE) -> np.ndarray:
    """The answers of records."""
    if answer.name == "number":
        return of_numbers(np.array(given, np.float64), points)
    if answer.name in ("class", "ordered"):
        return np.eye(len(points), dtype=np.int64)[np.array(given, np.int64)]
    flags = np.array(given, np.bool_).reshape(-1, len(LABELS))
    hashes = [bytes(row) for row in flags.tolist()]
    return of_labels(flags, LABELS, COLUMNS, answer.most, hashes, KEY)


def cast(code: Code, world: tuple[Any, ...], points: tuple[str, ...] = RANGE) -> np.ndarray:
    """The sum of all records' arrays, as one party computes it."""
    answers = said(code.answer, [value for _, value in world], points)
    if code.name == "dense":
        spots = np.array([spot for spot, _ in world], np.float32).reshape(-1, 2)
        return dense_sums(Directions.fit(CORNERS), spots, answers, code.answer.grid)
    spots = np.array([[spot] for spot, _ in world], np.float32).reshape(-1, 1)
    return cast_answers(QUERIES, spots, answers)


def records_of(code: Code) -> tuple[Any, ...]:
    few = {"number": VALUES, "ordered": range(3), "class": range(4)}
    values: Any = few.get(code.answer.name, FLAGS)
    return tuple(itertools.product(SPOTS if code.name == "dense" else PLACES, values))


#: An answer, "" for a class, and the points of a number, or as many classes.
EVERY = (
    *((text, RANGE) for text in ANSWERS), ("number", POINTS), ("ordered", ("0", "1", "2")), ("", (*"0123",)),
)  # fmt: skip
CASES = tuple((where, *each) for where in CODES for each in EVERY)


@pytest.mark.parametrize("cap", [1, 2])
@pytest.mark.parametrize(("where", "text", "points"), CASES)
def test_a_unit_changes_what_is_claimed_and_no_more(
    where: str, text: str, points: tuple[str, ...], cap: int
) -> None:
    """All units of up to ``cap`` records, and all pairs of them; other records' arrays stay the same."""
    code = code_of(f"{where} {text}".strip())
    own = np.stack([cast(code, (record,), points) for record in records_of(code)])
    units = [np.zeros_like(own[:1]), own]
    if cap == 2:
        units.append(np.unique((own[:, None] + own[None]).reshape(-1, *own.shape[1:]), axis=0))
    every = np.concatenate(units)
    claimed = code.change(cap)
    half = Change(claimed.total // 2, claimed.squared // 2, claimed.counts // 2)
    if code.name == "dense":
        half = Change(half.total, claimed.squared // 4, half.counts)
    alone, pairs = largest(every), []
    assert within(alone, half)
    for each in every:
        found = largest(every - each)
        assert within(found, claimed)
        pairs.append(found)
    reached = joined(pairs)
    if code.name == "dense":
        # Cut towards zero, so by a hair less.
        assert reached.squared > 0.9 * claimed.squared
    else:
        assert (reached.total, reached.squared) == (claimed.total, claimed.squared)
        assert (alone.total, alone.squared) == (half.total, half.squared)
    assert reached.counts <= min(claimed.counts, own[0].size)


@pytest.mark.parametrize(("where", "text", "points"), CASES)
def test_the_sum_is_that_of_the_records_own_arrays_in_any_order(
    where: str, text: str, points: tuple[str, ...]
) -> None:
    code = code_of(f"{where} {text}".strip())
    records = records_of(code)
    own = {record: cast(code, (record,), points) for record in records}
    rng = np.random.default_rng(0)
    for size in (0, 1, 3, len(records)):
        world = tuple(records[at] for at in rng.permutation(len(records))[:size])
        wanted = sum((own[each] for each in world), np.zeros_like(own[records[0]]))
        assert np.array_equal(cast(code, world, points), wanted)
        assert np.array_equal(cast(code, world[::-1], points), wanted)


def test_a_class_is_the_answer_that_it_always_was() -> None:
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 4, 60)
    places = rng.normal(size=(60, 1)).astype(np.float32)
    wanted = cast_votes(QUERIES, places, labels, 4)
    assert np.array_equal(cast_answers(QUERIES, places, np.eye(4, dtype=np.int64)[labels]), wanted)
    points = rng.normal(size=(60, 2)).astype(np.float32)
    directions = Directions.fit(CORNERS)
    assert np.array_equal(
        dense_sums(directions, points, np.eye(4, dtype=np.int64)[labels], 1),
        dense_votes(directions, points, labels, 4),
    )
    assert code_of("nearest ordered").change(3) == code_of("nearest").change(3)


def test_records_that_voted_are_counted_by_none_and_a_part_of_each_label() -> None:
    for most in (1, 2, 3):
        answers = said(Answer("labels", most), list(FLAGS))
        # In units of 1/T of a vote: T for each label, and what is left of T.
        assert (answers.max(axis=1) == most).all()
        labels = answers[:, [0, 1, 3]]
        assert set(np.unique(labels)) <= {0, most}
        assert (answers[:, 2] + labels.sum(axis=1) // most == most).all()
        assert (answers.sum(axis=1) <= most * most).all()
        wanted = np.minimum(np.array(FLAGS).sum(axis=1), most)
        assert np.array_equal(labels.sum(axis=1) // most, wanted)
        # Columns are found by name.
        both = np.array(FLAGS)[:, [1, 0, 2]]
        assert ((labels > 0) <= both).all()


def test_which_labels_count_depends_on_the_record_and_the_key_only() -> None:
    rng = np.random.default_rng(2)
    flags = rng.random((300, 9)) < 0.6
    names = tuple("abcdefghi")
    columns = (*names, NONE)
    hashes = [bytes(row) + at.to_bytes(2, "big") for at, row in enumerate(flags.tolist())]

    def chosen(rows: list[int], key: bytes = KEY) -> np.ndarray:
        return of_labels(flags[rows], names, columns, 2, [hashes[at] for at in rows], key)

    whole = chosen(list(range(300)))
    order = rng.permutation(300).tolist()
    assert np.array_equal(chosen(order), whole[order])
    assert np.array_equal(chosen([7]), whole[7:8])
    assert not np.array_equal(chosen(list(range(300)), b"other"), whole)
    # A label's place in the file decides nothing.
    turned = of_labels(flags[:, ::-1], names[::-1], columns, 2, hashes, KEY)
    assert np.array_equal(turned, whole)


def test_a_number_is_divided_between_the_ends_of_its_range() -> None:
    values = np.array([-1e300, -2.0, 2.0, 6.0, 1e300, 2.06])
    made = of_numbers(values, RANGE)
    assert made.tolist() == [[64, 0], [64, 0], [32, 32], [0, 64], [0, 64], [32, 32]]
    assert (made.sum(axis=1) == PARTS).all()
    for wrong in (
        (), ("1",), ("3", "2"), ("0", "nan"), ("0", "inf"), ("0", "1_0"), ("1", "2", "2"),
        ("1", "3", "2"), ("1", "nan", "2"), ("-1.7e308", "0", "1.7e308"),
        tuple(map(str, range(65))),
    ):  # fmt: skip
        with pytest.raises(UsageError, match="a number's range is two numbers"):
            points_of(wrong)


def test_a_number_is_divided_between_the_two_points_next_to_it() -> None:
    values = np.array([-1e300, -2.0, -0.5, 1.0, 1.25, 1.5, 3.75, 6.0, 1e300])
    assert of_numbers(values, POINTS).tolist() == [
        [64, 0, 0, 0], [64, 0, 0, 0], [32, 32, 0, 0], [0, 64, 0, 0], [0, 32, 32, 0],
        [0, 0, 64, 0], [0, 0, 32, 32], [0, 0, 0, 64], [0, 0, 0, 64],
    ]  # fmt: skip
    many = np.random.default_rng(5).uniform(-3, 7, 2000)
    made = of_numbers(many, POINTS)
    assert (made.sum(axis=1) == PARTS).all()
    # Linear between points: the number itself, up to half a part of the longest piece.
    back = made @ np.array(points_of(POINTS)) / PARTS
    assert np.abs(back - np.clip(many, -2, 6)).max() <= 4.5 / PARTS / 2 + 1e-12


def test_a_code_has_one_text() -> None:
    for text in (
        "nearest", "dense-2", "dense-1024", "dense-64 labels-2", "nearest labels-1",
        "dense-10 labels-64", "dense-64 number", "nearest ordered", "dense-9 residual",
        "each-1 labels-1-of-1", "each-65536 labels-64-of-9999", "each-5", "each-5 balanced", "axes-32",
    ):  # fmt: skip
        assert str(code_of(text)) == text
        assert code_of(text).of_teachers == text.startswith(("each", "axes"))
    for text in (
        "", "nearest-1", "dense", "dense-0", "dense-1", "dense-02", "dense-1025", "dense-٣", "dense--2",
        "nearest class", "nearest ", "nearest  ordered", "nearest labels", "nearest labels-0",
        "nearest labels-65", "nearest labels-02", "ordered", "nearest number-2", "nearest ordered x",
        "nearest residual", "residual", "dense-3 residual-2", "dense-3 contrast",
        "each-5 labels-2", "each-5 array", "nearest balanced", "axes-5 class", "axes-5 balanced",
        "axes-1", "axes-1025", "each-0 labels-2-of-3", "each-65537 labels-2-of-3", "each-5 class",
        "each-5 number", "nearest labels-2-of-3", "dense-5 labels-2-of-3", "each-5 labels-65-of-99",
        "each-5 labels-2-of-03",
    ):  # fmt: skip
        with pytest.raises(UsageError):
            code_of(text)
    code = code_of("each-5 labels-2-of-3")
    assert (code.bounds(7), code.grid, code.in_directions) == ((0, 7), 1, False)
    assert code.in_words == "5 queries in one release, for up to 2 of 3 labels"
    require_places(code, 5)
    for number in (4, 6):
        with pytest.raises(UsageError, match="that many queries"):
            require_places(code, number)


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("labels-2", ("a", "b")), ("labels-3", ("a", "b", NONE)), ("number", ("a", "b")),
        ("number", None), ("ordered", None), ("residual", None), ("residual", ("a",)),
        ("residual", tuple(map(str, range(257)))),
    ],
)  # fmt: skip
def test_columns_that_do_not_fit_an_answer_are_refused(
    text: str, columns: tuple[str, ...] | None
) -> None:
    with pytest.raises(UsageError):
        answer_of(text).check_columns(columns)


def test_answers_of_another_shape_are_refused() -> None:
    places = QUERIES[:2]
    for wrong in (np.zeros(2, np.int64), np.zeros((3, 2), np.int64), np.full((2, 2), -1)):
        with pytest.raises(DataError, match="answers of shape"):
            cast_answers(QUERIES, places, wrong)
    with pytest.raises(DataError, match="answers of shape"):
        dense_sums(Directions.fit(CORNERS), CORNERS, np.zeros((2, 2), np.int64), 1)


def test_a_dense_array_with_an_answer_is_no_longer_than_its_code_allows() -> None:
    rng = np.random.default_rng(3)
    points = rng.normal(size=(40, 2)).astype(np.float32)
    directions = Directions.fit(CORNERS)
    for text in ANSWERS:
        answer = answer_of(text)
        values = list(FLAGS) * 5 if answer.name == "labels" else rng.uniform(-3, 7, 40).tolist()
        answers = said(answer, values)
        for point, each in zip(points, answers, strict=True):
            made = dense_sums(directions, point[None], each[None], answer.grid)
            assert (made**2).sum() <= answer.most * GRID**2


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
