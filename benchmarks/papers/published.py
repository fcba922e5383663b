"""The votes published with the papers, divided among five parties.

Only sums were published. Any assignment of votes to teachers that is consistent with a row gives
the same sum, and so the same campaign; here the 250 teachers of every row are divided at random.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from benchmarks.papers.data import data_folder
from pate.data.values import Dataset, Inputs, Table, is_numeric
from pate.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from benchmarks.papers.campaign import Source
    from pate.votes import Counts

#: By name: number of queries that the paper asked, from the first on, and the names of the classes.
PUBLISHED: Final = {"svhn": (8_500, tuple("0123456789"))}


@dataclass(frozen=True, eq=False)
class PublishedTeachers:
    """A part of the published teachers, as a party's ensemble that looks up its votes.

    Attributes:
        votes: (queries, classes) int64; each row sums to ``teachers``.
        classes: names of the columns.
        teachers: k.
    """

    votes: Counts
    classes: tuple[str, ...]
    teachers: int
    unit: str = "record"

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

    def vote(self, inputs: Inputs, classes: Sequence[str]) -> Counts:
        """Return the votes on the rows of these numbers."""
        assert isinstance(inputs, Table)
        assert tuple(classes) == self.classes
        (rows,) = inputs.columns
        assert is_numeric(rows)
        return self.votes[rows.astype(np.int64)]


def numbered(count: int) -> Table:
    """Return a public set of row numbers."""
    return Table(("row",), (np.arange(count, dtype=np.float64),))


def published(name: str, parties: int) -> tuple[list[Source], Dataset]:
    """Return the parties' teachers, and the public set with its true labels. Needs PATE_TEST_DATA.

    Args:
        name: one of :data:`PUBLISHED`.
        parties: number of parties; it divides the number of teachers.

    Raises:
        SystemExit: if the data are not there.
    """
    queries, classes = PUBLISHED[name]
    held = np.load(data_folder() / "pate_votes" / f"{name}_250_teachers.npy", allow_pickle=False)
    votes = held[:queries].astype(np.int64)
    truth = np.load(data_folder() / name / f"{name}_test_labels.npy", allow_pickle=False)
    parts = deal_votes(votes, parties, np.random.default_rng(0))
    teachers = int(votes[0].sum()) // parties
    return [PublishedTeachers(part, classes, teachers) for part in parts], Dataset(
        numbered(queries), truth[:queries].astype(np.int64), classes
    )


def deal_votes(votes: Counts, parties: int, random: np.random.Generator) -> list[Counts]:
    """Return one (queries, classes) matrix per party that add up to ``votes``.

    Args:
        votes: (queries, classes); all rows have one sum, which ``parties`` divides.
        parties: number of parties.
        random: assigns the votes of every row independently.
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
