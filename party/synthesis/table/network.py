"""A Bayesian network over the codes of a domain: conditional probabilities, sampling, its file.

An attribute's law depends on its parents only through their *buckets*. Attributes are drawn in a
topological order; keeping the first of a seed row and drawing the rest is how seeded synthesis
makes a candidate, and drawing all of them needs no row at all.
"""

from __future__ import annotations

import io
import json
import math
import zipfile
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, Self

import numpy as np

from party.synthesis.table.domain import MAX_ATTRIBUTES
from pate.errors import SchemaError, StateError
from pate.foreign import json_value, npy_array, npy_header, zip_file
from pate.runtime.home import write_file

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from party.synthesis.table.domain import Domain
    from party.synthesis.table.randomness import Randomness

#: Cells of one attribute's table.
MAX_TABLE: Final = 2**22
#: Cells of all tables together: 256 MiB.
MAX_CELLS: Final = 2**25
MAX_PARENTS: Final = 8
_FORMAT: Final = "pate-synthesis-model/1"
_MAX_HEADER: Final = 2**16
_MAX_FILE: Final = 8 * MAX_CELLS + 2**20
#: Cells that sampling processes at once.
_AT_A_TIME: Final = 2**22
#: Tolerance of the sum of a row of probabilities.
_TOLERANCE: Final = 1e-9


@dataclass(frozen=True, eq=False)
class Network:
    """A model of one row.

    Attributes:
        domain: of the rows.
        order: all attributes, parents before children.
        parents: per attribute its parents, which precede it in ``order``.
        tables: per attribute (configurations of its parents' buckets, codes) float64, the
            probability of each code; a configuration counts the buckets in mixed radix, the last
            parent fastest.

    Raises:
        SchemaError: if these are inconsistent, or a table has invalid probabilities.
    """

    domain: Domain
    order: tuple[int, ...]
    parents: tuple[tuple[int, ...], ...]
    tables: tuple[NDArray[np.float64], ...]

    def __post_init__(self) -> None:
        m = len(self.domain)
        _check(
            sorted(self.order) == list(range(m)), "its order is not a permutation of all attributes"
        )
        _check(len(self.parents) == m == len(self.tables), "it needs parents and a table for each")
        place = {attribute: at for at, attribute in enumerate(self.order)}
        _check(
            all(
                0 <= parent < m and place[parent] < place[child]
                for child, found in enumerate(self.parents)
                for parent in found
            ),
            "a parent does not come before its child",
        )
        _check(all(len(set(p)) == len(p) for p in self.parents), "a parent is named twice")
        for shape, table in zip(shapes(self.domain, self.parents), self.tables, strict=True):
            _check(
                table.dtype == np.float64 and table.shape == shape,
                f"a table is {table.shape} {table.dtype}, not {shape} float64",
            )
            # The comparison is false for NaN, too.
            _check(
                bool((table >= 0).all() and (np.abs(table.sum(axis=1) - 1) <= _TOLERANCE).all()),
                "a table has values that are not probabilities",
            )
            table.setflags(write=False)

    @cached_property
    def _cumulative(self) -> tuple[NDArray[np.float64], ...]:
        sums = (np.cumsum(table, axis=1) for table in self.tables)
        # Divided by itself the last sum is 1 exactly, and no uniform number reaches it.
        return tuple(s / s[:, -1:] for s in sums)

    def configurations(self, attribute: int, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return the index into ``tables[attribute]`` of each row.

        Args:
            attribute: its number in the domain.
            rows: (n, m) codes; only its parents' are read.

        Returns:
            (n,) intp.
        """
        return configurations(self.domain, self.parents[attribute], rows)

    def conditionals(self, rows: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return the probability of each value given its parents' in the same row.

        Args:
            rows: (n, m) codes.

        Returns:
            (n, m) float64; column r belongs to attribute ``order[r]``. Rows with the same values
            have the same floats.
        """
        found = np.empty(rows.shape, dtype=np.float64)
        for r, i in enumerate(self.order):
            found[:, r] = self.tables[i][self.configurations(i, rows), rows[:, i]]
        return found

    def resample(
        self,
        rows: NDArray[np.intp],
        resampled: NDArray[np.intp] | int,
        randomness: Randomness,
    ) -> NDArray[np.intp]:
        """Return copies of ``rows`` with the last attributes of ``order`` redrawn.

        Args:
            rows: (n, m) codes.
            resampled: how many are drawn, 0 to m, for all rows or for each, (n,) intp.
            randomness: to draw with.

        Raises:
            SchemaError: if the rows are not of this domain, or ``resampled`` is outside 0..m.
        """
        self.domain.check_codes(rows)
        m = len(self.order)
        omega = np.broadcast_to(np.asarray(resampled, dtype=np.intp), (len(rows),))
        _check(bool(((omega >= 0) & (omega <= m)).all()), f"resample 0 to {m} attributes")
        made = rows.copy()
        same = bool(len(rows)) and bool((omega == omega[0]).all())
        for r, i in enumerate(self.order):
            if same:
                if r >= m - omega[0]:
                    made[:, i] = self._draw(i, made, randomness)
                continue
            chosen = np.flatnonzero(r >= m - omega)
            if chosen.size:
                made[chosen, i] = self._draw(i, made[chosen], randomness)
        return made

    def sample(self, count: int, randomness: Randomness) -> NDArray[np.intp]:
        """Return ``count`` rows drawn from the model, (count, m) codes; no data is read."""
        m = len(self.order)
        return self.resample(np.zeros((count, m), dtype=np.intp), m, randomness)

    def _draw(
        self, attribute: int, rows: NDArray[np.intp], randomness: Randomness
    ) -> NDArray[np.intp]:
        """Draw the attribute for each row given its parents."""
        sums = self._cumulative[attribute]
        at = self.configurations(attribute, rows)
        where = randomness.uniform(len(rows))
        drawn = np.empty(len(rows), dtype=np.intp)
        step = max(1, _AT_A_TIME // sums.shape[1])
        for first in range(0, len(rows), step):
            part = slice(first, first + step)
            drawn[part] = (where[part, None] >= sums[at[part]]).sum(axis=1)
        return drawn

    def to_bytes(self) -> bytes:
        """Return the model as an ``.npz`` archive."""
        header = {
            "format": _FORMAT,
            "domain": self.domain.digest.hex(),
            "order": self.order,
            "parents": self.parents,
        }
        arrays = {f"table_{i}": table for i, table in enumerate(self.tables)}
        text = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
        file = io.BytesIO()
        np.savez(file, allow_pickle=False, header=text, **arrays)
        return file.getvalue()

    def save(self, path: Path) -> None:
        """Write the model to ``path`` atomically.

        Raises:
            DiskError: if it cannot be written.
        """
        write_file(path, self.to_bytes())

    @classmethod
    def load(cls, path: Path, domain: Domain) -> Self:
        """Read a model of this domain.

        Raises:
            SchemaError: if it is the model of another domain.
            StateError: if it is not a model of this version, is damaged, or is too large.
        """
        try:
            with path.open("rb") as file:
                # A device has no size, and no end.
                content = file.read(_MAX_FILE + 1)
            if len(content) > _MAX_FILE:
                raise StateError("it is too large for a model")
            return cls.from_bytes(content, domain)
        except OSError as error:
            raise StateError(f"cannot read {path}: {error.strerror or error}") from error
        except (SchemaError, StateError) as error:
            raise type(error)(f"{path}: {error}") from error

    @classmethod
    def from_bytes(cls, content: bytes, domain: Domain) -> Self:
        """Read what :meth:`to_bytes` wrote.

        Raises:
            SchemaError: if it is the model of another domain.
            StateError: if it is not a model of this version, is damaged, or is too large.
        """
        try:
            with zip_file(io.BytesIO(content)) as file:
                header = json_value(_entry(file, "header", (None,), "uint8").tobytes())
                if not isinstance(header, dict) or header.get("format") != _FORMAT:
                    raise StateError(
                        f"not a model of the format {_FORMAT}; made by another version?"
                    )
                if header["domain"] != domain.digest.hex():
                    raise SchemaError("it is the model of another schema than this one")
                order, parents = _whole(header["order"]), tuple(map(_whole, header["parents"]))
                if len(parents) != len(domain):
                    raise StateError("a model that is damaged: its parents")
                tables = tuple(
                    _entry(file, f"table_{i}", shape, "float64").astype(np.float64)
                    for i, shape in enumerate(_claimed_shapes(domain, parents))
                )
        except (ValueError, TypeError) as error:
            raise StateError(f"not a model, or a damaged one ({error!s:.200})") from error
        try:
            return cls(domain, order, parents, tables)
        except SchemaError as error:
            raise StateError(f"a model that is damaged: {error}") from error


def configurations(
    domain: Domain, parents: tuple[int, ...], rows: NDArray[np.intp]
) -> NDArray[np.intp]:
    """Return (n,) intp, the mixed-radix number of each row's buckets of ``parents``."""
    found = np.zeros(len(rows), dtype=np.intp)
    for parent in parents:
        found *= domain.bucket_counts[parent]
        found += domain.bucket_maps[parent][rows[:, parent]]
    return found


def shapes(domain: Domain, parents: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, int], ...]:
    """Return the shape of each attribute's table.

    Raises:
        SchemaError: if a table, or all of them, would be too large.
    """
    m = len(domain)
    _check(
        all(len(found) <= MAX_PARENTS and all(0 <= p < m for p in found) for found in parents),
        f"an attribute has more than {MAX_PARENTS} parents, or an invalid one",
    )
    counts = domain.bucket_counts
    made = tuple(
        (math.prod(counts[p] for p in found), size)
        for found, size in zip(parents, domain.sizes, strict=True)
    )
    _check(
        all(rows * codes <= MAX_TABLE for rows, codes in made),
        f"a table would have more than {MAX_TABLE} cells",
    )
    _check(
        sum(rows * codes for rows, codes in made) <= MAX_CELLS,
        f"its tables would have more than {MAX_CELLS} cells",
    )
    return made


def _claimed_shapes(
    domain: Domain, parents: tuple[tuple[int, ...], ...]
) -> tuple[tuple[int, int], ...]:
    try:
        return shapes(domain, parents)
    except SchemaError as error:
        raise StateError(f"a model that is damaged: {error}") from error


def _entry(
    file: zipfile.ZipFile, name: str, shape: tuple[int | None, ...], kind: str
) -> NDArray[np.generic]:
    """Read one array after checking its header; ``None`` is a header's length."""
    info = file.getinfo(f"{name}.npy")
    # Only as written by to_bytes: compression could hide errors and bombs.
    if info.compress_type != zipfile.ZIP_STORED or info.flag_bits:
        raise ValueError(f"{name} is compressed")
    with file.open(info) as content:
        header = npy_header(content)
        found = header.shape
        if header.dtype != np.dtype(kind).newbyteorder("<") or header.column_major:
            raise ValueError(f"{name} is {found} {header.dtype}")
        if len(found) != len(shape):
            raise ValueError(f"{name} is {found}, not {shape}")
        for held, wanted in zip(found, shape, strict=True):
            if held != wanted and (wanted is not None or not 0 < held <= _MAX_HEADER):
                raise ValueError(f"{name} is {found}, not {shape}")
        return npy_array(content, header)


def _whole(found: object) -> tuple[int, ...]:
    if not isinstance(found, list) or len(found) > MAX_ATTRIBUTES:
        raise ValueError("a list of whole numbers")
    if not all(type(value) is int for value in found):
        raise ValueError("a list of whole numbers")
    return tuple(found)


def _check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise SchemaError(f"an inconsistent model: {otherwise}")
