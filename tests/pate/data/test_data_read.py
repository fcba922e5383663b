"""Labels: one, several or a number, and how a data set is read with them."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from pate.data.cells import (
    SEPARATED,
    Reading,
    cell_text,
    clean_name,
    parse_number,
    plain_identity,
    plain_names,
)
from pate.data.files.dicom import read_dicom
from pate.data.files.texts import read_texts
from pate.data.labels import encode_labels, sorted_classes
from pate.data.memory import records_in
from pate.data.odd import Odd
from pate.data.read import read_dataset, read_inputs
from pate.data.records import require_trainable
from pate.data.values import Dataset, Images, Table
from pate.errors import DataError, SchemaError, UsageError
from tests.support.encoders.dicom_files import dicom, grey, write
from tests.support.readings import answers_of, groups_of

#: Ways to write three classes, the last of which is none.
NAMES = [
    "benign ", "Mu\N{COMBINING DIAERESIS}de", "M\u00fcde", "01", "1.0", " benign", "NA", "away",
]  # fmt: skip
CLASSES = ["benign", "M\u00fcde", "M\u00fcde", "1", "1", "benign"]
AWAY = Reading.of("point", ["Away"])


def in_csv(folder: Path) -> list[str]:
    (folder / "h.csv").write_text("x,y \n" + "".join(f"1,{name}\n" for name in NAMES))
    data = read_dataset(folder / "h.csv", label=" y", odd=Odd(), reading=AWAY)
    return [data.classes[at] for at in data.labels.tolist()]


def in_parquet(folder: Path) -> list[str]:
    pq.write_table(pa.table({"x": [1] * len(NAMES), "y ": NAMES}), folder / "h.parquet")
    data = read_dataset(folder / "h.parquet", label="y", odd=Odd(), reading=AWAY)
    return [data.classes[at] for at in data.labels.tolist()]


def in_archive(folder: Path) -> list[str]:
    np.savez(
        folder / "h.npz", images=np.zeros((len(NAMES), 2, 2), np.uint8), labels=np.array(NAMES)
    )
    data = read_dataset(folder / "h.npz", odd=Odd(), reading=AWAY)
    return [data.classes[at] for at in data.labels.tolist()]


def in_folders(folder: Path) -> list[str]:
    for name in NAMES:
        (folder / name).mkdir()
        Image.new("L", (2, 2)).save(folder / name / "x.png")
    data = read_dataset(folder, odd=Odd(), reading=AWAY)
    return [data.classes[at] for at in data.labels.tolist()]


def in_lines(folder: Path) -> list[str]:
    lines = (json.dumps({"text": "a", " y": name}) for name in NAMES)
    (folder / "h.jsonl").write_text("\n".join(lines))
    raw = read_texts(folder / "h.jsonl", "text", label="y", odd=Odd(), reading=AWAY)
    return [name for name in raw.names or () if name not in ("", "NA")]


def in_headers(folder: Path) -> list[str]:
    for at, name in enumerate(NAMES):
        write(
            folder / "a" / f"{at}.dcm",
            dicom(grey(4, 4), PatientID=name, SpecificCharacterSet="ISO_IR 192"),
        )
    raw = read_dicom(folder, odd=Odd(), reading=AWAY)
    return [name for name in groups_of(raw) if name]


@pytest.mark.parametrize(
    "names", [in_csv, in_parquet, in_archive, in_folders, in_lines, in_headers]
)
def test_a_name_is_the_same_in_every_container(
    tmp_path: Path, names: Callable[[Path], list[str]]
) -> None:
    """Spaces around it, composed letters and numbers; a word for no value is none, nor the owner's."""
    assert sorted(names(tmp_path)) == sorted(CLASSES)


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no file or folder at"):
        read_dataset(tmp_path / "absent")


def test_nothing_readable(tmp_path: Path) -> None:
    (tmp_path / "notes.doc").write_text("x")
    for read in (read_dataset, read_inputs):
        with pytest.raises(DataError, match="holds nothing that can be read; use"):
            read(tmp_path)
        with pytest.raises(DataError, match=r"notes.doc is of no format"):
            read(tmp_path / "notes.doc")


def test_several_files(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((1, 2, 2), np.uint8))
    (tmp_path / "b.csv").write_text("a\n1\n")
    with pytest.raises(DataError, match=r"several data files \(a.npz, b.csv\)"):
        read_inputs(tmp_path)


def test_an_empty_public_set(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((0, 2, 2), np.uint8))
    with pytest.raises(DataError, match="no records"):
        read_inputs(tmp_path)


def test_a_record_in_memory_is_known_by_what_it_says_as_in_a_file(tmp_path: Path) -> None:
    """Whatever a class list calls its label: else it would count as another in a later campaign."""
    (tmp_path / "h.csv").write_text("a,y\n1,1\n2,x\n")
    in_file = read_dataset(tmp_path / "h.csv", label="y", classes=["True", "x"])
    table = Table(("a",), (np.array([1.0, 2.0]),))
    in_memory = records_in(table, ["1", "x"], classes=["True", "x"])
    assert in_memory.row_hashes() == in_file.row_hashes()
    assert in_memory.labels.tolist() == in_file.labels.tolist() == [0, 1]


def test_a_word_for_no_value_is_no_group_in_memory_as_in_a_file() -> None:
    """Else all records of unknown patients would be one patient."""
    table = Table(("a",), (np.array([1.0, 2.0, 3.0]),))
    for word in ("NA", "", None):
        with pytest.raises(DataError, match="record 2 has no value in the group column"):
            records_in(table, ["a", "b", "a"], ["p", word, "q"])
    assert groups_of(records_in(table, ["a", "b", "a"], [1.0, 1, 2])) == ["1", "1", "2"]


HERE = Path("data.csv")


@pytest.mark.parametrize(
    ("names", "order"),
    [
        (["10", "9", "0"], ("0", "9", "10")),
        (["-1", "2.5", "1"], ("-1", "1", "2.5")),
        (["stage 10", "Stage 2", "stage 2"], ("Stage 2", "stage 2", "stage 10")),
        (["2", "benign", "10"], ("2", "10", "benign")),
        (["nan", "1"], ("1", "nan")),
        (["T²", "T10", "T9", "T009"], ("T009", "T9", "T10", "T²")),
        (["a" + "9" * 5000, "a1" + "0" * 5000], ("a" + "9" * 5000, "a1" + "0" * 5000)),
    ],
)
def test_class_order(names: list[str], order: tuple[str, ...]) -> None:
    assert sorted_classes(names) == order


@given(st.lists(st.text(max_size=6), max_size=12))
def test_class_order_does_not_hang_on_the_order_of_records(names: list[str]) -> None:
    assert sorted_classes(names) == sorted_classes(reversed(names))
    assert sorted(sorted_classes(names)) == sorted(set(names))


def test_a_decimal_is_the_number_that_it_is_and_none_if_it_is_none() -> None:
    """A database's NaN may carry a number or a signal: neither makes a patient or a class of it."""
    for text in ("NaN", "-NaN", "sNaN", "NaN12"):
        assert cell_text(Decimal(text)) == ""
    for text, name in (("0.10", "0.1"), ("1E+2", "100"), ("7.0", "7"), ("-0", "0"), ("1E+30", "")):
        assert plain_identity(cell_text(Decimal(text)) or "") == name


def test_numbers_print_as_integers_only_if_all_are_numbers() -> None:
    assert plain_names(["0.0", "1e1", "2.5", "-3"]) == ["0", "10", "2.5", "-3"]
    assert plain_names(["12.0", "12", "T1"]) == ["12", "12", "T1"]
    assert plain_names(["0.0", "inf"]) == ["0", "inf"]
    assert (parse_number("1_000"), parse_number("1e3")) == (None, 1000.0)
    long = ["12345678901234567", "12345678901234568"]
    assert plain_names(long) == long


@given(st.lists(st.text(max_size=8), min_size=1, max_size=20), st.text(max_size=8))
def test_a_name_depends_on_its_own_cell_alone(cells: list[str], another: str) -> None:
    assert plain_names([*cells, another])[:-1] == plain_names(cells)


def test_labels_count_in_the_given_list() -> None:
    labels, classes = encode_labels(["b", "a", "b"], ["c", "b", "a"], path=HERE)
    assert labels.tolist() == [1, 2, 1]
    assert classes == ("c", "b", "a")
    assert labels.dtype == np.int64


def test_labels_that_are_none_are_refused_with_their_record() -> None:
    for names, listed, error, why in (
        (["a", "d"], ["a", "b"], SchemaError, r"data.csv .*'d'.*the list is a, b"),
        (["a", ""], None, DataError, "record 2: it has no label"),
        (["a", "?"], None, DataError, r"record 2: its label is '[?]', a word for no value"),
        ([], None, DataError, "no records"),
    ):
        with pytest.raises(error, match=why):
            encode_labels(names, listed, path=HERE)


@pytest.mark.parametrize("word", ["NA", "Null", "none", "N/A", "-", ".", "#N/A", "NaN", "NaT", "?"])
def test_a_word_for_no_value_is_a_class_only_where_the_list_names_it(word: str) -> None:
    odd = Odd()
    labels, classes = encode_labels(["a", word, "b", ""], None, path=HERE, odd=odd)
    assert (labels.tolist(), classes) == ([0, -1, 1, -1], ("a", "b"))
    assert odd.reasons == [
        "it has no label",
        f"its label is {word!r}, a word for no value: if it is a class, name it in --classes",
    ]
    labels, _ = encode_labels(["a", word], ["a", "b"], path=HERE, odd=odd)
    assert labels.tolist() == [0, -1]
    labels, _ = encode_labels(["a", word], [word, "a"], path=HERE)
    assert labels.tolist() == [1, 0]


def test_a_class_is_found_by_its_value_however_it_is_written() -> None:
    decomposed = "Gru\N{COMBINING DIAERESIS}n"
    labels, _ = encode_labels(["1", "0.5", "Gr\u00fcn"], [decomposed, " 01", "0.50 "], path=HERE)
    assert labels.tolist() == [1, 2, 0]


def test_a_long_text_is_not_composed_which_would_take_a_minute() -> None:
    accents = "\N{COMBINING ACUTE ACCENT}\N{COMBINING DOT BELOW}" * 100_000
    assert clean_name(f" a{accents}") == f"a{accents}"
    assert clean_name(f" a{accents[:200]}") != f"a{accents[:200]}"


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
