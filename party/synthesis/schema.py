"""The public schema of a table: its columns, their codes, the buckets of parents; and its file.

A schema is public input. None of it may be derived from private data: an extreme value that becomes
an edge, or a category that only one patient has, would leave the site uncharged. Its file::

    {"format": "pate-synthesis-schema/1", "min_rows": 200, "label": "income", "columns": [
      {"name": "age", "kind": "number", "integer": true, "edges": [17, 25, 45, 65, 100]},
      {"name": "sex", "kind": "category", "codes": ["Female", "Male"], "missing": true,
       "buckets": [0, 0, 1]}]}

``missing`` admits empty cells; they become the last code. ``buckets`` has a number per code, empty
cells included; codes with the same number are merged when the column is another's parent; without
it each code is its own bucket. A number between two edges belongs to the bin that begins with the
lower one, and the last bin has its upper edge, too.
"""

from __future__ import annotations

import hashlib
import json
import math
import unicodedata
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from pate.data.cells import plain_names
from pate.errors import SchemaError
from pate.exact import TextForm, in_text
from pate.exact import read as read_form
from pate.formats.synthesis_schema import MAX_SCHEMA, SUFFIX, TODO, parse, verify

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from numpy.typing import NDArray

#: The code of a missing cell, if the schema admits missing cells.
MISSING: Final = ""

MAX_ATTRIBUTES: Final = 128
MAX_CODES: Final = 4096
#: Longest name of an attribute or a code, in characters.
MAX_NAME: Final = 256
#: Largest accepted lower bound on the number of rows.
MAX_ROWS: Final = 10**9
#: Categories of characters not allowed in names: control characters, surrogates, line separators.
_NO_TEXT: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})
#: Texts that readers of tables treat as missing.
_EMPTY: Final = frozenset({"", "?", "nan"})
_DIGEST: Final = b"pate/v1/synthesis-domain\0"


@dataclass(frozen=True)
class Attribute:
    """One column and the meaning of its codes 0, 1, 2, ..."""

    name: str
    # names of the categories, or of the bins of a number. The name ``""`` is that of a missing
    # cell, if one may be missing; for a number it comes last
    codes: tuple[str, ...]
    # ``buckets[c]`` is the bucket of code c when the attribute is a parent
    buckets: tuple[int, ...]
    # for a number, increasing: bin b is [edges[b], edges[b+1]), and the last one includes its upper
    # edge. None for categories
    edges: tuple[float, ...] | None = None
    integer: bool = False  # whether values, and so released values, are whole numbers

    def __post_init__(self) -> None:
        where, several = f"column {self.name!r:.80}", len(self.codes)
        _check(0 < len(self.name) <= MAX_NAME, f"a column name of {len(self.name)} characters")
        for what, name in (
            ("the column name", self.name),
            *((f"{where}: the code", each) for each in self.codes),
        ):
            odd = any(unicodedata.category(each) in _NO_TEXT for each in name)
            _check(not odd, f"{what} {name!r:.80} has a control character or a lone surrogate")
        if self.edges is None:
            _check(not self.integer, f"{where} has no edges, so it is not a number")
        else:
            self._check_edges(self.edges, where)
        possible = f"1 to {MAX_CODES} are possible"
        _check(0 < several <= MAX_CODES, f"{where} has {several} codes; {possible}")
        longest = max(map(len, self.codes))
        _check(longest <= MAX_NAME, f"{where} has a code of more than {MAX_NAME} characters")
        _check(len(set(self.codes)) == several, f"{where} has a code that repeats")
        _check(self.codes != (MISSING,), f"{where} can only be missing")
        numbers = sorted(set(self.buckets))
        _check(
            len(self.buckets) == several and numbers == list(range(len(numbers))),
            f"{where} needs a bucket for each of its {several} codes, numbered from 0 without gaps",
        )

    def _check_edges(self, edges: tuple[float, ...], where: str) -> None:
        bins = len(self.codes) - (MISSING in self.codes)
        last = MISSING not in self.codes[:-1]
        _check(last, f"{where} is a number: its missing code comes last")
        has = f"{where} has {len(edges)} edges for {bins} bins; it needs {bins + 1}"
        _check(len(edges) == bins + 1, has)
        _check(
            all(map(math.isfinite, edges)) and all(a < b for a, b in pairwise(edges)),
            f"{where} has edges that do not increase, or are not finite numbers",
        )
        _check(
            not self.integer or all(float(e).is_integer() and abs(e) < 2**53 for e in edges),
            f"{where} holds whole numbers, so its edges must be whole, too",
        )

    @property
    def missing(self) -> int | None:
        """The code of a missing cell, or None if no cell may be missing."""
        return self.codes.index(MISSING) if MISSING in self.codes else None

    @cached_property
    def bucket_map(self) -> NDArray[np.intp]:
        """(codes,) the bucket of each code."""
        made = np.array(self.buckets, dtype=np.intp)
        made.setflags(write=False)
        return made


@dataclass(frozen=True)
class Domain:
    """The attributes of a table, the column of the classes, and a public lower bound on a party's rows."""

    attributes: tuple[Attribute, ...]
    min_rows: int
    label: str | None

    def __post_init__(self) -> None:
        columns = len(self.attributes)
        fits = 0 < columns <= MAX_ATTRIBUTES
        _check(fits, f"{columns} columns; 1 to {MAX_ATTRIBUTES} are possible")
        _check(len(set(self.names)) == columns, "two columns of one name")
        _check(
            1 <= self.min_rows <= MAX_ROWS,
            f"min_rows must be between 1 and {MAX_ROWS}, got {self.min_rows}",
        )
        known = self.label is None or self.label in self.names
        _check(known, f"the label {self.label!r:.80} is not one of the columns")

    def __len__(self) -> int:
        return len(self.attributes)

    @property
    def names(self) -> tuple[str, ...]:
        """Column names."""
        return tuple(attribute.name for attribute in self.attributes)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of codes per attribute."""
        return tuple(len(attribute.codes) for attribute in self.attributes)

    @property
    def bucket_counts(self) -> tuple[int, ...]:
        """Number of buckets per attribute."""
        return tuple(max(attribute.buckets) + 1 for attribute in self.attributes)

    def written(self, *, keep_label: bool) -> list[int]:
        """Return the attributes whose columns a file of rows has."""
        return [at for at, name in enumerate(self.names) if keep_label or name != self.label]

    @cached_property
    def digest(self) -> bytes:
        """32 bytes that identify the domain."""
        fields = {
            "attributes": [
                {
                    "name": a.name,
                    "codes": a.codes,
                    "buckets": a.buckets,
                    # The hexadecimal form is exact, so 1 and 1.0 are the same edge.
                    "edges": None if a.edges is None else [float(e).hex() for e in a.edges],
                    "integer": a.integer,
                }
                for a in self.attributes
            ],
            "min_rows": self.min_rows,
            "label": self.label,
        }
        text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(_DIGEST + text.encode()).digest()

    def check_codes(self, codes: NDArray[np.intp]) -> None:
        """Check that an array holds rows of this domain: (n, attributes) intp, each in range."""
        _check(
            codes.ndim == 2 and codes.shape[1] == len(self) and codes.dtype == np.intp,
            f"rows of {len(self)} codes were expected, got {codes.shape} {codes.dtype}",
        )
        outside = (codes < 0) | (codes >= np.array(self.sizes))
        if outside.any():
            row, column = (int(at) for at in np.argwhere(outside)[0])
            raise SchemaError(
                f"row {row + 1}, column {self.names[column]}: code {codes[row, column]} outside "
                f"0..{self.sizes[column] - 1}"
            )


# --- its file ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Number(TextForm):
    tag: ClassVar[str] = "kind"
    name: ClassVar[str] = "number"
    column: str = field(metadata=in_text(name="name"))
    edges: tuple[int | float, ...]
    integer: bool
    missing: bool
    buckets: tuple[int, ...] | None = field(default=None, metadata=in_text(omitted=True))

    def __post_init__(self) -> None:
        where = f"column {self.column!r:.80}"
        _check(len(self.edges) > 1, f"{where}: its edges must be at least two numbers")
        _check(
            all(abs(edge) < 2**53 for edge in self.edges),
            f"{where}: an edge must be a number below 2^53",
        )

    def attribute(self) -> Attribute:
        edges = tuple(map(float, self.edges))
        return _attribute(self, bin_names(edges), edges, self.integer)


@dataclass(frozen=True)
class _Category(TextForm):
    tag: ClassVar[str] = "kind"
    name: ClassVar[str] = "category"
    column: str = field(metadata=in_text(name="name"))
    codes: tuple[str, ...]
    missing: bool
    buckets: tuple[int, ...] | None = field(default=None, metadata=in_text(omitted=True))

    def __post_init__(self) -> None:
        where = f"column {self.column!r:.80}"
        for code, plain in zip(self.codes, plain_names(self.codes), strict=True):
            bare = code.strip()
            _check(
                bare.casefold() not in _EMPTY,
                f'{where}: {code!r:.80} reads as an empty cell; write "missing": true instead',
            )
            _check(code == bare, f"{where}: the code {code!r:.80} begins or ends with a space")
            _check(code == plain, f"{where}: write the code {code!r:.80} as {plain!r:.80}")

    def attribute(self) -> Attribute:
        return _attribute(self, self.codes)


@dataclass(frozen=True)
class _File:
    min_rows: int
    label: str | None
    columns: tuple[_Number | _Category, ...]


def read(path: Path, key: bytes | None = None) -> Domain:
    """Return the domain of a schema file, which the Ed25519 public key must have signed, if given."""
    content = _content(path)
    beside = path.with_name(path.name + SUFFIX)
    if key is not None and not beside.is_file():
        raise SchemaError(
            f"{path} is not signed: {beside} is missing; ask the coordinator, who creates it "
            "with `pate-server sign-schema`"
        )
    try:
        if key is not None:
            verify(content, _content(beside), key)
        return from_json(content)
    except SchemaError as error:
        raise SchemaError(f"{path}: {error}") from error


def from_json(content: bytes) -> Domain:
    """Return the domain that a schema file describes; SchemaError if it is none."""
    fields = {"label": None} | parse(content)
    listed = fields.get("columns")
    if isinstance(listed, list):
        fields["columns"] = [_filled(each) if isinstance(each, dict) else each for each in listed]
    _refuse_draft([("min_rows", fields.get("min_rows"))])
    file = read_form(_File, fields, error=SchemaError, what="no schema")
    return Domain(tuple(each.attribute() for each in file.columns), file.min_rows, file.label)


def bin_names(edges: tuple[float, ...]) -> tuple[str, ...]:
    """Return the names of the bins between edges.

    >>> bin_names((0, 1, 2.5))
    ('[0, 1)', '[1, 2.5]')
    """
    shown = [str(int(edge)) if float(edge).is_integer() else repr(edge) for edge in edges]
    names = [f"[{low}, {high})" for low, high in pairwise(shown)]
    return (*names[:-1], f"{names[-1][:-1]}]")


def _filled(column: dict[str, Any]) -> dict[str, Any]:
    """Return a column with the fields that it may lack."""
    where = f"column {column.get('name')!r:.80}"
    _refuse_draft([(where, column.get("edges")), (where, column.get("codes"))])
    plain = {"missing": False} | ({"integer": False} if column.get("kind") == "number" else {})
    return plain | column


def _refuse_draft(found: Iterable[tuple[str, object]]) -> None:
    for where, value in found:
        if isinstance(value, str) and value.startswith(TODO):
            raise SchemaError(f"{where} is not filled in yet: {value[:80]}")


def _attribute(
    column: _Number | _Category,
    codes: tuple[str, ...],
    edges: tuple[float, ...] | None = None,
    integer: bool = False,
) -> Attribute:
    codes += (MISSING,) if column.missing else ()
    buckets = tuple(range(len(codes))) if column.buckets is None else column.buckets
    return Attribute(column.column, codes, buckets, edges, integer)


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_SCHEMA + 1)
    except OSError as error:
        raise SchemaError(f"cannot read {path}: {error.strerror or error}") from error


def _check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise SchemaError(otherwise)
