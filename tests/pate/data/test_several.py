"""Records with several labels or a number, from tables and archives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pate.data.cells import SEPARATED, Reading
from pate.data.odd import Odd
from pate.data.read import read_dataset
from pate.data.records import require_trainable
from pate.data.values import Dataset, Images
from pate.errors import DataError, SchemaError, UsageError
from tests.support.readings import answers_of, groups_of

TABLE = """age,heart,lung,kidney,days,who
50,1,no,0,3,a
61,0,yes,0,2.5,b
72,True,FALSE,1.0,14,a
33,maybe,0,1,1,c
44,,0,1,nan,c
"""
LABELS = ("heart", "lung", "kidney")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "records.csv"
    path.write_text(TABLE)
    return path


def read(path: Path, odd: Odd | None, **more: object) -> Dataset:
    return read_dataset(path, odd=odd, **more)  # type: ignore[arg-type]


def test_several_labels_are_read_and_an_odd_cell_leaves_out_its_own_record(table: Path) -> None:
    odd = Odd()
    data = read(table, odd, labels=LABELS, drop=("days",), group="who")
    assert data.kind == "labels"
    assert data.classes == LABELS
    assert answers_of(data) == [
        [True, False, False],
        [False, True, False],
        [True, False, True],
    ]
    assert data.inputs.schema() == "table age:number"
    assert groups_of(data) == ["a", "b", "a"]
    assert odd.reasons == ["its cell in the column 'heart' is neither yes nor no"]
    with pytest.raises(DataError, match=r"line 5 in the column 'heart' is neither yes nor no"):
        read(table, None, labels=LABELS)


def test_numbers_are_read_and_those_that_are_none_left_out(table: Path, tmp_path: Path) -> None:
    odd = Odd()
    data = read(table, odd, number="days", drop=(*LABELS, "who"))
    assert data.kind == "number"
    assert answers_of(data) == [3, 2.5, 14, 1]
    assert odd.reasons == ["its cell in the column 'days' has no number"]
    other = tmp_path / "comma.csv"
    other.write_text("a;days\n1;2,5\n2;1e400\n3;-\n4;1.250\n")
    odd = Odd()
    data = read(other, odd, number="days", reading=Reading(comma=True))
    assert answers_of(data) == [2.5]
    assert odd.reasons == [
        f"its cell in the column 'days' {why}"
        for why in (SEPARATED, "has no number", "is no finite number")
    ]


@pytest.mark.parametrize("form", ["columns", "matrix"])
def test_an_archive_has_an_array_a_label_or_one_for_all(tmp_path: Path, form: str) -> None:
    flags = np.array([[1, 0], [0, 1], [1, 1]])
    images = np.zeros((3, 4, 4), np.uint8)
    path = tmp_path / "records.npz"
    if form == "columns":
        np.savez(path, images=images, heart=flags[:, 0], lung=flags[:, 1].astype(float))
    else:
        np.savez(path, images=images, labels=flags, classes=np.array(["heart", "lung"]))
    data = read(path, Odd(), labels=("lung", "heart"))
    assert answers_of(data) == flags[:, ::-1].astype(bool).tolist()
    with pytest.raises(DataError, match="no array 'liver'"):
        read(path, Odd(), labels=("liver",))


def test_a_hash_has_every_label_and_no_order_of_them(table: Path) -> None:
    data = read(table, Odd(), labels=LABELS, drop=("days", "who"))
    turned = read(table, Odd(), labels=LABELS[::-1], drop=("days", "who"))
    assert data.row_hashes() == turned.row_hashes()
    assert data.row_hashes() == turned.with_classes(LABELS).row_hashes()
    moved = turned.with_classes(LABELS).answers
    assert data.answers is not None
    assert moved is not None
    assert np.array_equal(moved, data.answers)
    for row in range(len(data)):
        for label in range(3):
            other = data.answers.copy()
            other[row, label] ^= True
            changed = Dataset(data.inputs, data.labels, LABELS, None, other).row_hashes()
            assert [a != b for a, b in zip(changed, data.row_hashes(), strict=True)] == [
                at == row for at in range(len(data))
            ]
    kinds = [
        Dataset(data.inputs, data.labels, ("0",), None, answers).row_hashes()
        for answers in (None, np.zeros(3), np.zeros((3, 1), np.bool_), np.ones((3, 1), np.bool_))
    ]
    assert len({hashes[0] for hashes in kinds}) == 4
    assert data.take([2, 0]).row_hashes() == [data.row_hashes()[2], data.row_hashes()[0]]


def test_another_list_of_labels_is_refused(table: Path) -> None:
    data = read(table, Odd(), labels=LABELS, drop=("days", "who"))
    for wrong in (LABELS[:2], (*LABELS, "liver")):
        with pytest.raises(SchemaError, match="these are only in one"):
            data.with_classes(wrong)


def test_teachers_learn_several_labels_and_no_number(table: Path) -> None:
    several = read(table, Odd(), labels=LABELS, drop=("days", "who"))
    require_trainable(several, 1)
    with pytest.raises(DataError, match="ask for at most"):
        require_trainable(several, len(several) + 1)
    with pytest.raises(DataError, match="such records vote themselves"):
        require_trainable(read(table, Odd(), number="days", drop=LABELS), 1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"label": "who", "labels": LABELS}, {"labels": LABELS, "number": "days"},
        {"label": "who", "number": "days"}, {"labels": ("heart", "heart")},
        {"labels": ("heart", "none")}, {"labels": LABELS, "group": "lung"}, {},
    ],
)  # fmt: skip
def test_options_that_do_not_fit_together_are_refused(table: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        read(table, Odd(), **wrong)


def test_answers_of_another_shape_are_refused(table: Path) -> None:
    data = read(table, Odd(), labels=LABELS, drop=("days", "who"))
    zeros = np.zeros(3, np.int64)
    wrong: tuple[Any, ...] = (
        np.zeros((3, 2), np.bool_), np.zeros(2), np.array([1.0, np.nan, 2.0]), np.zeros(3, np.int64),
        np.zeros(3, np.bool_), np.zeros((3, 3)),
    )  # fmt: skip
    for answers in wrong:
        with pytest.raises(DataError, match="answers"):
            Dataset(data.inputs, zeros, LABELS, None, answers)


def test_teachers_need_records_of_two_classes_and_a_record_or_group_each() -> None:
    def classes(labels: list[int], groups: list[str] | None = None) -> Dataset:
        images = Images(np.zeros((len(labels), 2, 2, 1), np.uint8))
        whose = None if groups is None else np.array(groups, dtype=np.str_)
        return Dataset(images, np.array(labels, np.int64), ("a", "b"), whose)

    of_two = classes([0, 1, 0], ["x", "x", "y"])
    require_trainable(classes([0, 1, 0]), 3)
    require_trainable(of_two, 2)
    wrong: tuple[tuple[Dataset, int, type[Exception], str], ...] = (
        (classes([1, 1, 1]), 2, DataError, "one class only, 'b'"),
        (classes([]), 1, DataError, "no records"),
        (classes([0, 1, 0]), 4, DataError, "3 records for 4 teachers; ask for at most 3"),
        (of_two, 3, DataError, "2 groups for 3 teachers"),
        (classes([0, 1]), 0, UsageError, "1 or more"),
    )
    for dataset, teachers, error, why in wrong:
        with pytest.raises(error, match=why):
            require_trainable(dataset, teachers)
