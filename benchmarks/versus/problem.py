"""A data set as all methods see it: the same records, in parts that share no unit, and public features.

Whatever features need (means, directions, steps) is fitted on the public set, so it costs no method
any privacy. Validation records are labelled, neither private nor test: they choose settings.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from benchmarks.papers.split import Split, deal, units_in
from pate.data.embeddings import Embeddings
from pate.data.values import Dataset, Images, Table
from pate.errors import UsageError
from pate.features.space import directions_over, space_over
from student.trainers.encoding import learn_encoding

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from pate.data.values import Inputs

    Floats = NDArray[np.float32]
    Ints = NDArray[np.int64]

#: Figures that settings are chosen by.
Goal = Literal["accuracy", "auc"]
#: The part of the public set whose labels choose settings, unless the data have such records.
VALIDATION: Final = 1 / 3
_MOST_VALIDATION: Final = 3_000
_SHUFFLE: Final = 20
#: Rows are scaled to length 1 in root mean square, and longer ones than this cut to it.
LONGEST: Final = 1.5
#: Images whose features are computed at a time.
_AT_ONCE: Final = 2048


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
        name: on the command line.
        title: on the page.
        split: its parts, validation among them.
        goal: the figure by which settings are chosen.
        parties: their number.
        fixed: rows of the private part that each party has; None: dealt at random.
    """

    name: str
    title: str
    split: Split
    goal: Goal = "accuracy"
    parties: int = 5
    fixed: tuple[Ints, ...] | None = None
    _kinds: dict[str, Rows] = field(default_factory=dict)
    _whole: dict[str, list[Floats]] = field(default_factory=dict)

    @property
    def validation(self) -> Dataset:
        """The records that choose settings."""
        assert self.split.validation is not None  # problem_of sees to it
        return self.split.validation

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(self.split.private.classes)

    @property
    def unit(self) -> Literal["record", "patient"]:
        """What is protected."""
        return "record" if self.split.private.groups is None else "patient"

    @cached_property
    def units(self) -> int:
        """The number of private units."""
        return units_in(self.split.private)

    def parts(self, dealing: int) -> tuple[Ints, ...]:
        """Return the private rows of each party in one dealing."""
        if self.fixed is not None:
            return self.fixed
        number = np.arange(len(self.split.private), dtype=np.float64)
        numbered = replace(self.split.private, inputs=Table(("row",), (number,)))
        return tuple(_only_column(part) for part in deal(numbered, self.parties, dealing))

    @property
    def kinds(self) -> tuple[str, ...]:
        """Names of the kinds of features that linear models and networks may have."""
        inputs = self.split.private.inputs
        if isinstance(inputs, Table):
            return ("columns", "steps")
        return ("pca-64", "pca-256")

    def rows(self, kind: str) -> Rows:
        """Return the features of one kind."""
        if kind not in self._kinds:
            self._kinds[kind] = self._made(kind)
        return self._kinds[kind]

    def _made(self, kind: str) -> Rows:
        parts = self._middled(kind.partition("-")[0])
        if kind.startswith("pca-"):
            _, moments, axes = np.linalg.svd(parts[0], full_matrices=False)
            kept = axes[: min(int(kind[4:]), int((moments > 1e-6 * moments[0]).sum()))]
            parts = [part @ kept.T for part in parts]
        usual = float(np.sqrt(np.square(parts[0]).sum(axis=1).mean()))
        made = [_cut(part / usual) for part in parts]
        assert len(made[1]) == len(self.split.private)
        return Rows(made[1], made[2], made[3], made[0])

    def _middled(self, kind: str) -> list[Floats]:
        """Return the features of the public, private, validation and test part, less their public mean."""
        if kind not in self._whole:
            embed = _embedding(self.split.queries, kind)
            parts = [embed(part) for part in (self.split.queries, *self._labelled())]
            middle = parts[0].mean(axis=0)
            self._whole[kind] = [part - middle for part in parts]
        return self._whole[kind]

    def _labelled(self) -> tuple[Inputs, Inputs, Inputs]:
        return self.split.private.inputs, self.validation.inputs, self.split.test.inputs

    def rehearsal(self) -> Problem:
        """Return the same with one half of the validation records as private ones, the other as validation.

        They are repeated until they are as many as the private records, so that the noise has the same
        weight. What is chosen with them has seen no private record.
        """
        spent = self.validation
        units = np.arange(len(spent)) if spent.groups is None else spent.groups
        names = np.unique(units)
        voting = np.isin(units, np.random.default_rng(_SHUFFLE).permutation(names)[::2])
        first, other = (np.flatnonzero(chosen) for chosen in (voting, ~voting))
        if spent.groups is not None:  # a patient votes with one record
            first = first[np.unique(spent.groups[first], return_index=True)[1]]
        taken = np.resize(first, len(self.split.private))
        private = spent.take(taken)
        if spent.groups is not None:
            copy = np.arange(len(taken)) // len(first)
            groups = np.char.add(spent.groups[taken].astype(np.str_), np.char.mod("#%d", copy))
            private = replace(private, groups=groups)
        split = replace(self.split, private=private, validation=spent.take(other))
        return replace(self, split=split, fixed=None, _kinds={}, _whole={})


def problem_of(
    name: str,
    title: str,
    split: Split,
    *,
    goal: Goal = "accuracy",
    sites: Sequence[Dataset] | None = None,
) -> Problem:
    """Return a problem; without validation records a part of the public set becomes them.

    Args:
        name: of the data set.
        title: of the data set.
        split: its parts.
        goal: the figure by which settings are chosen.
        sites: the parties' records in the order of the private part; None: they are dealt.

    Raises:
        UsageError: if the sites are not the private part.
    """
    if split.validation is None:
        split = _with_validation(split)
    if sites is None:
        return Problem(name, title, split, goal)
    ends = np.cumsum([len(site) for site in sites])
    if ends[-1] != len(split.private):
        raise UsageError("the sites are not the private part")
    fixed = tuple(np.split(np.arange(ends[-1]), ends[:-1]))
    return Problem(name, title, split, goal, len(sites), fixed)


def _with_validation(split: Split) -> Split:
    public = split.public
    units = np.arange(len(public)) if public.groups is None else public.groups
    names = np.random.default_rng(_SHUFFLE).permutation(np.unique(units))
    number = min(round(len(names) * VALIDATION), _MOST_VALIDATION)
    spent = np.isin(units, names[:number])
    return replace(
        split,
        public=public.take(np.flatnonzero(~spent)),
        validation=public.take(np.flatnonzero(spent)),
    )


def _embedding(public: Inputs, kind: str) -> Callable[[Inputs], Floats]:
    """Return the features of one kind, before they are scaled."""
    if isinstance(public, Table):
        if kind == "columns":
            return learn_encoding(public).encode
        return directions_over(public).embed
    if isinstance(public, Embeddings):
        return _points
    assert isinstance(public, Images)  # there is nothing else
    space = space_over(public, "scattering")

    def scattered(inputs: Inputs) -> Floats:
        pieces = [
            space.embed(inputs.take(range(start, min(start + _AT_ONCE, len(inputs)))))
            for start in range(0, len(inputs), _AT_ONCE)
        ]
        return np.concatenate(pieces)

    return scattered


def _points(inputs: Inputs) -> Floats:
    assert isinstance(inputs, Embeddings)  # as the public set
    return inputs.points().astype(np.float32)


def _only_column(part: Dataset) -> Ints:
    assert isinstance(part.inputs, Table)
    return np.asarray(part.inputs.columns[0]).astype(np.int64)


def _cut(rows: Floats) -> Floats:
    length = np.sqrt(np.square(rows).sum(axis=1, keepdims=True))
    made: Floats = (rows * np.minimum(1, LONGEST / np.maximum(length, 1e-12))).astype(np.float32)
    return made
