"""A party's teachers as voters: what all of them cast on queries of a public set, by a code.

Teachers of one release, of which only the mean counts, are by default one weak ridge regression a shard
(:class:`Averaged`), in features of the public set (:func:`pate.features.space.space_over`), as the
student's are. The sum of many teachers' answers averages out their variance, not their bias. So the penalty
is weak, a tenth of what is best for one teacher by itself, by leave-one-out on its shard, and less where a
whole party is the unit. Such a teacher is
linear in closed form: nothing is trained ahead or stored, and a thousand take seconds. It depends on its
shard and the public set, to the last bit: each is computed by itself.

Source: Zhang, Duchi and Wainwright, "Divide and conquer kernel ridge regression", JMLR 16, 2015.
"""

from __future__ import annotations

import hashlib
import itertools
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from party.teachers.linear import OF_MANY, fit_ridge
from party.teachers.protocol import NO_OPINION, AnswersTogether
from party.teachers.schema import OfRecords, plainly, schema_of
from party.teachers.several import votes_of
from pate.answers import BALANCED
from pate.codes import AXES, NEAREST, Code
from pate.errors import SchemaError, UsageError
from pate.features.dense import Axes
from pate.features.progress import Parts
from pate.features.space import space_over

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Literal

    from numpy.typing import NDArray

    from party.teachers.protocol import Kind, Teacher
    from party.teachers.schema import EmbeddingSchema, ImageSchema, TableSchema
    from pate.data.values import Dataset, Inputs
    from pate.votes import Counts

    Wide = NDArray[np.float64]

#: Cells (pixels, or cells of a table) processed at once; bounds the memory of a vote.
_CELLS_AT_ONCE: Final = 1 << 21
_ROWS_AT_ONCE: Final = 4096
#: Records of :class:`Averaged` whose features are computed at a time.
_RECORDS_AT_ONCE: Final = 2048
#: Least score, as a probability, of a class by which balanced votes go.
_LEAST: Final = 1e-3
#: The code of a campaign whose queries are answered one by one, each for a class.
BY_QUERY: Final = Code(NEAREST)


@dataclass(frozen=True, eq=False)
class Ensemble:
    """A party's k teachers."""

    members: tuple[Teacher, ...]
    classes: tuple[str, ...]
    unit: Literal["record", "patient"]  # ``record``, or ``patient`` if groups share a shard
    schema: str
    fingerprint: bytes  # 32 bytes that change when the data or the settings do
    answer: str  # what they say, ``class`` or ``labels``
    _takes: ImageSchema | TableSchema | EmbeddingSchema
    _key: bytes
    _kind: Kind
    # whether teachers without an answer cast nothing, as where a party is added or removed with its teachers
    silent: bool = False

    @property
    def teachers(self) -> int:
        """k, the number of teachers."""
        return len(self.members)

    def silenced(self) -> Ensemble:
        """Return the same teachers, but that those without an answer cast nothing."""
        other = hashlib.sha256(b"pate silent teachers v1\0" + self.fingerprint).digest()
        return replace(self, silent=True, fingerprint=other)

    def conform(self, inputs: Inputs) -> Inputs:
        """Return inputs as the teachers see them: only their columns, in their order."""
        return plainly(self._takes.conform(inputs))

    def vote(
        self, public: Inputs, rows: Sequence[int], classes: Sequence[str], code: Code = BY_QUERY
    ) -> Counts:
        """Return (n, m) int64: what all teachers cast on ``rows`` of ``public``, in units of the code.

        Of a class each row sums to k, of several labels to at most T k. Classes that the party
        lacks get no votes, except from teachers of empty shards, unless these are ``silent``.
        """
        columns = columns_of(self.classes, classes)
        if code.answer.name == BALANCED:
            raise SchemaError(
                "balanced votes need teachers that say how probable a class is: start without --model"
            )
        votes = np.zeros((len(rows), len(classes)), dtype=np.int64)
        if code.name == AXES:
            seen = self.conform(public)
            axes = Axes.fit(space_over(seen).embed(seen), rows)
            said = [self._answers(chunk) for _, chunk in self._chunks(seen)]
            for answers in np.concatenate(said, axis=1):
                known = answers != NO_OPINION
                scores = np.zeros((len(seen), len(classes)))
                scores[known, columns[answers[known]]] = 1.0
                if known.any():
                    votes += axes.array(axes.reading @ scores, scores.mean(axis=0))
            return votes
        for places, chunk in self._chunks(self.conform(public.take(list(rows)))):
            if code.answer.of:
                cast = votes_of(self.members, chunk, len(columns), code.answer.most)
                votes[places[:, None], columns] = cast
                continue
            for number, answers in enumerate(self._answers(chunk)):
                idle = idle_column(self._key, number, len(classes))
                known = answers != NO_OPINION
                cast = np.where(known, columns[answers], idle)
                votes[places, cast] += known if self.silent else 1
        return votes

    def _chunks(self, queries: Inputs) -> Iterator[tuple[NDArray[np.int64], Inputs]]:
        """Yield places and queries in portions of bounded memory."""
        step = max(1, min(_ROWS_AT_ONCE, _CELLS_AT_ONCE // self._takes.cells))
        for start in range(0, len(queries), step):
            chunk = queries.take(range(start, min(start + step, len(queries))))
            yield np.arange(start, start + len(chunk)), chunk

    def _answers(self, queries: Inputs) -> NDArray[np.int64]:
        """Return (k, n) int64: each teacher's class for each query, or :data:`NO_OPINION`."""
        if isinstance(self._kind, AnswersTogether):
            return self._kind.predict_many(self.members, len(self.classes), queries)
        return np.stack([member.predict(queries) for member in self.members])


@dataclass(frozen=True, eq=False)
class Averaged(OfRecords):
    """A party's k teachers, of which only the mean counts; a secret ``key`` decides shards."""

    records: Dataset
    teachers: int
    key: bytes
    penalty: float = OF_MANY  # as a share of what is best for one teacher by itself
    silent: bool = False  # whether teachers of empty shards cast nothing

    name = "averaged"

    @property
    def version(self) -> str:
        """A version that changes when these teachers would: stored votes are of one penalty."""
        penalty = "" if self.penalty == OF_MANY else f", penalty {self.penalty!r}"
        return f"1{penalty}{', silent' if self.silent else ''}"

    @cached_property
    def _hashes(self) -> Sequence[bytes]:
        return self.records.row_hashes()

    @cached_property
    def fingerprint(self) -> bytes:
        """32 bytes that change when the data or the settings do."""
        return fingerprint_of(self.records, self._hashes, self.teachers, self, self.key)

    def conform(self, inputs: Inputs) -> Inputs:
        """Return inputs with only the records' columns, in their order; SchemaError for other inputs."""
        return plainly(schema_of(self.records.inputs).conform(inputs))

    def vote(
        self, public: Inputs, rows: Sequence[int], classes: Sequence[str], code: Code
    ) -> Counts:
        """Return what all teachers cast in one release, as :meth:`Ensemble.vote` does; balanced votes too."""
        assert code.of_teachers  # noqa: S101 - their votes depend on the whole public set
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
            for start in range(0, len(self.records), _RECORDS_AT_ONCE):
                some = range(start, min(start + _RECORDS_AT_ONCE, len(self.records)))
                described[some.start : some.stop] = space.embed(self.records.inputs.take(some))
            described -= middle
        shards = split(self.records, self._hashes, self.teachers, self.key)
        for number, shard in enumerate(shards):
            if not len(shard):
                if axes is None and not self.silent:
                    votes[:, idle_column(self.key, number, len(classes))] += 1
                continue
            labels = columns[self.records.labels[shard]]
            ridge = fit_ridge(described[shard], labels, len(classes), self.penalty)
            # Of indicators -1 and 1 the shares are half of the sum with 1.
            scores, level = looked @ ridge.weights / 2, (ridge.bias + 1) / 2
            if axes is None:
                votes += _one_hot(scores + level, balanced=code.answer.name == BALANCED)
            else:
                votes += axes.array(scores, level.astype(np.float64))
        return votes


def columns_of(own: Sequence[str], classes: Sequence[str]) -> NDArray[np.int64]:
    """Return the campaign's column of each of the party's classes."""
    place = {name: at for at, name in enumerate(classes)}
    unknown = [name for name in own if name not in place]
    if unknown:
        raise SchemaError(
            f"our data has classes that the campaign lacks: {', '.join(unknown)}; "
            f"the campaign's are {', '.join(classes)}"
        )
    return np.array([place[name] for name in own], dtype=np.int64)


def _one_hot(scores: Wide, *, balanced: bool) -> Counts:
    """Return (n, m) one vote a row: of the largest score, or the largest relative to its mean."""
    if balanced:
        chances = np.clip(scores, _LEAST, 1.0)
        chances /= chances.sum(axis=1, keepdims=True)
        scores = chances / chances.mean(axis=0)
    made = np.zeros(scores.shape, dtype=np.int64)
    made[np.arange(len(scores)), scores.argmax(axis=1)] = 1
    return made


# --- shards, and what else decides a teacher ------------------------------------------------------
# Each record belongs to one shard, decided by a keyed hash of the record itself, or of its group
# (patient) if people have several records. So a record that is added or removed moves no other record
# to another shard, which is what limits its influence to one teacher's vote: the sensitivity of the
# histogram that the accounting of PATE starts from (Papernot et al. 2017, section 2). Splitting by
# position would not work: one more record would shift all later ones.
#
# Two records that are equal in every cell and label get the same hash and so the same teacher, as
# intended: such duplicates often belong to one person. The label is that of the party's file, however
# a campaign's class list names it; another schema is another reading of the records.
#
# The key prevents outsiders from constructing records that share a shard. Shards differ in size like
# balls thrown into bins, and with few records a shard may be empty; see
# :class:`party.teachers.protocol.Constant` for how its teacher votes.


_RECORD: Final = b"pate shard rec"
_GROUP: Final = b"pate shard grp"
# 128 bits modulo the number of teachers: the bias is below 2^-100.
_DIGEST_BYTES: Final = 16


class Described(Protocol):
    """What is known of a kind of teachers in a fingerprint."""

    @property
    def name(self) -> str:
        """The kind's name."""

    @property
    def version(self) -> str:
        """A version that changes when teachers of this kind would change."""


def assign_shards(
    dataset: Dataset, teachers: int, key: bytes, *, row_hashes: Sequence[bytes] | None = None
) -> NDArray[np.int64]:
    """Return (n,) the shard of each record, 0 to k - 1; one for all records of a group, by the key."""
    if teachers < 1:
        raise UsageError(f"the number of teachers is {teachers}; it must be 1 or more")
    if dataset.groups is None:
        units = dataset.row_hashes() if row_hashes is None else row_hashes
        person = _RECORD
    else:
        units = [name.encode() for name in dataset.groups.tolist()]
        person = _GROUP
    shards = (
        int.from_bytes(
            hashlib.blake2b(unit, digest_size=_DIGEST_BYTES, key=key, person=person).digest(), "big"
        )
        % teachers
        for unit in units
    )
    return np.fromiter(shards, dtype=np.int64, count=len(units))


def split(
    dataset: Dataset, hashes: Sequence[bytes], teachers: int, key: bytes
) -> list[NDArray[np.int64]]:
    """Return the records of each teacher, in an order of their content: not of their places in a file."""
    shards = assign_shards(dataset, teachers, key, row_hashes=hashes)
    order = np.array(sorted(range(len(hashes)), key=hashes.__getitem__), dtype=np.int64)
    together = order[np.argsort(shards[order], kind="stable")]
    bounds = np.searchsorted(np.sort(shards), np.arange(teachers + 1))
    return [together[start:end] for start, end in itertools.pairwise(bounds.tolist())]


def seed_of(key: bytes, number: int) -> int:
    """Return the 63 bits that decide the randomness of a teacher."""
    return _derive(key, f"teacher {number}")


def idle_column(key: bytes, number: int, classes: int) -> int:
    """Return the column of a teacher without an answer; see :class:`party.teachers.protocol.Constant`."""
    return _derive(key, f"idle {number}") % classes


def fingerprint_of(
    dataset: Dataset, hashes: Sequence[bytes], teachers: int, kind: Described, key: bytes
) -> bytes:
    """Return the SHA-256 digest of everything that determines the teachers."""
    whole = hashlib.sha256(b"pate teachers v1\0")
    settings = [dataset.inputs.schema(), str(teachers), kind.name, kind.version, *dataset.classes]
    settings.append("record" if dataset.groups is None else "patient")
    for text in settings:
        whole.update(hashlib.sha256(text.encode()).digest())
    whole.update(hashlib.blake2b(b"fingerprint", key=key, digest_size=32).digest())
    records = hashes
    if dataset.groups is not None:
        groups = dataset.groups.tolist()
        records = [
            row + hashlib.sha256(group.encode()).digest()
            for row, group in zip(hashes, groups, strict=True)
        ]
    for record in sorted(records):
        whole.update(record)
    return whole.digest()


def _derive(key: bytes, purpose: str) -> int:
    """Return 63 bits that depend only on the key and the purpose."""
    digest = hashlib.blake2b(purpose.encode(), key=key, digest_size=8, person=b"pate teachers")
    return int.from_bytes(digest.digest(), "big") >> 1
