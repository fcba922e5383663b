"""Neighbour votes (reverse nearest neighbours): every record votes once, for its label, at its nearest query.

The queries are representatives of the public set, chosen from only public data. A party sends one
matrix of counts over all queries and classes. A record counts one at its nearest query, so it changes
the matrix by one count, and the number of queries costs no privacy. What one unit can change:
docs/proofs/record-votes.md.

Source: the idea of reverse nearest neighbours is that of Li et al., "Fine-grained private
knowledge distillation", arXiv 2207.13253.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.errors import DataError, UsageError
from pate.features.contract import check_points

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Places = NDArray[np.int64]

_ROUNDS: Final = 25  # rounds of Lloyd's algorithm, enough to converge nearly
_ROUNDS_BETWEEN: Final = 5  # after clusters were split
_SPLITTINGS: Final = 8
_LONELY: Final = 1 / 3  # a cluster of fewer rows than this share of the average is dissolved
_CHUNK_ENTRIES: Final = 1 << 22  # of a matrix of distances in memory: 16 MiB
_ROUNDING: Final = 1e-4  # far above what float32 loses in a squared distance, relative to the norms
_VOTER: Final = b"pate nearest vot"
_LONGEST_KEY: Final = 64  # bytes, of BLAKE2b


def representatives(features: Floats, count: int) -> Places:
    """Return (count,) the ascending indices of ``count`` representative rows, which differ from one another.

    k-means finds centres from a fixed start; the row nearest to a centre represents its cluster.
    Clusters of far fewer rows than the average are dissolved and the largest ones split instead:
    hardly any record would vote at the representative of a tiny cluster.
    """
    check_points(features, "the public set")
    distinct = _distinct_rows(features)
    if not 1 <= count <= len(distinct):
        raise UsageError(
            f"{count} queries were asked for; the public set has {len(distinct)} different inputs"
        )
    points = features[distinct]
    centres = _settled(points, _spread_start(points, count), _ROUNDS)
    for _ in range(_SPLITTINGS):
        balanced = _without_lonely(points, centres)
        if balanced is None:
            break
        centres = _settled(points, balanced, _ROUNDS_BETWEEN)
    return np.sort(distinct[_medoids(points, centres)])


def nearest(queries: Floats, records: Floats) -> Places:
    """Return the index of each record's nearest query in Euclidean distance, (n,) for (n, d) records.

    Each answer depends on only the queries and that record, bit for bit: if two queries are so nearly
    equidistant that rounding inside a matrix product, which depends on the number of records, could
    decide, the distances are recomputed for that record by itself. Of equidistant queries the first is
    taken.
    """
    check_points(queries, "the queries")
    check_points(records, "the records")
    if not len(queries) or queries.shape[1] != records.shape[1]:
        raise DataError(f"queries of shape {queries.shape} for records of {records.shape}")
    found = np.empty(len(records), dtype=np.int64)
    # Relative to the centre of the queries the products are smaller, and so are their rounding
    # errors.
    middle = queries.mean(axis=0, dtype=np.float64).astype(np.float32)
    aims = queries - middle
    lengths = np.einsum("ij,ij->i", aims, aims)
    reach = np.sqrt(lengths.max(initial=0.0))
    step = max(1, _CHUNK_ENTRIES // max(len(queries), queries.shape[1]))
    for start in range(0, len(records), step):
        # Squares may overflow for a record that is far off; it is then in doubt.
        with np.errstate(over="ignore", invalid="ignore"):
            some = records[start : start + step] - middle
            # The squared distance less the record's own squared length, which all queries share.
            apart = lengths - 2 * (some @ aims.T)
            size = np.sqrt(np.einsum("ij,ij->i", some, some))
            bound = apart.min(axis=1) + _ROUNDING * reach * (size + reach)
            # NaN is not greater, either.
            close = ~(apart > bound[:, None])
        first = close.argmax(axis=1)
        for row in np.flatnonzero(close.sum(axis=1) != 1).tolist():
            among = np.flatnonzero(close[row])
            first[row] = among[_nearest_alone(queries[among], records[start + row])]
        found[start : start + step] = first
    return found


def cast_votes(queries: Floats, records: Floats, labels: Places, classes: int) -> Places:
    """Return the votes of one party's records: each votes once, for its label, at its nearest query.

    Counts are (q, m), and sum to the number of records. Duplicate records all count.

    Sensitivity. A record's vote depends on only the queries and that record: one count of one. Which
    records of a patient vote depends on only that patient (:func:`voters_of`). So (proofs and enumeration:
    docs/proofs/record-votes.md)

    * one record more or less moves one count by one: L2 is 1. One that is changed, of a patient or not,
      takes a count away and brings another: L2 is at most sqrt(2).
    * a patient more or less adds or takes at most ``cap`` such votes: L2 is at most cap. One that is
      changed takes a matrix A away and brings a matrix B, both of entries that are not negative:
      |B - A|^2 <= |A|^2 + |B|^2 <= 2 cap^2, and at most 2 cap counts differ.

    All are met.
    """
    if labels.shape != (len(records),):
        raise DataError(f"{len(records)} records but labels of shape {labels.shape}")
    if labels.size and not 0 <= labels.min() <= labels.max() < classes:
        raise DataError(f"a label lies outside 0 to {classes - 1}")
    cells = nearest(queries, records) * classes + labels
    votes = np.bincount(cells, minlength=len(queries) * classes).astype(np.int64)
    return votes.reshape(len(queries), classes)


def cast_answers(queries: Floats, records: Floats, answers: Places) -> Places:
    """Return (q, m) the sum of records' answers of any kind, none negative, each at its nearest query."""
    if answers.ndim != 2 or len(answers) != len(records) or (answers < 0).any():
        raise DataError(f"{len(records)} records but answers of shape {answers.shape}")
    sums = np.zeros((len(queries), answers.shape[1]), dtype=np.int64)
    np.add.at(sums, nearest(queries, records), answers)
    return sums


def voters_of(groups: NDArray[np.str_], hashes: Sequence[bytes], cap: int, key: bytes) -> Places:
    """Return the indices, ascending, of the at most ``cap`` records of each group (patient) that vote.

    Those with the least hash under the party's secret key, so that nobody else can influence who votes,
    and neither the file's order nor other groups do.
    """
    if len(hashes) != len(groups):
        raise DataError(f"{len(groups)} records but {len(hashes)} hashes of them")
    if cap < 0:
        raise UsageError(f"votes per group cannot be negative, got {cap}")
    if len(key) > _LONGEST_KEY:
        raise UsageError(f"the key has {len(key)} bytes; at most {_LONGEST_KEY} are used")
    members: dict[str, list[tuple[bytes, int]]] = {}
    for at, (name, row) in enumerate(zip(groups.tolist(), hashes, strict=True)):
        drawn = hashlib.blake2b(row, digest_size=16, key=key, person=_VOTER).digest()
        members.setdefault(name, []).append((drawn, at))
    chosen = [at for held in members.values() for _, at in sorted(held)[:cap]]
    return np.array(sorted(chosen), dtype=np.int64)


def _nearest_alone(queries: Floats, record: Floats) -> int:
    apart = np.square(queries.astype(np.float64) - record.astype(np.float64)).sum(axis=1)
    return int(apart.argmin())


def _distinct_rows(features: Floats) -> Places:
    """Return the first index of each different row, ascending."""
    seen: dict[bytes, int] = {}
    for at, row in enumerate(features + np.float32(0)):  # -0 + 0 is 0
        seen.setdefault(hashlib.sha256(row.tobytes()).digest(), at)
    return np.fromiter(seen.values(), dtype=np.int64, count=len(seen))


def _spread_start(points: Floats, count: int) -> Floats:
    """Return ``count`` rows, chosen by k-means++ with a fixed sequence."""
    stream = hashlib.shake_256(b"pate representatives 1").digest(8 * count)
    draws = (np.frombuffer(stream, dtype="<u8") >> np.uint64(11)) * 2.0**-53
    squares = np.einsum("ij,ij->i", points, points)
    middle = points.mean(axis=0)
    chosen = [int((squares - 2 * (points @ middle)).argmin())]
    apart = np.full(len(points), np.inf)
    for draw in draws[1:].tolist():
        at = chosen[-1]
        to_last = squares - 2 * (points @ points[at]) + squares[at]
        apart = np.minimum(apart, np.maximum(to_last, 0))
        apart[at] = 0
        heaped = np.cumsum(apart)
        place = int(np.searchsorted(heaped, draw * heaped[-1], side="right"))
        chosen.append(min(place, len(points) - 1))
    return points[chosen]


def _settled(points: Floats, centres: Floats, rounds: int) -> Floats:
    """Return the centres after at most ``rounds`` of Lloyd's algorithm."""
    for _ in range(rounds):
        moved = _means(points, nearest(centres, points), centres)
        if np.array_equal(moved, centres):
            break
        centres = moved
    return centres


def _without_lonely(points: Floats, centres: Floats) -> Floats | None:
    """Return centres with those of small clusters moved into the largest; None if there are none."""
    at = nearest(centres, points)
    sizes = np.bincount(at, minlength=len(centres))
    lonely = np.flatnonzero(sizes < _LONELY * len(points) / len(centres))
    large = np.argsort(-sizes, kind="stable")
    moved = centres.copy()
    split = 0
    for small, big in zip(lonely.tolist(), large.tolist(), strict=False):
        if sizes[big] < 2 * max(sizes[small], 1):
            break
        moved[small], moved[big] = _halves(points[at == big])
        split += 1
    return moved if split else None


def _halves(points: Floats) -> tuple[Floats, Floats]:
    """Return the means of the two halves of a cluster on either side of its longest axis."""
    centred = points - points.mean(axis=0)
    # Power iteration from the outermost row; a few steps suffice for a split.
    axis = centred[np.einsum("ij,ij->i", centred, centred).argmax()]
    for _ in range(5):
        axis = centred.T @ (centred @ axis)
        axis = axis / np.maximum(np.linalg.norm(axis), np.float32(1e-30))
    order = np.argsort(centred @ axis, kind="stable")
    middle = len(points) // 2
    return points[order[:middle]].mean(axis=0), points[order[middle:]].mean(axis=0)


def _means(points: Floats, at: Places, before: Floats) -> Floats:
    """Return the mean of each cluster; one without rows stays where it was."""
    order = np.argsort(at, kind="stable")
    held, starts = np.unique(at[order], return_index=True)
    moved = before.copy()
    counts = np.diff(np.append(starts, len(order)))[:, None]
    sums = np.add.reduceat(points[order], starts, axis=0, dtype=np.float64)
    moved[held] = (sums / counts).astype(np.float32)
    return moved


def _medoids(points: Floats, centres: Floats) -> Places:
    """Return for each centre the row nearest to it that no earlier centre took."""
    squares = np.einsum("ij,ij->i", points, points)
    free = np.zeros(len(points), dtype=np.float32)
    taken = np.empty(len(centres), dtype=np.int64)
    for at, centre in enumerate(centres):
        taken[at] = (squares - 2 * (points @ centre) + free).argmin()
        free[taken[at]] = np.inf
    return taken
