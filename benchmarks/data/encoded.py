"""Images and texts that a public encoder embeds before anything else is done with them.

* **AG News** (Zhang, Zhao and LeCun, NeurIPS 2015): the class of a news item by title and description. Only
  its test part, 7,600 items, is divided.
* **Banking77** (Casanueva et al., 2020): which of 77 intents a question of a bank's customer has.
* **SST-2** (Socher et al., EMNLP 2013): whether a sentence of a film review is positive.
* **CIFAR-10** (Krizhevsky 2009): half of its training images, and the first thousand to test.
* **Brain MRI** (Bhuvaji et al.): which tumour a slice shows, or none. Slices of one patient are not marked,
  so a slice is a record, and those of a patient may be in several parts. Of the 394 official test slices
  251 are in the training part, too (the same pixels at 64 by 64). A model that knows its training slices by
  heart is right on those, and privacy is there to prevent just that. So training slices that are like a
  test slice are left out, by their embeddings, whatever their labels.
"""

from __future__ import annotations

import csv
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from benchmarks.data import Split, data_folder
from pate.data.embeddings import Embeddings, embedding_arrays
from pate.data.files.pictures import opened
from pate.data.read import read_inputs
from pate.data.values import Dataset
from pate.encoders.encoder import Encoder
from pate.errors import DataError, UsageError
from pate.features.space import space_over

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from pate.data.encoded import Record

#: The order of the records before they are divided, any fixed number.
_SHUFFLE: Final = 20261123
_NEWS: Final = ("World", "Sports", "Business", "Sci/Tech")
_OBJECTS: Final = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
TUMOURS: Final = ("glioma_tumor", "meningioma_tumor", "no_tumor", "pituitary_tumor")
#: Embeddings with a larger cosine are of one slice; from 0.8 to 0.98 nearly the same slices are.
_ALIKE: Final = 0.9


@dataclass(frozen=True)
class Embedder:
    """A public encoder, and the folder of the stored embeddings."""

    encoder: Encoder
    work: Path

    @classmethod
    def of(cls, name: str, work: Path) -> Embedder:
        """Open the encoder in a folder of PATE_TEST_ENCODERS.

        Raises:
            UsageError: if the variable names no folder.
            DataError: if there is no encoder of that name.
        """
        folder = os.environ.get("PATE_TEST_ENCODERS")
        if not folder:
            raise UsageError(
                "set PATE_TEST_ENCODERS to the folder that has the encoders' folders, "
                f"here {name} is needed"
            )
        return cls(Encoder.open(Path(folder, name)), work)

    @property
    def in_words(self) -> str:
        """Name of the encoder and beginning of its digest."""
        return self.encoder.description.in_words()

    def embed(self, name: str, records: Callable[[], Iterable[Record]]) -> Embeddings:
        """Return the embeddings of records, stored ones if a file of that name has some."""
        file = self.work / f"{name}-{self.encoder.digest[:16]}.npz"
        if file.is_file():
            stored = read_inputs(file)
            if not isinstance(stored, Embeddings) or stored.encoder != self.encoder.digest:
                raise DataError(f"{file} has other inputs: remove it")
            return stored
        values, _ = self.encoder.rows(records())
        made = self.encoder.embeddings(values)
        draft = file.with_suffix(".draft.npz")
        np.savez(draft, allow_pickle=False, **embedding_arrays(made))
        draft.replace(file)
        return made


def divided(whole: Dataset, sizes: tuple[int, int], test: Dataset | None, note: str) -> Split:
    """Return records in a fixed random order: private, public and, where no other is given, test.

    Raises:
        DataError: if there are fewer records.
    """
    private, public = sizes
    if len(whole) < private + public + (test is None):
        raise DataError(f"{len(whole)} records are too few for {private} private, {public} public")
    order = np.random.default_rng(_SHUFFLE).permutation(len(whole))
    parts = np.split(order, [private, private + public])
    rest = whole.take(np.sort(parts[2])) if test is None else test
    return Split(whole.take(np.sort(parts[0])), whole.take(np.sort(parts[1])), rest, note)


def labelled(
    inputs: Embeddings, labels: Sequence[int] | NDArray[np.int64], classes: tuple[str, ...]
) -> Dataset:
    """Return embeddings with their classes."""
    return Dataset(inputs, np.asarray(labels, dtype=np.int64), classes)


def ag_news(embedder: Embedder) -> Split:
    """Return 5,000 private, 1,600 public and 1,000 test items."""
    path = data_folder() / "text" / "ag_news" / "test.csv"
    rows = list(csv.reader(path.read_text(encoding="utf-8").splitlines()))
    inputs = embedder.embed("ag_news", lambda: [f"{row[1]}. {row[2]}" for row in rows])
    whole = labelled(inputs, [int(row[0]) - 1 for row in rows], _NEWS)
    note = (
        "label: the class of a news item; unit: record, one news item; 5,000 private, 1,600 public and "
        "1,000 to test, in a random order, all of the published test part"
    )
    return divided(whole, (5_000, 1_600), None, note)


def banking77(embedder: Embedder) -> Split:
    """Return 7,500 private, 2,503 public and 3,080 test questions."""
    parts = {name: _questions(name) for name in ("train", "test")}
    classes = tuple(sorted({intent for _, intent in parts["train"]}))
    made = {}
    for name, rows in parts.items():
        texts = [text for text, _ in rows]
        inputs = embedder.embed(f"banking77-{name}", texts.__iter__)
        made[name] = labelled(inputs, [classes.index(intent) for _, intent in rows], classes)
    note = (
        "label: the intent of a question; unit: record, one question; of the 10,003 of train 7,500 "
        "private and 2,503 public, tested on the official 3,080"
    )
    return divided(made["train"], (7_500, 2_503), made["test"], note)


def _questions(name: str) -> list[tuple[str, str]]:
    path = data_folder() / "text" / "banking77" / f"{name}.csv"
    with path.open(encoding="utf-8", newline="") as file:
        return [(row["text"], row["category"]) for row in csv.DictReader(file)]


def sst2(embedder: Embedder) -> Split:
    """Return 5,500 private, 2,292 public and 1,821 test sentences."""
    note = (
        "label: whether a sentence is positive; unit: record, one sentence; of the 7,792 of train and "
        "dev 5,500 private and 2,292 public, tested on the official 1,821"
    )
    whole = _sentences(embedder, "train-dev", ("train", "dev"))
    return divided(whole, (5_500, 2_292), _sentences(embedder, "test", ("test",)), note)


def _sentences(embedder: Embedder, name: str, files: tuple[str, ...]) -> Dataset:
    folder = data_folder() / "text" / "sst2"
    lines = [
        line
        for file in files
        for line in (folder / f"{file}.tsv").read_text(encoding="utf-8").split("\n")
        if line.strip()
    ]
    rows = [line.rstrip("\r").rpartition("\t") for line in lines]
    inputs = embedder.embed(f"sst2-{name}", lambda: [text for text, _, _ in rows])
    return labelled(inputs, [int(label) for _, _, label in rows], ("negative", "positive"))


def cifar10(embedder: Embedder) -> Split:
    """Return 21,000 private, 4,000 public and 1,000 test images."""
    note = (
        "label: the class; unit: record, one image; of the first 25,000 training images 21,000 private "
        "and 4,000 public, tested on the first 1,000 test images"
    )
    whole, test = _objects(embedder, "train", range(25)), _objects(embedder, "test", (50,))
    return divided(whole, (21_000, 4_000), test, note)


def _objects(embedder: Embedder, name: str, files: Iterable[int]) -> Dataset:
    """Return the images of files of a thousand each."""
    known = json.loads((data_folder() / "cifar10" / "labels.json").read_text())

    def images() -> Iterator[NDArray[np.uint8]]:
        for file in files:
            with opened(data_folder() / "cifar10" / f"batch_{file}.png") as picture:
                yield from np.asarray(picture.convert("RGB")).reshape(-1, 32, 32, 3)

    inputs = embedder.embed(f"cifar10-{name}", images)
    return labelled(inputs, [label for file in files for label in known[str(file)]], _OBJECTS)


def brain_mri(embedder: Embedder) -> Split:
    """Return 1,900 private, 700 public and 394 test slices."""
    training, test = _slices(embedder, "Training"), _slices(embedder, "Testing")
    assert isinstance(training.inputs, Embeddings)
    assert isinstance(test.inputs, Embeddings)
    copied = copies(training.inputs, test.inputs)
    note = (
        f"label: the tumour; unit: record, one slice (patients are not marked); four parties; of the "
        f"{len(training):,} training slices {copied.sum()} are left out, as the test part has them, too; "
        "of the others 1,900 private and 700 public, tested on the official 394"
    )
    return divided(training.take(np.flatnonzero(~copied)), (1_900, 700), test, note)


def copies(some: Embeddings, others: Embeddings) -> NDArray[np.bool_]:
    """Return (n,) which of some embeddings are just about one of the others."""
    space = space_over(some)
    alike = space.embed(some) @ space.embed(others).T
    found: NDArray[np.bool_] = alike.max(axis=1) > _ALIKE
    return found


def _slices(embedder: Embedder, name: str) -> Dataset:
    folder = data_folder() / "brain_mri" / name
    files = [
        (at, file) for at, each in enumerate(TUMOURS) for file in sorted((folder / each).iterdir())
    ]
    inputs = embedder.embed(
        f"brain_mri-{name.lower()}", lambda: (_slice(file) for _, file in files)
    )
    return labelled(inputs, [at for at, _ in files], TUMOURS)


def _slice(file: Path) -> NDArray[np.uint8]:
    with opened(file) as picture:
        return np.asarray(picture.convert("L"))[..., None]
