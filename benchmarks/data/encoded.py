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

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from benchmarks.data import Split, columns_of, data_folder
from pate.data.embeddings import Embeddings
from pate.data.files.pictures import opened
from pate.data.values import Dataset
from pate.encoders.reading import Reader
from pate.errors import DataError, UsageError
from pate.features.space import space_over

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pate.data.encoded import Record

#: Makes the embeddings of records.
Embed: TypeAlias = "Callable[[Iterable[Record]], Embeddings]"
#: The order of the records before they are divided, any fixed number.
_SHUFFLE: Final = 20261123
_NEWS: Final = ("World", "Sports", "Business", "Sci/Tech")
_OBJECTS: Final = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
TUMOURS: Final = ("glioma_tumor", "meningioma_tumor", "no_tumor", "pituitary_tumor")
#: Embeddings with a larger cosine are of one slice; from 0.8 to 0.98 nearly the same slices are.
_ALIKE: Final = 0.9


def reader_of(name: str, work: Path) -> Reader:
    """Return the reader of an encoder below PATE_TEST_ENCODERS, which stores embeddings in ``work``."""
    folder = os.environ.get("PATE_TEST_ENCODERS")
    if not folder:
        raise UsageError(
            "set PATE_TEST_ENCODERS to the folder that has the encoders' folders, "
            f"here {name} is needed"
        )
    return Reader.of(Path(folder, name), home=work)


def embeddings(reader: Reader, records: Iterable[Record]) -> Embeddings:
    """Return the embeddings of records, each of which must be usable."""
    values, _ = reader.embed(records, 0, odd=None, place=lambda at: f"record {at}")
    return reader.encoder.embeddings(values)


def divided(whole: Dataset, sizes: tuple[int, int], test: Dataset | None, note: str) -> Split:
    """Return records in a fixed random order: private, public and, where no other is given, test."""
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


def ag_news(embed: Embed) -> Split:
    """Return 5,000 private, 1,600 public and 1,000 test items."""
    path = data_folder() / "text" / "ag_news" / "test.csv"
    cells = columns_of(path, ("class", "title", "words"))
    texts = [
        f"{title}. {words}" for title, words in zip(cells["title"], cells["words"], strict=True)
    ]
    note = (
        "label: the class of a news item; unit: record, one news item; 5,000 private, 1,600 public and "
        "1,000 to test, in a random order, all of the published test part"
    )
    whole = labelled(embed(texts), [int(number) - 1 for number in cells["class"]], _NEWS)
    return divided(whole, (5_000, 1_600), None, note)


def banking77(embed: Embed) -> Split:
    """Return 7,500 private, 2,503 public and 3,080 test questions."""
    folder = data_folder() / "text" / "banking77"
    train, test = (columns_of(folder / f"{name}.csv") for name in ("train", "test"))
    classes = tuple(sorted(set(train["category"])))
    note = (
        "label: the intent of a question; unit: record, one question; of the 10,003 of train 7,500 "
        "private and 2,503 public, tested on the official 3,080"
    )
    whole, official = (
        labelled(embed(cells["text"]), [classes.index(each) for each in cells["category"]], classes)
        for cells in (train, test)
    )
    return divided(whole, (7_500, 2_503), official, note)


def sst2(embed: Embed) -> Split:
    """Return 5,500 private, 2,292 public and 1,821 test sentences."""
    note = (
        "label: whether a sentence is positive; unit: record, one sentence; of the 7,792 of train and "
        "dev 5,500 private and 2,292 public, tested on the official 1,821"
    )
    whole, test = _sentences(embed, "train", "dev"), _sentences(embed, "test")
    return divided(whole, (5_500, 2_292), test, note)


def _sentences(embed: Embed, *files: str) -> Dataset:
    folder = data_folder() / "text" / "sst2"
    lines = [
        line
        for file in files
        for line in (folder / f"{file}.tsv").read_text(encoding="utf-8").split("\n")
        if line.strip()
    ]
    rows = [line.rstrip("\r").rpartition("\t") for line in lines]
    labels = [int(label) for _, _, label in rows]
    return labelled(embed([text for text, _, _ in rows]), labels, ("negative", "positive"))


def cifar10(embed: Embed) -> Split:
    """Return 21,000 private, 4,000 public and 1,000 test images."""
    note = (
        "label: the class; unit: record, one image; of the first 25,000 training images 21,000 private "
        "and 4,000 public, tested on the first 1,000 test images"
    )
    return divided(_objects(embed, range(25)), (21_000, 4_000), _objects(embed, (50,)), note)


def _objects(embed: Embed, files: Iterable[int]) -> Dataset:
    """Return the images of files of a thousand each."""
    known = json.loads((data_folder() / "cifar10" / "labels.json").read_text())

    def images() -> Iterator[NDArray[np.uint8]]:
        for file in files:
            with opened(data_folder() / "cifar10" / f"batch_{file}.png") as picture:
                yield from np.asarray(picture.convert("RGB")).reshape(-1, 32, 32, 3)

    return labelled(
        embed(images()), [label for file in files for label in known[str(file)]], _OBJECTS
    )


def brain_mri(embed: Embed) -> Split:
    """Return 1,900 private, 700 public and 394 test slices."""
    training, test = _slices(embed, "Training"), _slices(embed, "Testing")
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


def _slices(embed: Embed, name: str) -> Dataset:
    folder = data_folder() / "brain_mri" / name
    files = [
        (at, file) for at, each in enumerate(TUMOURS) for file in sorted((folder / each).iterdir())
    ]
    return labelled(embed(_slice(file) for _, file in files), [at for at, _ in files], TUMOURS)


def _slice(file: Path) -> NDArray[np.uint8]:
    with opened(file) as picture:
        return np.asarray(picture.convert("L"))[..., None]
