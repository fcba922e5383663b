"""Brain MRI (Bhuvaji et al.): which tumour a slice shows, or none.

Slices of one patient are not marked, so a slice is a record, and those of a patient may be in several parts.
The official test images are known to be harder than the training images; they are the test set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from PIL import Image

from benchmarks.papers.data import data_folder
from benchmarks.papers.data.encoded import divided, labelled

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from benchmarks.papers.data.encoded import Embedder
    from benchmarks.papers.split import Split
    from pate.data.values import Dataset

CLASSES: Final = ("glioma_tumor", "meningioma_tumor", "no_tumor", "pituitary_tumor")
SIZES: Final = (2_100, 770)


def load(embedder: Embedder) -> Split:
    """Return the parts, embedded. Needs PATE_TEST_DATA."""
    note = (
        "label: the tumour; unit: record, one slice (patients are not marked); four parties; of the "
        "2,870 training slices 2,100 private and 770 public, tested on the official 394, which are harder"
    )
    return divided(_part(embedder, "Training"), SIZES, _part(embedder, "Testing"), note)


def _part(embedder: Embedder, name: str) -> Dataset:
    folder = data_folder() / "brain_mri" / name
    files = [
        (at, file) for at, each in enumerate(CLASSES) for file in sorted((folder / each).iterdir())
    ]
    inputs = embedder.embed(
        f"brain_mri-{name.lower()}", lambda: (_image(file) for _, file in files)
    )
    return labelled(inputs, [at for at, _ in files], CLASSES)


def _image(file: Path) -> NDArray[np.uint8]:
    with Image.open(file) as picture:
        return np.asarray(picture.convert("L"))[..., None]
