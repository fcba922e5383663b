"""Images: MNIST in two divisions, PneumoniaMNIST, and the published votes on SVHN, which need no images.

**MNIST** (LeCun et al. 1998): private are the training images. As in Papernot et al. 2017 the public set
has 9,000 test images, here the first ones, and the student is measured on the other 1,000.
:func:`mnist_halves` divides them as the code of "Fine-grained Private Knowledge Distillation" (arXiv
2207.13253) does: numpy's legacy generator with seed 42 shuffles the test images. These halves are not the
first and the last 5,000, which NIST took from different writers.

**PneumoniaMNIST**: chest X-rays of children, 28 x 28 grey, normal or pneumonia. The official training and
validation images come from one pool. The official test images come from another: 62 % of them show
pneumonia against 74 %, and every model loses several points there, so figures on them reflect the shift as
much as privacy. Source: Yang et al., "MedMNIST v2", Scientific Data 10:41, 2023; images of Kermany et al.,
Cell 172(5), 2018.

**SVHN**: of the votes that were published with the papers only sums are known. Any assignment of votes to
teachers that is consistent with a row gives the same sum, and so the same campaign; here the 250 teachers
of every row are divided among the parties at random.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from benchmarks.data import Split, data_folder, joined
from pate.data.files import images
from pate.data.values import Dataset, Images, Inputs, Table, is_numeric
from pate.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pate.codes import Code
    from pate.votes import Counts

DIGITS: Final = tuple("0123456789")
#: Training images of all parties together; the rest is public.
_XRAYS_PRIVATE: Final = 3500
_XRAYS_SHUFFLE: Final = 20180222  # of the split, any fixed number
#: Queries of SVHN that the paper asked, from the first on.
_SVHN_QUERIES: Final = 8_500


def mnist() -> Split:
    """Return 60,000 private, 9,000 public and 1,000 test images."""
    note = (
        "label: the digit; unit: record; private: the 60,000 training images; public: the first "
        "9,000 test images; test: the last 1,000"
    )
    return _mnist(np.arange(10_000), 9_000, note)


def mnist_halves() -> Split:
    """Return 60,000 private, 5,000 public and 5,000 test images."""
    note = (
        "label: the digit; unit: record; private: the 60,000 training images; public: "
        "5,000 of the test images, drawn by the paper's seed; test: the other 5,000"
    )
    return _mnist(np.random.RandomState(42).permutation(10_000), 5_000, note)


def _mnist(order: NDArray[np.int64], public: int, note: str) -> Split:
    test = read_mnist("t10k")
    return Split(read_mnist("train"), test.take(order[:public]), test.take(order[public:]), note)


def read_mnist(part: str) -> Dataset:
    """Return the images of ``train`` or ``t10k``."""
    path = data_folder() / "mnist" / "MNIST" / "raw" / f"{part}-images-idx3-ubyte.gz"
    names = images.read_idx_labels(images.labels_beside(path))
    labels = np.array([int(name) for name in names], dtype=np.int64)
    return Dataset(Images(images.read_idx_images(path)), labels, DIGITS)


def pneumonia() -> Split:
    """Return 3,500 private images, the rest of train with val as public, the official test.

    The official validation images may choose settings.
    """
    file = data_folder() / "medmnist" / "pneumoniamnist.npz"
    with np.load(file, allow_pickle=False) as held:
        train, val, test = (
            Dataset(
                Images(held[f"{name}_images"][..., None]),
                held[f"{name}_labels"].reshape(-1).astype(np.int64),
                ("normal", "pneumonia"),
            )
            for name in ("train", "val", "test")
        )
    order = np.random.default_rng(_XRAYS_SHUFFLE).permutation(len(train))
    private, rest = (train.take(np.sort(rows)) for rows in np.split(order, [_XRAYS_PRIVATE]))
    public = joined(rest, val)
    share = float(np.mean(test.labels))
    note = (
        f"{len(private):,} of train over the parties, public the other {len(public):,} of train "
        f"and val, tested on the official {len(test)}, {share:.1%} pneumonia, which come from "
        "another pool; an image is a record"
    )
    return Split(private, public, test, note, validation=val)


@dataclass(frozen=True, eq=False)
class PublishedTeachers:
    """A part of the published teachers, as a party's ensemble that looks up its votes.

    Each row of ``votes`` (queries, classes) sums to ``teachers``.
    """

    votes: Counts
    classes: tuple[str, ...]
    teachers: int
    unit: str = "record"
    answer: str = "class"

    @property
    def schema(self) -> str:
        """The schema of queries, which are row numbers: no images are needed."""
        return numbered(1).schema()

    @property
    def fingerprint(self) -> bytes:
        """SHA-256 of the votes."""
        return hashlib.sha256(self.votes.tobytes()).digest()

    def conform(self, inputs: Inputs) -> Inputs:
        """Return the inputs, if they are row numbers."""
        if inputs.schema() != self.schema:
            raise SchemaError(f"published votes are for {self.schema}, got {inputs.schema()}")
        return inputs

    def vote(
        self, public: Inputs, rows: Sequence[int], classes: Sequence[str], _code: Code
    ) -> Counts:
        """Return the votes on the rows of these numbers."""
        assert isinstance(public, Table)
        assert tuple(classes) == self.classes
        (numbers,) = public.take(list(rows)).columns
        assert is_numeric(numbers)
        return self.votes[numbers.astype(np.int64)]


def numbered(count: int) -> Table:
    """Return a public set of row numbers."""
    return Table(("row",), (np.arange(count, dtype=np.float64),))


def svhn_votes() -> Split:
    """Return the public set of row numbers with its true labels, in the place of every part."""
    truth = np.load(data_folder() / "svhn" / "svhn_test_labels.npy", allow_pickle=False)
    labels = truth[:_SVHN_QUERIES].astype(np.int64)
    public = Dataset(numbered(_SVHN_QUERIES), labels, DIGITS)
    return Split(public, public, public, "the images are not here: published votes")


def svhn_teachers(parties: int) -> list[PublishedTeachers]:
    """Return the parties' teachers; their number divides 250."""
    path = data_folder() / "pate_votes" / "svhn_250_teachers.npy"
    votes = np.load(path, allow_pickle=False)[:_SVHN_QUERIES].astype(np.int64)
    dealt = deal_votes(votes, parties, np.random.default_rng(0))
    return [PublishedTeachers(part, DIGITS, int(votes[0].sum()) // parties) for part in dealt]


def deal_votes(votes: Counts, parties: int, random: np.random.Generator) -> list[Counts]:
    """Return one (queries, classes) matrix per party that add up to ``votes``, each row at random.

    All rows of ``votes`` have one sum, which ``parties`` divides.
    """
    queries, classes = votes.shape
    cast = np.repeat(np.tile(np.arange(classes), queries), votes.ravel()).reshape(queries, -1)
    dealt = random.permuted(cast, axis=1).reshape(queries, parties, -1)
    found = []
    for party in range(parties):
        counts: NDArray[np.int64] = np.zeros((queries, classes), dtype=np.int64)
        np.add.at(counts, (np.arange(queries)[:, None], dealt[:, party]), 1)
        found.append(counts)
    return found
