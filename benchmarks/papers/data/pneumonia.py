"""PneumoniaMNIST: chest X-rays of children, 28 x 28 grey, normal or pneumonia.

The official training and validation images come from one pool. The official test images come from
another: 62 % of them show pneumonia against 74 %, and every model loses several points there, so figures on
    them reflect the shift as much as privacy. The meaningful comparison is with the same student and all
    private labels.

Source: Yang et al., "MedMNIST v2", Scientific Data 10:41, 2023; images of Kermany et al., Cell
172(5), 2018.
"""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from benchmarks.papers.split import Split
from pate.data.values import Dataset, Images
from pate.errors import DataError, UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Class names, as the labels 0 and 1 are numbered.
CLASSES: Final = ("normal", "pneumonia")
#: Number of training images of all parties together; the rest is public.
PRIVATE: Final = 3500
_SHUFFLE: Final = 20180222  # of the split, any fixed number


def load(folder: Path | None = None) -> Split:
    """Return 3,500 private images, the rest of train with val as public, the official test.

    The official validation images may choose settings.

    Args:
        folder: with ``medmnist/pneumoniamnist.npz``; None: PATE_TEST_DATA.

    Raises:
        UsageError: if the folder is unknown or the file is missing.
        DataError: if the file has other content.
    """
    if folder is None:
        named = os.environ.get("PATE_TEST_DATA")
        if not named:
            raise UsageError("set PATE_TEST_DATA to the folder that holds medmnist/")
        folder = Path(named)
    file = folder / "medmnist" / "pneumoniamnist.npz"
    if not file.is_file():
        raise UsageError(f"PneumoniaMNIST is not at {file}; it comes from medmnist.com")
    train, val, test = (_part(file, name) for name in ("train", "val", "test"))
    if len(train) <= PRIVATE:
        raise DataError(f"{file} has {len(train)} training images; {PRIVATE} and more are needed")
    order = np.random.default_rng(_SHUFFLE).permutation(len(train))
    private = train.take(np.sort(order[:PRIVATE]))
    public = _joined(train.take(np.sort(order[PRIVATE:])), val)
    share = float(np.mean(test.labels))
    note = (
        f"{len(private):,} of train over the parties, public the other {len(public):,} of train "
        f"and val, tested on the official {len(test)}, {share:.1%} pneumonia, which come from "
        "another pool; an image is a record"
    )
    return Split(private, public, test, note, validation=val)


def _part(file: Path, name: str) -> Dataset:
    try:
        with file.open("rb") as raw, np.load(raw, allow_pickle=False) as held:
            pixels: NDArray[np.uint8] = held[f"{name}_images"]
            labels: NDArray[np.int64] = held[f"{name}_labels"].reshape(-1).astype(np.int64)
    except (KeyError, ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(
            f"{file} is not PneumoniaMNIST as MedMNIST publishes it: {error}"
        ) from error
    if pixels.ndim != 3:
        raise DataError(f"{file}: {name}_images have shape {pixels.shape}, not (n, 28, 28)")
    return Dataset(Images(pixels[..., None]), labels, CLASSES)


def _joined(first: Dataset, second: Dataset) -> Dataset:
    assert isinstance(first.inputs, Images)
    assert isinstance(second.inputs, Images)
    pixels = np.concatenate([first.inputs.pixels, second.inputs.pixels])
    return Dataset(Images(pixels), np.concatenate([first.labels, second.labels]), CLASSES)
