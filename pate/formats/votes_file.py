"""Votes and labels in arrays, and in NumPy ``.npy`` files, never with pickled objects.

A vote matrix is (queries, classes): how many teachers chose each class. Whole numbers stored as floats
are accepted, as in published matrices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pate.errors import DataError
from pate.foreign import npy_array, npy_header
from pate.mechanisms.contract import MOST_TEACHERS

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from pate.votes import Counts

#: Cells that one matrix may have: half a GiB of counts.
MOST_CELLS: Final = 1 << 26


def read_vote_matrix(path: Path) -> Counts:
    """Return votes as (queries, classes) int64.

    ``path``: a ``.npy`` file of a matrix of counts, integers or whole floats.
    """
    return vote_matrix(load_numbers(path), path)


def vote_matrix(found: NDArray[Any], path: Path | str = "the array of votes") -> Counts:
    """Return an array of votes as a copy, (queries, classes) int64.

    ``found``: a matrix of counts, integers or whole floats.
    """
    if found.dtype.kind not in "iuf":
        raise DataError(f"{path} holds {_kind(found.dtype)}, not numbers")
    if found.ndim == 1 and found.dtype.kind in "iu":
        raise DataError(
            f"{path} holds {len(found)} whole numbers in a row: labels, it seems, not votes; "
            "votes are a matrix of (queries, classes) counts"
        )
    if found.ndim != 2 or found.shape[1] < 2 or not len(found):
        raise DataError(
            f"{path} has shape {found.shape}; votes are a matrix of (queries, classes), "
            "at least one query and two classes"
        )
    votes = _whole(found, "votes", path)
    sums = votes.sum(axis=1)
    if not sums.all():
        raise DataError(f"{path}: query {int(sums.argmin())} has no votes at all; leave it out")
    if (sums != sums[0]).any():
        other = int((sums != sums[0]).argmax())
        raise DataError(
            f"{path}: query 0 has {sums[0]} votes, query {other} has {sums[other]}; "
            "every query must have been answered by the same number of teachers"
        )
    return votes


def read_label_vector(path: Path, *, queries: int, classes: int) -> NDArray[np.int64]:
    """Return one label per query, (queries,) int64, of a ``.npy`` file of integers or whole floats."""
    found = load_numbers(path)
    if found.shape != (queries,):
        raise DataError(f"{path} has shape {found.shape}; one label for each of {queries} queries")
    labels = _whole(found, "labels", path)
    if (labels >= classes).any():
        at = int((labels >= classes).argmax())
        raise DataError(f"{path}: label {labels[at]} of query {at} is none of {classes} classes")
    return labels


def load_numbers(path: Path) -> NDArray[Any]:
    """Return the array of a ``.npy`` file whose header was checked against its length first."""
    try:
        length = path.stat().st_size
        with path.open("rb") as file:
            header = npy_header(file)
            if header.dtype.kind not in "iuf":
                raise DataError(
                    f"{path} holds {_kind(header.dtype)}, not numbers; save it again as integers"
                )
            if max(header.cells, *header.shape, 0) > MOST_CELLS:
                raise DataError(f"{path} has shape {header.shape}; at most {MOST_CELLS} are read")
            if header.bytes > length - file.tell():
                raise DataError(
                    f"{path} is truncated: {header.shape} needs more bytes; copy it again"
                )
            return npy_array(file, header)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise DataError(f"{path} is no .npy file: {error}; make one with numpy.save") from error


def _kind(dtype: np.dtype[Any]) -> str:
    return "Python objects, which are never loaded" if dtype.hasobject else str(dtype)


def _whole(found: NDArray[Any], what: str, path: Path | str) -> NDArray[np.int64]:
    """Return counts as int64, or raise for a cell that is not a count."""
    if found.dtype.kind == "f":
        # The limit below cannot be represented as float16.
        found = found.astype(np.promote_types(found.dtype, np.float64))
        if not np.isfinite(found).all():
            _wrong(found, ~np.isfinite(found), f"{what} must be whole numbers", path)
        if (found != np.floor(found)).any():
            hint = f"{what} must be whole numbers"
            if found.ndim == 2 and np.allclose(found.sum(axis=1), 1.0, atol=1e-3):
                hint = "the rows are shares that sum to 1: multiply them by the number of teachers"
            _wrong(found, found != np.floor(found), hint, path)
    if (found < 0).any():
        _wrong(found, found < 0, f"{what} are not negative", path)
    if (found > MOST_TEACHERS).any():
        _wrong(found, found > MOST_TEACHERS, f"{what} are at most {MOST_TEACHERS}", path)
    return np.array(found, dtype=np.int64, order="C")


def _wrong(found: NDArray[Any], bad: NDArray[np.bool_], why: str, path: Path | str) -> None:
    at = tuple(int(index) for index in np.unravel_index(int(bad.argmax()), found.shape))
    place = f"query {at[0]}" + (f", class {at[1]}" if len(at) > 1 else "")
    raise DataError(f"{path}: {place} is {found[at]!s}; {why}")
