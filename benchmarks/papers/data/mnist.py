"""MNIST (LeCun et al. 1998): private are the training images, public and test parts of the test images.

As in Papernot et al. 2017 the public set has 9,000 test images, here the first ones, and the student is
measured on the other 1,000. :mod:`benchmarks.papers.data.mnist_halves` has another division.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from benchmarks.papers.data import data_folder
from benchmarks.papers.split import Split
from pate.data.files import idx
from pate.data.values import Dataset, Images

PUBLIC: Final = 9_000
CLASSES: Final = tuple("0123456789")


def load() -> Split:
    """Return 60,000 private, 9,000 public and 1,000 test images. Needs PATE_TEST_DATA.

    Raises:
        SystemExit: if the data are not there.
    """
    test = read("t10k")
    return Split(
        private=read("train"),
        public=test.take(np.arange(PUBLIC)),
        test=test.take(np.arange(PUBLIC, len(test))),
        note=(
            "label: the digit; unit: record; private: the 60,000 training images; public: the first "
            f"{PUBLIC:,} test images; test: the last 1,000"
        ),
    )


def read(part: str) -> Dataset:
    """Return the images of ``train`` or ``t10k``."""
    path = data_folder() / "mnist" / "MNIST" / "raw" / f"{part}-images-idx3-ubyte.gz"
    names = idx.read_idx_labels(idx.labels_beside(path))
    labels = np.array([int(name) for name in names], dtype=np.int64)
    return Dataset(Images(idx.read_idx_images(path)), labels, CLASSES)
