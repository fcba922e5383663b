"""Votes and labels from files, and mechanisms in words."""

from __future__ import annotations

import dataclasses
import io
import json
import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pate.errors import DataError
from pate.formats import votes_file
from pate.formats.labels import LabelRow, LabelSet, checked_statement
from pate.formats.mechanism_words import mechanism_in_words
from pate.formats.noisy_counts import NoisyVotes, RoundCounts
from pate.formats.privacy_statement import adjacency_of, code_of_statement
from pate.formats.votes_file import read_label_vector, read_vote_matrix
from pate.mechanisms import MECHANISMS, MatrixMechanism, Mechanism, Neighbour
from pate.mechanisms.matrix import DistributedTeacherLabels, TeacherLabels
from pate.rounds.model import RoundModel

GOOD = [[3, 2, 0], [5, 0, 0], [1, 2, 2]]


def stored(folder: Path, array: Any, dtype: Any = None) -> Path:
    path = folder / "votes.npy"
    made: NDArray[Any] = np.array(array, dtype=dtype)
    np.save(path, made, allow_pickle=True)
    return path


def test_counts_of_any_number_type_are_taken(tmp_path: Path) -> None:
    for dtype in (
        "int64", "int8", "uint8", "uint64", ">i4", ">f8", "float16", "float32", "float64", "longdouble",
    ):  # fmt: skip
        votes = read_vote_matrix(stored(tmp_path, GOOD, dtype))
        assert votes.dtype == np.int64
        assert votes.flags.c_contiguous
        assert votes.tolist() == GOOD


def test_column_order_and_the_second_header_version_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "votes.npy"
    np.save(path, np.asfortranarray(GOOD))
    assert read_vote_matrix(path).tolist() == GOOD
    with path.open("wb") as file:
        np.lib.format.write_array(file, np.array(GOOD), version=(2, 0))
    assert read_vote_matrix(path).tolist() == GOOD


NO_MATRICES: tuple[tuple[Any, Any, str], ...] = (
    ([1, 2, 3], "int64", "labels, it seems, not votes"),
    ([[[1, 2]]], "int64", r"shape \(1, 1, 2\)"),
    ([[1], [2]], "int64", "two classes"),
    (np.empty((0, 3)), "int64", "at least one query"),
    (7, "int64", r"shape \(\)"),
    ([[1, -1], [0, 0]], "int64", "query 0, class 1 is -1; votes are not negative"),
    ([[1.0, 2.0], [1.5, 1.5]], "float64", "query 1, class 0 is 1.5; votes must be whole"),
    ([[0.25, 0.75], [0.5, 0.5]], "float64", "multiply them by the number of teachers"),
    ([[1.0, np.nan]], "float64", "query 0, class 1 is nan"),
    ([[np.inf, 0.0]], "float32", "query 0, class 0 is inf"),
    ([[1e300, 0.0]], "float64", "at most"),
    ([[2**63, 0]], "uint64", "at most"),
    ([[3, 2], [0, 0]], "int64", "query 1 has no votes"),
    ([[3, 2], [4, 2], [1, 1]], "int64", "query 0 has 5 votes, query 1 has 6"),
    ([[1 + 2j, 0]], "complex128", "holds complex128, not numbers"),
    ([[True, False]], "bool", "holds bool, not numbers"),
    ([["1", "2"]], "str", "not numbers"),
    ([[{}, 1]], "object", "Python objects, which are never loaded"),
    ([(1, 2)], [("a", "i4"), ("b", "i4")], "not numbers"),
    (["2026-01-01"], "datetime64[D]", "not numbers"),
)


def test_what_is_no_matrix_of_counts_is_refused_by_place(tmp_path: Path) -> None:
    for array, dtype, message in NO_MATRICES:
        path = stored(tmp_path, array, dtype)
        with pytest.raises(DataError, match=message) as caught:
            read_vote_matrix(path)
        assert str(path) in str(caught.value)


def npy_bytes(array: NDArray[Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


WHOLE = npy_bytes(np.array(GOOD))


def of_shape(*shape: int) -> bytes:
    """A header without any numbers."""
    file = io.BytesIO()
    fields = {"descr": "<f8", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, fields)
    return file.getvalue()


def test_damaged_files_are_refused_and_no_header_makes_this_process_allocate(
    tmp_path: Path,
) -> None:
    path = tmp_path / "votes.npy"
    for content, message in (
        (b"", "no .npy file"), (b"query,votes\n1,2\n", "no .npy file"),
        (b"PK\x03\x04 an archive", "no .npy file"), (WHOLE[:9], "no .npy file"),
        (WHOLE[:-1], "truncated"), (WHOLE.replace(b"(3, 3)", b"(3,99)"), "truncated"),
        (WHOLE.replace(b"(3, 3), }  ", b"(3, 9**9)}"), "no .npy file"),
        (WHOLE.replace(b"NUMPY\x01", b"NUMPY\x09"), "newer"),
        (of_shape(2**40, 2**20), "it is of shape"), (of_shape(0, 2**40), "at most"),
        (of_shape(10**12, 2), "at most"), (of_shape(0, 10**20), "it is of shape"),
        (of_shape(*(1,) * 40), "it is of shape"), (of_shape(-1, 2), "its header is not"),
        (of_shape(True, 2), "its header is not"),
    ):  # fmt: skip
        path.write_bytes(content)
        with pytest.raises(DataError, match=message):
            read_vote_matrix(path)


def test_a_large_matrix_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(votes_file, "MOST_CELLS", 8)
    with pytest.raises(DataError, match=r"has shape \(3, 3\); at most 8"):
        read_vote_matrix(stored(tmp_path, GOOD))


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.npy", tmp_path):
        with pytest.raises(DataError, match="cannot read"):
            read_vote_matrix(path)


def test_labels_are_one_class_a_query(tmp_path: Path) -> None:
    path = stored(tmp_path, [2.0, 0.0, 1.0])
    assert read_label_vector(path, queries=3, classes=3).tolist() == [2, 0, 1]
    with pytest.raises(DataError, match="each of 4 queries"):
        read_label_vector(path, queries=4, classes=3)
    with pytest.raises(DataError, match="label 2 of query 0 is none of 2 classes"):
        read_label_vector(path, queries=3, classes=2)
    for bad, message in (([0.5, 1], "query 0 is 0.5"), ([0, -1], "query 1 is -1")):
        with pytest.raises(DataError, match=message):
            read_label_vector(stored(tmp_path, bad), queries=2, classes=3)


@pytest.mark.parametrize("name", ["adult", "mnist", "svhn"])
def test_the_published_matrices_have_250_votes_in_every_query(test_data: Path, name: str) -> None:
    path = test_data / "pate_votes" / f"{name}_250_teachers.npy"
    if not path.exists():
        pytest.skip("the published votes are not here")
    assert set(read_vote_matrix(path).sum(axis=1).tolist()) == {250}


PRIVACY = (
    '{"epsilon": 1.5, "delta": 1e-05, "unit": "record", "adjacency": "one vote changed", '
    '"observer": "public", "mechanism": "confident-gnmax", "ledger_head": "00ff"}\n'
)
SET = LabelSet(
    campaign=bytes(range(4)),
    classes=("ill", "wéll"),
    public_set=b"\x11" * 32,
    queries=9,
    rows=(LabelRow(3, 1, 1, "teachers"), LabelRow(0, 0, 2, "reinforced")),
    privacy=PRIVACY,
)
GOLDEN = """{
  "format": "pate-labels/2",
  "campaign": "00010203",
  "classes": [
    "ill",
    "wéll"
  ],
  "public_set": "1111111111111111111111111111111111111111111111111111111111111111",
  "queries": 9,
  "privacy": PRIVACY,
  "noisy": null,
  "labels": [
    [3, 1, 1, "teachers"],
    [0, 0, 2, "reinforced"]
  ]
}
""".replace("PRIVACY", json.dumps(PRIVACY))


def test_golden() -> None:
    assert SET.to_json() == GOLDEN
    assert LabelSet.from_json(GOLDEN) == SET


def test_without_labels() -> None:
    empty = LabelSet(b"c", ("a", "b"), bytes(32), 1, (), PRIVACY)
    assert LabelSet.from_json(empty.to_json()) == empty


NOISY = {"sigma": 2.5, "queries": [2, 4], "counts": ["-3 40", "7 0"]}


def having(**values: object) -> str:
    """Return the golden file with other fields; None takes one out."""
    gone = {name for name, value in values.items() if value is None}
    fields = {**json.loads(GOLDEN), **values}
    return json.dumps({name: value for name, value in fields.items() if name not in gone})


def noisy(**values: object) -> str:
    return having(noisy=NOISY | values)


def test_noisy_votes_travel_along() -> None:
    held = LabelSet.from_json(noisy()).noisy
    assert held is not None
    assert held.queries.tolist() == [2, 4]
    assert held.counts.tolist() == [[-3, 40], [7, 0]]
    assert held.sigma == 2.5
    again = LabelSet.from_json(noisy()).to_json()
    assert json.loads(again)["noisy"] == NOISY
    assert LabelSet.from_json(again).to_json() == again


def test_rounds_and_their_models_travel_along_in_one_order() -> None:
    model = RoundModel(np.array([[5, -7], [1, 2]]), 1024)
    first = RoundCounts(np.array([[4, 5], [6, 7]]), 3)
    counts = np.array([[100, -3], [7, 9]])
    votes = NoisyVotes(np.array([0, 3]), counts, 2, "dense-2 residual", model, (first,), model)
    text = replace(SET, rows=(), noisy=votes).to_json()
    shown = {"cut": 1024, "weights": ["5 -7", "1 2"]}
    assert json.dumps(json.loads(text)["noisy"]) == json.dumps({
        "sigma": 2.0, "queries": [0, 3], "counts": ["100 -3", "7 9"], "code": "dense-2 residual",
        "shown": shown, "earlier": [{"sigma": 3.0, "counts": ["4 5", "6 7"]}], "model": shown,
    })  # fmt: skip
    assert LabelSet.from_json(text).to_json() == text


def labels(*rows: list[object]) -> str:
    return having(labels=list(rows))


REFUSED = (
    ("{", "not JSON"), ("[]", "must be a JSON object"), ("[" * 100_000, "not JSON"),
    (GOLDEN.replace('"queries": 9', '"queries": 9, "queries": 9'), "a field is repeated"),
    (GOLDEN.replace('"queries": 9', '"queries": NaN'), "NaN"),
    (having(format="pate-labels/1"), "pate-labels/1"), (having(extra=1), "extra"),
    (having(public_set=None), "public_set"), (having(campaign="0x"), "campaign"),
    (having(public_set="11" * 31), "hash is 32 bytes, got 31"),
    (having(public_set="AA" * 32), "public_set"), (having(classes=["a"], labels=[]), "two classes"),
    (having(classes=["a", "a"]), "all different"),
    (having(classes=[1, 2]), r"classes\[0\] must be text, got 1"),
    (having(queries=0, labels=[]), "at least one query"),
    (having(queries=True), "queries must be a whole number, got True"),
    (labels([9, 0, 1, "teachers"]), "outside"), (labels([-1, 0, 1, "teachers"]), "from 0"),
    (labels([1.0, 0, 1, "teachers"]), r"labels\[0\]\[0\] must be a whole number, got 1.0"),
    (labels([1, 2, 1, "teachers"]), "no class"), (labels([1, 0, 0, "teachers"]), "from 1"),
    (labels([1, 0, 1, "a friend"]), "a friend"),
    (labels([1, 0, 1, 1]), r"labels\[0\]\[3\] must be text, got 1"),
    (labels([1, 0, 1]), r"labels\[0\] must have 4 entries, got 3"),
    (labels([1, 0, 1, "teachers"], [1, 1, 1, "teachers"]), "two labels"),
    (having(noisy=[]), "noisy must be an object"), (noisy(sigma=1e400), "Infinity"),
    (noisy(sigma=3), "noisy.sigma must be a finite number with a point, got 3"),
    (noisy(queries=[2, 9]), "other classes or queries"), (noisy(queries=[4, 2]), "ascend"),
    (noisy(queries=[2, 2]), "ascend"), (noisy(queries=[True, 2]), "a list of whole numbers"),
    (noisy(queries=["2 4"]), "queries are int64 of shape"), (noisy(counts=[1, 2]), "counts are int64"),
    (noisy(queries=[2, 2**70]), "too large"), (noisy(counts=["1 2 3", "4 5 6"]), "other classes"),
    (noisy(counts=["1 2", "4"]), "differ in length"), (noisy(counts=["1 2"]), "2 "),
    (noisy(counts=[]), "counts are int64"), (noisy(counts=["1 2", 3]), "whole numbers"),
    (noisy(counts=["1 2", "4 " + "9" * 20]), "whole numbers"),
    (noisy(counts=["1 2", "4 \u0663"]), "whole numbers"),
    (having(privacy=""), "not JSON"), (having(privacy={}), "privacy must be text"),
)  # fmt: skip


def test_refused() -> None:
    for text, why in REFUSED:
        with pytest.raises(DataError, match=why):
            LabelSet.from_json(text)


def test_a_statement_says_everything_and_within_its_range() -> None:
    fields = json.loads(PRIVACY)
    assert checked_statement(PRIVACY) == fields
    wrong: list[tuple[str, object]] = [(key, nothing) for key in fields for nothing in (None, "")]
    wrong += [("epsilon", each) for each in (-1, "1", True, 10**400)] + [("delta", 1), ("unit", 3)]
    for key, value in wrong:
        with pytest.raises(DataError, match=key):
            checked_statement(json.dumps(fields | {key: value}))
    for key in fields:
        with pytest.raises(DataError, match=key):
            checked_statement(json.dumps({name: fields[name] for name in fields if name != key}))


#: A figure for each parameter that a mechanism of ours may have; no two are alike.
FIGURES: dict[str, int | Fraction | str] = {
    "threshold": 45, "sigma": Fraction(15, 2), "sigma1": Fraction(31), "sigma2": Fraction(11),
    "scale": Fraction(20), "share": Fraction(241, 64), "honest": 3, "votes_per_unit": 6,
    "confidence": Fraction(7, 8), "code": "dense-7", "adjacency": "change",
}  # fmt: skip
#: Teachers with several labels: no query gets one label, and the noise is Gaussian.
SEVERAL: dict[str, int | Fraction | str] = {"threshold": 0, "code": "each-7 labels-2-of-3"}
SHOWN = {"code": "7", "sigma": "7.5", "share": "3.765625", "confidence": "87.5 %"}


def of_kind(kind: type[Mechanism]) -> list[Mechanism]:
    """A mechanism of that kind; of neighbour votes one for each law of their noise."""
    names = {field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    laws = names & {"sigma", "share", "scale"}
    each = laws if issubclass(kind, MatrixMechanism) else {""}
    figures = FIGURES
    if issubclass(kind, TeacherLabels | DistributedTeacherLabels):
        figures, each = FIGURES | SEVERAL, laws - {"scale"}
    return [
        kind(**{name: figures[name] for name in names - (laws - {law} if law else set())})
        for law in sorted(each)
    ]


@pytest.mark.parametrize(
    "mechanism", [each for kind in MECHANISMS.values() for each in of_kind(kind)], ids=str
)
def test_every_mechanism_has_words_with_all_its_figures(mechanism: Mechanism) -> None:
    text = mechanism.to_dict()
    words = mechanism_in_words(text)
    for name, value in text.items():
        if name != "mechanism" and (name, value) != ("threshold", 0):
            figure = SHOWN.get(name, str(FIGURES[name]))
            assert re.search(rf"(?<![\d.]){re.escape(figure)}(?![\d.])", words), (name, words)
    assert "_" not in words
    assert "/" not in words.replace("1/1024", "")


ROUND = "in each round it casts one array of at most one vote's length"
#: By code: what is said of a record, and the end of what is said of the mechanism.
CODES = {
    "nearest": ("it votes once, for one class at one query, so it moves one vote of the", "at most 1"),
    "dense-8": ("it casts one vote, counted in 8 directions, and changes no", "1/1024 of a vote"),
    "nearest labels-2": ("it casts one vote, for up to 2 labels, and changes no", "1/2 of a vote"),
    "nearest number": ("divided between two points of a range, and", "1/64 of a vote"),
    "nearest ordered": ("it casts one vote, for classes in their order, and", "order"),
    "dense-8 residual-labels": (ROUND, "of a vote"), "dense-8 residual": (ROUND, "of a vote"),
}  # fmt: skip


@pytest.mark.parametrize("code", CODES)
def test_a_vote_by_each_code_is_described_as_it_is(code: str) -> None:
    record, words = CODES[code]
    labelled = not code.endswith(("labels-2", "number", "residual", "residual-labels"))
    rounds = "residual" in code
    noise = {"sigma" if rounds else "scale": Fraction(640)}
    mechanism = Neighbour(4 if labelled else 0, votes_per_unit=1, code=code, **noise).to_dict()
    said = mechanism_in_words(mechanism)
    assert said.endswith(words)
    assert said.startswith("records vote in rounds: " if rounds else "neighbour votes: ")
    assert ("leads by 4 or more gets a label" in said) == labelled
    assert record in adjacency_of("record", records_vote=True, code=code)
    # A threshold that a stranger states is not left out.
    if not labelled:
        words = "threshold 9" if rounds else "leads by 9 or more"
        assert words in mechanism_in_words({**mechanism, "threshold": 9})


def test_teachers_votes_for_a_class_in_one_release_are_described() -> None:
    gets = "leads by 9 or more gets a label; teachers that one unit changes: 2, 7 queries"
    among = "an answer to the whole public set in 8 directions; counts and noise are in units"
    for code, threshold, words in (
        ("each-7", 9, gets), ("axes-8", 0, among),
        ("each-7 balanced", 9, "for the class that is probable compared with its mean"),
    ):  # fmt: skip
        changed = TeacherLabels(threshold, Fraction(60), 2, code=code)
        removed = replace(changed, adjacency="remove")
        assert words in mechanism_in_words(changed.to_dict())
        said = mechanism_in_words(removed.to_dict())
        assert "a unit is added or removed with its teachers" in said
        assert removed.worst[0].rho < changed.worst[0].rho
        stated = adjacency_of("party", records_vote=False, code=code)
        assert stated.startswith("all data of one party added or removed: without data")
        assert "altering its data" in stated
        assert code_of_statement([removed.to_dict()]) == code


def test_steps_are_told_in_turn() -> None:
    gate = {"mechanism": "gate", "order": "3", "target": "1/3", "test": "1/2", "failure": "1/7"}
    first, second = mechanism_in_words([{"mechanism": "mine"}, gate]).split("; then ")
    assert first == "mine"
    assert all(figure in second for figure in ("order 3", "target 1/3", "test 0.5", "failure 1/7"))


def test_what_is_not_known_is_given_as_it_stands() -> None:
    """Parameters that words have no place for, or lack: nothing is left out, and none is made up."""
    known = {"mechanism": "gnmax", "sigma": "3"}
    strange: tuple[tuple[object, str], ...] = (
        (known, "gnmax (sigma 3)"), ({"sigma": "3"}, "see privacy.json (sigma 3)"),
        (known | {"votes_per_unit": 1, "more": 2}, "gnmax (sigma 3, votes_per_unit 1, more 2)"),
        ("a text", "a text"), (7, "7"),
    )  # fmt: skip
    for each, told in strange:
        assert mechanism_in_words(each) == told
    for figure in ("{sigma}", "1e400", "9" * 400, "1/0", "-1", {"a": 1}, None, True, "٣"):
        said = mechanism_in_words({"mechanism": "gnmax", "sigma": figure, "votes_per_unit": 1})
        assert f"sigma {figure} on" in said
