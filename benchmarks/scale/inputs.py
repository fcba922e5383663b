"""Synthetic inputs without voting cost: 8 x 8 pixels, one of which is the class, memory-mapped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from pate.data.values import Images

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from pate.data.values import Inputs
    from pate.votes import Counts

_SIDE: Final = 8
_AT_A_TIME: Final = 10_000
#: Share of a teacher's answers with the pixel's class; the others are random.
_RIGHT: Final = 0.9


def write_public(path: Path, queries: int, classes: int) -> None:
    """Write ``queries`` inputs, a few at a time."""
    rng = np.random.default_rng([queries, classes])
    whole = np.lib.format.open_memmap(
        path, mode="w+", dtype=np.uint8, shape=(queries, _SIDE, _SIDE, 1)
    )
    for first in range(0, queries, _AT_A_TIME):
        rows = min(_AT_A_TIME, queries - first)
        some = rng.integers(0, 256, (rows, _SIDE, _SIDE, 1), dtype=np.uint8)
        some[:, 0, 0, 0] = rng.integers(0, classes, rows)
        whole[first : first + rows] = some
    whole.flush()


def open_public(path: Path) -> Images:
    """Return what :func:`write_public` wrote, mapped."""
    return Images(np.load(path, mmap_mode="r"))


class PixelTeachers:
    """Teachers that read one pixel and err on fixed queries.

    Args:
        number: of the party.
        teachers: k.
        classes: their number.
    """

    unit = "record"
    schema = f"images {_SIDE}x{_SIDE}x1"

    def __init__(self, number: int, teachers: int, classes: int) -> None:
        self.teachers = teachers
        self.classes = class_names(classes)
        self.fingerprint = number.to_bytes(32, "big")
        self._number = number

    def conform(self, inputs: Inputs) -> Inputs:
        """Return the inputs as they are."""
        return inputs

    def vote(self, inputs: Inputs, classes: Sequence[str]) -> Counts:
        """Return (n, m) votes."""
        assert isinstance(inputs, Images)
        flat = np.ascontiguousarray(inputs.pixels.reshape(len(inputs), -1))
        seen, noise = flat[:, 0].astype(np.int64), flat.view("<u8")[:, -1].astype(np.uint64)
        votes = np.zeros((len(inputs), len(classes)), dtype=np.int64)
        for teacher in range(self.teachers):
            drawn = _mixed(noise, self._number * self.teachers + teacher)
            right = (drawn >> np.uint64(32)).astype(np.float64) < _RIGHT * 2**32
            other = (drawn % np.uint64(len(classes))).astype(np.int64)
            np.add.at(votes, (np.arange(len(inputs)), np.where(right, seen, other)), 1)
        return votes


def class_names(classes: int) -> tuple[str, ...]:
    """Return names for a number of classes."""
    return tuple(f"class {at:03d}" for at in range(classes))


def _mixed(seeds: NDArray[np.uint64], number: int) -> NDArray[np.uint64]:
    """Return 64 pseudorandom bits, by seed and number (the finalizer of SplitMix64)."""
    made = seeds + np.uint64((number + 1) * 0x9E3779B97F4A7C15 % 2**64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        made = (made ^ (made >> np.uint64(shift))) * np.uint64(factor)
    mixed: NDArray[np.uint64] = made ^ (made >> np.uint64(31))
    return mixed
