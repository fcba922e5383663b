"""Votes from files: accepted forms, and refusals with helpful messages."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pate.errors import DataError
from pate.formats import votes_file
from pate.formats.votes_file import read_label_vector, read_vote_matrix

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


def test_rows_of_different_sums_are_taken_only_if_asked_for(tmp_path: Path) -> None:
    rows = [[3, 2], [4, 2]]
    assert read_vote_matrix(stored(tmp_path, rows), unequal_rows=True).tolist() == rows
    with pytest.raises(DataError, match="no votes"):
        read_vote_matrix(stored(tmp_path, [[1, 1], [0, 0]]), unequal_rows=True)


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
