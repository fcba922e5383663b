"""Brain MRI (Bhuvaji et al.): which tumour a slice shows, or none.

Slices of one patient are not marked, so a slice is a record, and those of a patient may be in several parts.
The official test images are the test set. Of its 394 slices 251 are in the training part, too (the same
pixels at 64 by 64). A model that knows its training slices by heart is right on those, and privacy is there
to prevent just that. So training slices that are like a test slice are left out, by their embeddings,
whatever their labels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from benchmarks.papers.data import data_folder
from benchmarks.papers.data.encoded import divided, labelled
from pate.data.embeddings import Embeddings
from pate.data.files.pictures import opened
from pate.features.space import space_over

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from benchmarks.papers.data.encoded import Embedder
    from benchmarks.papers.split import Split
    from pate.data.values import Dataset

CLASSES: Final = ("glioma_tumor", "meningioma_tumor", "no_tumor", "pituitary_tumor")
SIZES: Final = (1_900, 700)
#: Embeddings with a larger cosine are of one slice; from 0.8 to 0.98 nearly the same slices are.
_ALIKE: Final = 0.9


def load(embedder: Embedder) -> Split:
    """Return the parts, embedded. Needs PATE_TEST_DATA."""
    training, test = _part(embedder, "Training"), _part(embedder, "Testing")
    assert isinstance(training.inputs, Embeddings)
    assert isinstance(test.inputs, Embeddings)
    copied = copies(training.inputs, test.inputs)
    note = (
        f"label: the tumour; unit: record, one slice (patients are not marked); four parties; of the "
        f"{len(training):,} training slices {copied.sum()} are left out, as the test part has them, too; "
        "of the others 1,900 private and 700 public, tested on the official 394"
    )
    return divided(training.take(np.flatnonzero(~copied)), SIZES, test, note)


def copies(some: Embeddings, others: Embeddings) -> NDArray[np.bool_]:
    """Return (n,) which of some embeddings are just about one of the others."""
    space = space_over(some)
    alike = space.embed(some) @ space.embed(others).T
    found: NDArray[np.bool_] = alike.max(axis=1) > _ALIKE
    return found


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
    with opened(file) as picture:
        return np.asarray(picture.convert("L"))[..., None]
