"""Splitting a labelled data set into parties, a public set, and a test set."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pate.data.values import Dataset, Images, Inputs
from pate.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class DatasetSplit:
    """The parts of a split data set."""

    parties: tuple[Dataset, ...]  # one data set per party, disjoint
    public: Dataset  # unlabelled in the campaign; its true labels serve for evaluation
    test: Dataset


def digits() -> Dataset:
    """Return scikit-learn's bundled digits: 1,797 images of 8 x 8 grey values.

    Source: E. Alpaydin, C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine
    Learning Repository, 1998.
    """
    # By its file: importing the function that reads it takes longer than all else of `pate new`.
    package = find_spec("sklearn")
    assert package is not None  # noqa: S101 - it is a dependency
    assert package.origin is not None  # noqa: S101 - of files
    file = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
    lines = gzip.decompress(file.read_bytes()).decode("ascii").splitlines()
    rows = np.array([[float(cell) for cell in line.split(",")] for line in lines])
    grey = np.rint(rows[:, :-1] * (255 / 16)).astype(np.uint8)
    classes = tuple(str(d) for d in range(10))
    return Dataset(Images(grey.reshape(-1, 8, 8, 1)), rows[:, -1].astype(np.int64), classes)


def digits_like(number: int, seed: int = 0) -> Dataset:
    """Return any number of images that look like those of :func:`digits`, for load tests, not for learning.

    They are its images, shifted by up to a pixel with a little noise. Copies of one image are on
    both sides of any split, so accuracies on them are meaningless.
    """
    rng, base = np.random.default_rng(seed), digits()
    assert isinstance(base.inputs, Images)  # noqa: S101 - that is what digits are
    held, side = base.inputs.pixels, base.inputs.size[0]
    of = rng.integers(0, len(base), number)
    across = np.clip(np.arange(side) + rng.integers(-1, 2, (number, 1)), 0, side - 1)
    at = of[:, None, None], np.arange(side)[:, None], across[:, None]
    pixels = held[..., 0][at].astype(np.int16)
    pixels += rng.integers(-16, 17, pixels.shape, dtype=np.int16)
    made = np.clip(pixels, 0, 255).astype(np.uint8).reshape(number, side, side, 1)
    return Dataset(Images(made), base.labels[of], base.classes)


def deal(records: Dataset, parties: int, *, public: int, test: int, seed: int = 0) -> DatasetSplit:
    """Shuffle and split: ``test`` and ``public`` records first, the rest evenly to the parties."""
    left = len(records) - public - test
    if left < parties:
        raise DataError(
            f"{len(records)} records less {public} public and {test} for testing are too few for "
            f"{parties} parties"
        )
    order: NDArray[np.int64] = np.random.default_rng(seed).permutation(len(records))
    held = np.array_split(order[test + public :], parties)
    return DatasetSplit(
        parties=tuple(records.take(np.sort(rows)) for rows in held),
        public=records.take(order[test : test + public]),
        test=records.take(order[:test]),
    )


def write_split(place: Path, dealt: DatasetSplit, names: Sequence[str]) -> None:
    """Write a split of images: a folder for each party, ``public.npz`` and ``test.npz``."""
    for name, records in zip(names, dealt.parties, strict=True):
        (place / name).mkdir(parents=True, exist_ok=True)
        write_labelled(place / name / "records.npz", records)
    write_inputs(place / "public.npz", dealt.public.inputs)
    write_labelled(place / "test.npz", dealt.test)


def write_labelled(path: Path, records: Dataset) -> None:
    """Write images and their classes as ``.npz``."""
    classes = np.array(records.classes, dtype=np.str_)
    labels = classes[records.labels]
    np.savez_compressed(path, images=_pixels(records.inputs), labels=labels, classes=classes)


def write_inputs(path: Path, inputs: Inputs) -> Path:
    """Write a public set of images as ``.npz``, and return the file."""
    np.savez_compressed(path, images=_pixels(inputs))
    return path


def _pixels(inputs: Inputs) -> NDArray[np.uint8]:
    if not isinstance(inputs, Images):
        raise TypeError("only images are written as an array of pixels")
    return inputs.pixels
