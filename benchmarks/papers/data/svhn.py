"""SVHN (Netzer et al. 2011), read by torchvision's loader.

Teachers on the 73,257 training images; the public set is the first 10,000 test images, as in the
papers, and the student is measured on the other 16,032.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from benchmarks.papers.data import data_folder
from benchmarks.papers.split import Split
from pate.data.values import Dataset, Images
from pate.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

PUBLIC: Final = 10_000
CLASSES: Final = tuple("0123456789")


def load() -> Split:
    """Return 73,257 private, 10,000 public and 16,032 test images. Needs PATE_TEST_DATA.

    Raises:
        DataError: if a file is not the original one.
        SystemExit: if the data are missing.
    """
    folder = data_folder() / "svhn"
    test = _read(folder, "test")
    return Split(
        private=_read(folder, "train"),
        public=test.take(np.arange(PUBLIC)),
        test=test.take(np.arange(PUBLIC, len(test))),
        note=(
            "label: the digit in the middle; unit: record; private: the training images; public: "
            f"the first {PUBLIC:,} test images; test: the others"
        ),
    )


def _read(folder: Path, part: str) -> Dataset:
    from torchvision.datasets import SVHN

    try:
        held = SVHN(str(folder), split=part, download=False)
    except RuntimeError as error:  # torchvision compares with the checksum of the original
        raise DataError(f"{part}_32x32.mat of SVHN is not the original file: {error}") from error
    pixels = np.ascontiguousarray(held.data.transpose(0, 2, 3, 1))
    return Dataset(Images(pixels), np.asarray(held.labels, dtype=np.int64), CLASSES)
