"""Splitting a labelled data set into parties, a public set, and a test set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pate.data.embeddings import Embeddings, embedding_arrays
from pate.data.values import Dataset, Images, Inputs, Table, is_numeric
from pate.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

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
    from sklearn.datasets import load_digits

    bunch = load_digits()
    grey = np.rint(bunch.images * (255 / 16)).astype(np.uint8)
    labels = bunch.target.astype(np.int64)
    return Dataset(Images(grey[..., None]), labels, tuple(str(d) for d in range(10)))


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
    """Write a split of images: a folder for each party, ``public.npz`` and ``test.npz``.

    ``place``: a folder, made if absent; existing files of these names are replaced.
    """
    for name, records in zip(names, dealt.parties, strict=True):
        (place / name).mkdir(parents=True, exist_ok=True)
        write_labelled(place / name / "records.npz", records)
    write_inputs(place / "public", dealt.public.inputs)
    write_labelled(place / "test.npz", dealt.test)


def write_labelled(path: Path, records: Dataset, label: str = "label") -> None:
    """Write a data set in a readable format: images as ``.npz``, a table as CSV."""
    names = np.array(records.classes, dtype=np.str_)[records.labels]
    if isinstance(records.inputs, Images):
        classes = np.array(records.classes, dtype=np.str_)
        np.savez_compressed(path, images=records.inputs.pixels, labels=names, classes=classes)
    elif isinstance(records.inputs, Embeddings):
        classes = np.array(records.classes, dtype=np.str_)
        np.savez_compressed(
            path,
            **embedding_arrays(records.inputs),
            labels=names,
            classes=classes,
            allow_pickle=False,
        )
    else:
        table = records.inputs
        _write_csv(path, Table((*table.names, label), (*table.columns, names)))


def write_inputs(path: Path, inputs: Inputs) -> Path:
    """Write a public set next to ``path``, images as ``.npz`` and a table as CSV; return the file."""
    if isinstance(inputs, Images):
        made = path.with_suffix(".npz")
        np.savez_compressed(made, images=inputs.pixels)
    elif isinstance(inputs, Embeddings):
        made = path.with_suffix(".npz")
        np.savez_compressed(made, **embedding_arrays(inputs), allow_pickle=False)
    else:
        made = path.with_suffix(".csv")
        _write_csv(made, inputs)
    return made


def _write_csv(path: Path, table: Table) -> None:
    import csv

    columns = [
        [("" if np.isnan(v) else repr(v)) for v in c.tolist()] if is_numeric(c) else c.tolist()
        for c in table.columns
    ]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(table.names)
        writer.writerows(zip(*columns, strict=True))
