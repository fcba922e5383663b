from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pate.data.labels import (
    cell_text,
    clean_name,
    encode_labels,
    parse_number,
    plain_identity,
    plain_names,
    sorted_classes,
)
from pate.data.odd import Odd
from pate.errors import DataError, SchemaError

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
