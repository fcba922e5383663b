"""Teachers whose mean counts: one weak ridge regression a shard, in features of the public set.

The sum of many teachers' answers averages out their variance, not their bias. So the penalty is weak, a tenth
of what is best for one teacher by itself, by leave-one-out on its shard. Features are those of the public set
(:func:`pate.features.space.space_over`), as the student's are. A teacher is linear in closed form:
nothing is trained ahead or stored, and a thousand take seconds.

A teacher depends on its shard and the public set, to the last bit: each is computed by itself.

Source: Zhang, Duchi and Wainwright, "Divide and conquer kernel ridge regression", JMLR 16, 2015.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from party.teachers.ridge import OF_MANY, fit_ridge
from party.teachers.schema import OfRecords, schema_of
from party.teachers.shards import assign_shards
from party.teachers.training import columns_of, digest_of, idle_column
from pate.answers import BALANCED
from pate.codes import AXES, Code
from pate.data.values import Table
from pate.features.axes import Axes
from pate.features.progress import Parts
from pate.features.space import space_over

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from pate.data.values import Dataset, Inputs
    from pate.votes import Counts

    Wide = NDArray[np.float64]

#: Least score, as a probability, of a class by which balanced votes go.
_LEAST: Final = 1e-3
_AT_ONCE: Final = 2048


@dataclass(frozen=True, eq=False)
class Averaged(OfRecords):
    """A party's k teachers, of which only the mean counts.

    Attributes:
        records: of the party, with a class each.
        teachers: k.
        key: the party's secret that decides shards, at most 64 bytes.
    """

    records: Dataset
    teachers: int
    key: bytes

    name = "averaged"
    version = "1"

    @cached_property
    def fingerprint(self) -> bytes:
        """32 bytes that change when the data or the settings do."""
        return digest_of(self.records, self.records.row_hashes(), self.teachers, self, self.key)

    def conform(self, inputs: Inputs) -> Inputs:
        """Return inputs with only the records' columns, in their order; SchemaError for other inputs."""
        found = schema_of(self.records.inputs).conform(inputs)
        return found.plain() if isinstance(found, Table) else found

    def vote_once(
        self, public: Inputs, rows: Sequence[int], classes: Sequence[str], code: Code
    ) -> Counts:
        """Return what all teachers cast in one release.

        Args:
            public: the whole public set.
            rows: of it: the queries, or the representatives of directions.
            classes: the campaign's m classes.
            code: of teachers, for a class.

        Returns:
            (places, m) int64, in units of the code.

        Raises:
            SchemaError: if a class of the party is not in ``classes``, or the public set is not of the kind
                of the data.
            DataError: if the public set has no directions.
        """
        columns = columns_of(self.classes, classes)
        seen = self.conform(public)
        parts = Parts(len(seen), len(seen), len(self.records) + 1)
        with parts.next():
            space = space_over(seen)
        with parts.next():
            points = space.embed(seen)
        middle = points.mean(axis=0, dtype=np.float64).astype(np.float32)
        axes = Axes.fit(points, rows) if code.name == AXES else None
        # Of an answer to the whole public set only its array is wanted.
        apart = points - middle
        looked = apart[list(rows)] if axes is None else axes.reading @ apart
        votes = np.zeros((len(rows), len(classes)), dtype=np.int64)
        with parts.next():
            described = np.zeros((len(self.records), space.width), dtype=np.float32)
            for start in range(0, len(self.records), _AT_ONCE):
                some = range(start, min(start + _AT_ONCE, len(self.records)))
                described[some.start : some.stop] = space.embed(self.records.inputs.take(some))
            described -= middle
        for number, shard in enumerate(self._shards()):
            if not len(shard):
                if axes is None:
                    votes[:, idle_column(self.key, number, len(classes))] += 1
                continue
            labels = columns[self.records.labels[shard]]
            ridge = fit_ridge(described[shard], labels, len(classes), OF_MANY)
            # Of indicators -1 and 1 the shares are half of the sum with 1.
            scores, level = looked @ ridge.weights / 2, (ridge.bias + 1) / 2
            if axes is None:
                votes += _one_hot(scores + level, balanced=code.answer.name == BALANCED)
            else:
                votes += axes.array(scores, level.astype(np.float64))
        return votes

    def _shards(self) -> Iterator[NDArray[np.int64]]:
        """Yield the records of each teacher, in an order of their content."""
        hashes = self.records.row_hashes()
        shards = assign_shards(self.records, self.teachers, self.key, row_hashes=hashes)
        order = np.array(sorted(range(len(hashes)), key=hashes.__getitem__), dtype=np.int64)
        bounds = np.searchsorted(np.sort(shards), np.arange(self.teachers + 1))
        together = order[np.argsort(shards[order], kind="stable")]
        for start, end in itertools.pairwise(bounds.tolist()):
            yield together[start:end]


def _one_hot(scores: Wide, *, balanced: bool) -> Counts:
    """Return (n, m) one vote a row: of the largest score, or the largest relative to its mean."""
    if balanced:
        chances = np.clip(scores, _LEAST, 1.0)
        chances /= chances.sum(axis=1, keepdims=True)
        scores = chances / chances.mean(axis=0)
    made = np.zeros(scores.shape, dtype=np.int64)
    made[np.arange(len(scores)), scores.argmax(axis=1)] = 1
    return made
