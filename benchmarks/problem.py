"""A data set as all methods see it: the same records, in parts that share no unit, and public features.

Whatever features need (means, directions, steps) is fitted on the public set, so it costs no method
any privacy. Validation records are labelled, neither private nor test: they choose settings.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from benchmarks.data import Split, data_folder, deal, encoded, glyph, images, tables, units_in
from benchmarks.rows import DATA
from pate.data.embeddings import Embeddings
from pate.data.values import Dataset, Images, Table
from pate.errors import DataError
from pate.features.space import directions_over, space_over
from student.fit.encoding import learn_encoding

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from benchmarks.rows import Row
    from pate.data.values import Inputs

    Floats = NDArray[np.float32]
    Ints = NDArray[np.int64]

#: The part of a comparison's public set whose labels choose settings, unless the data have such records.
_VALIDATION: Final = 1 / 3
_MOST_VALIDATION: Final = 3_000
_SHUFFLE: Final = 20
#: Rows are scaled to length 1 in root mean square, and longer ones than this cut to it.
LONGEST: Final = 1.5
#: Images whose features are computed at a time.
_AT_ONCE: Final = 2048
_PLAIN: Final[dict[str, Callable[[], Split]]] = {
    "heart": tables.heart,
    "adult": tables.adult,
    "diabetes": tables.diabetes,
    "diabetes-readmitted": partial(tables.asked, "readmitted"),
    "diabetes-groups": partial(tables.asked, "groups"),
    "diabetes-days": partial(tables.asked, "days"),
    "mnist": images.mnist,
    "mnist-halves": images.mnist_halves,
    "pneumonia": images.pneumonia,
    "glyph": glyph.glyph,
    "svhn-votes": images.svhn_votes,
}
_ENCODED: Final[dict[str, Callable[[encoded.Embed], Split]]] = {
    "ag-news": encoded.ag_news,
    "banking77": encoded.banking77,
    "sst2": encoded.sst2,
    "cifar10": encoded.cifar10,
    "brain-mri": encoded.brain_mri,
}


@dataclass(frozen=True, eq=False)
class Rows:
    """One kind of features of all labelled parts: (n, width) float32, no row longer than ``LONGEST``."""

    private: Floats
    validation: Floats
    test: Floats
    public: Floats


@dataclass(frozen=True, eq=False)
class Problem:
    """One data set.

    Attributes:
        name: of the data set.
        split: its parts.
        chooser: the figure by which settings are chosen.
        parties: their number.
        encoder: of the inputs, in words.
        fewer: of a trial: how many times more units vote in the row itself.
        by_party: whether all records of a party are protected.
    """

    name: str
    split: Split
    chooser: str = "accuracy"
    parties: int = 5
    encoder: str = ""
    fewer: float = 1.0
    by_party: bool = False
    _kinds: dict[str, Rows] = field(default_factory=dict)
    _whole: dict[str, list[Floats]] = field(default_factory=dict)

    @property
    def validation(self) -> Dataset:
        """The records that choose settings: where the data have none, the public ones, with their labels."""
        return self.split.public if self.split.validation is None else self.split.validation

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(self.split.private.classes)

    @property
    def unit(self) -> Literal["record", "patient", "party"]:
        """What is protected."""
        if self.by_party:
            return "party"
        return "record" if self.split.private.groups is None else "patient"

    @cached_property
    def units(self) -> int:
        """The number of private units."""
        return units_in(self.split.private)

    def parts(self, dealing: int) -> tuple[Ints, ...]:
        """Return the private rows of each party in one dealing."""
        if sizes := self.split.sizes:
            return tuple(np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1]))
        return deal(self.split.private, self.parties, dealing)

    def trial(self, number: int) -> Problem:
        """Return a trial: half of the public part votes at the other half, whose labels judge it."""
        public = self.split.public
        voters, others = (public.take(rows) for rows in deal(public, 2, number))
        split = Split(voters, others, others, self.split.note)
        fewer = self.units / units_in(voters)
        return replace(self, split=split, fewer=fewer, _kinds={}, _whole={})

    @property
    def kinds(self) -> tuple[str, ...]:
        """Names of the kinds of features that linear models and networks may have."""
        if isinstance(self.split.private.inputs, Table):
            return ("columns", "kernel")
        return ("pca-64", "pca-256")

    def rows(self, kind: str) -> Rows:
        """Return the features of one kind."""
        if kind not in self._kinds:
            parts = self._middled(kind.partition("-")[0])
            if kind.startswith("pca-"):
                _, moments, axes = np.linalg.svd(parts[0], full_matrices=False)
                kept = axes[: min(int(kind[4:]), int((moments > 1e-6 * moments[0]).sum()))]
                parts = [part @ kept.T for part in parts]
            usual = float(np.sqrt(np.square(parts[0]).sum(axis=1).mean()))
            public, private, validation, test = (_cut(part / usual) for part in parts)
            self._kinds[kind] = Rows(private, validation, test, public)
        return self._kinds[kind]

    def _middled(self, kind: str) -> list[Floats]:
        """Return the features of the public, private, validation and test part, less their public mean."""
        if kind not in self._whole:
            split = self.split
            embed = embedding(split.queries, kind)
            labelled = (split.private.inputs, self.validation.inputs, split.test.inputs)
            parts = [embed(part) for part in (split.queries, *labelled)]
            middle = parts[0].mean(axis=0)
            self._whole[kind] = [part - middle for part in parts]
        return self._whole[kind]


def load(row: Row, work: Path) -> Problem:
    """Return the data of a row, with embeddings stored in a folder."""
    data = DATA[row.data]
    if missing := [name for name in data.files if not (data_folder() / name).exists()]:
        raise DataError(
            f"{row.name}: {', '.join(missing)} of PATE_TEST_DATA would make this row run"
        )
    words = ""
    if data.encoder:
        reader = encoded.reader_of(data.encoder, work)
        split, words = _ENCODED[row.data](partial(encoded.embeddings, reader)), reader.words
    else:
        split = _PLAIN[row.data]()
    if row.epsilons and split.validation is None:
        split = with_validation(split)
    if not row.every_column:
        split = replace(split, whole=None)
    return Problem(
        row.data, split, row.chooser, row.parties or data.parties, words,
        by_party=row.unit == "party",
    )  # fmt: skip


def with_validation(split: Split) -> Split:
    """Return the split with a part of the public set as validation records."""
    public = split.public
    units = np.arange(len(public)) if public.groups is None else public.groups
    names = np.random.default_rng(_SHUFFLE).permutation(np.unique(units))
    number = min(round(len(names) * _VALIDATION), _MOST_VALIDATION)
    spent = np.isin(units, names[:number])
    return replace(
        split,
        public=public.take(np.flatnonzero(~spent)),
        validation=public.take(np.flatnonzero(spent)),
    )


def embedding(public: Inputs, kind: str) -> Callable[[Inputs], Floats]:
    """Return the features of one kind, before they are scaled; fitted on the public set."""
    if isinstance(public, Table):
        return learn_encoding(public).encode if kind == "columns" else directions_over(public).embed
    if isinstance(public, Embeddings):
        return points
    assert isinstance(public, Images)
    space = space_over(public, "scattering")

    def scattered(inputs: Inputs) -> Floats:
        pieces = [
            space.embed(inputs.take(range(start, min(start + _AT_ONCE, len(inputs)))))
            for start in range(0, len(inputs), _AT_ONCE)
        ]
        return np.concatenate(pieces)

    return scattered


def points(inputs: Inputs) -> Floats:
    """Return embeddings as they are."""
    assert isinstance(inputs, Embeddings)
    return inputs.points().astype(np.float32)


def _cut(rows: Floats) -> Floats:
    length = np.sqrt(np.square(rows).sum(axis=1, keepdims=True))
    made: Floats = (rows * np.minimum(1, LONGEST / np.maximum(length, 1e-12))).astype(np.float32)
    return made
