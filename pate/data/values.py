"""Inputs without labels, labelled data sets, and the hashes that identify them.

Three kinds of inputs exist: :class:`Images`, :class:`Table` and what an encoder made of images or texts,
:class:`~pate.data.embeddings.Embeddings`. All are plain values over numpy arrays; :mod:`pate.data.read`
reads them from files.
"""

from __future__ import annotations

import hashlib
import math
import weakref
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import NDArray

from pate.data.cells import parse_number, plain_categories, plain_truth
from pate.data.embeddings import Embeddings
from pate.errors import DataError, SchemaError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

#: A column of a table: float64 with NaN for missing, or str with "" for missing.
Column: TypeAlias = NDArray[np.float64] | NDArray[np.str_]
#: Low and high: the values of deep images that become black and white.
Window: TypeAlias = tuple[int, int]


#: Values of a window lie within these: 32 bits with a sign, as scanners export them.
_LARGEST: Final = 2**31 - 1


def check_window(window: Window) -> Window:
    """Return a validated window.

    Raises:
        UsageError: if the low end is not below the high one, or an end is too large.
    """
    low, high = window
    if not -_LARGEST <= low < high <= _LARGEST:
        raise UsageError(f"a window goes from a lower to a higher value, got {low} to {high}")
    return low, high


def is_numeric(column: Column) -> TypeGuard[NDArray[np.float64]]:
    """Return whether a column has numbers, not categories."""
    return column.dtype == np.float64


def finite_number(cell: str) -> float:
    """Return the number in a cell, 1 or 0 for a truth value, NaN if it is none or not finite.

    >>> finite_number("12.5"), finite_number("12,5"), finite_number(">150"), finite_number("inf")
    (12.5, nan, nan, nan)
    >>> finite_number("True")
    1.0
    """
    number = parse_number(plain_truth(cell))
    return number if number is not None and math.isfinite(number) else math.nan


@dataclass(frozen=True, eq=False)
class Images:
    """Images of one size.

    Attributes:
        pixels: (n, height, width, channels) uint8, channels 1 or 3.
        window: the values that are black and white in files of more than 8 bits a channel, or None
            if none were stated. It describes how the pixels were made, so hashes of rows do not include it.
    """

    pixels: NDArray[np.uint8]
    window: Window | None = None

    def __post_init__(self) -> None:
        if self.pixels.ndim != 4 or self.pixels.dtype != np.uint8:
            raise DataError(
                "images must be (n, height, width, channels) uint8, "
                f"got {self.pixels.shape} {self.pixels.dtype}"
            )
        if self.pixels.shape[3] not in (1, 3):
            raise DataError(f"images have 1 or 3 channels, got {self.pixels.shape[3]}")
        if self.window is not None:
            check_window(self.window)
        self.pixels.setflags(write=False)

    def __len__(self) -> int:
        return len(self.pixels)

    @property
    def size(self) -> tuple[int, int, int]:
        """Height, width, channels."""
        _, height, width, channels = self.pixels.shape
        return height, width, channels

    def take(self, rows: NDArray[np.integer] | Sequence[int]) -> Images:
        """Return the inputs at ``rows``, in that order."""
        return Images(self.pixels[np.asarray(rows, dtype=np.int64)], self.window)

    def schema(self) -> str:
        """Return one line that two sides compare: kind, size and window."""
        line = "images {}x{}x{}".format(*self.size)
        return line if self.window is None else "{} window {} {}".format(line, *self.window)

    def row_hashes(self) -> list[bytes]:
        """Return one SHA-256 digest per input."""
        head = "images {}x{}x{}".format(*self.size).encode()
        return [hashlib.sha256(head + b"\0" + row.tobytes()).digest() for row in self.pixels]


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of named columns, numbers or categories.

    Attributes:
        names: column names, in order, unique.
        columns: one array of length n per name: float64 (NaN is missing) or str ("" is missing).
    """

    names: tuple[str, ...]
    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        if not self.names or len(self.names) != len(self.columns):
            raise DataError("a table needs at least one column, and a name for each")
        if len(set(self.names)) != len(self.names):
            raise DataError(f"column names repeat: {sorted(self.names)}")
        for name, column in zip(self.names, self.columns, strict=True):
            if column.ndim != 1 or len(column) != len(self.columns[0]):
                raise DataError(f"column {name!r} has shape {column.shape}")
            if is_numeric(column):
                if np.isinf(column).any():
                    raise DataError(f"column {name!r} holds an infinite number")
            elif column.dtype.kind != "U" and not {object, *map(type, column)} <= {object, str}:
                raise DataError(f"column {name!r} is {column.dtype}, neither float64 nor str")
            column.setflags(write=False)

    def __len__(self) -> int:
        return len(self.columns[0])

    def take(self, rows: NDArray[np.integer] | Sequence[int]) -> Table:
        """Return the inputs at ``rows``, in that order."""
        at = np.asarray(rows, dtype=np.int64)
        return Table(self.names, tuple(column[at] for column in self.columns))

    def schema(self) -> str:
        """Return one line that two sides compare: column names and kinds."""
        kinds = ("number" if is_numeric(c) else "category" for c in self.columns)
        return "table " + ", ".join(f"{n}:{k}" for n, k in zip(self.names, kinds, strict=True))

    def plain(self) -> Table:
        """Return this table with canonical texts of categories; itself if it has them already.

        For comparing tables whose columns may have been written with different types.
        """
        columns = tuple(map(_plain, self.columns))
        same = all(made is held for made, held in zip(columns, self.columns, strict=True))
        return self if same else Table(self.names, columns)

    def only(self, names: Sequence[str]) -> Table:
        """Return this table with the given columns, in that order.

        Raises:
            SchemaError: if a column is missing.
        """
        if tuple(names) == self.names:
            return self
        held = dict(zip(self.names, self.columns, strict=True))
        missing = [name for name in names if name not in held]
        if missing:
            raise SchemaError(f"columns are missing: {', '.join(missing)}")
        return Table(tuple(names), tuple(held[name] for name in names))

    def aligned(
        self, names: Sequence[str], numeric: Sequence[bool], *, cell_by_cell: bool = False
    ) -> Table:
        """Return this table with the given columns, in that order and of those kinds.

        Args:
            names: the columns wanted.
            numeric: for each, whether it must be numbers; a number becomes a category by its
                shortest decimal text.
            cell_by_cell: whether text that is not a number counts as missing, as in a party's own
                records, where no cell may change how another is read.

        Raises:
            SchemaError: if a column is missing, or text in a column of numbers is none and may not be
                missing.
        """
        held = self.only(names).columns
        made = [
            _as_kind(name, column, number, cell_by_cell)
            for name, column, number in zip(names, held, numeric, strict=True)
        ]
        return Table(tuple(names), tuple(made))

    def row_hashes(self) -> list[bytes]:
        """Return one SHA-256 digest per input."""
        head = self.schema().encode()
        cells = [_canonical(column) for column in self.columns]
        return [
            hashlib.sha256(head + b"\0" + b"".join(row)).digest()
            for row in zip(*cells, strict=True)
        ]


def _plain(column: Column) -> Column:
    if is_numeric(column):
        return column
    cells = column.tolist()
    plain = plain_categories(cells)
    if all(cell == made for cell, made in plain.items()):
        return column
    return np.array([plain[cell] for cell in cells], dtype=column.dtype.char)


def _as_kind(name: str, column: Column, numeric: bool, cell_by_cell: bool) -> Column:
    if is_numeric(column) == numeric:
        return column
    if not numeric:
        return np.array(
            ["" if np.isnan(v) else f"{v:.15g}" for v in column.tolist()], dtype=np.str_
        )
    cells = column.tolist()
    if not cell_by_cell and any(cell and parse_number(cell) is None for cell in set(cells)):
        raise SchemaError(f"column {name!r} should be numbers but holds other text")
    numbers = {cell: finite_number(cell) for cell in set(cells)}
    return np.array([numbers[cell] for cell in cells], dtype=np.float64)


def _canonical(column: Column) -> list[bytes]:
    """Return each cell as bytes, prefixed by their length and unique within its column kind."""
    if is_numeric(column):
        # One NaN and one zero, whatever the bits they came with.
        plain = np.where(np.isnan(column), np.nan, column + 0.0).astype("<f8").tobytes()
        return [plain[at : at + 8] for at in range(0, len(plain), 8)]
    texts = [str(cell).encode() for cell in column.tolist()]
    return [len(text).to_bytes(4, "big") + text for text in texts]


#: Inputs hashed at once.
_AT_A_TIME = 4_096

#: The inputs that queries are taken from.
Inputs: TypeAlias = Images | Table | Embeddings


#: Digests of inputs that are still in memory; they cannot be written to.
_DIGESTS: weakref.WeakKeyDictionary[Inputs, bytes] = weakref.WeakKeyDictionary()


def content_hash(inputs: Inputs) -> bytes:
    """Return the SHA-256 digest that identifies a public set: its schema and its rows in order."""
    if inputs in _DIGESTS:
        return _DIGESTS[inputs]
    whole = hashlib.sha256(b"pate public set v1\0" + inputs.schema().encode() + b"\0")
    # In blocks: all digests of a large set would take more memory than small inputs.
    for first in range(0, len(inputs), _AT_A_TIME):
        some = inputs.take(range(first, min(first + _AT_A_TIME, len(inputs))))
        whole.update(b"".join(some.row_hashes()))
    return _DIGESTS.setdefault(inputs, whole.digest())


@dataclass(frozen=True, eq=False)
class Dataset:
    """Inputs with labels, and with groups where people have several rows.

    Attributes:
        inputs: n images or table rows.
        labels: (n,) int64, indices into ``classes``; all 0 if there are ``answers``.
        classes: class names, sorted as the campaign lists them; of several labels their names.
        groups: (n,) str, the group (patient) of each row, or None.
        answers: in place of one class a record: (n, labels) bool, which of several labels it has, or
            (n,) float64, a finite number.
        said: (n,) str, the label of each record as its file has it, by which the record is known whatever
            class list it counts in. None: the name of its class.
    """

    inputs: Inputs
    labels: NDArray[np.int64]
    classes: tuple[str, ...]
    groups: NDArray[np.str_] | None = None
    answers: NDArray[np.bool_] | NDArray[np.float64] | None = None
    said: NDArray[np.str_] | None = None

    def __post_init__(self) -> None:
        if self.labels.shape != (len(self.inputs),):
            raise DataError(f"{len(self.inputs)} inputs but labels of shape {self.labels.shape}")
        if self.groups is not None and self.groups.shape != self.labels.shape:
            raise DataError(f"{len(self.inputs)} inputs but groups of shape {self.groups.shape}")
        if self.said is not None and self.said.shape != self.labels.shape:
            raise DataError(f"{len(self.inputs)} inputs but names of shape {self.said.shape}")
        if len(set(self.classes)) != len(self.classes):
            raise DataError(f"class names repeat: {self.classes}")
        self._check_answers()
        self.labels.setflags(write=False)

    def _check_answers(self) -> None:
        if self.answers is None:
            if self.labels.size and not (
                0 <= self.labels.min() <= self.labels.max() < len(self.classes)
            ):
                raise DataError("a label lies outside the class list")
            return
        shape = (
            (len(self.inputs),) if self.kind == "number" else (len(self.inputs), len(self.classes))
        )
        if self.answers.shape != shape or self.labels.any():
            raise DataError(f"answers of shape {self.answers.shape} for {len(self.inputs)} inputs")
        wanted = np.float64 if self.kind == "number" else np.bool_
        if self.answers.dtype != wanted or not np.isfinite(self.answers).all():
            raise DataError("answers are labels that a record has or not, or finite numbers")
        self.answers.setflags(write=False)

    @property
    def kind(self) -> Literal["class", "labels", "number"]:
        """What is known of a record: its class, which of several labels it has, or a number."""
        if self.answers is None:
            return "class"
        return "labels" if self.answers.ndim == 2 else "number"

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: NDArray[np.integer] | Sequence[int]) -> Dataset:
        """Return the records at ``rows``, in that order."""
        at = np.asarray(rows, dtype=np.int64)
        groups = None if self.groups is None else self.groups[at]
        answers = None if self.answers is None else self.answers[at]
        said = None if self.said is None else self.said[at]
        return Dataset(self.inputs.take(at), self.labels[at], self.classes, groups, answers, said)

    def row_hashes(self) -> list[bytes]:
        """Return one SHA-256 digest per record: its input, and its label as its file has it or its answer.

        Class lists do not enter: a coordinator chooses how its list names a label.
        """
        if self.answers is not None:
            return [
                hashlib.sha256(digest + hashlib.sha256(said).digest()).digest()
                for digest, said in zip(self.inputs.row_hashes(), self._answer_bytes(), strict=True)
            ]
        return [
            hashlib.sha256(digest + name.encode()).digest()
            for digest, name in zip(self.inputs.row_hashes(), self._names().tolist(), strict=True)
        ]

    def _names(self) -> NDArray[np.str_]:
        """Return (n,) str, the label by which each record is known."""
        if self.said is not None:
            return self.said
        return np.array(self.classes, dtype=np.str_)[self.labels]

    def _answer_bytes(self) -> list[bytes]:
        """Return each answer as bytes that depend on no order of labels, and are of one kind only."""
        assert self.answers is not None  # noqa: S101 - of several labels, or numbers
        if self.kind == "number":
            return [
                b"number\0" + np.float64(each + 0.0).tobytes() for each in self.answers.tolist()
            ]
        of_name = sorted(range(len(self.classes)), key=lambda at: self.classes[at])
        return [
            b"labels\0" + "\0".join(self.classes[at] for at in of_name if row[at]).encode()
            for row in self.answers.tolist()
        ]

    def with_classes(self, classes: Sequence[str]) -> Dataset:
        """Return the same records with labels counted in another class list.

        Raises:
            SchemaError: if a class that has records is not in the list; of several labels, if the list
                has others.
        """
        if self.kind == "number":
            return replace(self, classes=tuple(classes))
        if self.kind == "labels":
            if set(classes) != set(self.classes):
                differing = sorted(set(classes) ^ set(self.classes))
                raise SchemaError(
                    f"the data has the labels {', '.join(self.classes):.200}, wanted are "
                    f"{', '.join(classes):.200}; these are only in one: {', '.join(differing):.200}"
                )
            assert self.answers is not None  # noqa: S101 - of several labels
            moved_to = [self.classes.index(name) for name in classes]
            return replace(self, classes=tuple(classes), answers=self.answers[:, moved_to])
        place = {name: at for at, name in enumerate(classes)}
        present = {self.classes[at] for at in np.unique(self.labels).tolist()}
        unknown = sorted(present - place.keys())
        if unknown:
            raise SchemaError(f"the data has classes that the list has not: {', '.join(unknown)}")
        moved = np.array([place.get(name, -1) for name in self.classes], dtype=np.int64)
        return replace(self, labels=moved[self.labels], classes=tuple(classes), said=self._names())


def batch_hash(rows: Sequence[bytes]) -> bytes:
    """Return the SHA-256 digest that identifies an ordered batch of queries.

    Args:
        rows: the queries' own hashes, 32 bytes each.
    """
    return hashlib.sha256(b"pate batch v1\0" + b"".join(rows)).digest()
