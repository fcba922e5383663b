"""The public domain of a table: its attributes, their codes, and the buckets of parents.

A domain is public input. None of it may be derived from private data: an extreme value that becomes
an edge, or a category that only one patient has, would leave the site uncharged.
"""

from __future__ import annotations

import hashlib
import json
import math
import unicodedata
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.errors import SchemaError

if TYPE_CHECKING:
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

_WHAT_IS_NONE: Final = "a control character or a lone surrogate"

_DIGEST: Final = b"pate/v1/synthesis-domain\0"


@dataclass(frozen=True)
class Attribute:
    """One column and the meaning of its codes 0, 1, 2, ...

    Attributes:
        name: of the column.
        codes: names of the categories, or of the bins of a number. The name ``""`` is that of a
            missing cell, if one may be missing; for a number it comes last.
        buckets: ``buckets[c]`` is the bucket of code c when the attribute is a parent; buckets
            are 0 .. B-1 and each has a code.
        edges: for a number, the increasing bin edges, one more than there are bins: bin b is
            [edges[b], edges[b+1]), and the last one includes its upper edge. None for categories.
        integer: whether values, and so released values, are whole numbers.

    Raises:
        SchemaError: if these are inconsistent.
    """

    name: str
    codes: tuple[str, ...]
    buckets: tuple[int, ...]
    edges: tuple[float, ...] | None = None
    integer: bool = False

    def __post_init__(self) -> None:
        _check(0 < len(self.name) <= MAX_NAME, f"a column name of {len(self.name)} characters")
        _check(_is_text(self.name), f"the column name {self.name!r} has {_WHAT_IS_NONE}")
        _check(
            0 < len(self.codes) <= MAX_CODES,
            f"column {self.name!r} has {len(self.codes)} codes; 1 to {MAX_CODES} are possible",
        )
        _check(
            all(len(code) <= MAX_NAME for code in self.codes),
            f"column {self.name!r} has a code of more than {MAX_NAME} characters",
        )
        for code in self.codes:
            _check(_is_text(code), f"column {self.name!r}: the code {code!r} has {_WHAT_IS_NONE}")
        _check(
            len(set(self.codes)) == len(self.codes), f"column {self.name!r} has a code that repeats"
        )
        _check(self.codes != (MISSING,), f"column {self.name!r} can only be missing")
        _check(
            len(self.buckets) == len(self.codes)
            and set(self.buckets) == set(range(max(self.buckets) + 1)),
            f"column {self.name!r} needs a bucket for each of its {len(self.codes)} codes, "
            "numbered from 0 without gaps",
        )
        if self.edges is None:
            _check(not self.integer, f"column {self.name!r} has no edges, so it is not a number")
        else:
            self._check_edges(self.edges)

    def _check_edges(self, edges: tuple[float, ...]) -> None:
        bins = len(self.codes) - (MISSING in self.codes)
        _check(
            MISSING not in self.codes[:-1],
            f"column {self.name!r} is a number: its missing code comes last",
        )
        _check(
            len(edges) == bins + 1,
            f"column {self.name!r} has {len(edges)} edges for {bins} bins; it needs {bins + 1}",
        )
        _check(
            all(math.isfinite(edge) for edge in edges) and all(a < b for a, b in pairwise(edges)),
            f"column {self.name!r} has edges that do not increase, or are not finite numbers",
        )
        if self.integer:
            _check(
                all(float(edge).is_integer() and abs(edge) < 2**53 for edge in edges),
                f"column {self.name!r} holds whole numbers, so its edges must be whole, too",
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
    """The attributes of a table, and its other public properties.

    Attributes:
        attributes: in the order of the columns, of distinct names.
        min_rows: a public lower bound on the number of rows of every party.
        label: the column that a campaign's classes come from, or None.

    Raises:
        SchemaError: if these are inconsistent.
    """

    attributes: tuple[Attribute, ...]
    min_rows: int
    label: str | None

    def __post_init__(self) -> None:
        _check(
            0 < len(self.attributes) <= MAX_ATTRIBUTES,
            f"{len(self.attributes)} columns; 1 to {MAX_ATTRIBUTES} are possible",
        )
        _check(len(set(self.names)) == len(self.names), "two columns of one name")
        _check(
            1 <= self.min_rows <= MAX_ROWS,
            f"min_rows must be between 1 and {MAX_ROWS}, got {self.min_rows}",
        )
        _check(
            self.label is None or self.label in self.names,
            f"the label {self.label!r} is not one of the columns",
        )

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

    @property
    def bucket_maps(self) -> tuple[NDArray[np.intp], ...]:
        """Per attribute, (codes,) the bucket of each code."""
        return tuple(attribute.bucket_map for attribute in self.attributes)

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
        """Check that an array holds rows of this domain.

        Args:
            codes: (n, attributes) intp.

        Raises:
            SchemaError: for another shape or type, or a code out of range.
        """
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


def _is_text(name: str) -> bool:
    """Return whether a name can be stored in a file and displayed."""
    return not any(unicodedata.category(each) in _NO_TEXT for each in name)


def _check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise SchemaError(otherwise)
