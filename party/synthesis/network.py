"""A Bayesian network over the codes of a schema: its tables of counts, sampling, and its file.

An attribute's law depends on its parents only through their *buckets*. Attributes are drawn in a
topological order; keeping the first of a seed row and drawing the rest is how seeded synthesis
makes a candidate, and drawing all of them needs no row at all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from pate.errors import SchemaError, StateError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction
    from pathlib import Path

    from numpy.typing import NDArray

    from party.synthesis.schema import Domain
    from pate.noise.exact import Noise
    from pate.noise.lanes import Lanes

#: Cells of one attribute's table.
MAX_TABLE: Final = 2**22
#: Cells of all tables together: 256 MiB.
MAX_CELLS: Final = 2**25
MAX_PARENTS: Final = 8
_MAX_FILE: Final = 8 * MAX_CELLS + 2**20
#: Cells that sampling processes at once.
_AT_A_TIME: Final = 2**22
#: Tolerance of the sum of a row of probabilities.
_TOLERANCE: Final = 1e-9
#: Laws that scores are computed with are multiples of 1 / UNIT, so that scores are integers.
UNIT: Final = 2**20


@dataclass(frozen=True, eq=False)
class Network:
    """A model of one row."""

    domain: Domain
    order: tuple[int, ...]  # all attributes, parents before children
    parents: tuple[tuple[int, ...], ...]
    # per attribute (configurations of its parents' buckets, codes) float64, the probability of each
    # code; a configuration counts the buckets in mixed radix, the last parent fastest
    tables: tuple[NDArray[np.float64], ...]

    def __post_init__(self) -> None:
        m = len(self.domain)
        permuted = sorted(self.order) == list(range(m))
        _check(permuted, "its order is not a permutation of all attributes")
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
        """Return (n,) the index into ``tables[attribute]`` of each row; only its parents are read."""
        return configurations(self.domain, self.parents[attribute], rows)

    def conditionals(self, rows: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return (n, m) the probability of each value given its parents'; column r: ``order[r]``."""
        found = np.empty(rows.shape, dtype=np.float64)
        for r, i in enumerate(self.order):
            found[:, r] = self.tables[i][self.configurations(i, rows), rows[:, i]]
        return found

    def resample(
        self, rows: NDArray[np.intp], resampled: NDArray[np.intp] | int, lanes: Lanes
    ) -> NDArray[np.intp]:
        """Return copies of (n, m) ``rows``, the last ``resampled`` attributes of ``order`` redrawn."""
        self.domain.check_codes(rows)
        m = len(self.order)
        omega = np.broadcast_to(np.asarray(resampled, dtype=np.intp), (len(rows),))
        _check(bool(((omega >= 0) & (omega <= m)).all()), f"resample 0 to {m} attributes")
        made = rows.copy()
        for r, i in enumerate(self.order):
            chosen = np.flatnonzero(r >= m - omega)
            if chosen.size == len(rows):  # no copy of them all
                made[:, i] = self._draw(i, made, lanes)
            elif chosen.size:
                made[chosen, i] = self._draw(i, made[chosen], lanes)
        return made

    def sample(self, count: int, lanes: Lanes) -> NDArray[np.intp]:
        """Return ``count`` rows drawn from the model, (count, m) codes; no data is read."""
        m = len(self.order)
        return self.resample(np.zeros((count, m), dtype=np.intp), m, lanes)

    def _draw(self, attribute: int, rows: NDArray[np.intp], lanes: Lanes) -> NDArray[np.intp]:
        """Draw the attribute for each row given its parents."""
        sums = self._cumulative[attribute]
        at = self.configurations(attribute, rows)
        # Uniform multiples of 2^-53 in [0, 1).
        where = lanes.below(2**53, len(rows)) * 2.0**-53
        drawn = np.empty(len(rows), dtype=np.intp)
        step = max(1, _AT_A_TIME // sums.shape[1])
        for first in range(0, len(rows), step):
            part = slice(first, first + step)
            drawn[part] = (where[part, None] >= sums[at[part]]).sum(axis=1)
        return drawn

    def to_bytes(self) -> bytes:
        """Return the model as a safetensors file: one model has one text."""
        from safetensors.numpy import save

        width = max(1, *map(len, self.parents))
        padded = [[*found, *[-1] * (width - len(found))] for found in self.parents]
        arrays: dict[str, NDArray[Any]] = {
            "domain": np.frombuffer(self.domain.digest, dtype=np.uint8),
            "order": np.array(self.order, dtype=np.int64),
            "parents": np.array(padded, dtype=np.int64),
            **{f"table_{i}": np.ascontiguousarray(table) for i, table in enumerate(self.tables)},
        }
        content: bytes = save(arrays)
        return content

    @classmethod
    def load(cls, path: Path, domain: Domain) -> Self:
        """Read a model of this domain; SchemaError for one of another, StateError for a damaged file."""
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
        """Read what :meth:`to_bytes` wrote; raises as :meth:`load`."""
        from safetensors import SafetensorError
        from safetensors.numpy import load

        tables = [f"table_{i}" for i in range(len(domain))]
        try:
            arrays = load(content)
        except (SafetensorError, ValueError, KeyError, TypeError) as error:
            raise StateError(f"not a model, or a damaged one ({error!s:.200})") from error
        if not {"domain", "order", "parents"} <= arrays.keys():
            raise StateError("not a model of this format; made by another version?")
        if arrays["domain"].tobytes() != domain.digest:
            raise SchemaError("it is the model of another schema than this one")
        order, padded, m = arrays["order"], arrays["parents"], len(domain)
        whole = order.dtype == padded.dtype == np.int64 and order.shape == (m,)
        fits = padded.ndim == 2 and len(padded) == m and padded.shape[1] <= MAX_PARENTS
        if not (whole and fits and len(arrays) == 3 + m and arrays.keys() >= set(tables)):
            raise StateError("a model that is damaged: its order, parents or tables")
        parents = (tuple(each for each in found if each != -1) for found in padded.tolist())
        try:
            return cls(
                domain,
                tuple(order.tolist()),
                tuple(parents),
                tuple(arrays[name] for name in tables),
            )
        except SchemaError as error:
            raise StateError(f"a model that is damaged: {error}") from error


# --- tables of counts ----------------------------------------------------------------------------


def configurations(
    domain: Domain, parents: tuple[int, ...], rows: NDArray[np.intp]
) -> NDArray[np.intp]:
    """Return (n,) intp, the mixed-radix number of each row's buckets of ``parents``."""
    found = np.zeros(len(rows), dtype=np.intp)
    for parent in parents:
        found *= domain.bucket_counts[parent]
        found += domain.attributes[parent].bucket_map[rows[:, parent]]
    return found


def shapes(domain: Domain, parents: Sequence[tuple[int, ...]]) -> tuple[tuple[int, int], ...]:
    """Return the shape of each attribute's table; SchemaError if they would be too large."""
    m, counts = len(domain), domain.bucket_counts
    _check(
        all(len(found) <= MAX_PARENTS and all(0 <= p < m for p in found) for found in parents),
        f"an attribute has more than {MAX_PARENTS} parents, or an invalid one",
    )
    made = tuple(
        (math.prod(counts[p] for p in found), size)
        for found, size in zip(parents, domain.sizes, strict=True)
    )
    cells = [rows * codes for rows, codes in made]
    _check(max(cells) <= MAX_TABLE, f"a table would have more than {MAX_TABLE} cells")
    _check(sum(cells) <= MAX_CELLS, f"its tables would have more than {MAX_CELLS} cells")
    return made


def counted(
    codes: NDArray[np.intp], domain: Domain, child: int, parents: tuple[int, ...]
) -> NDArray[np.int64]:
    """Return (configurations of the parents, codes of the child) int64 numbers of rows."""
    size = domain.sizes[child]
    rows = math.prod(domain.bucket_counts[parent] for parent in parents)
    at = configurations(domain, parents, codes) * size + codes[:, child]
    return np.bincount(at, minlength=rows * size).reshape(rows, size).astype(np.int64)


def noisy(
    tables: Sequence[NDArray[np.int64]], scale: Fraction, noise: Noise
) -> list[NDArray[np.int64]]:
    """Return tables with noise of P[x] ~ exp(-|x|/scale) in every cell, empty ones too."""
    ends = np.cumsum([0, *(t.size for t in tables)]).tolist()
    drawn = noise.laplace(scale, ends[-1])
    return [
        t + drawn[first:last].reshape(t.shape)
        for t, (first, last) in zip(tables, pairwise(ends), strict=True)
    ]


def in_units(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the law of noisy counts as integers that sum to :data:`UNIT`.

    Negative counts are taken as 0; if none is positive the law is uniform.

    >>> in_units(np.array([3, -2, 1])).tolist()
    [786432, 0, 262144]
    """
    # Python's integers: a count times UNIT need not fit 64 bits.
    positive = [max(0, count) for count in counts.tolist()]
    if not any(positive):
        positive = [1] * len(positive)
    shares = [divmod(count * UNIT, sum(positive)) for count in positive]
    made = [whole for whole, _ in shares]
    for at in sorted(range(len(shares)), key=lambda at: -shares[at][1])[: UNIT - sum(made)]:
        made[at] += 1
    return np.array(made, dtype=np.int64)


def conditional(
    counts: NDArray[np.int64], law: NDArray[np.float64], weight: float
) -> NDArray[np.float64]:
    """Return the rows of a table of noisy counts as probabilities; negative counts are taken as 0.

    Each is mixed with a law of (codes,) probabilities that has the weight of so many rows, above 0.
    """
    mixed = np.maximum(counts, 0) + weight * law
    made: NDArray[np.float64] = mixed / mixed.sum(axis=1, keepdims=True)
    return made


def _check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise SchemaError(f"an inconsistent model: {otherwise}")
