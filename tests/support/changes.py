"""What a unit changes in a sum of arrays, measured as codes claim it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pate.codes import Change


def largest(changes: np.ndarray) -> Change:
    """The largest of each measure over changes, one in each row."""
    size = np.abs(changes.astype(np.int64).reshape(len(changes), -1))
    return Change(
        int(size.sum(axis=1).max()),
        int(np.square(size).sum(axis=1).max()),
        int((size > 0).sum(axis=1).max()),
    )


def joined(found: Sequence[Change]) -> Change:
    return Change(
        max(each.total for each in found),
        max(each.squared for each in found),
        max(each.counts for each in found),
    )


def within(found: Change, most: Change) -> bool:
    return joined([found, most]) == most
