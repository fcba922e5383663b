"""A record's answer to a shown model: its disagreement, p(x) - y, along its directions.

The array is x (p - y)', with x the record's dense code, p the probabilities of the shown model and y 1
at its class. It is scaled so that the length at which it is cut, which belongs to the shown model, becomes
:data:`~pate.codes.GRID`: so no array is longer than GRID, whatever model is shown. Before the first model
an array is GRID at direction 0 in the record's class: the sum counts classes.

Of several labels, each in a column, p is the probability of each by itself, and y 1 at those that the record
has. The last column counts records: there the first array has the same number as at each of its labels, a
length of GRID if it had every label, and the others are 0.

Of a patient all arrays are added, and their sum is cut to length GRID.

An array depends on its record and on what is public, to the last bit. Logits are sums of products of whole
numbers, below 2^36, which doubles have exactly in any order. Exponentials are taken one number at a time:
a vectorised one may round by the place of a number in its row. They are cut to whole numbers before they are
added. What is left are single divisions and square roots, which IEEE 754 rounds correctly.

Source: docs/proofs/record-votes.md, section 6.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from pate.answers import MOST_CLASSES
from pate.codes import GRID, MOST_DIRECTIONS
from pate.errors import DataError
from pate.rounds.model import WEIGHT_GRID

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from pate.rounds.model import RoundModel

    Whole = NDArray[np.int64]
    Wide = NDArray[np.float64]

#: Units of a probability that are 1, and those of exponentials before they are divided.
CHANCE_GRID: Final = 2**14
_FINE: Final = 2.0**38
#: Numbers of arrays in memory at once: 16 MB of them, and of each step on the way.
_AT_ONCE: Final = 2**21
#: Most records of a unit, which casts 0 if it has more: the squared length of their sum is below 2^63.
_MOST_RECORDS: Final = 2**21


def residual_sums(
    codes: Whole,
    labels: Whole,
    classes: int,
    shown: RoundModel | None,
    units: Whole | None = None,
) -> Whole:
    """Return (k, m) int64 the sum of all units' arrays, in units of 1/GRID of a vote.

    Codes are (n, k), of length at most GRID each; labels (n,) the column of each record's class, or (n, m)
    1 at each of several labels, and at the last column. Without ``units`` each record is one. No model
    is shown before the first round.
    """
    _check(codes, labels, classes, units)
    if shown is not None:
        shown.check_shape(codes.shape[1], classes)
    if units is None:
        return _sums(codes, labels, classes, shown)
    _, at, number = np.unique(units, return_inverse=True, return_counts=True)
    alone = number[at] == 1
    summed = _sums(codes[alone], labels[alone], classes, shown)
    rows = np.flatnonzero(~alone & (number[at] <= _MOST_RECORDS))
    rows = rows[np.argsort(at[rows], kind="stable")]
    left, last = np.zeros_like(summed), -1
    for some in _cuts(len(rows), summed.size):
        whose = at[rows[some]]
        arrays = _arrays(codes[rows[some]], labels[rows[some]], classes, shown).astype(np.int64)
        each = np.add.reduceat(arrays, np.flatnonzero(np.diff(whose, prepend=-1)), axis=0)
        if whose[0] == last:
            each[0] += left
        else:
            summed += _cut(left[None])[0]
        summed += _cut(each[:-1]).sum(axis=0)
        left, last = each[-1], whose[-1]
    summed += _cut(left[None])[0]
    return summed


def chances(codes: Whole, shown: RoundModel) -> Whole:
    """Return (n, m) the probabilities of a shown model, in units of 1/:data:`CHANCE_GRID`."""
    logits = codes.astype(np.float64) @ shown.weights.astype(np.float64)
    below = (logits - logits.max(axis=1, keepdims=True)) / (GRID * WEIGHT_GRID)
    one_by_one = [math.exp(each) for each in below.ravel().tolist()]
    sizes = np.trunc(np.array(one_by_one).reshape(below.shape) * _FINE)
    made: Whole = np.rint(sizes * CHANCE_GRID / sizes.sum(axis=1, keepdims=True)).astype(np.int64)
    return made


def label_chances(codes: Whole, shown: RoundModel) -> Whole:
    """Return (n, m) the probability of each label by itself, in the same units."""
    logits = codes.astype(np.float64) @ shown.weights.astype(np.float64)
    below = -np.abs(logits) / (GRID * WEIGHT_GRID)
    one_by_one = [math.exp(each) for each in below.ravel().tolist()]
    less = np.trunc(np.array(one_by_one).reshape(below.shape) * _FINE)
    sizes = np.where(logits < 0, less, _FINE)
    made: Whole = np.rint(sizes * CHANCE_GRID / (less + _FINE)).astype(np.int64)
    return made


def labels_unit(columns: int) -> int:
    """Return what a record's first array has at each of its labels, and at the last of m columns.

    >>> labels_unit(10), 10 * labels_unit(10) ** 2 <= GRID**2
    (323, True)
    """
    return math.isqrt(GRID**2 // columns)


def _sums(codes: Whole, labels: Whole, classes: int, shown: RoundModel | None) -> Whole:
    """Return (k, m) the sum of the arrays of records that are a unit each."""
    summed = np.zeros((codes.shape[1], classes))
    for some in _cuts(len(codes), summed.size):
        summed += _arrays(codes[some], labels[some], classes, shown).sum(axis=0)
    made: Whole = summed.astype(np.int64)
    return made


def _arrays(codes: Whole, labels: Whole, classes: int, shown: RoundModel | None) -> Wide:
    """Return (n, k, m) the arrays of records, whole numbers, each array of length at most GRID."""
    rows = np.arange(len(codes))
    if shown is None:
        made = np.zeros((*codes.shape, classes))
        if labels.ndim == 2:
            made[:, 0] = labels_unit(classes) * labels
        else:
            made[rows, 0, labels] = GRID
        return made
    if labels.ndim == 2:
        apart = label_chances(codes, shown) - CHANCE_GRID * labels
        apart[:, -1] = 0
    else:
        apart = chances(codes, shown)
        apart[rows, labels] -= CHANCE_GRID
    # Squared, whole numbers below 2^50, with several labels 2^56; their products with GRID are below 2^35.
    squared = np.square(codes).sum(axis=1) * np.square(apart).sum(axis=1)
    scale = np.maximum(np.sqrt(squared.astype(np.float64)), shown.cut * CHANCE_GRID)
    made = codes.astype(np.float64)[:, :, None] * (GRID * apart.astype(np.float64))[:, None, :]
    made /= scale[:, None, None]
    np.trunc(made, out=made)
    _check_length(made)
    return made


def _cut(sums: Whole) -> Whole:
    """Return (n, k, m) sums of arrays, those that are longer than GRID cut to that length."""
    squared = np.square(sums).sum(axis=(1, 2))
    scale = np.maximum(np.sqrt(squared.astype(np.float64)), GRID)
    cut = np.trunc(sums * GRID / scale[:, None, None])
    _check_length(cut)
    made: Whole = cut.astype(np.int64)
    return made


def _check_length(arrays: Wide) -> None:
    """Check that no array is longer than GRID.

    Rounding of a root and a quotient lengthens an array by less than a part of 2^50: its square, a whole
    number, stays at most GRID^2.
    """
    if (np.einsum("nkm,nkm->n", arrays, arrays) > GRID**2).any():
        raise DataError("an array of a record is longer than its code allows")


def _cuts(records: int, size: int) -> Iterator[slice]:
    """Return cuts of records whose arrays of so many numbers fit in memory."""
    step = max(1, _AT_ONCE // size)
    return (slice(start, start + step) for start in range(0, records, step))


def _check(codes: Whole, labels: Whole, classes: int, units: Whole | None) -> None:
    if codes.ndim != 2 or codes.dtype != np.int64 or not 2 <= codes.shape[1] <= MOST_DIRECTIONS:
        raise DataError(f"codes of records are {codes.dtype} of shape {codes.shape}")
    if ((codes < -GRID) | (codes > GRID)).any() or (np.square(codes).sum(axis=1) > GRID**2).any():
        raise DataError("a code of a record is longer than its grid")
    several = labels.ndim == 2
    most = 2 if several else classes
    if (
        not 2 <= classes <= MOST_CLASSES
        or labels.shape != ((len(codes), classes) if several else (len(codes),))
        or (labels.size and not 0 <= labels.min() <= labels.max() < most)
        or (several and not (labels[:, -1] == 1).all())
    ):
        raise DataError(f"labels of shape {labels.shape} for {len(codes)} records")
    if units is not None and units.shape != labels.shape[:1]:
        raise DataError(f"units of shape {units.shape} for {len(codes)} records")
