"""SVHN (Netzer et al. 2011), read from its MATLAB files.

Teachers on the 73,257 training images; the public set is the first 10,000 test images, as in the
papers, and the student is measured on the other 16,032.
"""

from __future__ import annotations

import hashlib
import io
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
#: Of the original files.
MD5: Final = {
    "train": "e26dedcc434d2e4c54c9b2d4a06d8373",
    "test": "eb5a983be6a315427106f1b164d9cef3",
}


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
    from scipy.io import loadmat

    content = (folder / f"{part}_32x32.mat").read_bytes()
    if hashlib.md5(content, usedforsecurity=False).hexdigest() != MD5[part]:
        raise DataError(f"{part}_32x32.mat of SVHN is not the original file")
    found = loadmat(io.BytesIO(content))
    labels = found["y"].ravel().astype(np.int64) % 10  # the digit 0 has the label 10
    return Dataset(Images(np.ascontiguousarray(found["X"].transpose(3, 0, 1, 2))), labels, CLASSES)
