"""CIFAR-10 (Krizhevsky 2009): half of its training images, and the first thousand to test."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import numpy as np

from benchmarks.papers.data import data_folder
from benchmarks.papers.data.encoded import divided, labelled
from pate.data.files.pictures import opened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from benchmarks.papers.data.encoded import Embedder
    from benchmarks.papers.split import Split
    from pate.data.values import Dataset

CLASSES: Final = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
SIZES: Final = (21_000, 4_000)
#: Files of a thousand images each.
TRAIN, TEST = range(25), (50,)


def load(embedder: Embedder) -> Split:
    """Return the parts, embedded. Needs PATE_TEST_DATA."""
    note = (
        "label: the class; unit: record, one image; of the first 25,000 training images 21,000 private "
        "and 4,000 public, tested on the first 1,000 test images"
    )
    whole, test = _part(embedder, "train", TRAIN), _part(embedder, "test", TEST)
    return divided(whole, SIZES, test, note)


def _part(embedder: Embedder, name: str, files: range | tuple[int, ...]) -> Dataset:
    known = json.loads((data_folder() / "cifar10" / "labels.json").read_text())
    inputs = embedder.embed(
        f"cifar10-{name}", lambda: (each for file in files for each in _images(file))
    )
    return labelled(inputs, [label for file in files for label in known[str(file)]], CLASSES)


def _images(file: int) -> Iterator[NDArray[np.uint8]]:
    with opened(data_folder() / "cifar10" / f"batch_{file}.png") as picture:
        yield from np.asarray(picture.convert("RGB")).reshape(-1, 32, 32, 3)
